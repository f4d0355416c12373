"""Stores the recorded steps of segments, in DBOS's table of steps. Every function works inside the caller's
transaction.

DBOS itself needs ten statements for a step: it looks for an earlier record, checks who owns the workflow, inserts, and
begins and ends two transactions. An attempt reads all earlier records once, when it begins. Then one statement records
a step, if the attempt still runs the segment.
"""

from __future__ import annotations

import time
from typing import Any, Literal, NamedTuple

import sqlalchemy as sa

APPLICATION = "forge"  # DBOS's name of the application: other applications may share the database
FORMAT = "forge_json"  # DBOS's name of our serializer

State = Literal["recorded", "taken", "lost"]
"""The state of a step: recorded by this attempt, recorded otherwise, or refused, because another attempt runs the
segment.
"""


class StoredStep(NamedTuple):
    """A step that an earlier attempt recorded."""

    name: str
    output: str | None  # serialized
    error: str | None  # … which an older version recorded instead
    serialization: str | None


class NewStep(NamedTuple):
    """A step to record. `run`, `segment` and `attempt` say who may."""

    run: str
    segment: int
    attempt: str
    workflow: str
    number: int
    name: str
    output: str  # serialized
    started: int  # milliseconds since 1970
    completed: int


def list_steps(connection: sa.Connection, workflow: str) -> dict[int, StoredStep]:
    """Returns the recorded steps of a workflow by their numbers."""
    columns = "function_id, function_name, output, error, serialization"
    query = f"SELECT {columns} FROM {_table(connection)} WHERE workflow_uuid = :workflow"  # noqa: S608 - all of it is ours
    rows = connection.execute(sa.text(query), {"workflow": workflow})
    return {number: StoredStep(*row) for number, *row in rows}


def record_step(connection: sa.Connection, step: NewStep) -> State:
    """Records a step if its attempt still runs the segment. One statement decides, also outside of a transaction."""
    is_sqlite = connection.dialect.name == "sqlite"
    values: dict[str, Any] = step._asdict()
    if is_sqlite:
        values["now"] = time.time()
    if connection.execute(_INSERTS[is_sqlite], values).first() is not None:
        return "recorded"
    return _find_state(connection, step)


def _find_state(connection: sa.Connection, step: NewStep) -> State:
    """Finds why a step was not inserted: it was before, if the connection broke at the commit."""
    found = list_steps(connection, step.workflow).get(step.number)
    if found is not None and (found.name, found.output) == (step.name, step.output):
        return "recorded"
    owner = connection.execute(_OWNED, {"run": step.run, "segment": step.segment, "attempt": step.attempt}).first()
    return "lost" if owner is None else "taken"


def _table(connection: sa.Connection) -> str:
    return "operation_outputs" if connection.dialect.name == "sqlite" else "dbos.operation_outputs"


_OWNER = "FROM forge_runs WHERE id = :run AND segment = :segment AND attempt = :attempt AND status = 'running'"
_OWNED = sa.text(f"SELECT id {_OWNER}")


def _insert(table: str, now: str, lock: str) -> sa.TextClause:
    # the lock orders it with an attempt that takes over right now: either that one sees the step, or this one is lost
    return sa.text(f"""
        INSERT INTO {table} (workflow_uuid, function_id, function_name, output, serialization, started_at_epoch_ms,
            completed_at_epoch_ms, application_name, retention_timestamp)
        SELECT CAST(:workflow AS TEXT), CAST(:number AS INTEGER), CAST(:name AS TEXT), CAST(:output AS TEXT),
            '{FORMAT}', CAST(:started AS BIGINT), CAST(:completed AS BIGINT), '{APPLICATION}',
            CAST({now} * 1000 AS BIGINT)
        {_OWNER} {lock}
        ON CONFLICT (workflow_uuid, function_id) DO NOTHING RETURNING function_id""")


_INSERTS = {
    True: _insert("operation_outputs", ":now", ""),
    False: _insert("dbos.operation_outputs", "extract(epoch from statement_timestamp())", "FOR SHARE"),
}  # by whether it is SQLite
