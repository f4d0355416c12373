"""The tables of the index, and what keeps them in step with each other when a note changes.

A piece's id is its note's id and a number, so that a piece found tells its note without another look. Notes carry the
generation in which they changed last: whoever knows an older one asks for what came since.
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


class Read(NamedTuple):
    """A note as it is to be indexed."""

    stamp: str
    day: date | None
    digest: bytes
    chunks: Sequence[Chunk]


def create(connection: sqlite3.Connection) -> None:
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
        " ('identity', abs(random()))",  # to tell it from one that was made anew
    ):
        connection.execute(statement)


def take(connection: sqlite3.Connection, name: str, note: Read | None, generation: int) -> bool:
    """Bring one note up to date. Whether it says something else now."""
    row = connection.execute("SELECT id, digest, next FROM notes WHERE name = ?", (name,)).fetchone()
    if note is None:
        if row is not None:
            _remove(connection, row[0], generation)
        return row is not None
    if row is not None and row[1] == note.digest:
        new = (note.stamp, generation, row[0])
        connection.execute("UPDATE notes SET stamp = ?, generation = ? WHERE id = ?", new)
        return False
    if row is not None and row[2] + len(note.chunks) >= 1 << SHIFT:  # changed a million times
        _remove(connection, row[0], generation)
        row = None
    if row is None:
        made = connection.execute(
            "INSERT INTO notes (name, stamp, day, digest, next, generation) VALUES (?, '', ?, x'', 0, 0)",
            (name, note.day.isoformat() if note.day else None),
        )
        row = (made.lastrowid, b"", 0)
    next_ = _replace(connection, row[0], row[2], note.chunks)
    connection.execute(
        "UPDATE notes SET stamp = ?, digest = ?, next = ?, generation = ? WHERE id = ?",
        (note.stamp, note.digest, next_, generation, row[0]),
    )
    return True


def _replace(connection: sqlite3.Connection, note: int, number: int, chunks: Sequence[Chunk]) -> int:
    """Pieces whose content stays keep their id and their vector. The number for the next new one."""
    kept: dict[bytes, list[int]] = {}
    query = "SELECT id, digest FROM pieces WHERE id BETWEEN ? AND ? ORDER BY id DESC"
    for id_, digest in connection.execute(query, span(note)):
        kept.setdefault(digest, []).append(id_)
    for chunk in chunks:
        digest = chunk.digest
        if ids := kept.get(digest):
            lines = (chunk.line_start, chunk.line_end, ids.pop())
            connection.execute("UPDATE pieces SET line_start = ?, line_end = ? WHERE id = ?", lines)
            continue
        id_ = (note << SHIFT) + number
        number += 1
        _insert(connection, id_, chunk, digest)
    _delete(connection, [id_ for ids in kept.values() for id_ in ids])
    return number


def _insert(connection: sqlite3.Connection, id_: int, chunk: Chunk, digest: bytes) -> None:
    query = "SELECT vector FROM pieces JOIN vectors USING (id) WHERE digest = ? LIMIT 1"
    same = connection.execute(query, (digest,)).fetchone()  # moved here from another note, or said twice
    row = (id_, chunk.line_start, chunk.line_end, digest, chunk.text)
    connection.execute("INSERT INTO pieces VALUES (?, ?, ?, ?, ?)", row)
    connection.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (id_, spaced(chunk.text)))
    if same:
        connection.execute("INSERT INTO vectors VALUES (?, ?)", (id_, same[0]))
    else:
        connection.execute("INSERT INTO missing VALUES (?)", (id_,))
    connection.execute("UPDATE facts SET value = value + 1 WHERE name = 'pieces'")


def _delete(connection: sqlite3.Connection, ids: Sequence[int]) -> None:
    for id_ in ids:
        text = _one(connection, "SELECT text FROM pieces WHERE id = ?", id_)
        connection.execute("INSERT INTO words (words, rowid, text) VALUES ('delete', ?, ?)", (id_, spaced(text)))
        for table in ("pieces", "vectors", "missing"):
            connection.execute(f"DELETE FROM {table} WHERE id = ?", (id_,))  # noqa: S608 - one of three names
    connection.execute("UPDATE facts SET value = value - ? WHERE name = 'pieces'", (len(ids),))


def _remove(connection: sqlite3.Connection, note: int, generation: int) -> None:
    found = connection.execute("SELECT id FROM pieces WHERE id BETWEEN ? AND ?", span(note)).fetchall()
    _delete(connection, [row[0] for row in found])
    connection.execute("DELETE FROM notes WHERE id = ?", (note,))
    connection.execute("INSERT INTO removed VALUES (?, ?)", (note, generation))


def spaced(text: str) -> str:
    """Scripts without spaces, letter by letter: the tokenizer would take a sentence for one word."""
    return text if text.isascii() else _UNSPACED.sub(r" \1 ", text)


def span(note: int) -> tuple[int, int]:
    """The first and the last id that pieces of a note can have."""
    return note << SHIFT, ((note + 1) << SHIFT) - 1


def count_of(connection: sqlite3.Connection, table: str) -> int:
    return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])  # noqa: S608 - a name of ours


def embedder_of(connection: sqlite3.Connection) -> str:
    """Whose vectors these are."""
    return str(_one(connection, "SELECT value FROM facts WHERE name = ?", "embedder"))


def fact(connection: sqlite3.Connection, name: str) -> int:
    return int(_one(connection, "SELECT value FROM facts WHERE name = ?", name))


def put_fact(connection: sqlite3.Connection, name: str, value: int | str) -> None:
    connection.execute("UPDATE facts SET value = ? WHERE name = ?", (value, name))


def _one(connection: sqlite3.Connection, query: str, *given: object) -> Any:
    row = connection.execute(query, given).fetchone()
    if row is None:
        raise damage("something is missing in it")
    return row[0]


def damage(what: str) -> sqlite3.DatabaseError:
    error = sqlite3.DatabaseError(what)
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error
