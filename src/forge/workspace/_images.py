"""Old contents of files in a store: each once, compressed, within a limit; the oldest make room."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Callable
from typing import NamedTuple

from forge.workspace.digest import digest_of

CAP = 64 * 1024 * 1024  # bytes of images that a session keeps
CAP_OF_ALL = 1024 * 1024 * 1024  # and all sessions together

_LARGE = 64 * 1024  # bytes of a content from which on only its difference may be kept
_SMALL_PART = 4  # which must be at most one part in so many
_PIECE = 1024 * 1024
_TIDY = 100  # records between two looks at the sum of all sessions

_SIZE = (
    "SELECT total(length(data)) FROM undo_images WHERE (hash, base) IN"
    " (SELECT before, base FROM undo_files WHERE NOT dropped AND entry IN (SELECT id FROM ENTRIES))"
)


class Image(NamedTuple):
    """A content, or the middle of it: the rest is `head` bytes from the beginning and `tail` from the end of `base`."""

    hash: str
    base: str
    head: int
    tail: int
    data: bytes  # compressed


class Images:
    def __init__(self, cap: int = CAP, cap_of_all: int = CAP_OF_ALL) -> None:
        self._cap = cap
        self._cap_of_all = cap_of_all
        self._records = 0

    def image(self, content: bytes, digest: str, after: bytes | None, base: str) -> Image:
        """The image of a content that becomes `after`, whose hash is `base`."""
        if after is not None and len(content) >= _LARGE:
            head, tail = _common(content, after)
            middle = content[head : len(content) - tail]
            if len(middle) * _SMALL_PART <= len(content):
                return Image(digest, base, head, tail, zlib.compress(middle, 1))
        return Image(digest, "", 0, 0, zlib.compress(content, 1))

    def add(self, connection: sqlite3.Connection, image: Image) -> None:
        connection.execute("INSERT OR IGNORE INTO undo_images VALUES (?, ?, ?, ?, ?)", image)

    def content(self, connection: sqlite3.Connection, digest: str, base: str, after: bytes | None) -> bytes | None:
        """The content with that hash, where its base is `after`; None if it is not kept, or not what it should be."""
        row = connection.execute(
            "SELECT head, tail, data FROM undo_images WHERE hash = ? AND base = ?", (digest, base)
        ).fetchone()
        if row is None:
            return None
        head, tail, data = row
        content = zlib.decompress(data)
        if base:
            after = after or b""
            content = b"".join((after[:head], content, after[len(after) - tail :]))
        return content if digest_of(content) == digest else None

    def forget(self, connection: sqlite3.Connection, entry: int) -> None:
        """Remove a whole entry."""
        self._drop_images(connection, entry)
        connection.execute("DELETE FROM undo_files WHERE entry = ?", (entry,))
        connection.execute("DELETE FROM undo_entries WHERE id = ?", (entry,))

    def shrink(self, connection: sqlite3.Connection, session: str) -> None:
        """Let the oldest images go where a session, or now and then all of them, have too many."""
        self._shrink(connection, "undo_entries WHERE session = ?", (session,), self._cap)
        self._records += 1
        if self._records % _TIDY == 1:
            self._shrink(connection, "undo_entries WHERE 1", (), self._cap_of_all)

    def _shrink(self, connection: sqlite3.Connection, entries: str, given: tuple[str, ...], cap: int) -> None:
        def value(query: str) -> int:
            found = connection.execute(query.replace("ENTRIES", entries), given).fetchone()[0]
            return int(found or 0)

        if value("SELECT total(bytes) FROM ENTRIES") <= cap:  # the sum of what is shared by many is too large
            return
        while value(_SIZE) > cap and (oldest := value("SELECT min(id) FROM ENTRIES AND bytes > 0")):
            self._drop_images(connection, oldest)
            connection.execute("UPDATE undo_files SET dropped = 1 WHERE entry = ?", (oldest,))
            connection.execute("UPDATE undo_entries SET bytes = 0 WHERE id = ?", (oldest,))

    def _drop_images(self, connection: sqlite3.Connection, entry: int) -> None:
        """Those that no other entry needs."""
        connection.execute(
            "DELETE FROM undo_images WHERE (hash, base) IN (SELECT before, base FROM undo_files WHERE entry = ?)"
            " AND NOT EXISTS (SELECT 1 FROM undo_files f WHERE f.before = undo_images.hash"
            " AND f.base = undo_images.base AND NOT f.dropped AND f.entry != ?)",
            (entry, entry),
        )


def _common(one: bytes, other: bytes) -> tuple[int, int]:
    """How many bytes are the same at the beginning, and of the rest at the end."""
    shortest, view = min(len(one), len(other)), memoryview(other)  # `startswith` copies nothing
    head = _same(shortest, lambda at, size: one.startswith(view[at : at + size], at))
    end, other_end = len(one), len(other)
    tail = _same(
        shortest - head,
        lambda at, size: one.startswith(view[other_end - at - size : other_end - at], end - at - size),
    )
    return head, tail


def _same(most: int, is_same: Callable[[int, int], bool]) -> int:
    """How far two contents agree, at most so far: by large pieces first, then by halves of the first that differs."""
    at, size = 0, _PIECE
    while at < most and size:
        size = min(size, most - at)
        if is_same(at, size):
            at += size
        else:
            size //= 2
    return at


def undo_tables(connection: sqlite3.Connection) -> None:
    """The first version of the store's part."""
    for statement in (
        "CREATE TABLE undo_entries (id INTEGER PRIMARY KEY AUTOINCREMENT, session TEXT NOT NULL, turn TEXT NOT NULL,"
        " call_id TEXT NOT NULL, tool TEXT NOT NULL, time REAL NOT NULL, bytes INTEGER NOT NULL, undone_by INTEGER)",
        "CREATE INDEX undo_by_session ON undo_entries (session, bytes)",
        "CREATE INDEX undo_by_undo ON undo_entries (undone_by) WHERE undone_by IS NOT NULL",
        "CREATE TABLE undo_files (entry INTEGER NOT NULL, root TEXT NOT NULL, path TEXT NOT NULL, shown TEXT NOT NULL,"
        " before TEXT NOT NULL, after TEXT NOT NULL, mode INTEGER, base TEXT NOT NULL, dropped INTEGER NOT NULL)",
        "CREATE INDEX undo_by_entry ON undo_files (entry)",
        "CREATE INDEX undo_by_image ON undo_files (before, base)",
        "CREATE TABLE undo_images (hash TEXT NOT NULL, base TEXT NOT NULL, head INTEGER NOT NULL,"
        " tail INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (hash, base))",
    ):
        connection.execute(statement)
