"""The schedules of a workspace: what is planned, what was run, in the project's store."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, Unpack

from forge.core.errors import ErrorKind, ToolError
from forge.core.plain_values import sendable
from forge.schedules import _claims, _rows
from forge.schedules._claims import Claim, Moment, Tick
from forge.schedules._definitions import (
    NOWHERE,
    Definition,
    Here,
    check_may_change,
    checked,
    declared,
    for_change,
    for_new,
    id_of,
    revised,
    same,
)
from forge.schedules.schedule import Outcome, Run, Schedule, Source, Status
from forge.workspace.state import NAME, state_directory, why_not
from forge.workspace.state.store import Store

FILE = "state.db"

Schedules = list[Schedule]  # inside the class, `list` is its method


class ScheduleStore:
    """Every change is one transaction, so that many processes may share it.

    `clock` says what time it is. `steady` counts seconds that nobody sets, and is the same for all processes of the
    machine: by it a killed runner is told from a busy one, whatever happens to the clock.
    """

    def __init__(
        self,
        path: Path | None,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """Without a path it is kept in memory."""
        self.path = path
        self.clock = clock
        self.steady = steady
        self._store = Store(path, "schedules", _rows.MIGRATIONS)

    @classmethod
    def of(cls, workspace: Path) -> ScheduleStore:
        """The workspace's own. Raises `ToolError` where it cannot be written: what is planned must not be forgotten."""
        directory = state_directory(workspace)
        if directory != workspace / NAME:
            problem, way = why_not(workspace)
            raise ToolError(f"{problem}, so no schedule can be kept there", ErrorKind.CONFIG, way)
        return cls(directory / FILE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file; the next call opens it again."""
        self._store.close()

    # what a person or a model does

    def set(self, *, by: Source = Source.MODEL, here: Here = NOWHERE, **definition: Unpack[Definition]) -> Schedule:
        """Make a schedule, or change the one of that id, which keeps what is not said.

        Raises `ToolError` where something cannot be, or where the configuration declares that id.
        """
        with self._store.writing() as connection:
            _, row = self._laid_over(connection, by, here, definition)
            _rows.put(connection, row)
        return row.schedule

    def draft(self, *, here: Here = NOWHERE, **definition: Unpack[Definition]) -> tuple[Schedule | None, Schedule]:
        """What is there, and what `set` would make of it. Nothing is written."""
        with self._store.reading() as connection:
            old, row = self._laid_over(connection, Source.MODEL, here, definition)
        return old.schedule if old else None, row.schedule

    def get(self, id: str) -> Schedule:
        with self._store.reading() as connection:
            return _rows.existing(connection, id).schedule

    def list(self, enabled_only: bool = False) -> Schedules:
        """All of them, in the order of their ids."""
        condition = "WHERE enabled ORDER BY id" if enabled_only else "ORDER BY id"
        with self._store.reading() as connection:
            return [row.schedule for row in _rows.rows(connection, condition)]

    def delete(self, id: str, by: Source = Source.MODEL) -> Schedule:
        """Remove it; its history stays. A person may remove anything, a model nothing that is declared."""
        with self._store.writing() as connection:
            found = _rows.existing(connection, id).schedule
            if by is not Source.PERSON:
                check_may_change(found)
            connection.execute("DELETE FROM schedules WHERE id = ?", (found.id,))
        return found

    def removable(self, id: str) -> Schedule:
        """A schedule that a model may remove. Raises `ToolError`."""
        found = self.get(id)
        check_may_change(found)
        return found

    def history(self, schedule_id: str | None = None, limit: int = 20) -> Sequence[Run]:
        """The latest runs first."""
        if schedule_id is None:
            with self._store.reading() as connection:
                return _rows.runs(connection, "ORDER BY id DESC LIMIT ?", (limit,))
        with self._store.reading() as connection:
            condition = "WHERE schedule = ? ORDER BY id DESC LIMIT ?"
            found = _rows.runs(connection, condition, (sendable(schedule_id), limit))
            if not found:
                _rows.existing(connection, schedule_id)
            return found

    def run(self, number: int) -> Run | None:
        """A run by its number, as it is now; None where it is too old to be remembered."""
        with self._store.reading() as connection:
            return _rows.run_of(connection, number)

    def declare(self, entries: Sequence[Mapping[str, Any]], origin: str = "forge.yaml") -> None:
        """Make the schedules of a configuration file be exactly these. What did not change keeps its plan.

        Nothing is written where nothing changed. Raises `ToolError` that names the entry.
        """
        wanted = declared(entries, origin)
        with self._store.reading() as connection:
            if _is_declared(_rows.rows(connection, "WHERE origin = ?", (origin,)), wanted):
                return
        with self._store.writing() as connection:
            now = self.clock()
            connection.executemany(
                "DELETE FROM schedules WHERE id = ? AND origin = ?",
                [
                    (row.schedule.id, origin)
                    for row in _rows.rows(connection, "WHERE origin = ?", (origin,))
                    if row.schedule.id not in wanted
                ],
            )
            for one in wanted.values():
                _rows.put(connection, revised(_rows.row_of(connection, one.id), one, now))
            _check_room(_rows.count(connection) - 1)

    # what runners do

    def next_due(self) -> float | None:
        """When something is due next, whoever runs it; None: nothing is planned."""
        with self._store.reading() as connection:
            found = connection.execute(
                "SELECT next_fire FROM schedules WHERE next_fire IS NOT NULL ORDER BY next_fire LIMIT 1"
            ).fetchone()
        return found[0] if found else None

    def tick(self, owner: str, free: int, upto: float | None = None) -> Tick:
        """Claim what is due, for `owner` to run: at most `free`, and only what was due by `upto`."""
        with self._store.reading() as connection:
            if not _claims.is_anything_to_do(connection, self._now()):
                return Tick([], [], [])
        with self._store.writing() as connection:
            at = self._now()  # the lock may have been waited for
            return _claims.tick(connection, at, owner, free, at.wall if upto is None else upto)

    def start(self, owner: str, id: str) -> Claim:
        """Claim a schedule now, whether it is due or not."""
        with self._store.writing() as connection:
            return _claims.start(connection, self._now(), owner, id)

    def beat(self, numbers: Sequence[int]) -> Sequence[int]:
        """Say that these runs are still active. Which of them are done by somebody else by now, and must stop."""
        with self._store.writing() as connection:
            return _claims.beat(connection, self._now(), numbers)

    def finish(self, number: int, status: Status, outcome: Outcome, duration: float) -> Run | None:
        """Remember how a run ended."""
        with self._store.writing() as connection:
            _claims.finish(connection, number, status, outcome, duration)
            return _rows.run_of(connection, number)

    def refuse(self, number: int, *, is_active: bool) -> Run | None:
        """Take a claim back: workers have seen to this time. `is_active`: they are still at the one before, so that
        this one is skipped."""
        with self._store.writing() as connection:
            _claims.refuse(connection, number, is_active=is_active)
            return _rows.run_of(connection, number)

    # within

    def _laid_over(
        self, connection: sqlite3.Connection, by: Source, here: Here, definition: Definition
    ) -> tuple[_rows.Row | None, _rows.Row]:
        """The row there is, and the one that shall be."""
        old = _rows.row_of(connection, id_of(definition))
        if old is None:
            wanted = checked(source=by, **for_new(definition, here))
            _check_room(_rows.count(connection))
        else:
            check_may_change(old.schedule)
            kept = old.schedule.enabled or old.spent  # a one-shot that has fired is set to fire again
            before = replace(old.schedule, enabled=kept)
            wanted = checked(source=old.schedule.source, old=before, **for_change(definition, here))
        return old, revised(old, wanted, self.clock(), arm=True)

    def _now(self) -> Moment:
        return Moment(self.clock(), self.steady())


def _check_room(count: int) -> None:
    most = _rows.MOST_SCHEDULES
    if count >= most:
        raise ToolError(
            f"no schedule can be added: there are {count:,} already, and {most:,} are the most",
            suggestion="Remove one that is not needed any more: schedule_list shows them, schedule_delete removes one.",
        )


def _is_declared(found: Sequence[_rows.Row], wanted: Mapping[str, Schedule]) -> bool:
    return len(found) == len(wanted) and all(
        row.schedule.id in wanted and same(row, wanted[row.schedule.id]) for row in found
    )
