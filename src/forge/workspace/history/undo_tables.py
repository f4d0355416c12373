"""Defines the tables of the undo log and their queries."""

from __future__ import annotations

import sqlite3

_WHICH = (
    "session = :session AND (:call_id = '' OR call_id = :call_id) AND (:turn = '' OR turn = :turn)"
    " AND (:before = 0 OR id < :before)"
)
COUNT = "SELECT count(*) FROM undo_entries WHERE WHICH".replace("WHICH", _WHICH)
LOST = (
    "SELECT 1 FROM undo_files WHERE dropped AND entry IN (SELECT id FROM undo_entries WHERE WHICH) LIMIT 1"
).replace("WHICH", _WHICH)
FILES = (
    "SELECT * FROM undo_files WHERE entry IN"
    " (SELECT id FROM undo_entries WHERE WHICH ORDER BY id DESC LIMIT :most) ORDER BY rowid"
).replace("WHICH", _WHICH)
ENTRIES = (
    "SELECT id, turn, call_id, tool, time, undone_by IS NOT NULL, tool = 'undo' OR EXISTS"
    " (SELECT 1 FROM undo_entries o WHERE o.undone_by = e.id), seal FROM undo_entries e WHERE WHICH ORDER BY id DESC"
    " LIMIT :most"
).replace("WHICH", _WHICH)


def create_undo_tables(connection: sqlite3.Connection) -> None:
    """Creates the tables of the undo log: version 1 of its part of the store."""
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


def add_seal(connection: sqlite3.Connection) -> None:
    """Adds the seals of the entries: version 2."""
    connection.execute("ALTER TABLE undo_entries ADD COLUMN seal TEXT NOT NULL DEFAULT ''")
