"""Records the files that a session has read and written, and detects later changes."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from forge.core.errors import ErrorKind, ToolError
from forge.workspace.paths import quote_path
from forge.workspace.paths.digest import digest_of
from forge.workspace.state.store import Store

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
        self._store = Store(path, "seen", [_create_tables], patience=PATIENCE)
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


def _create_tables(connection: sqlite3.Connection) -> None:
    connection.execute(
        "CREATE TABLE seen (session TEXT NOT NULL, path BLOB NOT NULL, modified INTEGER NOT NULL,"
        " size INTEGER NOT NULL, digest TEXT NOT NULL, written INTEGER NOT NULL, PRIMARY KEY (session, path))"
    )
