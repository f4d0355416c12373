"""Removes runs that are over: first the engine's records and their files, so that a crash can be repeated."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from forge.durable.engine.start_segments import workflow_id
from forge.durable.store import RunStore, tables
from forge.durable.store import remove as _remove
from forge.workspace.state import NAME as STATE

if TYPE_CHECKING:
    from dbos import DBOSClient

BATCH = 200  # runs removed in one transaction
DAY = 86_400.0  # seconds
SEGMENTS = 500  # … and segments in one of the engine's


def remove(store: RunStore, client: DBOSClient, run_id: str, workspace: Path | None) -> None:
    """Removes one run and its sub-runs. After a crash, call it again."""
    family = store.database.read(lambda connection: _remove.find_ended_family(connection, run_id))
    _forget(store, client, family, workspace)
    store.delete(run_id)


def prune(store: RunStore, client: DBOSClient, seconds: float, workspace: Path | None) -> Iterator[int]:
    """Removes runs that have been over for so long; yields the number of each batch."""
    before, database = store.now() - seconds, store.database
    store.update()
    for roots in _batches(store, before):
        _forget(store, client, database.read(partial(_remove.family_of, roots=roots)), workspace)
        yield database.write(partial(_remove.remove_old, roots=roots, before=before))
    database.checkpoint()


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """The days that ended runs, their events and their files are kept; 0: for ever."""

    runs: float = 0.0
    events: float = 0.0
    files: float = 0.0


def prune_kept(store: RunStore, client: DBOSClient, keep: Retention, workspace: Path | None = None) -> Iterator[int]:
    """Removes what is older than it is kept; yields the number of runs or rows of each batch."""
    if keep.runs:
        yield from prune(store, client, keep.runs * DAY, workspace)
    if keep.events:
        yield from _prune_rows(store, tables.events, keep.events * DAY)
    if keep.files:
        yield from _prune_rows(store, tables.files, keep.files * DAY, workspace)


def _prune_rows(store: RunStore, table: sa.Table, seconds: float, workspace: Path | None = None) -> Iterator[int]:
    """Removes the rows that belong to runs that have been over for so long."""
    database, before, after = store.database, store.now() - seconds, ""
    store.update()
    while some := database.read(partial(_remove.find_with_rows, table=table, before=before, after=after, limit=BATCH)):
        after = some[-1]
        if workspace is not None:
            family = [(run, 0) for run in some]
            _forget_files(workspace, database.read(partial(_remove.files_of, family=family)))
        yield database.write(partial(_remove.remove_rows, table=table, names=some, before=before))


def count_prunable(store: RunStore, seconds: float) -> int:
    return sum(map(len, _batches(store, store.now() - seconds)))


def _batches(store: RunStore, before: float) -> Iterator[_remove.Family]:
    """Yields old runs without a parent whose whole family is old."""
    read, after = store.database.read, ""
    while some := read(partial(_remove.find_old, before=before, after=after, limit=BATCH)):
        after = some[-1][0]
        if roots := read(partial(_remove.filter_old_families, roots=some, before=before)):
            yield roots


def _forget(store: RunStore, client: DBOSClient, family: _remove.Family, workspace: Path | None) -> None:
    _forget_segments(store, client, family)
    if workspace is not None:
        _forget_files(workspace, store.database.read(lambda connection: _remove.files_of(connection, family)))


def _forget_files(workspace: Path, names: Sequence[str]) -> None:
    """Removes the files that are in this workspace. A run resumed meanwhile restores its files from the database."""
    from forge.durable.engine.spilled_files import is_spilled  # the engine, which reading runs does without

    folder = workspace / STATE / "spill"
    if not folder.is_dir():  # do not make it
        return
    for name in names:
        with contextlib.suppress(OSError, ValueError):  # gone already, or no name of a file
            if is_spilled(folder / name, workspace):
                (folder / name).unlink()


def _forget_segments(store: RunStore, client: DBOSClient, family: _remove.Family) -> None:
    again = store.database.read(lambda connection: _remove.find_started_again(connection, family))
    ids = [workflow_id(run, number) for run, last in family for number in range(1, last + 1)]
    ids += [workflow_id(run, number, start) for run, number, starts in again for start in range(2, starts + 1)]
    for start in range(0, len(ids), SEGMENTS):
        try:
            client.delete_workflows(ids[start : start + SEGMENTS])
        except SQLAlchemyError as error:
            raise store.database.explain_error(error) from error
