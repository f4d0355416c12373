"""The tables of the index; keeps them consistent when a note changes.

A piece's id is its note's id and a number, so that a piece leads to its note without another query. Notes carry the
generation in which they changed last, so that a process can read only the changes since the generation it knows.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from datetime import date
from typing import Any, NamedTuple

from forge.memory.chunks import Chunk

SHIFT = 20  # bits of a piece's number within its note

_UNSPACED = re.compile("([\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff])")


class NoteContent(NamedTuple):
    """The content of a note, ready to be indexed."""

    stamp: str
    day: date | None
    digest: bytes
    chunks: Sequence[Chunk]


def create_tables(connection: sqlite3.Connection) -> None:
    for statement in (
        "CREATE TABLE notes (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, stamp TEXT NOT NULL,"
        " day TEXT, digest BLOB NOT NULL, next INTEGER NOT NULL, generation INTEGER NOT NULL)",
        "CREATE INDEX notes_generation ON notes (generation)",
        "CREATE TABLE removed (note INTEGER PRIMARY KEY, generation INTEGER NOT NULL)",
        "CREATE TABLE pieces (id INTEGER PRIMARY KEY, line_start INTEGER NOT NULL, line_end INTEGER NOT NULL,"
        " digest BLOB NOT NULL, text TEXT NOT NULL)",
        "CREATE INDEX pieces_digest ON pieces (digest)",
        "CREATE TABLE vectors (id INTEGER PRIMARY KEY, vector BLOB NOT NULL)",
        "CREATE TABLE missing (id INTEGER PRIMARY KEY)",  # pieces without a vector
        "CREATE VIRTUAL TABLE words USING fts5 (text, content='', tokenize='porter unicode61 remove_diacritics 2')",
        "CREATE TABLE facts (name TEXT PRIMARY KEY, value)",
        "INSERT INTO facts VALUES ('generation', 0), ('embedder', ''), ('dimensions', 0), ('pieces', 0),"
        " ('identity', abs(random()))",  # distinguishes this index from a rebuilt one
    ):
        connection.execute(statement)


def update_note(connection: sqlite3.Connection, name: str, note: NoteContent | None, generation: int) -> bool:
    """Updates one note in the index. Returns True if its content changed."""
    row = connection.execute("SELECT id, digest, next FROM notes WHERE name = ?", (name,)).fetchone()
    if note is None:
        if row is not None:
            _remove_note(connection, row[0], generation)
        return row is not None
    if row is not None and row[1] == note.digest:
        new = (note.stamp, generation, row[0])
        connection.execute("UPDATE notes SET stamp = ?, generation = ? WHERE id = ?", new)
        return False
    if row is not None and row[2] + len(note.chunks) >= 1 << SHIFT:  # changed a million times
        _remove_note(connection, row[0], generation)
        row = None
    if row is None:
        made = connection.execute(
            "INSERT INTO notes (name, stamp, day, digest, next, generation) VALUES (?, '', ?, x'', 0, 0)",
            (name, note.day.isoformat() if note.day else None),
        )
        row = (made.lastrowid, b"", 0)
    next_ = _replace_pieces(connection, row[0], row[2], note.chunks)
    connection.execute(
        "UPDATE notes SET stamp = ?, digest = ?, next = ?, generation = ? WHERE id = ?",
        (note.stamp, note.digest, next_, generation, row[0]),
    )
    return True


def _replace_pieces(connection: sqlite3.Connection, note: int, number: int, chunks: Sequence[Chunk]) -> int:
    """Replaces the pieces of a note; unchanged pieces keep their ids and vectors. Returns the next piece number."""
    old_ids: dict[bytes, list[int]] = {}
    query = "SELECT id, digest FROM pieces WHERE id BETWEEN ? AND ? ORDER BY id DESC"
    for id_, digest in connection.execute(query, piece_id_range(note)):
        old_ids.setdefault(digest, []).append(id_)
    for chunk in chunks:
        digest = chunk.digest
        if ids := old_ids.get(digest):
            lines = (chunk.line_start, chunk.line_end, ids.pop())
            connection.execute("UPDATE pieces SET line_start = ?, line_end = ? WHERE id = ?", lines)
            continue
        id_ = (note << SHIFT) + number
        number += 1
        _insert_piece(connection, id_, chunk, digest)
    _delete_pieces(connection, [id_ for ids in old_ids.values() for id_ in ids])
    return number


def _insert_piece(connection: sqlite3.Connection, id_: int, chunk: Chunk, digest: bytes) -> None:
    query = "SELECT vector FROM pieces JOIN vectors USING (id) WHERE digest = ? LIMIT 1"
    same = connection.execute(query, (digest,)).fetchone()  # moved here from another note, or a duplicate
    row = (id_, chunk.line_start, chunk.line_end, digest, chunk.text)
    connection.execute("INSERT INTO pieces VALUES (?, ?, ?, ?, ?)", row)
    connection.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (id_, separate_letters(chunk.text)))
    if same:
        connection.execute("INSERT INTO vectors VALUES (?, ?)", (id_, same[0]))
    else:
        connection.execute("INSERT INTO missing VALUES (?)", (id_,))
    connection.execute("UPDATE facts SET value = value + 1 WHERE name = 'pieces'")


def _delete_pieces(connection: sqlite3.Connection, ids: Sequence[int]) -> None:
    for id_ in ids:
        text = _fetch_value(connection, "SELECT text FROM pieces WHERE id = ?", id_)
        connection.execute(
            "INSERT INTO words (words, rowid, text) VALUES ('delete', ?, ?)", (id_, separate_letters(text))
        )
        for table in ("pieces", "vectors", "missing"):
            connection.execute(f"DELETE FROM {table} WHERE id = ?", (id_,))  # noqa: S608 - one of three names
    connection.execute("UPDATE facts SET value = value - ? WHERE name = 'pieces'", (len(ids),))


def _remove_note(connection: sqlite3.Connection, note: int, generation: int) -> None:
    found = connection.execute("SELECT id FROM pieces WHERE id BETWEEN ? AND ?", piece_id_range(note)).fetchall()
    _delete_pieces(connection, [row[0] for row in found])
    connection.execute("DELETE FROM notes WHERE id = ?", (note,))
    connection.execute("INSERT INTO removed VALUES (?, ?)", (note, generation))


def separate_letters(text: str) -> str:
    """Separates the letters of scripts without spaces: the tokenizer would take a sentence for one word."""
    return text if text.isascii() else _UNSPACED.sub(r" \1 ", text)


def piece_id_range(note: int) -> tuple[int, int]:
    """Returns the first and the last id that pieces of a note can have."""
    return note << SHIFT, ((note + 1) << SHIFT) - 1


def count_of(connection: sqlite3.Connection, table: str) -> int:
    return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])  # noqa: S608 - a name of ours


def embedder_of(connection: sqlite3.Connection) -> str:
    """Returns the name of the embedder that made the vectors."""
    return str(_fetch_value(connection, "SELECT value FROM facts WHERE name = ?", "embedder"))


def fact(connection: sqlite3.Connection, name: str) -> int:
    return int(_fetch_value(connection, "SELECT value FROM facts WHERE name = ?", name))


def set_fact(connection: sqlite3.Connection, name: str, value: int | str) -> None:
    connection.execute("UPDATE facts SET value = ? WHERE name = ?", (value, name))


def _fetch_value(connection: sqlite3.Connection, query: str, *given: object) -> Any:
    row = connection.execute(query, given).fetchone()
    if row is None:
        raise damage_error("a part of it is missing")
    return row[0]


def damage_error(what: str) -> sqlite3.DatabaseError:
    error = sqlite3.DatabaseError(what)
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error
