"""Makes, opens and seals a private SQLite file and begins its transactions; reads an unwritable one as it is."""

from __future__ import annotations

import errno
import json
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa

from forge.core.errors import ErrorKind
from forge.workspace.state import NAME
from forge.workspace.state.sealing import find_problem, seal_part
from forge.workspace.state.store import StoreError, make_private

_UNWRITABLE = frozenset({sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL})


def make_file(path: Path) -> None:
    """Makes the file if missing, readable by its owner alone; makes no directory. Raises `StoreError`."""
    try:
        if not path.parent.is_dir():
            raise OSError(errno.ENOENT, f"there is no directory {path.parent}")
        make_private(path)
    except OSError as error:
        if error.errno == errno.EROFS and path.is_file():  # it can be read
            return
        raise StoreError(
            f"{path} cannot be opened: {error.strerror or error}",
            ErrorKind.CONFIG,
            "It must be your own file, in an existing directory that you can write to.",
        ) from error


@dataclass(slots=True)
class ReadOnlyState:
    """Tells if an unwritable file may be read as it is (then later writes of others are not seen), and if it is."""

    allowed: bool
    happens: bool = False


def engine_for(url: sa.URL, patience: float, read_only: ReadOnlyState) -> sa.Engine:
    """Makes the engine. `patience`: seconds that another process may lock the file."""
    engine = sa.create_engine(url, hide_parameters=True, connect_args={"timeout": patience})

    def connect(dialect: sa.Dialect, _record: object, args: Any, kwargs: Any) -> Any:
        connection = dialect.connect(*args, **kwargs)
        try:
            connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
        except BaseException as error:
            connection.close()  # SQLAlchemy closes none that it never got
            path, code = Path(str(url.database)), getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code not in _UNWRITABLE or _has_log(path) or not read_only.allowed:
                raise
            read_only.happens = True
            return _connect_immutable(dialect, path, kwargs)
        return connection

    sa.event.listen(engine, "do_connect", connect)
    sa.event.listen(engine, "connect", lambda connection, _: _set_up(connection, patience))
    sa.event.listen(engine, "begin", _begin)
    return engine


def set_sync(connection: sa.Connection, mode: str) -> None:
    raw: Any = connection.connection.dbapi_connection
    if raw is not None:
        raw.execute(f"PRAGMA synchronous = {mode}")


def _connect_immutable(dialect: sa.Dialect, path: Path, kwargs: Any) -> Any:
    """Opens the file as immutable: a full or read-only disk has no room for the log's shared index. No process has the
    log open, so the file holds all data.
    """
    connection: Any = dialect.connect(f"file:{quote(str(path))}?immutable=1", uri=True, **kwargs)
    connection.execute("PRAGMA query_only = ON")
    return connection


def _has_log(path: Path) -> bool:
    log = Path(f"{path}-wal")
    return log.exists() and log.stat().st_size > 0


def _set_up(connection: Any, patience: float) -> None:
    connection.isolation_level = "IMMEDIATE"  # a writer waits for its turn and does not fail halfway
    connection.execute("PRAGMA trusted_schema = OFF")  # a planted file runs no code of its own
    if connection.execute("PRAGMA query_only").fetchone()[0]:
        return
    connection.execute("PRAGMA secure_delete = ON")
    connection.execute("PRAGMA foreign_keys = ON")  # for DBOS, when it works on this engine
    if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        _start_log(connection, patience)


def _start_log(connection: Any, patience: float) -> None:
    """Switches the write-ahead log on. SQLite does not wait by itself if several processes try this at once."""
    until = time.monotonic() + patience
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except Exception as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.01)


def _begin(connection: sa.Connection) -> None:
    kind = connection.get_execution_options().get("forge_transaction")
    if kind == "QUICK":
        set_sync(connection, "NORMAL")
    if kind is not None:  # otherwise the transaction is not ours and begins at its first write
        connection.exec_driver_sql("BEGIN DEFERRED" if kind == "DEFERRED" else "BEGIN IMMEDIATE")


def seal_row(connection: sa.Connection, *content: object) -> str:
    """Returns the seal of what a row decides; "" if programs cannot reach the database: Postgres, or another place."""
    file = file_of(connection)
    return "" if file is None else seal_part(file, _pack(content))


def find_row_problem(connection: sa.Connection, found: object, *content: object) -> str:
    """Returns why a row does not count, in a file that programs may reach; "" if it counts."""
    file = file_of(connection)
    return "" if file is None else find_problem(file, _pack(content), str(found or ""))


def is_sealed_file(connection: sa.Connection) -> bool:
    """Returns True if programs may reach the file, so that rows that decide something carry a seal."""
    file = file_of(connection)
    return file is not None and file.parent.name == NAME


def file_of(connection: sa.Connection) -> Path | None:
    """Returns the file of a SQLite database; None for Postgres."""
    url = connection.engine.url
    return Path(str(url.database)).absolute() if url.get_backend_name() == "sqlite" and url.database else None


def _pack(content: tuple[object, ...]) -> bytes:
    return json.dumps(content, sort_keys=True).encode()
