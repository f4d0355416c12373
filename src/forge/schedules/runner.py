"""Runs due schedules: each time once, even if other processes use the same store."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import suppress
from os import urandom

from forge.core.errors import ToolError
from forge.core.execution.threads import in_thread
from forge.core.plain_values import text_of
from forge.schedules.schedule import ClaimRefusal, Due, Schedule, ScheduleOutcome, ScheduleRun, SharedClaims, Status
from forge.schedules.store import ScheduleStore
from forge.schedules.tables import Claim
from forge.workspace.state.store import StoreError

PARALLEL = 4  # runs at once, in one process
POLL = 5.0  # seconds until a change by another process, or of the clock, is noticed
BEAT = 10.0  # seconds between two heartbeats: several fit into a lease
ATTEMPTS = 30  # to store how a run ended, a second apart, if the store is busy or the disk is full
SHORTEST_NAP = 0.05  # seconds
GRACE = 10.0  # seconds that cancelled runs have to end
RELEASE = 5.0  # seconds to release a shared claim

log = logging.getLogger(__name__)


class Runner:
    """Runs schedules when they are due. Exceptions of `run` become failed runs.

    Args:
        store: the schedules. The time is the store's.
        run: does the work of one schedule.
        report: receives every run when it begins and when it ends, and each skipped or lost run.
        parallel: how many runs at once.
        timeout: the seconds that one run may take; None: no limit.
        wait: waits for the next due time; tests replace it.
        shared: where each time is claimed as well, since workers may fire the same schedules from another store.

    Example:
        >>> Runner(ScheduleStore(None), run=lambda schedule: None).store.list()
        []
    """

    def __init__(
        self,
        store: ScheduleStore,
        run: Callable[[Schedule], Awaitable[ScheduleOutcome]],
        *,
        report: Callable[[ScheduleRun], None] = lambda run: None,
        parallel: int = PARALLEL,
        timeout: float | None = None,
        wait: Callable[[float], Awaitable[None]] = asyncio.sleep,
        shared: SharedClaims | None = None,
    ) -> None:
        self.store = store
        self.shared = shared
        self.report = report
        self.parallel = parallel
        self.timeout = timeout
        self.owner = urandom(8).hex()
        self._run = run
        self._wait = wait
        self._active: dict[int, asyncio.Task[ScheduleRun | None]] = {}
        self._overtaken: set[int] = set()
        self._freed: asyncio.Event | None = None

    async def forever(self) -> None:
        """Runs due schedules until it is cancelled. Active runs are then cancelled, too, and stored as cancelled.

        Raises `StoreError` if the store was damaged and set aside, since the plans are lost with it.
        """
        self._freed = asyncio.Event()
        heartbeat = asyncio.create_task(self._send_heartbeats())
        try:
            while True:
                await self._sleep(self._step())
        finally:
            await self._stop(heartbeat)

    async def once(self) -> list[ScheduleRun]:
        """Runs what is due now and waits for it. Returns the finished runs in the order in which they ended."""
        self._freed = asyncio.Event()
        heartbeat = asyncio.create_task(self._send_heartbeats())
        upto = self.store.clock()
        ended: list[ScheduleRun] = []
        try:
            while self._start_due(upto) or self._active:
                done, _ = await asyncio.wait(self._active.values(), return_when=asyncio.FIRST_COMPLETED)
                ended += [run for task in done if not task.cancelled() and (run := task.result()) is not None]
                self._forget_ended()
        finally:
            await self._stop(heartbeat)
        return ended

    async def now(self, id: str) -> ScheduleRun:
        """Runs one schedule at once, due or not, enabled or not. Raises `ToolError` if it is active already."""
        claim = self.store.start(self.owner, id)
        heartbeat = asyncio.create_task(self._send_heartbeats())
        try:
            return await self._begin(claim, by_hand=True) or claim.run
        except asyncio.CancelledError:
            if claim.run.id not in self._overtaken:
                raise
            return self.store.run(claim.run.id) or claim.run
        finally:
            await self._stop(heartbeat)

    def _step(self) -> float:
        """Starts what is due. Returns the seconds to sleep."""
        try:
            self._start_due()
            due = self.store.next_due()
        except StoreError as error:
            if not _is_temporary(error):
                raise
            log.error("schedules: %s %s", error.message, error.suggestion)
            return POLL
        if due is None or len(self._active) >= self.parallel:
            return POLL
        return min(max(due - self.store.clock(), SHORTEST_NAP), POLL)

    def _start_due(self, upto: float | None = None) -> int:
        """Starts what is due. Returns how many runs were started."""
        found = self.store.tick(self.owner, self.parallel - len(self._active), upto)
        for run in (*found.lost, *found.skipped):
            self._report_run(run)
        for claim in found.claims:
            self._begin(claim)
        return len(found.claims)

    def _begin(self, claim: Claim, *, by_hand: bool = False) -> asyncio.Task[ScheduleRun | None]:
        work = self._run_claim(claim) if by_hand or self.shared is None else self._run_if_agreed(claim, self.shared)
        if by_hand or self.shared is None:
            self._report_run(claim.run)
        task = self._active[claim.run.id] = asyncio.create_task(work)
        task.add_done_callback(self._signal_end)
        return task

    async def _run_if_agreed(self, claim: Claim, shared: SharedClaims) -> ScheduleRun | None:
        """Runs a claim, unless workers have handled this time or their previous run is still active."""
        began, due = self.store.steady(), Due(claim.schedule, claim.run.due)
        try:
            refusal = await in_thread(lambda: shared.claim(due, self.store.clock(), self.owner))
        except ToolError as error:
            message = f"the schedule could not be claimed from the workers' database: {error.message}"
            return self._store_end(claim, Status.FAILED, ScheduleOutcome(success=False, error=message), began)
        except asyncio.CancelledError:
            self._store_stop(claim, began)
            raise
        if refusal is None:
            self._report_run(claim.run)
            try:
                return await self._run_claim(claim)
            finally:
                await self._release(shared, claim.schedule.id)
        if skipped := self.store.refuse(claim.run.id, is_active=refusal is ClaimRefusal.ACTIVE):
            self._report_run(skipped)
        return None

    async def _release(self, shared: SharedClaims, schedule_id: str | None = None) -> None:
        try:
            await asyncio.wait_for(in_thread(lambda: shared.release(self.owner, schedule_id)), RELEASE)
        except (ToolError, TimeoutError) as error:  # the lease ends by itself
            log.error("schedules: %s could not be released: %s", schedule_id or "all schedules", text_of(error))

    async def _run_claim(self, claim: Claim) -> ScheduleRun:
        """Runs a claim and stores how it ended."""
        began = self.store.steady()
        try:
            status, outcome = await self._await_outcome(claim.schedule)
        except asyncio.CancelledError:
            self._store_stop(claim, began)
            raise
        for attempt in range(ATTEMPTS):
            try:
                return self._store_end(claim, status, outcome, began)
            except StoreError as error:
                log.error("schedules: how %s ended: %s", claim.schedule.id, error.message)
                if not _is_temporary(error) or attempt == ATTEMPTS - 1:
                    raise
                await self._wait(1.0)
        raise AssertionError("the last attempt returns or raises")

    def _store_stop(self, claim: Claim, began: float) -> None:
        if claim.run.id not in self._overtaken:
            with suppress(StoreError):
                self._store_end(claim, Status.CANCELLED, ScheduleOutcome(error="the runner was stopped"), began)

    async def _await_outcome(self, schedule: Schedule) -> tuple[Status, ScheduleOutcome]:
        limit = asyncio.timeout(self.timeout)
        try:
            async with limit:
                outcome = await self._run(schedule)
        except (Exception, SystemExit) as error:
            late = isinstance(error, TimeoutError) and limit.expired()
            words = f"it took longer than {self.timeout:g} seconds" if late else _error_text(error)
            return Status.FAILED, ScheduleOutcome(success=False, error=words)
        return Status.COMPLETED if outcome.success else Status.FAILED, outcome

    def _store_end(self, claim: Claim, status: Status, outcome: ScheduleOutcome, began: float) -> ScheduleRun:
        duration = max(self.store.steady() - began, 0.0)
        run = self.store.finish(claim.run.id, status, outcome, duration) or claim.run
        self._report_run(run)
        return run

    async def _send_heartbeats(self) -> None:
        while True:
            await self._wait(BEAT)
            try:
                active = [number for number, task in self._active.items() if not task.done()]
                overtaken = self.store.beat(active) if active else ()
            except StoreError as error:
                log.error("schedules: %s", error.message)
                continue
            for number in overtaken:
                self._overtaken.add(number)
                self._active[number].cancel()
            await self._beat_shared()

    async def _beat_shared(self) -> None:
        if self.shared is None or not self._active:
            return
        shared = self.shared
        try:
            await in_thread(lambda: shared.beat(self.owner))
        except ToolError as error:
            log.error("schedules: %s", error.message)

    async def _sleep(self, seconds: float) -> None:
        """Sleeps, but at most until a run has ended and there is room for another."""
        assert self._freed is not None
        self._freed.clear()
        waiting = [asyncio.ensure_future(self._wait(seconds)), asyncio.ensure_future(self._freed.wait())]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waiting:
                one.cancel()
        self._forget_ended()

    def _signal_end(self, task: asyncio.Task[ScheduleRun | None]) -> None:
        if self._freed is not None:
            self._freed.set()

    def _forget_ended(self) -> None:
        for number, task in list(self._active.items()):
            if task.done():
                del self._active[number]
                if not task.cancelled() and (error := task.exception()) is not None:
                    log.error("schedules: the result of a run could not be stored: %s", text_of(error))

    async def _stop(self, heartbeat: asyncio.Task[None]) -> None:
        for task in (*self._active.values(), heartbeat):
            task.cancel()
        await asyncio.wait((*self._active.values(), heartbeat), timeout=GRACE)
        self._forget_ended()

    def _report_run(self, run: ScheduleRun) -> None:
        try:
            self.report(run)
        except Exception as error:
            log.error("schedules: the report of a run failed: %s", text_of(error))


def _error_text(error: BaseException) -> str:
    if isinstance(error, ToolError):
        return " ".join(filter(None, (error.message, error.suggestion)))
    return text_of(error)


def _is_temporary(error: StoreError) -> bool:
    """Returns whether the store is only busy, or the disk full. A damaged store that was replaced does not count."""
    cause = error.__cause__
    code = getattr(cause, "sqlite_errorcode", 0) & 0xFF if isinstance(cause, sqlite3.Error) else 0
    return error.passing or code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY)
