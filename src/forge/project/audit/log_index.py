"""Indexes the event log: the position of each event, and the fields that queries filter by.

The index is a SQLite file beside the log. It is built from the log alone, and may be deleted at any time. Appended
lines are read once, a renamed file is recognised, and a removed file is forgotten.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import os
import re
import sqlite3
import stat
import zlib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from forge.core.errors import ErrorKind, ToolError
from forge.project.audit.log_events import (
    Event,
    EventFilter,
    is_error,
    is_refusal,
    is_wait,
    matches_any,
    number_of,
    read_line,
    text_of,
    tool_of,
)
from forge.workspace.state.store import Store, StoreError

NAME = "audit-index.db"
ROOM = 5_000  # lines that are indexed in one transaction
PAGE = 10_000  # positions that are read at once
PATIENCE = 5.0  # seconds to wait for another process; then the log is read without the index
MOST_NAMES = 50_000  # names that a pattern is resolved to; beyond this, the events are compared

_CHECKED = 512  # bytes at both ends of the indexed part, by which a file is recognised
_REFUSED, _FAILED, _WAITS = 1, 2, 4
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISMATCH)


def _create_tables(connection: sqlite3.Connection) -> None:
    for statement in (
        """CREATE TABLE audit_files (
            id INTEGER PRIMARY KEY, identity TEXT NOT NULL UNIQUE, size INTEGER NOT NULL, read INTEGER NOT NULL,
            damaged INTEGER NOT NULL, head BLOB NOT NULL, tail BLOB NOT NULL)""",
        "CREATE TABLE audit_names (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE)",
        """CREATE TABLE audit_events (
            file INTEGER NOT NULL, place INTEGER NOT NULL, length INTEGER NOT NULL, ts REAL NOT NULL,
            kind INTEGER NOT NULL, session INTEGER NOT NULL, agent INTEGER NOT NULL, tool INTEGER NOT NULL,
            wrong INTEGER NOT NULL, seconds REAL NOT NULL, reason INTEGER NOT NULL,
            PRIMARY KEY (file, place)) WITHOUT ROWID""",
        "CREATE INDEX audit_events_session ON audit_events (session, file, place)",
        "CREATE INDEX audit_events_time ON audit_events (file, ts)",
        "CREATE INDEX audit_events_tool ON audit_events (tool, file, ts)",
        "CREATE INDEX audit_events_wrong ON audit_events (file, ts) WHERE wrong > 0",
    ):
        connection.execute(statement)


class IndexedFile(NamedTuple):
    """One file of the log, and how much of it is indexed."""

    id: int
    read: int  # bytes of its content
    damaged: int  # lines that are no event


class EventPosition(NamedTuple):
    """The position of an event in the content of its file."""

    start: int
    length: int


class EventCount(NamedTuple):
    """Events of one kind and tool."""

    kind: str
    tool: str
    reason: str
    number: int
    failed: int
    refused: int
    seconds: float
    first: float
    last: float


class EventIndex:
    """The index; in memory without a path. All methods raise `StoreError`; `is_damage` tells when to rebuild it."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._store = Store(path, "audit", [_create_tables], PATIENCE)

    def close(self) -> None:
        self._store.close()

    def discard(self) -> None:
        """Deletes the index and its damaged copies: the log has all data."""
        self._store.close()
        if self.path is not None:
            for one in (self.path, *self.path.parent.glob(f"{self.path.name}[-.]*")):
                with contextlib.suppress(OSError):
                    one.unlink()

    def keep_only(self, paths: Collection[Path]) -> None:
        """Forgets the files that are gone."""
        there = {identity for path in paths if (identity := _identity_of(path))}
        with self._store.read_transaction() as connection:
            found = connection.execute("SELECT id, identity FROM audit_files").fetchall()
        gone = [(id,) for id, identity in found if identity not in there]
        if gone:
            with self._store.write_transaction() as connection:
                _forget(connection, gone)

    def catch_up(self, stream: IO[bytes], path: Path) -> IndexedFile:
        """Indexes the lines that were appended to an open log. Raises `ToolError` if the log cannot be read."""
        with self._store.read_transaction() as connection:
            row = _find_row(connection, stream)
            if row is not None and row.is_current(stream):
                return row.file
        while True:
            with self._store.write_transaction() as connection:
                row = _find_row(connection, stream)
                if row is None or not row.is_continued(stream, path):
                    row = _add_file(connection, stream)
                if self._index_lines(connection, row, stream, path):
                    found = _find_row(connection, stream)
                    assert found is not None
                    return found.file

    def positions(self, file: IndexedFile, wanted: EventFilter, after: int) -> list[EventPosition]:
        """Returns positions of matching events after a position, in order, at most `PAGE`; some may not match."""
        return self._find_positions(file, wanted, "place > ?", after, "place", PAGE)

    def last_positions(self, file: IndexedFile, wanted: EventFilter, before: int, count: int) -> list[EventPosition]:
        """Returns the last positions before a position, the latest first."""
        return self._find_positions(file, wanted, "place < ?", before, "place DESC", count)

    def page(self, file: IndexedFile, session: str, offset: int, limit: int) -> tuple[int, list[EventPosition]]:
        """Returns the number of a session's events in the file, and some of their positions."""
        with self._store.read_transaction() as connection:
            wanted = (file.id, session)
            condition = "file = ? AND session = (SELECT id FROM audit_names WHERE text = ?)"
            count = connection.execute(f"SELECT count(*) FROM audit_events WHERE {condition}", wanted).fetchone()[0]  # noqa: S608
            query = f"SELECT place, length FROM audit_events WHERE {condition} ORDER BY place LIMIT ? OFFSET ?"  # noqa: S608
            return count, [EventPosition(*row) for row in connection.execute(query, (*wanted, max(0, limit), offset))]

    def counts(self, file: IndexedFile, wanted: EventFilter) -> list[EventCount]:
        """Counts the events of each kind and tool."""
        with self._store.read_transaction() as connection:
            condition = _condition(connection, wanted)
            if condition is None:
                return []
            sums = "count(*), sum(wrong & 2 > 0), sum(wrong & 1), sum(seconds), min(ts), max(ts)"
            query = (
                f"SELECT k.text, t.text, r.text, {sums}"  # noqa: S608
                f" FROM audit_events {condition.through} JOIN audit_names k ON k.id = kind"
                " JOIN audit_names t ON t.id = tool JOIN audit_names r ON r.id = reason"
                f" WHERE file = ? {condition.text} GROUP BY kind, tool, reason"
            )
            return [EventCount(*row) for row in connection.execute(query, (file.id, *condition.values))]

    def query(self, text: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Returns the rows of a query that only reads."""
        with self._store.read_transaction() as connection:
            return connection.execute(text, tuple(values)).fetchall()

    def _find_positions(
        self, file: IndexedFile, wanted: EventFilter, bound: str, value: int, order: str, limit: int
    ) -> list[EventPosition]:
        with self._store.read_transaction() as connection:
            condition = _condition(connection, wanted)
            if condition is None:
                return []
            query = (
                f"SELECT place, length FROM audit_events {condition.through}"  # noqa: S608
                f" WHERE file = ? AND {bound} {condition.text} ORDER BY {order} LIMIT ?"
            )
            values = (file.id, value, *condition.values, limit)
            return [EventPosition(*row) for row in connection.execute(query, values)]

    def _index_lines(self, connection: sqlite3.Connection, row: _FileRow, stream: IO[bytes], path: Path) -> bool:
        """Indexes some lines; returns whether the end of the file is reached."""
        size = os.fstat(stream.fileno()).st_size
        read, damaged, names = row.file.read, row.file.damaged, _Names(connection)
        found: list[tuple[Any, ...]] = []
        is_end = True
        for count, (length, line) in enumerate(lines_from(stream, path, read)):
            if count == ROOM:
                is_end = False
                break
            if not line.endswith(b"\n") and length == len(line):
                break  # the line is still being written
            entry, start, is_damaged = read_line(line)
            damaged += is_damaged
            if entry is not None:
                place = (row.file.id, read + start, len(entry.line))
                found.append((*place, *_columns(entry.event, names)))
            read += length
        marks = ", ".join("?" * 11)
        connection.executemany(f"INSERT OR REPLACE INTO audit_events VALUES ({marks})", found)  # noqa: S608
        head, tail = _edges(stream, path, read)
        values = (size if is_end else -1, read, damaged, head, tail, row.file.id)
        connection.execute(
            "UPDATE audit_files SET size = ?, read = ?, damaged = ?, head = ?, tail = ? WHERE id = ?", values
        )
        return is_end


def is_damage(error: StoreError) -> bool:
    """Returns whether the index itself is wrong: not only busy or closed, or the disk full."""
    cause = error.__cause__
    return isinstance(cause, sqlite3.Error) and getattr(cause, "sqlite_errorcode", 0) & 0xFF in _DAMAGED


class _FileRow(NamedTuple):
    """A row of the table of files."""

    file: IndexedFile
    size: int  # size of the file when its end was read; -1: the end was not read yet
    head: bytes
    tail: bytes

    def is_current(self, stream: IO[bytes]) -> bool:
        return os.fstat(stream.fileno()).st_size == self.size and self._is_same(stream)

    def is_continued(self, stream: IO[bytes], path: Path) -> bool:
        """Returns whether it is the file that was read, with at most more data at its end."""
        size = os.fstat(stream.fileno()).st_size
        if path.suffix == ".gz":  # compressed files are never appended to
            return self.size in (-1, size) and self._is_same(stream)
        return size >= self.file.read and self._is_same(stream)

    def _is_same(self, stream: IO[bytes]) -> bool:
        position = int.from_bytes(self.tail[:8], "big")
        stream.seek(0)
        if stream.read(len(self.head)) != self.head:
            return False
        stream.seek(position)
        return stream.read(len(self.tail) - 8) == self.tail[8:]


class _Names:
    """The numbers of names, which are added when they are first needed."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._known: dict[str, int] = {}

    def number(self, text: str) -> int:
        if (number := self._known.get(text)) is not None:
            return number
        self._connection.execute("INSERT OR IGNORE INTO audit_names (text) VALUES (?)", (text,))
        query = "SELECT id FROM audit_names WHERE text = ?"
        self._known[text] = int(self._connection.execute(query, (text,)).fetchone()[0])
        return self._known[text]


class _Condition(NamedTuple):
    """A condition of a query."""

    text: str
    values: list[float]
    through: str  # the index to use: SQLite does not know how many events a session or a day has


def _condition(connection: sqlite3.Connection, wanted: EventFilter) -> _Condition | None:
    """Builds the condition; None if no event can match."""
    parts, values, index = [""], [], ""
    if wanted.since > 0.0 or wanted.until != float("inf"):
        parts.append("ts >= ? AND ts < ?")
        values += [wanted.since, wanted.until]
        index = "INDEXED BY audit_events_time"
    columns = (("kind", wanted.events), ("agent", wanted.agents), ("tool", wanted.tools), ("session", wanted.sessions))
    for column, patterns in columns:
        numbers = _numbers(connection, patterns) if patterns else []
        if patterns and not numbers:
            return None
        if patterns and len(numbers) <= MOST_NAMES:
            parts.append(f"{column} IN ({', '.join(map(str, numbers))})")
            if column in ("tool", "session"):
                index = f"INDEXED BY audit_events_{column}"
    if wanted.denied or wanted.errors:
        mask = _REFUSED * wanted.denied + _FAILED * wanted.errors
        parts.append(f"wrong > 0 AND wrong & {mask}")
        index = "INDEXED BY audit_events_wrong"
    return _Condition(" AND ".join(parts), values, index)


def _numbers(connection: sqlite3.Connection, patterns: tuple[str, ...]) -> list[int]:
    names = connection.execute("SELECT id, text FROM audit_names")
    return [number for number, text in names if matches_any(text, patterns)]


def _columns(event: Event, names: _Names) -> tuple[Any, ...]:
    wrong = _REFUSED * is_refusal(event) + _FAILED * is_error(event) + _WAITS * is_wait(event)
    return (
        number_of(event.get("ts")),
        names.number(text_of(event.get("event"))),
        names.number(text_of(event.get("session"))),
        names.number(text_of(event.get("agent"))),
        names.number(tool_of(event)),
        wrong,
        max(0.0, number_of(event.get("seconds"))),
        names.number(text_of(event.get("reason"))[:40]),
    )


def _find_row(connection: sqlite3.Connection, stream: IO[bytes]) -> _FileRow | None:
    query = "SELECT id, read, damaged, size, head, tail FROM audit_files WHERE identity = ?"
    found = connection.execute(query, (_identity(os.fstat(stream.fileno())),)).fetchone()
    return _FileRow(IndexedFile(*found[:3]), *found[3:]) if found else None


def _add_file(connection: sqlite3.Connection, stream: IO[bytes]) -> _FileRow:
    """Adds a file that is new, or whose content is another now."""
    identity = _identity(os.fstat(stream.fileno()))
    _forget(connection, connection.execute("SELECT id FROM audit_files WHERE identity = ?", (identity,)).fetchall())
    query = "INSERT INTO audit_files (identity, size, read, damaged, head, tail) VALUES (?, -1, 0, 0, ?, ?)"
    number = connection.execute(query, (identity, b"", bytes(8))).lastrowid
    assert number is not None
    return _FileRow(IndexedFile(number, 0, 0), -1, b"", bytes(8))


def _forget(connection: sqlite3.Connection, files: list[tuple[int]]) -> None:
    connection.executemany("DELETE FROM audit_events WHERE file = ?", files)
    connection.executemany("DELETE FROM audit_files WHERE id = ?", files)


def _edges(stream: IO[bytes], path: Path, read: int) -> tuple[bytes, bytes]:
    """Returns the first bytes of the indexed part, and the last ones with their position."""
    end = os.fstat(stream.fileno()).st_size if path.suffix == ".gz" else read
    stream.seek(0)
    head = stream.read(min(_CHECKED, end))
    stream.seek(max(0, end - _CHECKED))
    return head, max(0, end - _CHECKED).to_bytes(8, "big") + stream.read(min(_CHECKED, end))


def _identity(status: os.stat_result) -> str:
    return f"{status.st_dev}:{status.st_ino}"


def _identity_of(path: Path) -> str:
    try:
        return _identity(path.lstat())
    except OSError:
        return ""


# Reads the files of a log while others write them: rotated, compressed, truncated or missing.


LONGEST_LINE = 16 * 1024 * 1024  # bytes; Forge writes no longer ones
RECENT = 1024 * 1024  # bytes at the end of a log that count as recent


class Tail:
    """Follows the end of a file that others write, also if it is replaced."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stream: IO[bytes] | None = None
        self._rest = b""  # the beginning of an incomplete line

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def recent(self) -> Iterator[bytes]:
        """Yields the last lines of the file."""
        if self._open() and self._stream is not None:
            size = os.fstat(self._stream.fileno()).st_size
            self._stream.seek(max(0, size - RECENT))
            if size > RECENT:
                self._stream.readline(RECENT)  # the rest of a line that began before
            yield from self._new_lines()

    def more(self) -> Iterator[bytes]:
        """Yields new lines. A replaced file is read to its end before the new one is opened."""
        if self._stream is not None:
            yield from self._new_lines()
            if not self._is_replaced():
                return
            self.close()
            self._rest = b""
        if self._open():
            yield from self._new_lines()

    def _open(self) -> bool:
        try:
            self._stream = open_log(self.path)
        except ToolError:
            if self.path.exists() or self.path.is_symlink():
                raise
            return False
        return True

    def _is_replaced(self) -> bool:
        assert self._stream is not None
        ours = os.fstat(self._stream.fileno())
        try:
            there = os.stat(self.path, follow_symlinks=False)
        except OSError:
            return False  # moved away; the next file does not exist yet
        if (there.st_dev, there.st_ino) != (ours.st_dev, ours.st_ino):
            return True
        return ours.st_size < self._stream.tell()  # truncated in place

    def _new_lines(self) -> Iterator[bytes]:
        assert self._stream is not None
        while piece := self._stream.readline(LONGEST_LINE):
            self._rest += piece
            if self._rest.endswith(b"\n"):
                line, self._rest = self._rest, b""
                yield line
            elif len(self._rest) > LONGEST_LINE:
                self._rest = b""


def lines_from(stream: IO[bytes], path: Path, start: int) -> Iterator[tuple[int, bytes]]:
    """Yields the lines of an open log from a position on, each with its number of bytes, also those cut off.

    Positions in a compressed file count its content.
    """
    plain = unpack(stream, path, start)
    while line := read_piece(plain, path):
        size, piece = len(line), line
        while len(piece) == LONGEST_LINE and not piece.endswith(b"\n"):
            piece = read_piece(plain, path)
            size += len(piece)
        yield size, line


def modification_time(path: Path) -> float:
    """Returns the time of the last write; 0 if the file is gone."""
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0


def rotations(path: Path) -> list[Path]:
    """Returns `audit.ndjson.1`, `audit.ndjson-20260101.gz` and the like, the oldest first."""
    found = []
    try:
        with os.scandir(path.parent) as entries:
            for entry in entries:
                if re.fullmatch(rf"{re.escape(path.name)}[.-]\d[\d.T:-]*(\.gz)?", entry.name):
                    found.append((entry.stat(follow_symlinks=False).st_mtime, entry.path))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _unreadable(path, error) from error
    return [Path(name) for _, name in sorted(found)]


def read_piece(stream: IO[bytes], path: Path, size: int | None = None) -> bytes:
    """Reads a line, or so many bytes. Raises `ToolError`."""
    try:
        return stream.readline(LONGEST_LINE) if size is None else stream.read(size)
    except (OSError, EOFError, zlib.error) as error:  # also a damaged compressed file
        raise _unreadable(path, error) from error


def unpack(stream: IO[bytes], path: Path, start: int = 0) -> IO[bytes]:
    """Returns the content of an open log from a position on. Raises `ToolError`."""
    plain: IO[bytes] = stream
    try:
        if path.suffix == ".gz":
            stream.seek(0)
            plain = gzip.GzipFile(fileobj=stream, mode="rb")  # type: ignore[assignment]
        plain.seek(start)
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(path, error) from error
    return plain


def open_log(path: Path) -> IO[bytes]:
    """Opens a regular file and follows no link: a project may come with a planted log.

    Raises `ToolError`.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise _unreadable(path, OSError(errno.EINVAL, "it is not a regular file"))
    return os.fdopen(file, "rb", buffering=256 * 1024)


def _unreadable(path: Path, error: Exception) -> ToolError:
    problem = (error.strerror if isinstance(error, OSError) else None) or str(error)
    if isinstance(error, OSError) and error.errno == errno.ELOOP:
        problem = "it is a symbolic link"
    message = f"the audit log {str(path)!r} cannot be read: {problem}"
    return ToolError(message, ErrorKind.CONFIG, "Choose another file with --file.")
