"""Starts scheduled runs: each due time begins one run, however many workers check the clock."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime

import sqlalchemy as sa

from forge.core.errors import ToolError
from forge.core.execution.threads import in_thread
from forge.core.messages import Message
from forge.core.plain_values import text_of
from forge.durable.engine.agents import find_agent
from forge.durable.engine.queues import DEFAULT
from forge.durable.engine.worker_context import WorkerContext
from forge.durable.store import RunStore
from forge.durable.store import run_lifecycle as run_rows
from forge.durable.store.database import Database
from forge.durable.store.find import insert_into
from forge.durable.store.find import now as database_now
from forge.durable.store.migrate import make_if_allowed
from forge.durable.store.rows import MODEL, OPEN, SCHEDULED, NewRun, RunInfo
from forge.durable.store.tables import AnyText, runs
from forge.durable.worker.housekeeping import add_delivery, delivery_metadata
from forge.models.command import COMMAND
from forge.schedules.cron import Cron
from forge.schedules.schedule import ClaimRefusal, Due, Progress, Schedule, claim_due, find_due, is_spent

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
            prepare(database)
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
        version=context.version,
        prompt=prompt,
        messages=(*system, Message("user", prompt)),
        scope={"schedule": due.schedule.id, **({MODEL: COMMAND} if due.schedule.command else {})},
    )


# The progress of schedules in the workers' database: each due time is given to one process, in one transaction.


LEASE = 60.0  # seconds of silence after which a process loses its claims
PROCESS = "process-"  # prefix of the last run's name if a process ran it itself

_MAKING = 0x666F72676573  # advisory lock for making the tables

metadata = sa.MetaData()
_rows = sa.Table(
    "forge_schedules",
    metadata,
    sa.Column("name", AnyText, primary_key=True),
    sa.Column("rule", AnyText, primary_key=True),  # separates two versions of a configuration
    sa.Column("since", sa.Double, nullable=False),  # when it was first seen: earlier times are not made up for
    sa.Column("upto", sa.Double, nullable=False),  # times up to then are handled
    sa.Column("run", AnyText, nullable=False),  # the last one
)
_holders = sa.Table(
    "forge_schedule_holders",
    metadata,
    sa.Column("name", AnyText, primary_key=True),
    sa.Column("owner", AnyText, nullable=False),  # a process that runs the schedule itself, not as a stored run
    sa.Column("beat", sa.Double, nullable=False),  # its last heartbeat, by the database's clock
)


def run_id_of(due: Due) -> str:
    """Returns the id of the stored run, the same for every worker that sees it due."""
    return f"{SCHEDULED}{due.schedule.id}-{datetime.fromtimestamp(due.at, UTC):%Y%m%dT%H%M%SZ}"


def prepare(database: Database) -> None:
    """Makes the tables; many processes may do so at once."""

    def make(connection: sa.Connection) -> None:
        if connection.dialect.name != "sqlite":
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_MAKING)))
        metadata.create_all(connection)
        delivery_metadata.create_all(connection)

    if not database.read(lambda connection: sa.inspect(connection).has_table(_holders.name)):
        make_if_allowed(database, make)


class StoredOccurrences:
    """Claims that begin stored runs, which any worker takes. `make` builds a run, and may raise `ToolError`."""

    def __init__(self, database: Database, make: Callable[[Due], NewRun]) -> None:
        self._database = database
        self._make = make

    def read_progress(self, schedules: Mapping[str, Schedule], first_seen: float) -> dict[str, Progress]:
        return find_progress(self._database, schedules, first_seen)

    def claim(self, due: Due) -> RunInfo | ClaimRefusal:
        new = self._make(due)
        return self._database.write(lambda connection: self._begin(connection, due, new))

    def _begin(self, connection: sa.Connection, due: Due, new: NewRun) -> RunInfo | ClaimRefusal:
        """Claims the time and stores its run, in one transaction."""
        refusal = _take(connection, due, new.id)
        if refusal is not None:
            return refusal
        if due.schedule.channel:
            add_delivery(connection, new.id, due.schedule.channel, due.schedule.channel_target)
        return run_rows.make_run(connection, new)


class ProcessOccurrences:
    """Claims of a process that runs schedules itself: it holds each while the run is active, with a heartbeat."""

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._database = store.database
        self._is_ready = False

    def prepare(self) -> None:
        """Makes the tables. Raises `StoreError` if the database is unreachable."""
        if not self._is_ready:
            self._store.prepare()
            prepare(self._database)
            self._is_ready = True

    def claim(self, due: Due, now: float, owner: str) -> ClaimRefusal | None:
        """Claims a due time. `due.at` is by the process's plan; the database may have another time, or have it
        handled.
        """
        schedule = due.schedule
        interval = Cron.parse(schedule.cron, schedule.timezone).every or 1.0
        self.prepare()
        claims = _ProcessClaims(self._database, owner)
        fired = claim_due(claims, {schedule.id: schedule}, max(now, due.at), first_seen=due.at - interval)
        if fired.claims:
            return None
        return fired.refused[0][1] if fired.refused else ClaimRefusal.ELSEWHERE

    def beat(self, owner: str) -> None:
        def write(connection: sa.Connection) -> None:
            mine = sa.update(_holders).where(_holders.c.owner == owner)
            connection.execute(mine.values(beat=database_now(connection)))

        self._database.write(write, lasting=False)

    def release(self, owner: str, schedule_id: str | None = None) -> None:
        mine = sa.delete(_holders).where(_holders.c.owner == owner)
        if schedule_id is not None:
            mine = mine.where(_holders.c.name == schedule_id)
        self._database.write(lambda connection: connection.execute(mine), lasting=False)


class _ProcessClaims:
    """The claims of one process. Each is the name of a schedule."""

    def __init__(self, database: Database, owner: str) -> None:
        self._database = database
        self._owner = owner

    def read_progress(self, schedules: Mapping[str, Schedule], first_seen: float) -> dict[str, Progress]:
        return find_progress(self._database, schedules, first_seen)

    def claim(self, due: Due) -> str | ClaimRefusal:
        return self._database.write(lambda connection: self._hold(connection, due))

    def _hold(self, connection: sa.Connection, due: Due) -> str | ClaimRefusal:
        refusal = _take(connection, due, f"{PROCESS}{self._owner}", stored=run_id_of(due))
        if refusal is not None:
            return refusal
        values = {"owner": self._owner, "beat": database_now(connection)}
        new = insert_into(connection, _holders).values(name=due.schedule.id, **values)
        connection.execute(new.on_conflict_do_update(index_elements=["name"], set_=values))
        return due.schedule.id


def find_progress(database: Database, schedules: Mapping[str, Schedule], first_seen: float) -> dict[str, Progress]:
    """Returns the stored progress of each schedule; new ones start at `first_seen`."""
    wanted = {name: _rule(schedule) for name, schedule in schedules.items()}

    def read(connection: sa.Connection) -> dict[str, Progress]:
        rows = connection.execute(sa.select(_rows))
        return {row.name: _progress(row) for row in rows if wanted.get(row.name) == row.rule}

    found = database.read(read)
    new = [
        {"name": name, "rule": rule, "since": first_seen, "upto": first_seen, "run": ""}
        for name, rule in wanted.items()
        if name not in found
    ]
    if not new:
        return found

    def add(connection: sa.Connection) -> dict[str, Progress]:
        connection.execute(insert_into(connection, _rows).on_conflict_do_nothing(), new)
        return read(connection)

    return database.write(add)


def _take(connection: sa.Connection, due: Due, run: str, stored: str = "") -> ClaimRefusal | None:
    """Claims a time for `run`, unless another process did. `stored`: the id of the stored run it would be."""
    schedule, at = due
    mine = (_rows.c.name == schedule.id, _rows.c.rule == _rule(schedule))
    row = connection.execute(sa.select(_rows).where(*mine).with_for_update()).first()
    if row is not None and stored and (row.upto, row.run) == (at, run):
        return None  # our own claim: the connection was lost before the reply
    if row is None or row.upto >= at or is_spent(schedule, _progress(row)):
        return ClaimRefusal.ELSEWHERE
    connection.execute(sa.update(_rows).where(*mine).values(upto=at))
    if not schedule.enabled:
        return ClaimRefusal.SWITCHED_OFF  # a missed time is not made up for when the schedule is enabled again
    some = sa.select(runs.c.id, runs.c.status).where(runs.c.id.in_([row.run, stored or run]))
    status = {one.id: one.status for one in connection.execute(some)}
    if (stored or run) in status:
        return ClaimRefusal.ELSEWHERE
    holder = _holder(connection, schedule.id)
    if status.get(row.run) in OPEN or holder:
        log.warning(
            "schedule %s: %s is skipped, because %s is still running", schedule.id, stored or run, holder or row.run
        )
        return ClaimRefusal.ACTIVE
    connection.execute(sa.update(_rows).where(*mine).values(run=run))
    return None


def _holder(connection: sa.Connection, name: str) -> str:
    """Returns the process that runs the schedule itself right now; empty: none."""
    alive = _holders.c.beat > database_now(connection) - LEASE
    owner = connection.execute(sa.select(_holders.c.owner).where(_holders.c.name == name, alive)).scalar()
    return f"{PROCESS}{owner}" if owner is not None else ""


def _progress(row: sa.Row[tuple[object, ...]]) -> Progress:
    return Progress(row.since, row.upto, bool(row.run))


def _rule(schedule: Schedule) -> str:
    return f"{'once ' if schedule.one_shot else ''}{schedule.cron} {schedule.timezone}"
