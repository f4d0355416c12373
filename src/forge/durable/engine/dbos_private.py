"""All that Forge uses or knows of DBOS beyond its public interface. Nothing of DBOS is replaced: what it must do
differently happens on its connections, which are ours.

`tests/durable/test_dbos_private.py` checks each part with the installed version, and fails when the version changes.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, NamedTuple

import sqlalchemy as sa
from dbos import DBOSClient, Serializer
from psycopg.types.string import TextLoader

from forge.durable.store.database import Database

VERIFIED = "3.3.0"  # the version of DBOS that all of this was verified with

APPLICATION = "forge"  # DBOS's name of the application: other applications may share the database
FORMAT = "forge_json"  # DBOS's name of our serializer

# 1. Migrations. `DBOS.migrate` makes its own connections: without the settings of ours, and with SQLite without a
# transaction, so that a killed process would leave half of the tables. So we call what it calls.


def run_migrations(engine: sa.Engine) -> None:
    """Makes or updates DBOS's tables, with connections of this engine."""
    client = DBOSClient(system_database_engine=engine, serializer=JsonSerializer(), lazy=True)
    try:
        client._sys_db.run_migrations()
    finally:
        client.destroy()


# 2. Times. From Python 3.12 on, DBOS writes unixepoch('subsec'), which is NULL in SQLite before 3.42, and such a SQLite
# is common: Debian 12 has one. Its statements are changed to whole seconds on their way, as DBOS has them on 3.11.

_NEWER = {
    "unixepoch('subsec')": "strftime('%s', 'now')",  # in the defaults of columns
    "unixepoch(?)": "(strftime('%s', 'now') + 0 * length(?))",  # in statements; the parameter is 'subsec'
}


def with_old_times(engine: sa.Engine, version: tuple[int, ...] = sqlite3.sqlite_version_info) -> sa.Engine:
    """Returns the engine for DBOS to work with. Its connections are the same; another SQLite needs nothing."""
    if engine.dialect.name != "sqlite" or version >= (3, 42) or sys.version_info < (3, 12):
        return engine
    return use_whole_seconds(engine)


def use_whole_seconds(engine: sa.Engine) -> sa.Engine:
    changed = engine.execution_options()  # its listeners are not those of our own statements
    sa.event.listen(changed, "before_cursor_execute", _change_times, retval=True)
    return changed


def _change_times(_: object, __: object, statement: str, parameters: Any, *___: object) -> tuple[str, Any]:
    for newer, older in _NEWER.items():
        statement = statement.replace(newer, older)
    return statement, parameters


# 3. Pickles. Forge's data is JSON: with a pickle, anyone who can write to the database could run code. But DBOS
# unpickles each row whose column `serialization` says so, with any serializer, and has no setting for it. Our
# connections give such a row another name, which DBOS does not know, so that it refuses the row.

PICKLE, REFUSED = "py_pickle", "py_pickle, which Forge refuses"


def refuse_pickles(engine: sa.Engine) -> None:
    """Refuses pickles on the engine's new connections, which must be DBOS's alone: each text costs a call."""
    is_sqlite = engine.dialect.name == "sqlite"
    sa.event.listen(engine, "connect", _refuse_in_sqlite if is_sqlite else _refuse_in_postgres)


def _refuse_in_sqlite(connection: sqlite3.Connection, _: object) -> None:
    connection.text_factory = lambda data: REFUSED if data == PICKLE.encode() else data.decode()


def _refuse_in_postgres(connection: Any, _: object) -> None:
    for kind in ("text", "varchar", "bpchar", "name"):
        connection.adapters.register_loader(kind, _LoadNoPickles)


class _LoadNoPickles(TextLoader):
    def load(self, data: Any) -> str | bytes:
        text = super().load(data)
        return REFUSED if text in (PICKLE, PICKLE.encode()) else text


class RecordedError(Exception):
    """An exception that a step or a workflow raised in some process, as recorded."""


class JsonSerializer(Serializer):
    """Stores JSON in plain ASCII (so that no NUL reaches Postgres), never a pickle."""

    def serialize(self, data: Any) -> str:
        if isinstance(data, BaseException):
            data = {"__error__": f"{type(data).__name__}: {data}"}
        return json.dumps(data, separators=(",", ":"))

    def deserialize(self, serialized_data: str) -> Any:
        data = json.loads(serialized_data)
        if isinstance(data, dict) and data.keys() == {"__error__"}:
            return RecordedError(data["__error__"])
        return data

    def decode(self, serialized_data: str, name: str | None) -> Any:
        """Decodes what a serializer of this name wrote. Raises `TypeError` if it was not ours."""
        if name in (FORMAT, None):
            return self.deserialize(serialized_data)
        raise TypeError(
            f"data of the serializer {name} in the durable database was not loaded: Forge writes JSON, and a pickle"
            " could run any code"
        )

    def name(self) -> str:
        return FORMAT


# 4. Workflows without an outcome. DBOS records how a workflow ended, whatever it returns or raises, and a recorded one
# never runs again. `asyncio.CancelledError` is the exception: then the workflow stays as it is in the database.


class NoOutcome(asyncio.CancelledError):
    """Raise this in a workflow that another one will repeat: DBOS records nothing. The segment stays begun, until it is
    handed back or requeued.
    """


# 5. The loop's threads. In a workflow, DBOS makes its own pool the default of the running loop. When DBOS ends, it
# shuts the pool down, and the loop could start no thread any more: `asyncio.to_thread` would raise.


def renew_default_threads() -> None:
    """Gives the running loop a new pool of threads. Call it when DBOS has ended."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(thread_name_prefix="forge"))


# 6. Recorded steps. They are in DBOS's table `operation_outputs`, whose columns DBOS documents, so that its own tools
# show them. DBOS itself needs ten statements for a step: it looks for an earlier record, checks who owns the workflow,
# inserts, and begins and ends two transactions. An attempt reads all earlier records once, when it begins. Then one
# statement records a step, if the attempt still runs the segment.

StepState = Literal["recorded", "taken", "lost"]
"""The state of a step: recorded by this attempt, recorded otherwise, or refused, because another attempt runs the
segment.
"""


class RecordedStep(NamedTuple):
    """A step that an earlier attempt recorded."""

    name: str
    output: str | None  # serialized
    serialization: str | None


class StepToRecord(NamedTuple):
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


def list_recorded_steps(database: Database, workflow: str) -> dict[int, RecordedStep]:
    """Returns the recorded steps of a workflow by their numbers."""
    return database.read(lambda connection: _list_steps(connection, workflow))


def record_step(database: Database, step: StepToRecord) -> StepState:
    """Records a step if its attempt still runs the segment. One statement decides, also outside of a transaction."""
    return database.write_once(lambda connection: _insert_step(connection, step))


def _list_steps(connection: sa.Connection, workflow: str) -> dict[int, RecordedStep]:
    columns = "function_id, function_name, output, serialization"
    query = f"SELECT {columns} FROM {_table(connection)} WHERE workflow_uuid = :workflow"  # noqa: S608 - all of it is ours
    rows = connection.execute(sa.text(query), {"workflow": workflow})
    return {number: RecordedStep(*row) for number, *row in rows}


def _insert_step(connection: sa.Connection, step: StepToRecord) -> StepState:
    is_sqlite = connection.dialect.name == "sqlite"
    values: dict[str, Any] = step._asdict()
    if is_sqlite:
        values["now"] = time.time()
    if connection.execute(_INSERTS[is_sqlite], values).first() is not None:
        return "recorded"
    return _find_state(connection, step)


def _find_state(connection: sa.Connection, step: StepToRecord) -> StepState:
    """Finds why a step was not inserted: it was before, if the connection broke at the commit."""
    found = _list_steps(connection, step.workflow).get(step.number)
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
