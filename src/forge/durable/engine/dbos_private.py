"""All that Forge uses or knows of DBOS beyond its public interface. Nothing of DBOS is replaced: what it must do
differently happens on its connections, which are ours.

`tests/durable/test_dbos_private.py` checks each part with the installed version, and fails when the version changes.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from typing import Any

import sqlalchemy as sa
from dbos import DBOSClient, Serializer

from forge.durable.store.steps import FORMAT

VERIFIED = "3.3.0"  # the version of DBOS that all of this was verified with

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
    from psycopg.types.string import TextLoader  # only with Postgres

    class Loader(TextLoader):
        def load(self, data: Any) -> str | bytes:
            text = super().load(data)
            return REFUSED if text in (PICKLE, PICKLE.encode()) else text

    for kind in ("text", "varchar", "bpchar", "name"):
        connection.adapters.register_loader(kind, Loader)


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
