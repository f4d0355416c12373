"""A worker: an engine with agents, a heartbeat, takeover of dead workers' runs, and an orderly exit."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, Self

from dbos import error as engine_error
from sqlalchemy.exc import SQLAlchemyError

from forge.agent.agent import Agent
from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.threads import in_thread
from forge.core.plain_values import brief, text_of
from forge.durable.client.pruning import Retention
from forge.durable.engine.agents import list_runnable
from forge.durable.engine.engine import Engine, make_context, new_worker_id
from forge.durable.engine.queues import DEFAULT, QueueLimits
from forge.durable.engine.segment import segment_workflow
from forge.durable.engine.tasks import run_until_first
from forge.durable.engine.worker_context import AttemptUnderWay, Models, WatchActivity
from forge.durable.monitor.health import HealthServer, ServedAddress
from forge.durable.monitor.metrics import WorkerState, read_load
from forge.durable.store import RunStore
from forge.durable.store.heartbeats import EVERY, SILENT, Heartbeat, WorkerAbilities
from forge.durable.worker.housekeeping import Housekeeping, Pruning
from forge.workspace.state.store import StoreError

TICK = 1.0  # seconds between two checks of this worker's runs
FORGOTTEN = 2.5  # heartbeats between two checks for claimed runs that do not run
SHARE = 5  # up to so many workers keep house at the full rate; beyond that, each does so less often
LONGEST_PAUSE = 30.0  # seconds between two attempts to come back
SPEAKS = 60.0  # seconds between two log messages about the same problem
CONNECTIONS = 8  # of the store at most, with Postgres
GRACE = 60.0  # seconds that runs have to end their turn when the worker drains

log = logging.getLogger("forge.durable")

Chore = Callable[[Engine], Coroutine[Any, Any, object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """The settings of a worker.

    Args:
        name: how its id begins; by default the name of the machine.
        version: the version of the application; the worker takes only runs of it.
        queues: the queues from which it takes runs.
        offers: the kinds of calls that it takes, such as "gpu" for tools with `runs_on="gpu"`.
        concurrency: how many runs it works on at once.
        limits: the limits of queues, over all workers together.
        every: the seconds between two heartbeats.
        silent: the seconds without a heartbeat after which others take over its runs.
        chores: functions of the engine that it calls in every round of its housekeeping.
        keep_conversations: programs that a run of a named session left running continue until this worker leaves, since
            a person may continue the session with another run. Otherwise they end with their run.
        health: the address and port where it serves `/healthz`, `/readyz` and `/metrics`; empty: nowhere.
        retention: the days that ended `runs`, their `events` and their `files` are kept; without one, for ever.

    Example:
        >>> WorkerSettings(queues=["default", "night"], retention={"runs": 30}).concurrency
        10
    """

    name: str = ""
    version: str = ""
    queues: Sequence[str] = (DEFAULT,)
    offers: Sequence[str] = ()
    concurrency: int = 10
    limits: Mapping[str, QueueLimits] = field(default_factory=dict)
    every: float = EVERY
    silent: float = SILENT
    chores: Sequence[Chore] = ()
    keep_conversations: bool = False
    health: str = ""
    retention: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, names in (("queues", self.queues), ("offers", self.offers)):
            if isinstance(names, str) or not isinstance(names, Sequence) or not all(map(_is_name, names)):
                message = f"WorkerSettings({name}={brief(names)}): expected a list of names"
                raise ToolError(message, ErrorKind.VALIDATION, f'Write {name}=["default"].')
        if not self.queues and not self.offers:
            message = "WorkerSettings(queues=[]): the worker would never run anything"
            raise ToolError(message, ErrorKind.VALIDATION, 'Write queues=["default"], or offers=["gpu"].')
        number: object = self.concurrency
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            message = f"WorkerSettings(concurrency={brief(number)}): the worker would never run anything"
            hint = "Use a whole number of at least 1: the number of concurrent runs."
            raise ToolError(message, ErrorKind.VALIDATION, hint)


def _is_name(name: object) -> bool:
    return isinstance(name, str) and bool(name.strip())


class Worker:
    """Works on runs inside `async with`. At its end, active runs are handed back at once; `drain` first lets them end
    their turn.
    """

    def __init__(
        self,
        database: str,
        agents: Sequence[Agent] = (),
        settings: WorkerSettings | None = None,
        *,
        models: Models | None = None,
        watch: WatchActivity | None = None,
    ) -> None:
        """`models`: returns the model of a name, for runs that ask for one. `watch`: subscribes to their activity."""
        self.settings = settings = settings or WorkerSettings()
        keep = Retention(**settings.retention)
        pruning = [Pruning(keep)] if keep != Retention() else []
        self._chores: tuple[Chore, ...] = (*settings.chores, *pruning)  # of every round
        # a step holds a connection for a millisecond or two, so a few serve many runs
        self.store = RunStore(database, connections=min(CONNECTIONS, 2 + settings.concurrency // 10))
        self._context = make_context(
            self.store, agents, version=settings.version, offers=settings.offers, models=models, watch=watch
        )
        self.agents, self.counters = self._context.agents, self._context.counters
        self._health_at = ServedAddress.parse(settings.health) if settings.health else None
        self.health: HealthServer | None = None
        self._database = database
        self._draining = False
        self._is_here = asyncio.Event()  # cleared while it comes back
        self._renew()
        self._sharing = 1
        self._ticking: asyncio.Task[None] | None = None

    @property
    def id(self) -> str:
        """The worker's id, new after every start, and after others declared it dead."""
        return self.engine.worker

    @property
    def attempts(self) -> Mapping[str, AttemptUnderWay]:
        """The attempts that are under way here, by run."""
        return self._context.attempts

    async def __aenter__(self) -> Self:
        if self._health_at is not None:  # before it works: an address that cannot be used is an error of the start
            self.health = HealthServer(self._health_at, self, lambda: read_load(self.store))
            await self.health.__aenter__()
        try:
            await self._arrive()
        except BaseException:
            await self._end_health()
            raise
        self._ticking = asyncio.create_task(self._tick())
        self._ticking.add_done_callback(self._log_end)
        return self

    async def __aexit__(self, *exception: object) -> None:
        if self._ticking is not None:
            self._ticking.cancel()
            await asyncio.wait([self._ticking])
        if self._is_here.is_set():
            await self._leave(in_good_order=True)
        self._context.programs.end_all()
        await self._end_health()
        self.store.close()

    async def _end_health(self) -> None:
        if self.health is not None:
            await self.health.__aexit__()

    def describe(self, loop_lag: float) -> WorkerState:
        """Returns the worker's state, for its endpoints."""
        has_database = self._is_here.is_set() and self.beats.is_steady and not self.beats.lost.is_set()
        return WorkerState(
            version=self.engine.version,
            queues=self.engine.queues,
            is_ready=has_database and not self._draining and not self.why_broken(),
            is_draining=self._draining,
            running=len(self.engine.list_running()) if self._is_here.is_set() else 0,
            concurrency=self.engine.concurrency,
            heartbeat_age=self.beats.age if self._is_here.is_set() else 0.0,
            loop_lag=loop_lag,
        )

    def why_broken(self) -> str:
        """Returns why the worker cannot continue; empty if it can, or has not begun."""
        return "the worker cannot continue: see its log" if self._ticking is not None and self._ticking.done() else ""

    async def broken(self) -> NoReturn:
        """Waits until the worker cannot continue, then raises `ToolError`: its process should end."""
        assert self._ticking is not None
        await asyncio.wait([self._ticking])
        error = None if self._ticking.cancelled() else self._ticking.exception()
        why = f": {text_of(error)}" if error is not None else ""
        raise ToolError(f"worker {self.id} cannot continue{why}", ErrorKind.SYSTEM, "See its log, then start it again.")

    async def drain(self, grace: float = GRACE) -> bool:
        """Takes no more runs, and waits until active runs end their turn and background work ends; False: not all did
        in time.
        """
        self._draining = True
        loop = asyncio.get_running_loop()
        until = loop.time() + grace
        while True:
            self.engine.set_claiming(False)  # repeatedly: a run or the worker may have just begun
            self.beats.draining = True
            for attempt in tuple(self._context.attempts.values()):
                attempt.drain()
            if not self.engine.list_running() and not self._context.held.list_runs():
                return True
            if loop.time() > until:
                return False
            await asyncio.sleep(0.05)

    async def _arrive(self) -> None:
        """Starts the heartbeat and the engine. Raises `StoreError`."""
        try:
            await in_thread(self.store.prepare)
            await in_thread(self.beats.start)  # before the engine claims runs: every claimed run needs a heartbeat
            try:
                await self.engine.__aenter__()
            except BaseException:
                await in_thread(lambda: self.beats.leave(handed=True))
                raise
        except SQLAlchemyError as error:
            raise self.store.database.explain_error(error) from error
        self._is_here.set()

    async def _leave(self, *, in_good_order: bool) -> None:
        self._is_here.clear()
        self.engine.set_claiming(False)
        for attempt in tuple(self._context.attempts.values()):
            attempt.abandon()
        for run in self._context.held.list_runs():
            self._context.held.cancel(run)
        await self.engine.stop_workflows()
        handed = await self._hand_back(counts=not in_good_order)
        await in_thread(lambda: self.beats.leave(handed=handed))
        await self.engine.__aexit__(None, None, None)

    async def _hand_back(self, *, counts: bool) -> bool:
        try:
            await asyncio.wait_for(in_thread(lambda: self.engine.hand_back(self.id, counts=counts)), 5)
        except Exception as error:  # such as an unreachable database: others requeue the runs when we are silent
            log.warning("the runs of worker %s could not be returned to the queue: %s", self.id, error)
            return False
        return True

    async def _come_back(self) -> None:
        """Drops all runs and starts again under a new id: others declared this worker dead and took its runs."""
        log.warning(
            "worker %s sent no heartbeat for too long: other workers took over its runs, and it restarts", self.id
        )
        await self._leave(in_good_order=False)
        pause, logged_at = self.settings.every, -SPEAKS
        while True:
            self._renew()  # also after a failed attempt, which may have left a row of that id
            try:
                return await self._arrive()
            except (StoreError, engine_error.DBOSException) as error:
                if time.monotonic() - logged_at >= SPEAKS:
                    logged_at = time.monotonic()
                    log.warning("the worker cannot reconnect yet, and keeps trying: %s", text_of(error))
            await asyncio.sleep(pause)
            pause = min(LONGEST_PAUSE, pause * 1.5)

    async def _tick(self) -> None:
        """Runs the periodic tasks; ends only with an error, which stops all of them."""
        await run_until_first(self._look_after_own(), self._keep_house(), self._take_over())

    def _log_end(self, ticking: asyncio.Task[None]) -> None:
        if not ticking.cancelled() and (error := ticking.exception()) is not None:
            log.critical("worker %s cannot continue: %s", self.id, text_of(error), exc_info=error)

    async def _look_after_own(self) -> None:
        looked = time.monotonic()
        while True:
            self.beats.pulse()
            if self.beats.lost.is_set():
                await self._come_back()
            await self._run_guarded(self._hear_calls)
            await self._run_guarded(
                lambda: self._context.programs.end_finished(keep_conversations=self.settings.keep_conversations)
            )
            if time.monotonic() - looked > FORGOTTEN * self.settings.every:
                looked = time.monotonic()
                await self._run_guarded(self._requeue_forgotten)
            await asyncio.sleep(TICK)

    async def _take_over(self) -> None:
        while await self._is_here.wait():
            await self._run_guarded(lambda: Housekeeping(self.engine, self.beats).take_over())
            await asyncio.sleep(self._pause())

    def _pause(self) -> float:
        return TICK * max(1.0, self._sharing / SHARE) * random.uniform(0.8, 1.2)  # noqa: S311

    async def _keep_house(self) -> None:
        """Keeps house. With many workers each does so less often, so that the database's load does not grow with
        them.
        """
        while await self._is_here.wait():
            self._sharing = await self._run_guarded(lambda: Housekeeping(self.engine, self.beats).round()) or 1
            self.engine.note_worker_count(self._sharing)
            for chore in self._chores:
                await self._run_guarded(lambda: chore(self.engine))  # noqa: B023 - awaited at once
            await asyncio.sleep(self._pause())

    async def _requeue_forgotten(self) -> None:
        for one in await in_thread(self.engine.requeue_forgotten):
            log.warning("worker %s claimed %s but did not run it: it is queued again", self.id, one)

    async def _hear_calls(self) -> None:
        """Stops cancelled runs; notes messages to runs, also if the notices of them were lost."""
        under_way = self._context.list_busy()
        if not under_way:
            return
        called = await in_thread(lambda: self.store.find_called(under_way))
        for run in called.told:
            self._context.note_messages(run)
        for run in called.cancelled:
            self._context.held.cancel(run)
            if attempt := self._context.attempts.get(run):
                attempt.stop()

    async def _run_guarded(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Runs one round; logs errors, so that the next round can retry."""
        try:
            return await work()
        except StoreError as error:
            log.warning("%s", error.message)
        except SQLAlchemyError as error:
            log.warning("%s", self.store.database.explain_error(error).message)
        except Exception:
            log.exception("a round of worker %s failed", self.id)

    def _renew(self) -> None:
        """Makes an engine and a heartbeat with a new id."""
        settings = self.settings
        self._context = replace(self._context, worker=new_worker_id(settings.name))
        self.engine = Engine(
            self._context,
            segment_workflow,
            queues=settings.queues,
            concurrency=settings.concurrency,
            limits=settings.limits,
            takes=not self._draining,
        )
        takes = WorkerAbilities(
            queues=self.engine.queues,
            offers=tuple(self._context.offers),
            agents=tuple(list_runnable(self.agents)),
            version=self.engine.version,
            concurrency=self.engine.concurrency,
        )
        self.beats = Heartbeat(
            self._database,
            self.engine.worker,
            takes,
            running=lambda: len(self.engine.list_running()),
            every=settings.every,
            silent=settings.silent,
        )
        self.beats.draining = self._draining
