"""Holds what sessions read, changed and plan to do, and the current call, so that tools can record what they do."""

from __future__ import annotations

import json
import logging
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from forge.core.context import LOCAL
from forge.core.errors import ErrorKind, ToolError
from forge.workspace.paths import Location, quote_path
from forge.workspace.paths.digest import digest_of
from forge.workspace.state import NAME, explain_unusable, state_directory
from forge.workspace.state.store import Store

if TYPE_CHECKING:
    from forge.workspace.history.undo import UndoLog


STORE = "state.db"

log = logging.getLogger(__name__)


class SessionState:
    """The state of sessions, in one store: files read, changes that can be undone, and todo lists.

    Args:
        workspace: where the state is stored, made when it is first needed. Without one, or if it cannot be written, the
            state stays in memory.

    Example:
        >>> SessionState().path is None
        True
    """

    def __init__(self, workspace: Path | None = None) -> None:
        self._workspace = workspace

    @cached_property
    def path(self) -> Path | None:
        if self._workspace is None:
            return None
        directory = state_directory(self._workspace)
        if directory == self._workspace / NAME:
            return directory / STORE
        log.warning(
            "%s: files read and changed are remembered only until the end", explain_unusable(self._workspace)[0]
        )
        return None

    @cached_property
    def seen(self) -> FileLedger:
        return FileLedger(self.path)

    @cached_property
    def undo(self) -> UndoLog:
        from forge.workspace.history.undo import UndoLog

        return UndoLog(self.path)

    @cached_property
    def todos(self) -> Todos:
        return Todos(self.path)

    def forget(self, session_id: str = "") -> None:
        """Forgets what a session read. Its changes can still be undone."""
        self.seen.forget(session_id)

    def end(self, session_id: str) -> None:
        """Ends a session. With a project's file its changes can still be undone; in memory its undo log is dropped."""
        used = vars(self)  # parts that were never used are not made now
        if "seen" in used:
            self.seen.forget(session_id)
        if "undo" in used and self.path is None:
            self.undo.forget(session_id)
        if "todos" in used:
            self.todos.put(session_id, [])

    def remove(self, session_id: str) -> None:
        """Deletes all state of a session."""
        self.seen.forget(session_id)
        self.undo.forget(session_id)
        self.todos.put(session_id, [])

    def __repr__(self) -> str:
        return f"<SessionState in {self._workspace if self._workspace is not None else 'memory'}>"


class TrackedCall(NamedTuple):
    """The current call, and the state of its session."""

    state: SessionState
    session_id: str = LOCAL
    turn: str = ""
    call_id: str = ""
    tool: str = ""
    checked: bool = False  # True: a file must have been read before it is changed
    batch: list[_Read] | None = None  # reads that are recorded together
    root: str = ""  # the call of the conversation that this one is made for, by a sub-agent or a script


_Read = tuple[Location, os.stat_result, bytes | None]

_current: ContextVar[TrackedCall] = ContextVar("tracking", default=TrackedCall(SessionState()))  # noqa: B039


def current_call() -> TrackedCall:
    """Returns the current call; without a tracking step, one with a state in memory that all calls share."""
    return _current.get()


@contextmanager
def track_call(now: TrackedCall) -> Iterator[None]:
    before = _current.set(now)
    try:
        yield
    finally:
        _current.reset(before)


def note_read(location: Location, status: os.stat_result, content: bytes | None = None) -> None:
    """Records that the model saw some of this file. `content` is the whole content, if it is at hand."""
    batch = current_call().batch
    if batch is not None:
        batch.append((location, status, content))
    else:
        _note_reads([(location, status, content)])


@contextmanager
def batch_read_notes() -> Iterator[None]:
    """Collects the files read inside the block and records them at its end, in one transaction."""
    batch: list[_Read] = []
    try:
        with track_call(current_call()._replace(batch=batch)):
            yield
    finally:
        _note_reads(batch)


def _note_reads(reads: Sequence[_Read]) -> None:
    now = current_call()
    if not now.checked or not reads:
        return
    try:
        now.state.seen.note_all(
            now.session_id, [(str(location.path), status, text) for location, status, text in reads]
        )
    except ToolError as error:  # the read itself succeeded; a later change will ask to read the file again
        log.warning("the read of %s could not be recorded: %s", reads[0][0].shown, error)


# Records the files that a session has read and written, and detects later changes.


HASHED = 16 * 1024 * 1024  # bytes: larger files are compared by time and size alone
MOST_FILES = 100_000  # recorded in all: beyond that, the files touched longest ago are forgotten
PATIENCE = 2.0  # seconds: a read should not wait long to be recorded
_TIDY = 1_000  # records between two checks of that limit


class SeenFile(NamedTuple):
    """A file as it was when the session last touched it."""

    modified: int  # nanoseconds
    size: int
    digest: str  # of its content; empty if the whole content was not at hand
    written: bool


class FileLedger:
    """Records files by session and real path, in the project's store or in memory."""

    def __init__(self, path: Path | None = None) -> None:
        self._store = Store(path, "seen", [_create_seen_tables], patience=PATIENCE)
        self._notes = 0

    def note(
        self,
        session_id: str,
        real: str,
        status: os.stat_result,
        content: bytes | None = None,
        *,
        written: bool = False,
        digest: str = "",
    ) -> None:
        """Records a file as it is now. `digest`: of its content, if known already."""
        digest = digest or _digest(content)
        self._keep([(session_id, os.fsencode(real), status.st_mtime_ns, status.st_size, digest, written)])

    def note_all(self, session_id: str, reads: Iterable[tuple[str, os.stat_result, bytes | None]]) -> None:
        """Records files that were read, in one transaction."""
        self._keep(
            [
                (session_id, os.fsencode(real), status.st_mtime_ns, status.st_size, _digest(content), False)
                for real, status, content in reads
            ]
        )

    def forget_file(self, session_id: str, real: str) -> None:
        with self._store.write_transaction() as connection:
            connection.execute("DELETE FROM seen WHERE session = ? AND path = ?", (session_id, os.fsencode(real)))

    def check(
        self,
        session_id: str,
        real: str,
        status: os.stat_result,
        shown: str,
        content: bytes | None = None,
    ) -> None:
        """Raises `ToolError` unless the session saw the file and it did not change."""
        expected = self.expect(session_id, real, status, shown)
        if expected and content is not None and digest_of(content) != expected:
            raise changed_error(shown)

    def expect(self, session_id: str, real: str, status: os.stat_result, shown: str) -> str:
        """Returns the digest that the file must still have; empty if only its size and time can be compared.

        Raises `ToolError` if the file was not seen, or its size or time shows a change.
        """
        seen = self._find(session_id, real)
        if seen is None:
            raise ToolError(
                f"{quote_path(shown)} exists and was not read in this session",
                ErrorKind.VALIDATION,
                "Read it first, so that nothing in it is lost.",
            )
        if seen.size != status.st_size or (not seen.digest and seen.modified != status.st_mtime_ns):
            raise changed_error(shown)
        return seen.digest

    def files(self, session_id: str) -> dict[str, SeenFile]:
        with self._store.read_transaction() as connection:
            rows = connection.execute(
                "SELECT path, modified, size, digest, written FROM seen WHERE session = ? ORDER BY rowid", (session_id,)
            )
            return {
                os.fsdecode(path): SeenFile(at, size, digest, bool(written)) for path, at, size, digest, written in rows
            }

    def forget(self, session_id: str = "") -> None:
        """Forgets the files of a session, or of all sessions."""
        with self._store.write_transaction() as connection:
            if session_id:
                connection.execute("DELETE FROM seen WHERE session = ?", (session_id,))
            else:
                connection.execute("DELETE FROM seen")

    def _keep(self, rows: Sequence[tuple[str, bytes, int, int, str, bool]]) -> None:
        with self._store.write_transaction() as connection:
            # REPLACE gives a row a new rowid: the latest has the highest
            connection.executemany("INSERT OR REPLACE INTO seen VALUES (?, ?, ?, ?, ?, ?)", rows)
            before, self._notes = self._notes, self._notes + len(rows)
            if before // _TIDY != self._notes // _TIDY:
                connection.execute("DELETE FROM seen WHERE rowid <= (SELECT max(rowid) FROM seen) - ?", (MOST_FILES,))

    def _find(self, session_id: str, real: str) -> SeenFile | None:
        with self._store.read_transaction() as connection:
            row = connection.execute(
                "SELECT modified, size, digest, written FROM seen WHERE session = ? AND path = ?",
                (session_id, os.fsencode(real)),
            ).fetchone()
        return None if row is None else SeenFile(row[0], row[1], row[2], bool(row[3]))


def _digest(content: bytes | None) -> str:
    return digest_of(content) if content is not None and len(content) <= HASHED else ""


def changed_error(shown: str) -> ToolError:
    """Builds the error for a file that changed since the session saw it."""
    return ToolError(
        f"{quote_path(shown)} changed on disk since it was read",
        ErrorKind.VALIDATION,
        "Read it again before you change it.",
    )


def _create_seen_tables(connection: sqlite3.Connection) -> None:
    connection.execute(
        "CREATE TABLE seen (session TEXT NOT NULL, path BLOB NOT NULL, modified INTEGER NOT NULL,"
        " size INTEGER NOT NULL, digest TEXT NOT NULL, written INTEGER NOT NULL, PRIMARY KEY (session, path))"
    )


# Stores the to-do list of each session, in the project's store or in memory.


TodoItem = dict[str, Any]


class Todos:
    """The to-do lists by session. A list is always replaced as a whole."""

    def __init__(self, path: Path | None = None) -> None:
        self._store = Store(path, "todos", [_create_todo_tables])

    def get(self, session_id: str) -> list[TodoItem]:
        with self._store.read_transaction() as connection:
            found = connection.execute("SELECT items FROM todos WHERE session = ?", (session_id,)).fetchone()
        items: list[TodoItem] = json.loads(found[0]) if found else []
        return items

    def put(self, session_id: str, items: Sequence[TodoItem]) -> None:
        with self._store.write_transaction() as connection:
            if items:
                row = (session_id, json.dumps(items))
                connection.execute("INSERT OR REPLACE INTO todos VALUES (?, ?)", row)
            else:
                connection.execute("DELETE FROM todos WHERE session = ?", (session_id,))


def _create_todo_tables(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE todos (session TEXT PRIMARY KEY, items TEXT NOT NULL)")
