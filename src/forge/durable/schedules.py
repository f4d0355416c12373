"""Schedules of stored runs: each time that one is due begins one run, however many workers look at the clock."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

import sqlalchemy as sa

from forge.core.errors import ToolError
from forge.core.messages import Message
from forge.core.plain import text_of
from forge.core.threads import in_thread
from forge.durable import _runs, deliveries
from forge.durable._found import inserted
from forge.durable.agents import find_agent
from forge.durable.database import Database
from forge.durable.home import Home
from forge.durable.queues import DEFAULT
from forge.durable.rows import OPEN, SCHEDULED, NewRun, RunInfo
from forge.durable.tables import Text, runs
from forge.schedules.cron import Cron
from forge.schedules.schedule import Schedule
from forge.workspace.store import StoreError

REST = 60.0  # seconds, at most, between two looks at the database
SHORTEST_LOOK = 60.0  # seconds back, where the latest time that was due is looked for; then ever further

_MAKING = 0x666F72676573  # the lock of those who make the table

metadata = sa.MetaData()
_rows = sa.Table(
    "forge_schedules",
    metadata,
    sa.Column("name", Text, primary_key=True),
    sa.Column("rule", Text, primary_key=True),  # so that two versions of a configuration do not disturb each other
    sa.Column("since", sa.Double, nullable=False),  # when it was first seen: nothing before that is made up for
    sa.Column("upto", sa.Double, nullable=False),  # what was due until then is seen to
    sa.Column("run", Text, nullable=False),  # the last one
)

log = logging.getLogger("forge.durable")


class Due(NamedTuple):
    """A time that has come."""

    schedule: Schedule
    at: float  # seconds since 1970

    @property
    def run_id(self) -> str:
        """The same for everybody who sees that it is due."""
        return f"{SCHEDULED}{self.schedule.id}-{datetime.fromtimestamp(self.at, UTC):%Y%m%dT%H%M%SZ}"


class _Row(NamedTuple):
    name: str
    rule: str
    since: float
    upto: float
    run: str


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
                at = latest(one, after, now, after) if one.enabled else None
            except ToolError as error:
                self.leave_out(one, error)
                continue
            found += [Due(one, at)] if at is not None else []
        return found

    def prepare(self, database: Database) -> None:
        """Make the tables; many may do so at the same time."""
        if self.is_ready:
            return

        def make(connection: sa.Connection) -> None:
            if connection.dialect.name != "sqlite":
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_MAKING)))
            metadata.create_all(connection)
            deliveries.metadata.create_all(connection)

        if not database.read(lambda connection: sa.inspect(connection).has_table(deliveries.table.name)):
            database.write(make)
        self.is_ready = True

    def leave_out(self, schedule: Schedule, error: Exception) -> None:
        """Said once: it is tried again in every round, and the others go on."""
        words = error.message if isinstance(error, ToolError) else text_of(error)
        if (schedule.id, words) not in self._told:
            self._told.add((schedule.id, words))
            log.error("schedule %s is left out: %s", schedule.id, words)

    @property
    def rests(self) -> bool:
        return not self._given or time.monotonic() < self._awake

    def rest(self, seconds: float) -> None:
        self._awake = time.monotonic() + max(0.0, min(seconds, REST))


async def fire_due(home: Home, schedules: Schedules, now: float | None = None) -> list[RunInfo]:
    """Begin what is due, and is not begun yet; the runs that were begun here.

    Of times that were missed, since no worker was up, the latest is made up for. Nothing begins while the run of the
    time before is still queued or at work. Without `now` the database's clock counts, and between the times that are
    due the database is hardly asked, so that every worker may call this every second.
    """
    if now is None and schedules.rests:
        return []
    fired: list[RunInfo] = await in_thread(lambda: _fire(home, schedules, now))
    for run in fired:
        await home.start_segment(run)  # who dies before that leaves a queued run, which is noticed
    return fired


def latest(schedule: Schedule, after: float, now: float, anchor: float) -> float | None:
    """The latest time in (after, now] that it was due; None: there was none.

    Raises `ToolError` where it cannot be told: this machine does not know its zone, say; another may.
    """
    rule = Cron.parse(schedule.cron, schedule.timezone)
    if not rule.every:
        return _latest(rule, after, now)
    at = anchor + (now - anchor) // rule.every * rule.every
    return at if after < at <= now and at > anchor else None


def _latest(rule: Cron, after: float, now: float) -> float | None:
    """Found from the end: after a pause of months a rule for every minute has had many times."""
    back, at = SHORTEST_LOOK, None
    while at is None:
        start = max(after, now - back)
        at = _within(rule, start, now)
        if start <= after:
            break
        back *= 2
    while at is not None and (following := _within(rule, at, now)) is not None:
        at = following
    return at


def _within(rule: Cron, after: float, now: float) -> float | None:
    at = rule.next_after(after)
    return at if at is not None and at <= now else None


def _fire(home: Home, schedules: Schedules, now: float | None) -> list[RunInfo]:
    database = home.store.database
    schedules.prepare(database)
    moment = home.store.now() if now is None else now
    wanted = {schedule.id: schedule for schedule in schedules.all}
    known = _known(database, wanted, moment)
    fired: list[RunInfo] = []
    planned: list[float] = []
    for schedule in wanted.values():
        row = known[schedule.id]
        if schedule.one_shot and row.run:
            continue
        try:
            fired += _seen_to(home, schedules, schedule, row, moment)
            planned += _next(schedule, moment, row.since)
        except StoreError:
            raise  # the database is away, for all of them
        except Exception as error:
            schedules.leave_out(schedule, error)
    schedules.rest(min(planned, default=moment + REST) - moment)
    return fired


def _seen_to(home: Home, schedules: Schedules, schedule: Schedule, row: _Row, now: float) -> list[RunInfo]:
    """The run that it is time for, if there is one and nobody else began it."""
    at = latest(schedule, row.upto, now, row.since)
    if at is None:
        return []
    new = _new(home, schedules, Due(schedule, at))
    run = home.store.database.write(lambda connection: _begun(connection, schedule, row, at, new))
    return [run] if run is not None else []


def _known(database: Database, schedules: Mapping[str, Schedule], now: float) -> dict[str, _Row]:
    """What is stored of each; those that nobody has seen before are first seen now."""
    wanted = {name: _rule(schedule) for name, schedule in schedules.items()}

    def read(connection: sa.Connection) -> dict[str, _Row]:
        rows = connection.execute(sa.select(_rows))
        return {row.name: _Row(*row) for row in rows if wanted.get(row.name) == row.rule}

    found = database.read(read)
    new = [
        {"name": name, "rule": rule, "since": now, "upto": now, "run": ""}
        for name, rule in wanted.items()
        if name not in found
    ]
    if not new:
        return found

    def add(connection: sa.Connection) -> dict[str, _Row]:
        connection.execute(inserted(connection, _rows).on_conflict_do_nothing(), new)
        return read(connection)

    return database.write(add)


def _rule(schedule: Schedule) -> str:
    return f"{'once ' if schedule.one_shot else ''}{schedule.cron} {schedule.timezone}"


def _new(home: Home, schedules: Schedules, due: Due) -> NewRun:
    """Raises `ToolError` where this worker does not have the agent: then another begins it."""
    prompt = schedules.prompt(due.schedule)
    instructions = find_agent(home.agents, schedules.agent).system_prompt()
    system = [Message("system", instructions)] if instructions else []
    return NewRun(
        id=due.run_id,
        agent=schedules.agent,
        queue=schedules.queue,
        version=getattr(home, "version", ""),
        prompt=prompt,
        messages=(*system, Message("user", prompt)),
        scope={"schedule": due.schedule.id},
    )


def _begun(connection: sa.Connection, schedule: Schedule, row: _Row, at: float, new: NewRun) -> RunInfo | None:
    """All in one transaction: that this time is seen to, and the run that it begins."""
    mine = sa.update(_rows).where(_rows.c.name == row.name, _rows.c.rule == row.rule)
    seen_to = mine.where(_rows.c.upto < at).values(upto=at).returning(_rows.c.run)
    before = connection.execute(seen_to).scalar()
    if before is None:
        return None  # somebody else saw to it
    if not schedule.enabled or (schedule.one_shot and before):
        return None  # a time that goes by is not made up for when it is enabled again
    some = sa.select(runs.c.id, runs.c.status).where(runs.c.id.in_([before, new.id]))
    status = {row.id: row.status for row in connection.execute(some)}
    if new.id in status:
        return None
    if status.get(before) in OPEN:
        log.warning("schedule %s: %s is left out, since %s is not over", schedule.id, new.id, before)
        return None
    connection.execute(mine.values(run=new.id))
    if schedule.channel:
        deliveries.add(connection, new.id, schedule.channel, schedule.channel_target)
    return _runs.make(connection, new)


def _next(schedule: Schedule, now: float, anchor: float) -> list[float]:
    at = Cron.parse(schedule.cron, schedule.timezone).next_after(now, anchor)
    return [] if at is None else [at]
