"""Schedules of stored runs: each time that one is due begins one run, however many workers look at the clock."""

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
from forge.durable.store.rows import NewRun, RunInfo
from forge.durable.worker import occurrences
from forge.durable.worker.occurrences import StoredOccurrences, run_id_of
from forge.schedules.occurrences import Due, Progress, claim_due, find_due
from forge.schedules.schedule import Schedule

REST = 60.0  # seconds, at most, between two looks at the database

log = logging.getLogger("forge.durable")


class Schedules:
    """What is to be done by the clock, and by whom: a list, or a function that gives one whenever it is looked at.

    `prompt` says what the agent is asked.
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
        self._awake = 0.0  # by the steady clock: nothing is due before
        self.is_ready = False  # its tables are there
        self._told: set[tuple[str, str]] = set()  # what was said of which

    @property
    def all(self) -> tuple[Schedule, ...]:
        return tuple(self._given()) if callable(self._given) else self._given

    def due(self, after: float, now: float) -> list[Due]:
        """What came due since, each schedule at most once: the latest time. Intervals are counted from `after`."""
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
        """Make the tables; many may do so at the same time."""
        if not self.is_ready:
            occurrences.prepare(database)
            self.is_ready = True

    def leave_out(self, schedule: Schedule, error: Exception) -> None:
        """Said once: it is tried again in every round, and the others go on."""
        words = error.message if isinstance(error, ToolError) else text_of(error)
        if (schedule.id, words) not in self._told:
            self._told.add((schedule.id, words))
            log.error("schedule %s is left out: %s", schedule.id, words)

    @property
    def is_resting(self) -> bool:
        return not self._given or time.monotonic() < self._awake

    def rest(self, seconds: float) -> None:
        self._awake = time.monotonic() + max(0.0, min(seconds, REST))


async def fire_due(context: WorkerContext, schedules: Schedules, now: float | None = None) -> list[RunInfo]:
    """Begin what is due, and is not begun yet; the runs that were begun here.

    Of times that were missed, since no worker was up, the latest is made up for. Nothing begins while the run of the
    time before is still queued or at work. Without `now` the database's clock counts, and between the times that are
    due the database is hardly asked, so that every worker may call this every second.
    """
    if now is None and schedules.is_resting:
        return []
    fired: list[RunInfo] = await in_thread(lambda: _fire(context, schedules, now))
    for run in fired:
        await context.start_segment(run)  # who dies before that leaves a queued run, which is noticed
    return fired


def _fire(context: WorkerContext, schedules: Schedules, now: float | None) -> list[RunInfo]:
    schedules.prepare(context.store.database)
    moment = context.store.now() if now is None else now
    store = StoredOccurrences(context.store.database, lambda due: _new_run(context, schedules, due))
    wanted = {schedule.id: schedule for schedule in schedules.all}
    fired = claim_due(store, wanted, moment, leave_out=schedules.leave_out)
    schedules.rest(REST if fired.following is None else fired.following - moment)
    return fired.claims


def _new_run(context: WorkerContext, schedules: Schedules, due: Due) -> NewRun:
    """Raises `ToolError` where this worker does not have the agent: then another begins it."""
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
        scope={"schedule": due.schedule.id},
    )
