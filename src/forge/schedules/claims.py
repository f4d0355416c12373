"""Claims, skips and gives up runs of due schedules. The caller holds one transaction around each call."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from forge.core.errors import ErrorKind, ToolError
from forge.core.plain_values import clip_bytes, sendable
from forge.schedules.schedule import LONGEST_RESULT, Outcome, Run, Schedule, Status
from forge.schedules.schedule_rows import Row, add_run, require_row, rows, runs, seal_of

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
    run: Run


class Tick(NamedTuple):
    """The result of one check for due schedules."""

    claims: list[Claim]
    skipped: list[Run]  # includes failed runs of schedules that can no longer be planned
    lost: list[Run]


class Moment(NamedTuple):
    """The wall clock, and a monotonic clock that all processes of the machine share."""

    wall: float
    steady: float


def has_work(connection: sqlite3.Connection, at: Moment) -> bool:
    found = connection.execute(
        "SELECT EXISTS (SELECT 1 FROM schedules WHERE next_fire <= ?)"
        " OR EXISTS (SELECT 1 FROM schedules WHERE planned > ? AND next_fire IS NOT NULL)"
        " OR EXISTS (SELECT 1 FROM schedule_runs WHERE status = 'running' AND (beat < ? OR beat > ?))",
        (at.wall, at.wall + SMALL_STEP, at.steady - LEASE, at.steady + LEASE),
    ).fetchone()
    return bool(found[0])


def tick(connection: sqlite3.Connection, at: Moment, owner: str, free: int, upto: float) -> Tick:
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
    return Tick(claims, skipped + [one for one in found if isinstance(one, Run)], lost)


def start(connection: sqlite3.Connection, at: Moment, owner: str, name: str) -> Claim:
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


def beat(connection: sqlite3.Connection, at: Moment, numbers: Sequence[int]) -> list[int]:
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


def finish(connection: sqlite3.Connection, number: int, status: Status, outcome: Outcome, duration: float) -> None:
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


def _mark_lost(connection: sqlite3.Connection, at: Moment, owner: str) -> list[Run]:
    """Marks runs without a heartbeat as lost. The steady clock restarts at zero when the machine does."""
    silent = runs(
        connection,
        "WHERE status = 'running' AND owner <> ? AND (beat < ? OR beat > ?)",
        (owner, at.steady - LEASE, at.steady + LEASE),
    )
    for run in silent:
        connection.execute("UPDATE schedule_runs SET status = 'lost', error = ? WHERE id = ?", (GONE, run.id))
    return [found for run in silent for found in runs(connection, "WHERE id = ?", (run.id,))]


def _plan_again(connection: sqlite3.Connection, at: Moment) -> None:
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


def _claim_due(connection: sqlite3.Connection, row: Row, at: Moment, owner: str) -> Claim | Run:
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


def _disable(connection: sqlite3.Connection, row: Row, now: float) -> Run:
    """Disables a schedule that something else than Forge stored or changed."""
    name, problem = row.schedule.id, f"it was not run, and is disabled: {row.schedule.problem}"
    log.warning("schedule %s: %s", name, problem)
    connection.execute("UPDATE schedules SET next_fire = NULL, enabled = 0 WHERE id = ?", (name,))
    return add_run(connection, name, Status.FAILED, now, now, error=problem)


def _skip_due(connection: sqlite3.Connection, row: Row, now: float) -> Run:
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
