"""Stores the to-do list of each session, in the project's store or in memory."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from forge.workspace.state.store import Store

TodoItem = dict[str, Any]


class Todos:
    """The to-do lists by session. A list is always replaced as a whole."""

    def __init__(self, path: Path | None = None) -> None:
        self._store = Store(path, "todos", [_create_tables])

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


def _create_tables(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE todos (session TEXT PRIMARY KEY, items TEXT NOT NULL)")
