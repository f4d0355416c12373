"""Which files a session has read and written, and whether they changed since."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from forge.core.errors import ErrorKind, ToolError
from forge.workspace.paths import quoted
from forge.workspace.paths.digest import digest_of
from forge.workspace.state.store import Store

HASHED = 16 * 1024 * 1024  # bytes: of a larger file time and size must do
MOST_FILES = 100_000  # remembered in all: of more, those that were touched longest ago are forgotten
PATIENCE = 2.0  # seconds: a read should not wait long for being noted
_TIDY = 1_000  # notes between two looks at that


class Seen(NamedTuple):
    """A file as it was when the session last touched it."""

    modified: int  # nanoseconds
    size: int
    digest: str  # of its content; empty where nobody had all of it at hand
    written: bool


class FileLedger:
    """Keyed by session and real path, in the project's store or in memory."""

    def __init__(self, path: Path | None = None) -> None:
        self._store = Store(path, "seen", [_tables], patience=PATIENCE)
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
        """Remember a file as it is now. `digest`: of its content, where it is known already."""
        digest = digest or _digest(content)
        self._keep([(session_id, os.fsencode(real), status.st_mtime_ns, status.st_size, digest, written)])

    def note_all(self, session_id: str, reads: Iterable[tuple[str, os.stat_result, bytes | None]]) -> None:
        """Remember files that were read, in one go."""
        self._keep(
            [
                (session_id, os.fsencode(real), status.st_mtime_ns, status.st_size, _digest(content), False)
                for real, status, content in reads
            ]
        )

    def forget_file(self, session_id: str, real: str) -> None:
        with self._store.writing() as connection:
            connection.execute("DELETE FROM seen WHERE session = ? AND path = ?", (session_id, os.fsencode(real)))

    def check(
        self,
        session_id: str,
        real: str,
        status: os.stat_result,
        shown: str,
        content: bytes | None = None,
    ) -> None:
        """Raise `ToolError` unless the session saw the file and it is still the same."""
        expected = self.expect(session_id, real, status, shown)
        if expected and content is not None and digest_of(content) != expected:
            raise changed(shown)

    def expect(self, session_id: str, real: str, status: os.stat_result, shown: str) -> str:
        """The digest that the file must still have; empty where nothing more can be asked of it than its size and time.

        Raises `ToolError` where these say already that it was not seen, or is not the same.
        """
        seen = self._find(session_id, real)
        if seen is None:
            raise ToolError(
                f"{quoted(shown)} exists and was not read in this session",
                ErrorKind.VALIDATION,
                "Read it first, so that nothing in it is lost unseen.",
            )
        if seen.size != status.st_size or (not seen.digest and seen.modified != status.st_mtime_ns):
            raise changed(shown)
        return seen.digest

    def files(self, session_id: str) -> dict[str, Seen]:
        with self._store.reading() as connection:
            rows = connection.execute(
                "SELECT path, modified, size, digest, written FROM seen WHERE session = ? ORDER BY rowid", (session_id,)
            )
            return {
                os.fsdecode(path): Seen(at, size, digest, bool(written)) for path, at, size, digest, written in rows
            }

    def forget(self, session_id: str = "") -> None:
        """What a session saw, or all of them."""
        with self._store.writing() as connection:
            if session_id:
                connection.execute("DELETE FROM seen WHERE session = ?", (session_id,))
            else:
                connection.execute("DELETE FROM seen")

    def _keep(self, rows: Sequence[tuple[str, bytes, int, int, str, bool]]) -> None:
        with self._store.writing() as connection:
            # REPLACE gives a file a new rowid: the latest is the last
            connection.executemany("INSERT OR REPLACE INTO seen VALUES (?, ?, ?, ?, ?, ?)", rows)
            before, self._notes = self._notes, self._notes + len(rows)
            if before // _TIDY != self._notes // _TIDY:
                connection.execute("DELETE FROM seen WHERE rowid <= (SELECT max(rowid) FROM seen) - ?", (MOST_FILES,))

    def _find(self, session_id: str, real: str) -> Seen | None:
        with self._store.reading() as connection:
            row = connection.execute(
                "SELECT modified, size, digest, written FROM seen WHERE session = ? AND path = ?",
                (session_id, os.fsencode(real)),
            ).fetchone()
        return None if row is None else Seen(row[0], row[1], row[2], bool(row[3]))


def _digest(content: bytes | None) -> str:
    return digest_of(content) if content is not None and len(content) <= HASHED else ""


def changed(shown: str) -> ToolError:
    """The refusal of a file that is not what the session saw."""
    return ToolError(
        f"{quoted(shown)} changed on disk since it was read", ErrorKind.VALIDATION, "Read it again, then decide anew."
    )


def _tables(connection: sqlite3.Connection) -> None:
    connection.execute(
        "CREATE TABLE seen (session TEXT NOT NULL, path BLOB NOT NULL, modified INTEGER NOT NULL,"
        " size INTEGER NOT NULL, digest TEXT NOT NULL, written INTEGER NOT NULL, PRIMARY KEY (session, path))"
    )
