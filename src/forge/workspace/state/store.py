"""Stores data in one SQLite file that many processes share: private, migrated part by part, set aside when damaged.

Writes go through a write-ahead log: a killed process loses nothing that was committed; a power failure may lose the
last moments, never the file. A commit takes tens of microseconds, so that it may run on an event loop.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, count
from pathlib import Path
from typing import Literal
from weakref import WeakSet

from forge.core.errors import ErrorKind, ToolError
from forge.workspace.state import NAME, is_foreign

PATIENCE = 10.0  # seconds that another process may hold the file

Migration = Callable[[sqlite3.Connection], None]
"""Brings the tables of a part from one version to the next, inside a transaction."""

_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_SHUT = frozenset({sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_AUTH})
_FULL = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR})


class StoreError(ToolError):
    """Stored data cannot be read, or new data cannot be stored. Nothing stored earlier is lost."""


class Store:
    """A part of the file: its tables and its version. Usable from any thread, and on both sides of a fork.

    Without a path the data stays in memory, until the process ends.
    """

    def __init__(
        self, path: Path | None, part: str, migrations: Sequence[Migration], patience: float | None = None
    ) -> None:
        """`patience`: seconds that another process may hold the file; by default `PATIENCE`."""
        self.path = Path(":memory:") if path is None else path
        self._in_memory = path is None
        self._patience = patience
        self._part = part
        self._migrations = migrations
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None  # identity of the open file, which may have been moved since
        if path is not None:
            _stores.all.add(self)

    @contextlib.contextmanager
    def read_transaction(self) -> Iterator[sqlite3.Connection]:
        with self._transaction("DEFERRED") as connection:
            yield connection

    @contextlib.contextmanager
    def write_transaction(self) -> Iterator[sqlite3.Connection]:
        """Yields a connection; stores all changes, or none."""
        with self._transaction("IMMEDIATE") as connection:
            yield connection

    def checkpoint(self) -> None:
        """Writes the log into the file and empties it, so that deleted data is gone; later, if others are busy."""
        with self._lock, contextlib.suppress(sqlite3.Error):
            if self._connection is not None:
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def __del__(self) -> None:
        connection = getattr(self, "_connection", None)
        if connection is not None:  # not closed explicitly
            connection.close()

    @contextlib.contextmanager
    def _transaction(self, kind: Literal["DEFERRED", "IMMEDIATE"]) -> Iterator[sqlite3.Connection]:
        with self._lock, self._explain_errors():
            connection = self._ensure_open()
            connection.execute(f"BEGIN {kind}")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    with contextlib.suppress(sqlite3.Error):
                        connection.execute("ROLLBACK")
                raise

    def _ensure_open(self) -> sqlite3.Connection:
        if self._in_memory and self._connection is not None:
            return self._connection
        if self._connection is not None and _identity(self.path) != self._file:  # the file was deleted or set aside
            self.close()
        if self._connection is None:
            self._connection = self._open()
        return self._connection

    def _open(self) -> sqlite3.Connection:
        if self._in_memory:
            return self._connect()
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _lock_directory(
            self.path.parent, fcntl.LOCK_SH
        ):  # a file set aside now would be read with its successor's log
            make_private(self.path)
            connection = self._connect()
            self._file = _identity(self.path)
        return connection

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path,
            timeout=PATIENCE if self._patience is None else self._patience,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            connection.execute("PRAGMA trusted_schema = OFF")  # a planted file runs no code of its own
            connection.execute("PRAGMA secure_delete = ON")
            mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
            logged = mode in ("wal", "memory") or _start_log(connection)
            connection.execute(f"PRAGMA synchronous = {'NORMAL' if logged else 'FULL'}")
            self._migrate(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _migrate(self, connection: sqlite3.Connection) -> None:
        if self._version(connection) == len(self._migrations):
            return
        connection.execute("BEGIN IMMEDIATE")
        with connection:  # commits, or rolls back
            connection.execute("CREATE TABLE IF NOT EXISTS parts (name TEXT PRIMARY KEY, version INTEGER NOT NULL)")
            version = self._version(connection)
            if version > len(self._migrations):
                raise StoreError(
                    f"{self.path} was written by a newer Forge ({self._part}: version {version})",
                    ErrorKind.CONFIG,
                    "Update Forge, or use another workspace.",
                )
            for migrate in self._migrations[version:]:
                migrate(connection)
            connection.execute("INSERT OR REPLACE INTO parts VALUES (?, ?)", (self._part, len(self._migrations)))

    def _version(self, connection: sqlite3.Connection) -> int:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'parts'").fetchone():
            return 0
        found = connection.execute("SELECT version FROM parts WHERE name = ?", (self._part,)).fetchone()
        return found[0] if found else 0

    @contextlib.contextmanager
    def _explain_errors(self) -> Iterator[None]:
        """Turns errors of SQLite and the system into `StoreError`."""
        try:
            yield
        except (sqlite3.Error, OverflowError) as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code in _DAMAGED:
                self.close()
                raise _set_aside(self.path, error) from error
            raise _store_error(self.path, error, code) from error
        except OSError as error:
            raise StoreError(
                f"{self.path} cannot be opened: {error.strerror or error}",
                ErrorKind.CONFIG,
                "It must be your own file, in a directory that you can write to.",
            ) from error


class _Stores:
    """The stores of this process, and those that are held during a fork."""

    def __init__(self) -> None:
        self.all: WeakSet[Store] = WeakSet()
        self.held: list[Store] = []


_stores = _Stores()


def _before_fork() -> None:
    """Closes all connections: SQLite's locks do not survive a fork, so both sides open the file again."""
    for store in list(_stores.all):
        store._lock.acquire()
        store.close()
        _stores.held.append(store)


def _after_fork() -> None:
    while _stores.held:
        _stores.held.pop()._lock.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


def _store_error(path: Path, error: Exception, code: int) -> StoreError:
    if code in _BUSY:
        message = f"{path} has been locked by another process for {PATIENCE:g} seconds"
        return StoreError(message, suggestion="Wait for it to end, and try again.", passing=True)
    if code in _FULL:
        message = f"{path} could not be written: {error} (is the disk full?)"
        return StoreError(
            message, ErrorKind.SYSTEM, "Free some space and try again; what was saved earlier is still there."
        )
    if code in _SHUT:
        message = f"{path} cannot be opened or written: {error}"
        return StoreError(message, ErrorKind.CONFIG, "Check its permissions and those of its directory.")
    return StoreError(
        f"{path}: {error}", ErrorKind.SYSTEM, "If this stays so, move the file away; Forge then starts a new one."
    )


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def make_private(path: Path) -> None:
    """Makes the file if missing, readable by its owner alone; refuses a link or anything else at its path."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_log_files(path)
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        return
    status = path.lstat()  # not opened: closing it would drop the locks of this process's other connections
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is a link, or not a regular file")
    if status.st_mode & 0o077:
        path.chmod(0o600)


def check_log_files(path: Path) -> None:
    """Raises `OSError` if something else is in the place of one of SQLite's files: it would wait for a FIFO."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        beside = f"{path}{suffix}"
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISREG(os.lstat(beside).st_mode):
                raise OSError(errno.EINVAL, f"{os.path.basename(beside)} is a link, or not a regular file")


def _start_log(connection: sqlite3.Connection) -> bool:
    """Switches the write-ahead log on. SQLite does not wait by itself if several processes try this at once."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return bool(connection.execute("PRAGMA journal_mode = WAL").fetchone()[0] == "wal")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in _BUSY or time.monotonic() > until:
                raise
            time.sleep(0.01)


def _set_aside(path: Path, error: Exception) -> StoreError:
    """Moves a damaged file away, unless another process already did. Returns the error to raise."""
    with _lock_directory(path.parent, fcntl.LOCK_EX):
        if not _is_damaged(path):
            return StoreError(
                f"{path} was damaged ({error}), and has been replaced since", passing=True, suggestion="Try again."
            )
        aside = _unused_path(path.with_name(f"{path.name}.corrupt-{time.strftime('%Y%m%dT%H%M%S')}"))
        for suffix in ("-wal", "-shm", ""):  # the log first: left behind, it would be replayed into the new file
            with contextlib.suppress(FileNotFoundError):
                path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))
    return StoreError(
        f"{path} is damaged ({error}); it was set aside as {aside.name}",
        ErrorKind.SYSTEM,
        f'Try again: a new, empty file will be made. To recover readable data: sqlite3 "{aside}" .recover',
    )


def _unused_path(path: Path) -> Path:
    names = (path.with_name(f"{path.name}-{number}") for number in count(2))
    return next(one for one in chain([path], names) if not one.exists())


def _is_damaged(path: Path) -> bool:
    if not path.exists():
        return False
    connection = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None)
    try:
        return bool(connection.execute("PRAGMA integrity_check(1)").fetchone()[0] != "ok")
    except sqlite3.DatabaseError as error:
        return getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED
    finally:
        connection.close()


@contextlib.contextmanager
def _lock_directory(directory: Path, kind: int) -> Iterator[None]:
    """Locks a directory: one process sets a file aside (LOCK_EX), and none does while another opens it (LOCK_SH)."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, kind)
        yield
    finally:
        os.close(handle)


# Copies a file of the workspace's state for reading, if the workspace cannot be written.


def is_writable(workspace: Path) -> bool:
    """Returns whether the state of a workspace can be written, or made."""
    folder = workspace / NAME
    return os.access(folder if folder.exists() else workspace, os.W_OK | os.X_OK)


@contextlib.contextmanager
def copy_state_file(workspace: Path, name: str) -> Iterator[Path | None]:
    """Yields a temporary copy that may be changed; None if there is no usable file."""
    file = workspace / NAME / name
    if file.is_symlink() or not file.is_file() or is_foreign(file.parent):
        yield None
        return
    from tempfile import TemporaryDirectory  # loads `random`, which a first run does without

    with TemporaryDirectory(prefix="forge-look-") as folder:
        for suffix in ("", "-wal"):  # the log holds the latest commits
            part = file.with_name(name + suffix)
            if part.is_file() and not part.is_symlink():
                shutil.copyfile(part, Path(folder, name + suffix))
        yield Path(folder, name)
