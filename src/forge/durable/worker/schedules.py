"""Starts scheduled runs: each due time begins one run, however many workers check the clock."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable

from forge.core.errors import ToolError
from forge.core.execution.threads import in_thread
from forge.core.messages import Message
from forge.core.plain_values import text_of
from forge.durable.engine.agents import find_agent
from forge.durable.engine.queues import DEFAULT
from forge.durable.engine.segment_context import WorkerContext
from forge.durable.store.database import Database
from forge.durable.store.rows import MODEL, NewRun, RunInfo
from forge.durable.worker import occurrences
from forge.durable.worker.occurrences import StoredOccurrences, run_id_of
from forge.models.command import COMMAND
from forge.schedules.occurrences import Due, Progress, claim_due, find_due
from forge.schedules.schedule import Schedule

REST = 60.0  # seconds, at most, between two queries

log = logging.getLogger("forge.durable")


class Schedules:
    """The schedules: a list, or a function that returns the current one.

    `prompt` returns the prompt of a schedule's run.
    """

    def __init__(
        self,
        schedules: Iterable[Schedule] | Callable[[], Iterable[Schedule]],
        *,
        agent: str = "main",
        queue: str = DEFAULT,
        prompt: Callable[[Schedule], str] = lambda schedule: schedule.task,
    ) -> None:
        self._given = schedules if callable(schedules) else tuple(schedules)
        self.agent = agent
        self.queue = queue
        self.prompt = prompt
        self._awake = 0.0  # by the monotonic clock: nothing is due before
        self.is_ready = False  # the tables exist
        self._logged: set[tuple[str, str]] = set()  # problems that were logged, by schedule

    @property
    def all(self) -> tuple[Schedule, ...]:
        return tuple(self._given()) if callable(self._given) else self._given

    def due(self, after: float, now: float) -> list[Due]:
        """Returns what came due since, each schedule at most once, at the latest time. Intervals count from `after`."""
        found: list[Due] = []
        for one in self.all:
            try:
                due = find_due(one, Progress(after, after), now) if one.enabled else None
            except ToolError as error:
                self.leave_out(one, error)
                continue
            found += [due] if due is not None else []
        return found

    def prepare(self, database: Database) -> None:
        """Makes the tables; many processes may do so at once."""
        if not self.is_ready:
            occurrences.prepare(database)
            self.is_ready = True

    def leave_out(self, schedule: Schedule, error: Exception) -> None:
        """Logs a broken schedule once: it is retried in every round, and the others run."""
        words = error.message if isinstance(error, ToolError) else text_of(error)
        if (schedule.id, words) not in self._logged:
            self._logged.add((schedule.id, words))
            log.error("schedule %s is skipped: %s", schedule.id, words)

    @property
    def is_resting(self) -> bool:
        return not self._given or time.monotonic() < self._awake

    def rest(self, seconds: float) -> None:
        self._awake = time.monotonic() + max(0.0, min(seconds, REST))


async def fire_due(context: WorkerContext, schedules: Schedules, now: float | None = None) -> list[RunInfo]:
    """Starts due runs that were not begun yet; returns those begun here.

    Of times missed while no worker was up, only the latest is made up for. Nothing begins while the run of the
    time before is still queued or running. Without `now` the database's clock counts, and between due times
    the database is rarely queried, so that every worker may call this every second.
    """
    if now is None and schedules.is_resting:
        return []
    fired: list[RunInfo] = await in_thread(lambda: _fire(context, schedules, now))
    for run in fired:
        await context.start_segment(run)  # after a crash before this, housekeeping starts the queued run
    return fired


def _fire(context: WorkerContext, schedules: Schedules, now: float | None) -> list[RunInfo]:
    schedules.prepare(context.store.database)
    moment = context.store.now() if now is None else now
    store = StoredOccurrences(context.store.database, lambda due: _new_run(context, schedules, due))
    wanted = {schedule.id: schedule for schedule in schedules.all}
    for schedule in wanted.values():
        if schedule.problem:  # it is not enabled, either
            schedules.leave_out(schedule, ToolError(schedule.problem))
    fired = claim_due(store, wanted, moment, leave_out=schedules.leave_out)
    schedules.rest(REST if fired.following is None else fired.following - moment)
    return fired.claims


def _new_run(context: WorkerContext, schedules: Schedules, due: Due) -> NewRun:
    """Builds the run of a due time. Raises `ToolError` if this worker lacks the agent: then another worker
    begins it.
    """
    prompt = schedules.prompt(due.schedule)
    instructions = find_agent(context.agents, schedules.agent).system_prompt()
    system = [Message("system", instructions)] if instructions else []
    return NewRun(
        id=run_id_of(due),
        agent=schedules.agent,
        queue=schedules.queue,
        version=getattr(context, "version", ""),
        prompt=prompt,
        messages=(*system, Message("user", prompt)),
        scope={"schedule": due.schedule.id, **({MODEL: COMMAND} if due.schedule.command else {})},
    )
