"""Stores old contents of files: each once, compressed, within a limit; the oldest are dropped first."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Callable
from typing import NamedTuple

from forge.workspace.paths.digest import digest_of

CAP = 64 * 1024 * 1024  # bytes of images that a session keeps
CAP_OF_ALL = 1024 * 1024 * 1024  # and all sessions together

_LARGE = 64 * 1024  # bytes: of a larger content only the difference may be stored
_SMALL_PART = 4  # the difference must be at most one part in so many
_PIECE = 1024 * 1024
_TIDY = 100  # records between two checks of what other processes and sessions stored
_SPARE = 16  # one part in so many is freed at once: computing the stored size takes time
_MOST_SESSIONS = 1_000  # whose free space is cached

_SIZE = (
    "SELECT total(length(data)) FROM undo_images WHERE (hash, base) IN (SELECT f.before, f.base FROM undo_files f"
    " JOIN undo_entries e ON e.id = f.entry WHERE NOT f.dropped AND OWNED)"
)
_FREED = (  # by an entry: images that no other entry of the same owner needs
    "SELECT total(length(data)) FROM undo_images i WHERE (hash, base) IN"
    " (SELECT before, base FROM undo_files WHERE entry = ? AND NOT dropped)"
    " AND NOT EXISTS (SELECT 1 FROM undo_files f JOIN undo_entries e ON e.id = f.entry"
    " WHERE f.before = i.hash AND f.base = i.base AND NOT f.dropped AND f.entry != ? AND OWNED)"
)


class Image(NamedTuple):
    """A content, or its middle: `head` bytes from the start and `tail` bytes from the end of `base` complete it."""

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
        self._room: dict[str, int] = {}  # bytes that a session may store before its size is computed again

    def image(self, content: bytes, digest: str, after: bytes | None, base: str) -> Image:
        """Builds the image of a content that becomes `after`, whose hash is `base`."""
        if after is not None and len(content) >= _LARGE:
            head, tail = _count_common(content, after)
            middle = content[head : len(content) - tail]
            if len(middle) * _SMALL_PART <= len(content):
                return Image(digest, base, head, tail, zlib.compress(middle, 1))
        return Image(digest, "", 0, 0, zlib.compress(content, 1))

    def add(self, connection: sqlite3.Connection, image: Image) -> None:
        connection.execute("INSERT OR IGNORE INTO undo_images VALUES (?, ?, ?, ?, ?)", image)

    def content(self, connection: sqlite3.Connection, digest: str, base: str, after: bytes | None) -> bytes | None:
        """Returns the content with that hash, where its base is `after`; None if it is not stored or its hash is
        wrong.
        """
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
        """Removes an entry with its files."""
        self._drop_images(connection, entry)
        connection.execute("DELETE FROM undo_files WHERE entry = ?", (entry,))
        connection.execute("DELETE FROM undo_entries WHERE id = ?", (entry,))

    def shrink(self, connection: sqlite3.Connection, session: str, added: int) -> None:
        """Drops the oldest images of a session, and sometimes of all sessions, beyond the limits. `added`: bytes."""
        self._records += 1
        room = self._room.get(session, -1) - added
        if room < 0 or self._records % _TIDY == 0:
            room = self._shrink_to(connection, "e.session = ?", (session,), self._cap)
        if len(self._room) >= _MOST_SESSIONS:
            self._room.clear()
        self._room[session] = room
        if self._records % _TIDY == 1:
            self._shrink_to(connection, "1", (), self._cap_of_all)

    def _shrink_to(self, connection: sqlite3.Connection, owned: str, owner: tuple[str, ...], cap: int) -> int:
        """Drops images beyond `cap` bytes. Returns the bytes left."""

        def value(query: str, *given: int) -> int:
            found = connection.execute(query.replace("OWNED", owned), (*given, *owner)).fetchone()[0]
            return int(found or 0)

        size = value("SELECT total(bytes) FROM undo_entries e WHERE OWNED")
        if size <= cap:
            return cap - size
        size = value(_SIZE)  # the sum counts shared images several times
        if size <= cap:
            return cap - size
        oldest = "SELECT id FROM undo_entries e WHERE bytes > 0 AND OWNED ORDER BY id".replace("OWNED", owned)
        for (entry,) in connection.execute(oldest, owner).fetchall():
            size -= value(_FREED, entry, entry)
            self._drop_images(connection, entry)
            connection.execute("UPDATE undo_files SET dropped = 1 WHERE entry = ?", (entry,))
            connection.execute("UPDATE undo_entries SET bytes = 0 WHERE id = ?", (entry,))
            if size <= cap - cap // _SPARE:
                break
        return cap - size

    def _drop_images(self, connection: sqlite3.Connection, entry: int) -> None:
        """Removes the images that no other entry needs."""
        connection.execute(
            "DELETE FROM undo_images WHERE (hash, base) IN (SELECT before, base FROM undo_files WHERE entry = ?)"
            " AND NOT EXISTS (SELECT 1 FROM undo_files f WHERE f.before = undo_images.hash"
            " AND f.base = undo_images.base AND NOT f.dropped AND f.entry != ?)",
            (entry, entry),
        )


def _count_common(one: bytes, other: bytes) -> tuple[int, int]:
    """Counts the equal bytes at the start, and of the rest at the end."""
    shortest, view = min(len(one), len(other)), memoryview(other)  # `startswith` copies nothing
    head = _count_same(shortest, lambda at, size: one.startswith(view[at : at + size], at))
    end, other_end = len(one), len(other)
    tail = _count_same(
        shortest - head,
        lambda at, size: one.startswith(view[other_end - at - size : other_end - at], end - at - size),
    )
    return head, tail


def _count_same(most: int, is_same: Callable[[int, int], bool]) -> int:
    """Counts how far two contents agree, up to `most`: by large pieces first, then by halves of the first that
    differs.
    """
    at, size = 0, _PIECE
    while at < most and size:
        size = min(size, most - at)
        if is_same(at, size):
            at += size
        else:
            size //= 2
    return at
