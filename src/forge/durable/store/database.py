"""Connects to one database, SQLite in a private file or Postgres; runs its transactions and explains its errors."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote
from weakref import WeakSet

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from forge.core.errors import ErrorKind
from forge.core.plain_values import brief, clip_bytes, text_of
from forge.workspace.state import NAME
from forge.workspace.state.sealing import find_problem, seal_part
from forge.workspace.state.store import StoreError, make_private

PATIENCE = 30.0  # seconds that a database may be unreachable or locked
HOLDS = 10.0  # seconds that a Postgres client may be idle in a transaction, so that a paused machine holds no locks
CONNECTING = 10  # seconds to connect

T = TypeVar("T")


class Database:
    """Connects at the first transaction. Usable from any thread, and on both sides of a fork."""

    def __init__(
        self,
        url: str,
        patience: float = PATIENCE,
        *,
        first: Callable[[sa.Connection, str], object] | None = None,
        looks: bool = False,
        connections: int | None = None,
    ) -> None:
        """`patience`: seconds to retry while a known database is unreachable. `first` runs once before anything else,
        with the label. `looks`: a missing file is made only by `make_file`, and an unwritable one is opened read-only
        until then. `connections`: the most at once, with Postgres.
        """
        self._connections = connections
        self._url = parse_url(url)
        self._patience = patience
        self._first = first
        self._looking = ReadOnlyState(looks)
        self._lock = threading.Lock()
        self._engine: sa.Engine | None = None
        self._was_there = False
        self._on_write: Callable[[], object] | None = None
        _databases.add(self)

    @property
    def url(self) -> str:
        """The URL with its password: for engines, never for people."""
        name = "sqlite" if self.is_sqlite else "postgresql"
        return self._url.set(drivername=name).render_as_string(hide_password=False)

    @property
    def label(self) -> str:
        """The name for people: a file, or the server's address, without secrets."""
        return label_of(self._url)

    @property
    def is_sqlite(self) -> bool:
        return self._url.get_backend_name() == "sqlite"

    @property
    def engine(self) -> sa.Engine:
        with self._lock:
            if self._engine is None:
                self._engine = self._make_engine()
            return self._engine

    def read(self, work: Callable[[sa.Connection], T]) -> T:
        """Returns the result of `work`. With SQLite it sees one snapshot. With Postgres each of its statements sees its
        own, as in a transaction of the default level, so it needs no BEGIN and no COMMIT.
        """
        return self._run_with_retry(work, "DEFERRED" if self.is_sqlite else "LOOK")

    def write(self, work: Callable[[sa.Connection], T], *, lasting: bool = True) -> T:
        """Runs `work` and stores all of its changes, or none. It may run more than once, so it must be idempotent.

        `lasting`: survives a power failure; a killed process loses nothing either way.
        """
        return self._run_with_retry(work, "IMMEDIATE" if lasting else "QUICK")

    def write_once(self, work: Callable[[sa.Connection], T], *, lasting: bool = True) -> T:
        """Does the same for `work` that changes something with one statement: Postgres needs no BEGIN and no COMMIT."""
        return self._run_with_retry(work, "ONCE") if not self.is_sqlite else self.write(work, lasting=lasting)

    def on_write(self, listener: Callable[[], object]) -> None:
        """Calls this one listener after every write, in the thread that wrote. Others can read the change by then."""
        self._on_write = listener

    def close(self) -> None:
        """Closes all connections; the next call connects again."""
        with self._lock:
            engine, self._engine = self._engine, None
        if engine is not None:
            engine.dispose()

    def __del__(self) -> None:
        engine = getattr(self, "_engine", None)
        if engine is not None:  # not closed explicitly
            with contextlib.suppress(Exception):
                engine.dispose()

    def make_file(self) -> None:
        """Makes the file, or opens it for writing. Raises `StoreError`."""
        make_file(Path(str(self._url.database)))
        self._looking.allowed = False
        if self._looking.happens:
            self._looking.happens = False
            self.close()

    def checkpoint(self) -> None:
        """Writes SQLite's log into the file and empties it, so that deleted data is gone; later, if others are busy."""
        if self.is_sqlite:
            with contextlib.suppress(SQLAlchemyError), self.engine.connect() as connection:
                connection.connection.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)").close()

    def _run_with_retry(self, work: Callable[[sa.Connection], T], kind: str) -> T:
        until, pause = time.monotonic() + self._patience, 0.02
        while True:
            try:
                result = self._run_transaction(work, kind)
            except (ValueError, OverflowError) as error:  # not JSON, or a number too large for a column
                message = f"{self.label}: data cannot be stored, or stored data cannot be read: {text_of(error)}"
                raise StoreError(
                    message, ErrorKind.SYSTEM, "If a newer Forge wrote it, update Forge on this machine."
                ) from error
            except SQLAlchemyError as error:
                again = not self.is_sqlite and self._was_there and is_passing(error)
                if not again or time.monotonic() + pause > until:
                    raise self.explain_error(error) from error
            else:
                if self._on_write is not None and kind not in ("DEFERRED", "LOOK"):
                    self._on_write()
                return result
            time.sleep(pause)
            pause = min(1.0, pause * 2)

    def _run_transaction(self, work: Callable[[sa.Connection], T], kind: str) -> T:
        with self.engine.connect() as connection:
            self._was_there = True
            if kind in ("ONCE", "LOOK") and self._first is None:
                return work(connection.execution_options(isolation_level="AUTOCOMMIT"))
            try:
                with connection.execution_options(forge_transaction=kind).begin():
                    if (first := self._first) is not None:
                        first(connection, self.label)
                        self._first = None
                    return work(connection)
            finally:
                if kind == "QUICK" and self.is_sqlite and not connection.invalidated:
                    set_sync(connection, "FULL")  # for the next user of this connection

    def migrate_engine(self, engine: sa.Engine, migrate: Callable[[sa.Engine], object]) -> None:
        """Makes or updates DBOS's tables with `migrate`. Raises `StoreError`.

        With SQLite in one transaction, which Python's driver does not begin by itself for a CREATE TABLE: processes
        that start together would trip over each other, and one that is killed would leave half of the tables.
        """
        if self.is_sqlite:
            engine = engine.execution_options(forge_transaction="IMMEDIATE")
        try:
            _migrate_repeatedly(lambda: migrate(engine))
        except SQLAlchemyError as error:
            if is_forbidden(error):
                raise no_rights_error(f"the engine's tables of {self.label} are missing or old") from error
            raise self.explain_error(error) from error

    def explain_error(self, error: SQLAlchemyError) -> StoreError:
        return explain_error(self.label, error, self._secrets())

    def _secrets(self) -> set[str]:
        return {text for text in (self._url.password, *_texts(self._url.query)) if text}

    def _make_engine(self) -> sa.Engine:
        if not self.is_sqlite:
            engine = sa.create_engine(
                self._url,
                hide_parameters=True,  # messages of people stay out of logs
                connect_args={"connect_timeout": CONNECTING, "application_name": "forge", **_KEEPALIVES},
                **({} if self._connections is None else {"pool_size": self._connections, "max_overflow": 0}),
            )
            sa.event.listen(engine, "connect", set_up_connection)
            return engine
        path = Path(str(self._url.database))
        if self._looking.allowed and not os.path.lexists(path):
            raise no_file_error(self.label)
        make_file(path)
        return engine_for(self._url, PATIENCE, self._looking)


def _migrate_repeatedly(migrate: Callable[[], object]) -> None:
    """Migrates DBOS's tables, again if another process did so at the same time: behind a pooler, DBOS's lock, which is
    one of a session, does not exclude others.
    """
    for pause in (*(1.0,) * 5, 0.0):
        try:
            migrate()
            return
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) not in _RACES or not pause:
                raise
        time.sleep(pause)


# an object is there already, or was changed or locked by another process
_RACES = ("23505", "42P06", "42P07", "42701", "42710", "42723", "XX000", "40P01", "40001", "55P03")

_KEEPALIVES = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,  # milliseconds: also while a reply is outstanding
}  # a host that vanished is noticed


def parse_url(url: str) -> sa.URL:
    """Parses the URL of a database. Raises StoreError, without what may be its password."""
    if not isinstance(url, str):
        message = f"the URL of the durable database must be a string, not {brief(url)}"
        raise StoreError(message, ErrorKind.CONFIG, _EXAMPLES)
    if "\0" in url or not _is_encodable(url):
        message = "the URL of the durable database has characters that are not allowed in a path or a host name"
        raise StoreError(message, ErrorKind.CONFIG, _EXAMPLES)
    if url.startswith("postgres://"):
        url = f"postgresql://{url.removeprefix('postgres://')}"
    scheme = url.partition("://")[0]
    if "://" not in url or scheme not in ("sqlite", "postgresql", "postgresql+psycopg"):
        what = f"a {scheme.partition('+')[0]} database" if "://" in url else "something else"
        message = f"the durable database must be SQLite or Postgres, but its URL names {what}"
        raise StoreError(message, ErrorKind.CONFIG, _EXAMPLES)
    if scheme == "sqlite":
        return _sqlite_url(url)
    if url.partition("?")[0].count("@") > 1:
        message = (
            "the URL of the durable database has more than one @, so Forge cannot separate the password from the host"
        )
        raise StoreError(message, ErrorKind.CONFIG, "Write an @ in the password as %40, a / as %2F and a : as %3A.")
    try:
        found = sa.make_url(url).set(drivername="postgresql+psycopg")
    except (ArgumentError, ValueError):
        message = "the URL of the durable database cannot be read"
        raise StoreError(message, ErrorKind.CONFIG, _EXAMPLES) from None  # its message may hold the password
    if not found.database:
        message = f"the URL of the durable database names a server ({label_of(found)}), but no database on it"
        raise StoreError(message, ErrorKind.CONFIG, _EXAMPLES)
    return found


_EXAMPLES = "Write sqlite:///path/to/durable.db (a relative path), sqlite:////var/lib/durable.db (from the root), or \
postgresql://user:password@host/database."


def _sqlite_url(url: str) -> sa.URL:
    try:
        found = sa.make_url(url)
    except (ArgumentError, ValueError):
        found = sa.URL.create("sqlite")
    path = found.database or ""
    if not path or path == ":memory:" or path.startswith("file:") or found.host or "\0" in path:
        message = f"the durable database needs the path of a file, but {url} has none"
        raise StoreError(message, ErrorKind.CONFIG, _EXAMPLES)
    return sa.URL.create("sqlite", database=str(Path(path).expanduser().absolute()))


def _is_encodable(url: str) -> bool:
    try:
        url.encode()
    except UnicodeEncodeError:
        return False
    return True


def label_of(url: sa.URL) -> str:
    if url.get_backend_name() == "sqlite":
        return str(url.database)
    host = url.host or url.query.get("host") or "localhost"
    return f"postgresql://{host if isinstance(host, str) else ','.join(host)}{f':{url.port}' if url.port else ''}\
/{url.database or ''}"


def _texts(query: Any) -> list[str]:
    return [str(value) for name, value in query.items() if "pass" in name]


def set_up_connection(connection: Any, _record: object = None, idle: float | None = None) -> None:
    """Limits the seconds that a new connection to Postgres may be idle in a transaction. This is a statement, not a
    start-up option, which PgBouncer would refuse.

    Behind a pooler such as PgBouncer the next transaction may run on another connection of the server, which does not
    know the statements that were prepared before: then none is prepared.
    """
    connection.execute(f"SET idle_in_transaction_session_timeout = {(idle or HOLDS) * 1_000:.0f}")
    (server,) = connection.execute("SELECT pg_backend_pid()").fetchone()
    connection.commit()  # otherwise it is rolled back when the connection returns to its pool
    if server != connection.info.backend_pid:  # a pooler answers with a number of its own
        connection.prepare_threshold = None


_databases: WeakSet[Database] = WeakSet()


def _after_fork() -> None:
    for database in list(_databases):
        database._lock = threading.Lock()
        engine, database._engine = database._engine, None
        if engine is not None:  # its connections belong to the parent
            engine.dispose(close=False)


os.register_at_fork(after_in_child=_after_fork)


# Makes, opens and seals a private SQLite file and begins its transactions; reads an unwritable one as it is.


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
    """Reading an unwritable file as it is, without later writes of others: if it is allowed, and if it happens."""

    allowed: bool
    happens: bool = False


def engine_for(url: sa.URL, patience: float, read_only: ReadOnlyState, **pool: Any) -> sa.Engine:
    """Makes the engine. `patience`: seconds that another process may lock the file."""
    engine = sa.create_engine(url, hide_parameters=True, connect_args={"timeout": patience}, **pool)

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
    """Returns whether programs may reach the file, so that rows that decide something carry a seal."""
    file = file_of(connection)
    return file is not None and file.parent.name == NAME


def file_of(connection: sa.Connection) -> Path | None:
    """Returns the file of a SQLite database; None for Postgres."""
    url = connection.engine.url
    return Path(str(url.database)).absolute() if url.get_backend_name() == "sqlite" and url.database else None


def _pack(content: tuple[object, ...]) -> bytes:
    return json.dumps(content, sort_keys=True).encode()


# Explains database errors to people, never with a password.


LONGEST_REASON = 500  # bytes of the database's own words

_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_SHUT = frozenset({sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_AUTH})
_FULL = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR})

_NO_DATABASE = re.compile(r'database ".*" does not exist')

# Postgres: connection lost, server starting or stopping, too many connections, or a transaction to be tried again
_AGAIN = ("08", "57P0", "25P03", "53300", "40001", "40P01", "55P03")


def is_passing(error: SQLAlchemyError) -> bool:
    """Returns whether Postgres may succeed in a moment."""
    if not isinstance(error, DBAPIError):
        return type(error).__name__ == "TimeoutError"  # of the pool: all connections are in use
    if error.connection_invalidated:
        return True
    state = getattr(error.orig, "sqlstate", None)
    if state is None:  # the server was not reached
        return type(error.orig).__name__ in ("OperationalError", "InterfaceError", "ConnectionTimeout")
    return str(state).startswith(_AGAIN)


def is_away(error: BaseException) -> bool:
    """Returns whether the database is the cause, not a run."""
    if isinstance(error, StoreError):
        return error.kind in (ErrorKind.SYSTEM, ErrorKind.CONFIG)
    return isinstance(error, OperationalError | InterfaceError | PoolTimeoutError)


def is_forbidden(error: BaseException) -> bool:
    """Returns whether the database's user lacks a right."""
    cause = error.__cause__ if isinstance(error, StoreError) else error
    return isinstance(cause, DBAPIError) and getattr(cause.orig, "sqlstate", None) == "42501"


def no_rights_error(problem: str) -> StoreError:
    hint = "Let the owner of the database run `forge worker --migrate --database URL`, and grant the rights again."
    return StoreError(f"{problem}, and the user of this URL may not make or change them", ErrorKind.CONFIG, hint)


def explain_error(label: str, error: SQLAlchemyError, secrets: set[str]) -> StoreError:
    """Turns a database error into a `StoreError`. `label` is the database's name for people."""
    words = _database_message(error, secrets)
    original = error.orig if isinstance(error, DBAPIError) else None
    if isinstance(original, sqlite3.Error):
        return _of_sqlite(label, words, original)
    return _of_postgres(label, words, str(getattr(original, "sqlstate", None) or ""), is_passing(error))


def _database_message(error: SQLAlchemyError, secrets: set[str]) -> str:
    original: Any = error.orig if isinstance(error, DBAPIError) else error
    primary = getattr(getattr(original, "diag", None), "message_primary", None)  # Postgres's details quote whole rows
    text = " ".join((primary or str(original)).split())
    for secret in secrets:
        text = text.replace(secret, "***")
    return clip_bytes(text, LONGEST_REASON)


def _of_sqlite(label: str, words: str, error: sqlite3.Error) -> StoreError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in _BUSY:
        text = f"{label} has been locked by another process for too long"
        return StoreError(text, ErrorKind.SYSTEM, "Wait until that process ends, then try again.", passing=True)
    if code in _FULL:
        text = f"{label} could not be written: {words} (is the disk full?)"
        return StoreError(text, ErrorKind.SYSTEM, "Free some space and try again; earlier data is safe.")
    if code in _SHUT:
        text = f"{label} cannot be opened or written: {words}"
        return StoreError(text, ErrorKind.CONFIG, "Check the permissions of the file and of its directory.")
    if code in _DAMAGED:
        text = f"{label} is damaged, or not a SQLite database: {words}"
        suggestion = f'Move it away to start a new one. To recover the readable data: sqlite3 "{label}" .recover'
        return StoreError(text, ErrorKind.SYSTEM, suggestion)
    if "no such table" in words:
        return _no_tables_error(label)
    return StoreError(
        f"{label}: {words}", ErrorKind.SYSTEM, "If the error stays, move the file away to start a new one."
    )


def _of_postgres(label: str, words: str, state: str, passing: bool) -> StoreError:
    if state == "42P01":
        return _no_tables_error(label)
    if state == "3D000" or _NO_DATABASE.search(words):  # a failed connection has no state
        text = f"{label} does not exist: its server has no such database"
        hint = "Check the name in its URL. A worker or a run creates the database if the URL's user is allowed to."
        return StoreError(text, ErrorKind.CONFIG, hint)
    if state.startswith("28") or state == "42501" or "authentication failed" in words:
        text = f"{label} denied access: {words}"
        return StoreError(text, ErrorKind.CONFIG, "Check the user and password in its URL, and the user's rights.")
    if state.startswith("53") and state != "53300":
        text = f"{label} could not be written: {words}"
        return StoreError(text, ErrorKind.SYSTEM, "Free some space on its server; earlier data is safe.")
    if passing:
        text = f"{label} cannot be reached: {words}"
        return StoreError(
            text, ErrorKind.SYSTEM, "Check its URL, and that the server is running; then try again.", passing=True
        )
    return StoreError(f"{label}: {words}", ErrorKind.SYSTEM, "See the database's log.")


def no_file_error(label: str) -> StoreError:
    return _no_tables_error(label, ": there is no such file")


def _no_tables_error(label: str, why: str = "") -> StoreError:
    text = f"{label} does not contain Forge's tables yet{why}"
    return StoreError(
        text, ErrorKind.CONFIG, "Start a worker or a run with this database to create them, or check the URL."
    )
