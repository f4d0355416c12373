"""Which skills a session read: kept, so that a session that goes on in another process is as bound as before."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from forge.workspace.store import Store


class ReadSkills:
    """In the project's store, or in memory."""

    def __init__(self, path: Path | None = None) -> None:
        self._store = Store(path, "skills", [_tables])

    def add(self, session_id: str, name: str) -> None:
        with self._store.writing() as connection:
            connection.execute("INSERT OR IGNORE INTO read_skills VALUES (?, ?)", (session_id, name))

    def names(self, session_id: str) -> set[str]:
        with self._store.reading() as connection:
            found = connection.execute("SELECT name FROM read_skills WHERE session = ?", (session_id,)).fetchall()
        return {name for (name,) in found}

    def forget(self, session_id: str) -> None:
        """All of a session; of every session, where none is named."""
        with self._store.writing() as connection:
            connection.execute("DELETE FROM read_skills WHERE ? IN ('', session)", (session_id,))


def _tables(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE read_skills (session TEXT, name TEXT, PRIMARY KEY (session, name)) WITHOUT ROWID")
