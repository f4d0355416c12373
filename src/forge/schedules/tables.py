"""Reads and writes the tables of the schedules; claims, skips and gives up runs within one transaction."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from forge.core.arguments.names import near
from forge.core.errors import ErrorKind, ToolError
from forge.core.plain_values import brief, clip_bytes, sendable
from forge.schedules.cron import Cron
from forge.schedules.schedule import LONGEST_RESULT, Schedule, ScheduleOutcome, ScheduleRun, Source, Status
from forge.workspace.state.sealing import find_problem, seal_part
from forge.workspace.state.store import Migration

MOST_RUNS = 100  # finished runs of one schedule, and as many skipped ones
MOST_RUNS_IN_ALL = 10_000  # runs, including those of removed schedules
MOST_SCHEDULES = 20_000


def _create_tables(connection: sqlite3.Connection) -> None:
    for statement in (
        """CREATE TABLE schedules (
            id TEXT PRIMARY KEY, cron TEXT NOT NULL, task TEXT NOT NULL, timezone TEXT NOT NULL,
            enabled INTEGER NOT NULL, one_shot INTEGER NOT NULL, skill TEXT NOT NULL, channel TEXT NOT NULL,
            channel_target TEXT NOT NULL, source TEXT NOT NULL, origin TEXT NOT NULL, created REAL NOT NULL,
            updated REAL NOT NULL, next_fire REAL, last_fire REAL, command INTEGER NOT NULL DEFAULT 0,
            anchor REAL NOT NULL, planned REAL NOT NULL, spent INTEGER NOT NULL, seal TEXT NOT NULL DEFAULT '')""",
        "CREATE INDEX schedules_due ON schedules (next_fire) WHERE next_fire IS NOT NULL",
        "CREATE INDEX schedules_planned ON schedules (planned) WHERE next_fire IS NOT NULL",
        """CREATE TABLE schedule_runs (
            id INTEGER PRIMARY KEY AUTOINCREMENT, schedule TEXT NOT NULL, status TEXT NOT NULL, due REAL NOT NULL,
            started REAL NOT NULL, duration REAL, error TEXT NOT NULL, result TEXT NOT NULL, session TEXT NOT NULL,
            owner TEXT NOT NULL, beat REAL NOT NULL)""",
        "CREATE INDEX schedule_runs_of ON schedule_runs (schedule, id)",
        "CREATE INDEX schedule_runs_active ON schedule_runs (schedule) WHERE status = 'running'",
    ):
        connection.execute(statement)


MIGRATIONS: list[Migration] = [_create_tables]  # the version of the tables is how many of these have run

_SCHEDULE = (
    "id, cron, task, timezone, enabled, one_shot, skill, channel, channel_target, source, origin, created, updated,"
    " next_fire, last_fire, command, anchor, planned, spent, seal"
)
_SEALED = "id, cron, task, timezone, enabled, one_shot, skill, channel, channel_target, source, origin, command"
_TEXTS = "id, cron, task, timezone, skill, channel, channel_target, origin"
_RUN = "id, schedule, status, due, started, duration, error, result, session"


@dataclass(frozen=True, slots=True)
class Row:
    """A schedule with the fields that only the store needs."""

    schedule: Schedule
    anchor: float = 0.0  # intervals count from here
    planned: float = 0.0  # when the next time was calculated: a clock before it has been set back
    spent: bool = False  # a one-shot that has fired

    def next_after(self, moment: float) -> float | None:
        return Cron.parse(self.schedule.cron, self.schedule.timezone).next_after(moment, self.anchor)


def revise_row(old: Row | None, wanted: Schedule, now: float, *, arm: bool = False) -> Row:
    """Returns the row to store. Its plan stays unless something about its times changed.

    `arm`: a one-shot that has fired will fire again; otherwise it does so only if its times changed.
    """
    if old is not None and has_definition(old, wanted) and not (arm and old.spent):
        return old
    before = old.schedule if old is not None else None
    made = replace(
        wanted,
        created=before.created if before else now,
        updated=now,
        last_fire=before.last_fire if before else None,
    )
    rule = (made.cron, made.timezone, made.one_shot)
    same_rule = before is not None and rule == (before.cron, before.timezone, before.one_shot)
    if old is not None and before is not None and same_rule:
        if old.spent and not arm:
            return Row(replace(made, enabled=False), old.anchor, old.planned, True)
        if before.enabled and made.enabled and not old.spent:
            return Row(replace(made, next_fire=before.next_fire), old.anchor, old.planned)
    anchor = old.anchor if old is not None and same_rule else now
    following = Cron.parse(made.cron, made.timezone).next_after(now, anchor) if made.enabled else None
    return Row(replace(made, next_fire=following), anchor, now)


def has_definition(row: Row, wanted: Schedule) -> bool:
    """Returns whether the row has this definition already, whatever happened to its runs since."""
    old = row.schedule
    return old == replace(
        wanted,
        enabled=old.enabled if row.spent else wanted.enabled,
        created=old.created,
        updated=old.updated,
        next_fire=old.next_fire,
        last_fire=old.last_fire,
    )


def row_of(connection: sqlite3.Connection, name: str) -> Row | None:
    found = connection.execute(f"SELECT {_SCHEDULE} FROM schedules WHERE id = ?", (sendable(name),)).fetchone()  # noqa: S608
    return None if found is None else _row(found, _file_of(connection))


def require_row(connection: sqlite3.Connection, name: str) -> Row:
    found = row_of(connection, name)
    if found is not None:
        return found
    names = [one for (one,) in connection.execute("SELECT id FROM schedules ORDER BY updated DESC LIMIT 1000")]
    raise missing_schedule_error(name, names)


def missing_schedule_error(name: str, names: list[str]) -> ToolError:
    meant = near(name, names) or names[:3]
    hint = f"Did you mean {' or '.join(map(brief, meant))}?" if meant else "There are no schedules yet."
    return ToolError(f"there is no schedule {brief(name)}", ErrorKind.NOT_FOUND, hint)


def rows(connection: sqlite3.Connection, condition: str = "", values: Iterable[object] = ()) -> list[Row]:
    """Returns the rows that meet the condition. The condition is never built from user input."""
    path = _file_of(connection)
    found = connection.execute(f"SELECT {_SCHEDULE} FROM schedules {condition}", tuple(values))  # noqa: S608
    return [_row(one, path) for one in found]


def write_row(connection: sqlite3.Connection, row: Row) -> None:
    one = row.schedule
    values = (
        *(one.id, one.cron, one.task, one.timezone, one.enabled, one.one_shot, one.skill, one.channel),
        *(one.channel_target, str(one.source), one.origin, one.created, one.updated, one.next_fire, one.last_fire),
        *(one.command, row.anchor, row.planned, row.spent, seal_of(connection, one)),
    )
    connection.execute(f"INSERT OR REPLACE INTO schedules ({_SCHEDULE}) VALUES ({', '.join('?' * 20)})", values)  # noqa: S608


def seal_of(connection: sqlite3.Connection, schedule: Schedule) -> str:
    """Returns the seal of what a schedule runs. Raises `ToolError` without a usable key."""
    path = _file_of(connection)
    return "" if path is None else seal_part(path, _content(schedule))


def _content(schedule: Schedule) -> bytes:
    return json.dumps(["schedule", *(getattr(schedule, name) for name in _SEALED.split(", "))]).encode()


def _file_of(connection: sqlite3.Connection) -> Path | None:
    file = next((path for _, name, path in connection.execute("PRAGMA database_list") if name == "main"), "")
    return Path(file) if file else None


def count(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT count(*) FROM schedules").fetchone()[0])


def add_run(
    connection: sqlite3.Connection,
    schedule: str,
    status: Status,
    due: float,
    now: float,
    *,
    error: str = "",
    owner: str = "",
    beat: float = 0.0,
) -> ScheduleRun:
    number = connection.execute(
        "INSERT INTO schedule_runs (schedule, status, due, started, error, result, session, owner, beat)"
        " VALUES (?, ?, ?, ?, ?, '', '', ?, ?)",
        (schedule, str(status), due, now, error, owner, beat),
    ).lastrowid
    assert number is not None
    _delete_old_runs(connection, schedule, number)
    return ScheduleRun(id=number, schedule_id=schedule, status=status, due=due, started=now, error=error)


def run_of(connection: sqlite3.Connection, number: int) -> ScheduleRun | None:
    found = connection.execute(f"SELECT {_RUN} FROM schedule_runs WHERE id = ?", (number,)).fetchone()  # noqa: S608
    return None if found is None else _run(found)


def runs(connection: sqlite3.Connection, condition: str, values: Iterable[object] = ()) -> list[ScheduleRun]:
    """Returns the rows that meet the condition. The condition is never built from user input."""
    return [_run(one) for one in connection.execute(f"SELECT {_RUN} FROM schedule_runs {condition}", tuple(values))]  # noqa: S608


def _delete_old_runs(connection: sqlite3.Connection, schedule: str, newest: int) -> None:
    """Deletes old runs. Skipped runs are counted apart, so that they do not push out finished ones."""
    for condition in ("status = 'skipped'", "status NOT IN ('skipped', 'running')"):
        connection.execute(
            "DELETE FROM schedule_runs WHERE id IN (SELECT id FROM schedule_runs"  # noqa: S608
            f" WHERE schedule = ? AND {condition} ORDER BY id DESC LIMIT -1 OFFSET ?)",
            (schedule, MOST_RUNS),
        )
    connection.execute(
        "DELETE FROM schedule_runs WHERE id <= ? AND status <> 'running'",
        (newest - MOST_RUNS_IN_ALL,),
    )


def reseal(connection: sqlite3.Connection) -> None:
    """Seals all schedules as they are: a person has seen and accepts them."""
    for found in connection.execute(f"SELECT {_SCHEDULE} FROM schedules").fetchall():  # noqa: S608
        row = _row(found, None)
        if not row.schedule.problem:
            seal = seal_of(connection, row.schedule)
            connection.execute("UPDATE schedules SET seal = ? WHERE id = ?", (seal, row.schedule.id))


def _row(found: tuple[Any, ...], path: Path | None) -> Row:
    fields = dict(zip(_SCHEDULE.replace(" ", "").split(","), found, strict=True))
    anchor, planned, spent, seal = (fields.pop(name) for name in ("anchor", "planned", "spent", "seal"))
    fields |= {name: bool(fields[name]) for name in ("enabled", "one_shot", "command")}
    try:
        schedule = Schedule(**{**fields, "source": Source(fields["source"])})
        content = _content(schedule)
        problem = find_problem(path, content, str(seal)) if path is not None else ""
    except (ValueError, TypeError):
        problem = "it has values that no schedule can have"
    return _unusable_row(fields, problem) if problem else Row(schedule, anchor, planned, bool(spent))


def _unusable_row(fields: dict[str, Any], problem: str) -> Row:
    """Returns a row that does not run, and that only a person may change, whatever it says about itself."""
    texts: dict[str, Any] = {name: sendable(str(fields[name])) for name in _TEXTS.split(", ")}
    flags = {name: fields[name] for name in ("one_shot", "command")}
    last = fields["last_fire"] if isinstance(fields["last_fire"], float) else None
    told = f"{problem}. Check what it runs, then `forge schedule enable {brief(texts['id'])}`, or remove it"
    return Row(Schedule(**texts, **flags, enabled=False, source=Source.PERSON, last_fire=last, problem=told))


def _run(found: tuple[Any, ...]) -> ScheduleRun:
    fields = dict(zip(_RUN.replace(" ", "").split(","), found, strict=True))
    return ScheduleRun(schedule_id=fields.pop("schedule"), status=Status(fields.pop("status")), **fields)


# Claims, skips and gives up runs of due schedules. The caller holds one transaction around each call.

LEASE = 60.0  # seconds without a heartbeat after which a run is lost
SMALL_STEP = 300.0  # seconds: a clock set back by less is as good as right
LARGE_STEP = 3 * 3_600.0  # seconds: a clock set back by more was wrong before
GONE = "the process that ran it is gone; it is unknown if the task was done"
STILL_ACTIVE = "the previous run was still active"

log = logging.getLogger(__name__)

_ACTIVE = "(SELECT schedule FROM schedule_runs WHERE status = 'running')"


class Claim(NamedTuple):
    """A due time that only this process runs."""

    schedule: Schedule
    run: ScheduleRun


class Tick(NamedTuple):
    """The result of one check for due schedules."""

    claims: list[Claim]
    skipped: list[ScheduleRun]  # includes failed runs of schedules that can no longer be planned
    lost: list[ScheduleRun]


class ClockReading(NamedTuple):
    """The wall clock, and a monotonic clock that all processes of the machine share."""

    wall: float
    steady: float


def has_work(connection: sqlite3.Connection, at: ClockReading) -> bool:
    found = connection.execute(
        "SELECT EXISTS (SELECT 1 FROM schedules WHERE next_fire <= ?)"
        " OR EXISTS (SELECT 1 FROM schedules WHERE planned > ? AND next_fire IS NOT NULL)"
        " OR EXISTS (SELECT 1 FROM schedule_runs WHERE status = 'running' AND (beat < ? OR beat > ?))",
        (at.wall, at.wall + SMALL_STEP, at.steady - LEASE, at.steady + LEASE),
    ).fetchone()
    return bool(found[0])


def tick(connection: sqlite3.Connection, at: ClockReading, owner: str, free: int, upto: float) -> Tick:
    """Claims at most `free` schedules that were due by `upto`, the oldest first."""
    lost = _mark_lost(connection, at, owner)
    _plan_again(connection, at)
    due = min(upto, at.wall)
    overlapping = rows(connection, f"WHERE next_fire <= ? AND NOT one_shot AND id IN {_ACTIVE}", (due,))
    skipped = [_skip_due(connection, row, at.wall) for row in overlapping]
    idle = rows(
        connection,
        f"WHERE next_fire <= ? AND id NOT IN {_ACTIVE} ORDER BY next_fire, id LIMIT ?",
        (due, max(free, 0)),
    )
    found = [_claim_due(connection, row, at, owner) for row in idle]
    claims = [one for one in found if isinstance(one, Claim)]
    return Tick(claims, skipped + [one for one in found if isinstance(one, ScheduleRun)], lost)


def start(connection: sqlite3.Connection, at: ClockReading, owner: str, name: str) -> Claim:
    """Claims a schedule now, due or not. Its plan stays as it is."""
    schedule = require_row(connection, name).schedule
    if schedule.problem:
        raise ToolError(f"{schedule.id} cannot be run", ErrorKind.PERMISSION, f"{schedule.problem}.")
    _mark_lost(connection, at, owner)
    if connection.execute(f"SELECT 1 WHERE ? IN {_ACTIVE}", (schedule.id,)).fetchone():
        raise ToolError(
            f"{schedule.id} is already running", suggestion="Wait until it ends: `forge schedule history` shows it."
        )
    connection.execute("UPDATE schedules SET last_fire = ? WHERE id = ?", (at.wall, schedule.id))
    return Claim(
        schedule, add_run(connection, schedule.id, Status.RUNNING, at.wall, at.wall, owner=owner, beat=at.steady)
    )


def beat(connection: sqlite3.Connection, at: ClockReading, numbers: Sequence[int]) -> list[int]:
    """Records a heartbeat. Returns the runs that were given up meanwhile and that another process runs now."""
    overtaken = []
    for number in numbers:
        alive = connection.execute(
            "UPDATE schedule_runs SET beat = ?, status = 'running', error = '' WHERE id = ?"
            " AND (status = 'running' OR status = 'lost' AND schedule NOT IN (SELECT schedule FROM schedule_runs"
            " WHERE status = 'running' AND id <> ?))",
            (at.steady, number, number),
        ).rowcount
        if not alive:
            overtaken.append(number)
    return overtaken


def finish(
    connection: sqlite3.Connection, number: int, status: Status, outcome: ScheduleOutcome, duration: float
) -> None:
    """Stores how a run ended. This also replaces the status `lost`."""
    connection.execute(
        "UPDATE schedule_runs SET status = ?, duration = ?, error = ?, result = ?, session = ?"
        " WHERE id = ? AND status IN ('running', 'lost')",
        (
            str(status),
            duration,
            clip_bytes(sendable(outcome.error), LONGEST_RESULT),
            clip_bytes(sendable(outcome.text), LONGEST_RESULT),
            clip_bytes(sendable(outcome.session), LONGEST_RESULT),
            number,
        ),
    )


def refuse(connection: sqlite3.Connection, number: int, *, is_active: bool) -> None:
    """Removes a claim that workers have handled; marks it as skipped if their previous run is still active."""
    if is_active:
        values = (str(Status.SKIPPED), STILL_ACTIVE, number)
        connection.execute("UPDATE schedule_runs SET status = ?, error = ? WHERE id = ?", values)
    else:
        connection.execute("DELETE FROM schedule_runs WHERE id = ?", (number,))


def _mark_lost(connection: sqlite3.Connection, at: ClockReading, owner: str) -> list[ScheduleRun]:
    """Marks runs without a heartbeat as lost. The steady clock restarts at zero when the machine does."""
    silent = runs(
        connection,
        "WHERE status = 'running' AND owner <> ? AND (beat < ? OR beat > ?)",
        (owner, at.steady - LEASE, at.steady + LEASE),
    )
    for run in silent:
        connection.execute("UPDATE schedule_runs SET status = 'lost', error = ? WHERE id = ?", (GONE, run.id))
    return [found for run in silent for found in runs(connection, "WHERE id = ?", (run.id,))]


def _plan_again(connection: sqlite3.Connection, at: ClockReading) -> None:
    """Plans again after the clock was set back; otherwise schedules would wait until the wrong time comes round.

    After a small step nothing is planned again, so that no time fires twice. A step is small if it is less than the
    schedule's own interval and less than three hours.
    """
    for row in rows(connection, "WHERE next_fire IS NOT NULL AND planned > ?", (at.wall + SMALL_STEP,)):
        if row.schedule.problem:
            continue
        interval = (row.schedule.next_fire or 0.0) - row.planned
        if row.planned - at.wall > min(max(interval, SMALL_STEP), LARGE_STEP):
            _advance(connection, row, at.wall)


def _claim_due(connection: sqlite3.Connection, row: Row, at: ClockReading, owner: str) -> Claim | ScheduleRun:
    schedule = row.schedule
    if schedule.problem:
        return _disable(connection, row, at.wall)
    due = schedule.next_fire if schedule.next_fire is not None else at.wall
    problem = _advance(connection, row, at.wall, spent=schedule.one_shot)
    if problem:
        return add_run(connection, schedule.id, Status.FAILED, due, at.wall, error=problem)
    connection.execute("UPDATE schedules SET last_fire = ? WHERE id = ?", (at.wall, schedule.id))
    run = add_run(connection, schedule.id, Status.RUNNING, due, at.wall, owner=owner, beat=at.steady)
    return Claim(schedule, run)


def _disable(connection: sqlite3.Connection, row: Row, now: float) -> ScheduleRun:
    """Disables a schedule that something else than Forge stored or changed."""
    name, problem = row.schedule.id, f"it was not run, and is disabled: {row.schedule.problem}"
    log.warning("schedule %s: %s", name, problem)
    connection.execute("UPDATE schedules SET next_fire = NULL, enabled = 0 WHERE id = ?", (name,))
    return add_run(connection, name, Status.FAILED, now, now, error=problem)


def _skip_due(connection: sqlite3.Connection, row: Row, now: float) -> ScheduleRun:
    if row.schedule.problem:
        return _disable(connection, row, now)
    due = row.schedule.next_fire if row.schedule.next_fire is not None else now
    problem = _advance(connection, row, now)
    status = Status.FAILED if problem else Status.SKIPPED
    return add_run(connection, row.schedule.id, status, due, now, error=problem or STILL_ACTIVE)


def _advance(connection: sqlite3.Connection, row: Row, now: float, *, spent: bool = False) -> str:
    """Plans the next time. Returns the problem that prevents it, or "". Missed times are not made up for."""
    problem = ""
    try:
        following = None if spent else row.next_after(now)
    except ToolError as error:  # its zone is gone from this machine, say
        following, problem = None, f"its next time cannot be computed: {error.message}"
    after = replace(row.schedule, enabled=row.schedule.enabled and not (spent or problem))
    connection.execute(
        "UPDATE schedules SET next_fire = ?, planned = ?, spent = ?, enabled = ?, seal = ? WHERE id = ?",
        (following, now, spent, after.enabled, seal_of(connection, after), row.schedule.id),
    )
    return problem
