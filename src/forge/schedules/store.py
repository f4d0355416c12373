"""Stores the schedules of a workspace, their plans and their runs in the project's database."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, Unpack

from forge.core.errors import ErrorKind, ToolError
from forge.core.plain_values import sendable
from forge.schedules import tables
from forge.schedules.schedule import (
    NO_CHAT,
    CurrentChat,
    Definition,
    Schedule,
    ScheduleOutcome,
    ScheduleRun,
    Source,
    Status,
    build_schedule,
    check_may_change,
    complete_change,
    complete_new,
    id_of,
    read_declared,
)
from forge.schedules.tables import Claim, ClockReading, Tick
from forge.workspace.state import NAME, explain_unusable, state_directory
from forge.workspace.state.store import Store

FILE = "state.db"

Schedules = list[Schedule]  # inside the class, `list` is its method


class ScheduleStore:
    """Schedules in a database. Every change is one transaction, so that many processes may share it.

    Args:
        path: the file; None: in memory. `ScheduleStore.of(workspace)` uses the file of a project.
        clock: the wall clock.
        steady: a monotonic clock that all processes of the machine share. It distinguishes a killed runner from a busy
            one, whatever happens to the wall clock.

    Example:
        >>> store = ScheduleStore(None)
        >>> store.set(id="nightly", cron="0 3 * * *", task="Check the backups.").enabled
        True
    """

    def __init__(
        self,
        path: Path | None,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """Opens the store; without a path it is in memory."""
        self.path = path
        self.clock = clock
        self.steady = steady
        self._store = Store(path, "schedules", tables.MIGRATIONS)

    @classmethod
    def of(cls, workspace: Path) -> ScheduleStore:
        """Returns the workspace's own store. Raises `ToolError` if it is not writable: plans must not be forgotten."""
        directory = state_directory(workspace)
        if directory != workspace / NAME:
            problem, way = explain_unusable(workspace)
            raise ToolError(f"{problem}, so no schedule can be stored there", ErrorKind.CONFIG, way)
        return cls(directory / FILE)

    def __repr__(self) -> str:
        return f"<ScheduleStore {self.path if self.path is not None else 'in memory'}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file; the next call opens it again."""
        self._store.close()

    # for people and models

    def set(
        self, *, by: Source = Source.MODEL, here: CurrentChat = NO_CHAT, **definition: Unpack[Definition]
    ) -> Schedule:
        """Creates a schedule, or changes the one with that id; missing keys keep their values.

        A model changes only what a model has set; a change by a person makes the schedule the person's. Raises
        `ToolError` if a value is invalid, the configuration declares that id, or the schedule is a person's.
        """
        with self._store.write_transaction() as connection:
            _, row = self._merge_definition(connection, by, here, definition)
            tables.write_row(connection, row)
        return row.schedule

    def draft(
        self, *, by: Source = Source.MODEL, here: CurrentChat = NO_CHAT, **definition: Unpack[Definition]
    ) -> tuple[Schedule | None, Schedule]:
        """Returns the stored schedule and the one that `set` would store. Nothing is written."""
        with self._store.read_transaction() as connection:
            old, row = self._merge_definition(connection, by, here, definition)
        return old.schedule if old else None, row.schedule

    def get(self, id: str) -> Schedule:
        with self._store.read_transaction() as connection:
            return tables.require_row(connection, id).schedule

    def list(self, enabled_only: bool = False) -> Schedules:
        """Returns all schedules in the order of their ids."""
        condition = "WHERE enabled ORDER BY id" if enabled_only else "ORDER BY id"
        with self._store.read_transaction() as connection:
            found = [row.schedule for row in tables.rows(connection, condition)]
        return [one for one in found if one.enabled] if enabled_only else found

    def enable(self, id: str) -> Schedule:
        """Enables a schedule for a person, who has seen what it runs. Raises `ToolError` for a configured one."""
        with self._store.write_transaction() as connection:
            row = tables.require_row(connection, id)
            check_may_change(row.schedule, Source.PERSON)
            wanted = replace(row.schedule, enabled=True, source=Source.PERSON, origin="", problem="")
            made = tables.revise_row(row, wanted, self.clock(), arm=True)
            tables.write_row(connection, made)
        return made.schedule

    def reseal(self) -> None:
        """Accepts all schedules as they are, for a person who has seen them."""
        with self._store.write_transaction() as connection:
            tables.reseal(connection)

    def delete(self, id: str, by: Source = Source.MODEL) -> Schedule:
        """Removes a schedule; its history stays. A model may remove only what a model has set."""
        with self._store.write_transaction() as connection:
            found = tables.require_row(connection, id).schedule
            if by is not Source.PERSON:
                check_may_change(found, by)
            connection.execute("DELETE FROM schedules WHERE id = ?", (found.id,))
        return found

    def removable(self, id: str) -> Schedule:
        """Returns a schedule that a model may remove. Raises `ToolError`."""
        found = self.get(id)
        check_may_change(found, Source.MODEL)
        return found

    def history(self, schedule_id: str | None = None, limit: int = 20) -> Sequence[ScheduleRun]:
        """Returns the runs, the latest first."""
        if schedule_id is None:
            with self._store.read_transaction() as connection:
                return tables.runs(connection, "ORDER BY id DESC LIMIT ?", (limit,))
        with self._store.read_transaction() as connection:
            condition = "WHERE schedule = ? ORDER BY id DESC LIMIT ?"
            found = tables.runs(connection, condition, (sendable(schedule_id), limit))
            if not found:
                tables.require_row(connection, schedule_id)
            return found

    def run(self, number: int) -> ScheduleRun | None:
        """Returns a run by its number; None if it is too old and was deleted."""
        with self._store.read_transaction() as connection:
            return tables.run_of(connection, number)

    def declare(self, entries: Sequence[Mapping[str, Any]], origin: str = "forge.yaml") -> None:
        """Makes the schedules of a configuration file be exactly these. Unchanged schedules keep their plans.

        Nothing is written if nothing changed. Raises `ToolError` that names the entry.
        """
        wanted = read_declared(entries, origin)
        with self._store.read_transaction() as connection:
            if _is_declared(tables.rows(connection, "WHERE origin = ?", (origin,)), wanted):
                return
        with self._store.write_transaction() as connection:
            now = self.clock()
            connection.executemany(
                "DELETE FROM schedules WHERE id = ? AND origin = ?",
                [
                    (row.schedule.id, origin)
                    for row in tables.rows(connection, "WHERE origin = ?", (origin,))
                    if row.schedule.id not in wanted
                ],
            )
            for one in wanted.values():
                tables.write_row(connection, tables.revise_row(tables.row_of(connection, one.id), one, now))
            _check_room(tables.count(connection) - 1)

    # for runners

    def next_due(self) -> float | None:
        """Returns the next due time of any schedule; None if nothing is planned."""
        with self._store.read_transaction() as connection:
            found = connection.execute(
                "SELECT next_fire FROM schedules WHERE next_fire IS NOT NULL ORDER BY next_fire LIMIT 1"
            ).fetchone()
        return found[0] if found else None

    def tick(self, owner: str, free: int, upto: float | None = None) -> Tick:
        """Claims due schedules for `owner`: at most `free`, and only those due by `upto`."""
        with self._store.read_transaction() as connection:
            if not tables.has_work(connection, self._now()):
                return Tick([], [], [])
        with self._store.write_transaction() as connection:
            at = self._now()  # the lock may have been waited for
            return tables.tick(connection, at, owner, free, at.wall if upto is None else upto)

    def start(self, owner: str, id: str) -> Claim:
        """Claims a schedule now, due or not."""
        with self._store.write_transaction() as connection:
            return tables.start(connection, self._now(), owner, id)

    def beat(self, numbers: Sequence[int]) -> Sequence[int]:
        """Records a heartbeat of these runs. Returns those that another process runs by now and that must stop."""
        with self._store.write_transaction() as connection:
            return tables.beat(connection, self._now(), numbers)

    def finish(self, number: int, status: Status, outcome: ScheduleOutcome, duration: float) -> ScheduleRun | None:
        """Stores how a run ended."""
        with self._store.write_transaction() as connection:
            tables.finish(connection, number, status, outcome, duration)
            return tables.run_of(connection, number)

    def refuse(self, number: int, *, is_active: bool) -> ScheduleRun | None:
        """Removes a claim that workers have handled. `is_active`: their previous run is still active, so this one is
        skipped."""
        with self._store.write_transaction() as connection:
            tables.refuse(connection, number, is_active=is_active)
            return tables.run_of(connection, number)

    # internal

    def _merge_definition(
        self, connection: sqlite3.Connection, by: Source, here: CurrentChat, definition: Definition
    ) -> tuple[tables.Row | None, tables.Row]:
        """Returns the stored row and the one to store."""
        old = tables.row_of(connection, id_of(definition))
        if old is not None and old.schedule.problem:
            check_may_change(old.schedule, by)
            old = None  # nothing of it is kept
        if old is None:
            wanted = build_schedule(source=by, **complete_new(definition, here))
            _check_room(tables.count(connection))
        else:
            check_may_change(old.schedule, by)
            is_enabled = old.schedule.enabled or old.spent  # a one-shot that has fired fires again
            before = replace(old.schedule, enabled=is_enabled)
            wanted = build_schedule(source=by, old=before, **complete_change(definition, here))
        return old, tables.revise_row(old, wanted, self.clock(), arm=True)

    def _now(self) -> ClockReading:
        return ClockReading(self.clock(), self.steady())


def _check_room(count: int) -> None:
    most = tables.MOST_SCHEDULES
    if count >= most:
        raise ToolError(
            f"no schedule can be added: there are already {count:,}, and the maximum is {most:,}",
            suggestion="Remove one that is no longer needed: schedule_list lists them, schedule_delete removes one.",
        )


def _is_declared(found: Sequence[tables.Row], wanted: Mapping[str, Schedule]) -> bool:
    return len(found) == len(wanted) and all(
        row.schedule.id in wanted and tables.has_definition(row, wanted[row.schedule.id]) for row in found
    )
