"""Removes runs: one, or those over for long. Every function works inside the caller's transaction."""

from __future__ import annotations

import sqlalchemy as sa

from forge.core.errors import ErrorKind
from forge.durable.store.events import lock_events
from forge.durable.store.find import find_run
from forge.durable.store.rows import OVER
from forge.durable.store.tables import (
    HAS_PARENT,
    background,
    events,
    files,
    intents,
    marks,
    messages,
    questions,
    runs,
    segments,
)
from forge.workspace.state.store import StoreError

AT_ONCE = 500  # rows in one statement
_PARTS = (messages, questions, events, files, background, intents, segments, marks)

Family = list[tuple[str, int]]  # runs with the numbers of their last segments


def remove_run(connection: sa.Connection, run_id: str) -> None:
    run = find_run(connection, run_id, lock=True)
    if not run.is_over:
        raise _not_over_error(run.id, run.status)
    names = [name for name, _ in find_ended_family(connection, run.id)]
    lock_events(connection, *names)
    _delete(connection, names)


def find_ended_family(connection: sa.Connection, run_id: str) -> Family:
    """Returns the run and its sub-runs, if all are over. Raises `StoreError`."""
    run = find_run(connection, run_id)
    family = family_of(connection, [(run.id, run.segment)])
    for some in _portions([name for name, _ in family]):
        query = sa.select(runs.c.id, runs.c.status).where(runs.c.id.in_(some), runs.c.status.not_in(OVER))
        if (going_on := connection.execute(query.limit(1)).first()) is not None:
            raise _not_over_error(going_on.id, going_on.status)
    return family


def files_of(connection: sa.Connection, family: Family) -> list[str]:
    """Returns the names of their files."""
    portions = _portions([name for name, _ in family])
    queries = [sa.select(files.c.name).where(files.c.run.in_(some)) for some in portions]
    return [name for query in queries for name in connection.execute(query).scalars()]


def count_parts(connection: sa.Connection, run_ids: list[str]) -> dict[str, int]:
    """Counts what would be removed with these runs: `started` are runs that they started, `bytes` those of files."""
    family = [name for name, _ in family_of(connection, [(one, 0) for one in run_ids])]
    counts = dict.fromkeys(("started", "events", "questions", "files", "bytes", "marks"), 0)
    counts["started"] = len(family) - len(run_ids)
    for some in _portions(family):
        for name, table, value in (
            ("events", events, sa.func.coalesce(sa.func.sum(events.c.size), 0)),
            ("questions", questions, sa.func.count()),
            ("files", files, sa.func.count()),
            ("bytes", files, sa.func.coalesce(sa.func.sum(files.c.size), 0)),
            ("marks", marks, sa.func.count()),
        ):
            query = sa.select(value).select_from(table).where(table.c.run.in_(some))
            counts[name] += int(connection.execute(query).scalar_one())
    return counts


def find_started_again(connection: sa.Connection, family: Family) -> list[tuple[str, int, int]]:
    """Returns their segments that were started more than once, with the number of starts."""
    c, portions = segments.c, _portions([name for name, _ in family])
    queries = [sa.select(c.run, c.segment, c.starts).where(c.run.in_(some), c.starts > 1) for some in portions]
    return [(row.run, row.segment, row.starts) for query in queries for row in connection.execute(query)]


def _not_over_error(run_id: str, status: str) -> StoreError:
    message = f"run {run_id} is {status}, and only runs that have ended can be deleted"
    return StoreError(message, ErrorKind.USER, f"Cancel it first: forge runs cancel {run_id}")


def _portions(ids: list[str]) -> list[list[str]]:
    return [ids[start : start + AT_ONCE] for start in range(0, len(ids), AT_ONCE)]


def find_old(connection: sa.Connection, before: float, after: str, limit: int) -> Family:
    """Returns old runs after that id, in the order of ids; some may have sub-runs that are not old."""
    query = sa.select(runs.c.id, runs.c.segment).where(*_is_old(before), runs.c.id > after)
    return [(row.id, row.segment) for row in connection.execute(query.order_by(runs.c.id).limit(limit))]


def filter_old_families(connection: sa.Connection, roots: Family, before: float) -> Family:
    """Returns the runs whose whole family has been over for as long."""
    root_of = {name: name for name, _ in roots}
    latest = list(root_of)
    young = set[str]()  # roots
    while latest:
        columns = (runs.c.id, runs.c.parent, runs.c.status, runs.c.updated)
        queries = [sa.select(*columns).where(runs.c.parent.in_(some), HAS_PARENT) for some in _portions(latest)]
        found = [row for query in queries for row in connection.execute(query) if row.id not in root_of]
        for row in found:
            root_of[row.id] = root_of[row.parent]
            if row.status not in OVER or row.updated >= before:
                young.add(root_of[row.id])
        latest = [row.id for row in found]
    return [root for root in roots if root[0] not in young]


def family_of(connection: sa.Connection, roots: Family) -> Family:
    """Returns the runs and all their sub-runs."""
    everybody, latest = dict(roots), [run for run, _ in roots]
    while latest:
        query = sa.select(runs.c.id, runs.c.segment).where(runs.c.parent.in_(latest), HAS_PARENT)
        latest = []
        for row in connection.execute(query):
            if row.id not in everybody:
                everybody[row.id] = row.segment
                latest.append(row.id)
    return list(everybody.items())


def remove_old(connection: sa.Connection, roots: Family, before: float) -> int:
    """Removes runs that were not resumed meanwhile; returns the number."""
    still = sa.select(runs.c.id, runs.c.segment).where(*_is_old(before), runs.c.id.in_([run for run, _ in roots]))
    locked = [(row.id, row.segment) for row in connection.execute(still.with_for_update())]
    names = [run for run, _ in family_of(connection, filter_old_families(connection, locked, before))]
    _delete(connection, names)
    return len(names)


def find_with_rows(connection: sa.Connection, table: sa.Table, before: float, after: str, limit: int) -> list[str]:
    """Returns runs after that id that have been over since then and have rows of a table, such as events."""
    has_rows = sa.exists().where(table.c.run == runs.c.id)
    query = sa.select(runs.c.id).where(*_is_over(before), runs.c.id > after, has_rows)
    return list(connection.execute(query.order_by(runs.c.id).limit(limit)).scalars())


def remove_rows(connection: sa.Connection, table: sa.Table, names: list[str], before: float) -> int:
    """Removes the rows of runs that were not resumed meanwhile; returns their number."""
    still = sa.select(runs.c.id).where(*_is_over(before), runs.c.id.in_(names)).with_for_update()
    ids = list(connection.execute(still).scalars())
    return connection.execute(sa.delete(table).where(table.c.run.in_(ids))).rowcount


def _delete(connection: sa.Connection, names: list[str]) -> None:
    for some in _portions(names):
        for table in _PARTS:
            connection.execute(sa.delete(table).where(table.c.run.in_(some)))
        connection.execute(sa.delete(runs).where(runs.c.id.in_(some)))


def _is_old(before: float) -> tuple[sa.ColumnElement[bool], ...]:
    """Matches runs without a parent, over since then. (`created` has an index.)"""
    return (*_is_over(before), runs.c.parent == "")


def _is_over(before: float) -> tuple[sa.ColumnElement[bool], ...]:
    return (runs.c.status.in_(OVER), runs.c.created < before, runs.c.updated < before)
