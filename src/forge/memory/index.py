"""The index of the notes, in a SQLite file of its own: words in FTS5, vectors as float16. It can be rebuilt.

A note is cut into pieces: a section, or a few of its paragraphs.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from forge.workspace.state.store import Store, StoreError

FILE = "memory.db"
TURN = 0.25  # seconds that one transaction may take while other processes wait

_DAMAGED = frozenset(
    {
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_ERROR,  # for example, a table is missing
        sqlite3.SQLITE_CONSTRAINT,
        sqlite3.SQLITE_MISMATCH,
    }
)


class IndexedNote(NamedTuple):
    """A note in the index."""

    id: int
    name: str
    stamp: str
    digest: bytes
    day: date | None


class IndexedPiece(NamedTuple):
    """A piece of a note in the index."""

    id: int
    name: str
    line_start: int
    line_end: int
    text: str


class Index:
    """The index of the notes. Several processes may use it; one at a time writes."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._store = Store(path, "memory", [create_tables])

    def close(self) -> None:
        self._store.close()

    @property
    def size(self) -> int:
        """Bytes on the disk, including the log."""
        files = [self.path, self.path.with_name(f"{self.path.name}-wal")] if self.path is not None else []
        return sum(file.stat().st_size for file in files if file.exists())

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        with self._store.read_transaction() as connection:
            yield connection

    def update(self, names: Sequence[str], read: Callable[[str], NoteContent | None]) -> int:
        """Indexes these notes; a note that `read` does not find is removed. Returns how many changed.

        Notes are read inside the write transaction, so that two processes do not do the same work.
        """
        changed, rest = 0, list(reversed(names))
        while rest:
            until = time.monotonic() + TURN
            with self._store.write_transaction() as connection:
                generation = fact(connection, "generation") + 1
                set_fact(connection, "generation", generation)
                while rest and time.monotonic() < until:
                    name = rest.pop()
                    changed += update_note(connection, name, read(name), generation)
        return changed

    def use_embedder(self, name: str, dimensions: int) -> None:
        """Selects the embedder. Vectors of another embedder or length are deleted and must be made again."""
        with self._store.read_transaction() as connection:
            if _is_embedder(connection, name, dimensions):
                return
        with self._store.write_transaction() as connection:
            if _is_embedder(connection, name, dimensions):
                return
            connection.execute("DELETE FROM vectors")
            connection.execute("INSERT OR IGNORE INTO missing SELECT id FROM pieces")
            set_fact(connection, "embedder", name)
            set_fact(connection, "dimensions", dimensions)
            generation = fact(connection, "generation") + 1
            connection.execute("UPDATE notes SET generation = ?", (generation,))
            set_fact(connection, "generation", generation)

    def pieces_without_vector(self, most: int) -> list[tuple[int, str]]:
        with self._store.read_transaction() as connection:
            query = "SELECT id, text FROM missing JOIN pieces USING (id) ORDER BY id DESC LIMIT ?"  # the latest first
            return connection.execute(query, (most,)).fetchall()

    def count_without_vector(self) -> int:
        """Returns how many pieces have no vector."""
        with self._store.read_transaction() as connection:
            return count_of(connection, "missing")

    def store_vectors(self, vectors: Mapping[int, bytes], embedder: str, dimensions: int) -> None:
        """Stores vectors if their pieces still exist and the index still uses this embedder."""
        with self._store.write_transaction() as connection:
            if embedder_of(connection) != embedder:
                return
            generation = fact(connection, "generation") + 1
            set_fact(connection, "dimensions", dimensions)
            for id_, vector in vectors.items():
                if connection.execute("DELETE FROM missing WHERE id = ?", (id_,)).rowcount:
                    connection.execute("INSERT OR REPLACE INTO vectors VALUES (?, ?)", (id_, vector))
            notes = [(generation, note) for note in {id_ >> SHIFT for id_ in vectors}]
            connection.executemany("UPDATE notes SET generation = ? WHERE id = ?", notes)
            set_fact(connection, "generation", generation)

    def set_aside(self) -> str:
        """Moves the file aside; the next use creates a new one. Returns a message."""
        self._store.close()
        if self.path is None:
            return "the index was damaged"
        aside = self.path.with_name(f"{self.path.name}.corrupt-{time.strftime('%Y%m%dT%H%M%S')}-{os.urandom(2).hex()}")
        for suffix in ("-wal", "-shm", ""):  # the log first: otherwise it would be replayed into the new file
            with suppress(FileNotFoundError):
                os.rename(f"{self.path}{suffix}", f"{aside}{suffix}")
        return f"{self.path} is damaged; it was set aside as {aside.name}"

    def check(self) -> None:
        """Raises `StoreError` if the file or its keyword index is damaged."""
        with self._store.write_transaction() as connection:
            connection.execute("INSERT INTO words(words) VALUES ('integrity-check')")
            found = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
            if found != "ok":
                raise damage_error(found)

    def counts(self) -> dict[str, int | str]:
        with self._store.read_transaction() as connection:
            return {
                "notes": count_of(connection, "notes"),
                "chunks": fact(connection, "pieces"),
                "without_vector": count_of(connection, "missing"),
                "vectors": count_of(connection, "vectors"),
                "vectors_of": embedder_of(connection),
                "dimensions": fact(connection, "dimensions"),
            }


def is_damage(error: StoreError) -> bool:
    """Returns whether the error means a damaged index, which can be rebuilt."""
    code = getattr(error.__cause__, "sqlite_errorcode", 0) & 0xFF
    return code in _DAMAGED


def state_of(connection: sqlite3.Connection) -> tuple[int, int]:
    """Returns the identity and the generation of the index."""
    return fact(connection, "identity"), fact(connection, "generation")


def pieces_of(connection: sqlite3.Connection) -> int:
    return fact(connection, "pieces")


def dimensions_of(connection: sqlite3.Connection) -> int:
    return fact(connection, "dimensions")


def notes_since(connection: sqlite3.Connection, generation: int) -> tuple[list[IndexedNote], list[int]]:
    """Returns the notes that changed after a generation, and the ids of removed notes."""
    query = "SELECT id, name, stamp, digest, day FROM notes WHERE generation > ?"
    known = [
        IndexedNote(id_, name, stamp, digest, date.fromisoformat(day) if day else None)
        for id_, name, stamp, digest, day in connection.execute(query, (generation,))
    ]
    gone = [row[0] for row in connection.execute("SELECT note FROM removed WHERE generation > ?", (generation,))]
    return known, gone


def read_pieces(connection: sqlite3.Connection, ids: Sequence[int]) -> dict[int, IndexedPiece]:
    found = {}
    for id_ in ids:
        query = "SELECT name, line_start, line_end, text FROM pieces JOIN notes ON notes.id = ? WHERE pieces.id = ?"
        row = connection.execute(query, (id_ >> SHIFT, id_)).fetchone()
        if row is not None:
            found[id_] = IndexedPiece(id_, *row)
    return found


def _is_embedder(connection: sqlite3.Connection, name: str, dimensions: int) -> bool:
    return embedder_of(connection) == name and (not dimensions or fact(connection, "dimensions") in (0, dimensions))


# The tables of the index; keeps them consistent when a note changes.
#
# A piece's id is its note's id and a number, so that a piece leads to its note without another query. Notes carry the
# generation in which they changed last, so that a process can read only the changes since the generation it knows.


SHIFT = 20  # bits of a piece's number within its note

_UNSPACED = re.compile("([\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff])")


class NoteContent(NamedTuple):
    """The content of a note, ready to be indexed."""

    stamp: str
    day: date | None
    digest: bytes
    chunks: Sequence[NoteChunk]


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
    """Updates one note in the index. Returns whether its content changed."""
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


def _replace_pieces(connection: sqlite3.Connection, note: int, number: int, chunks: Sequence[NoteChunk]) -> int:
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


def _insert_piece(connection: sqlite3.Connection, id_: int, chunk: NoteChunk, digest: bytes) -> None:
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


# Cuts a note into searchable pieces: a section, or a few of its paragraphs.

ENOUGH = 500  # characters after which a blank line ends a piece
LONGEST_PIECE = 1_000  # characters of a piece; an embedding model reads hardly more

_HEADING = re.compile(r"#{1,6}\s")
_FENCE = re.compile(r"\s{0,3}(```|~~~)")


class NoteChunk(NamedTuple):
    """A piece of a note and its lines, counted from 1."""

    text: str
    line_start: int
    line_end: int

    @property
    def digest(self) -> bytes:
        return digest_of(self.text.encode("utf-8", "surrogatepass"))


def digest_of(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()


def split_note(text: str) -> list[NoteChunk]:
    """Returns the pieces of a note, in order. Every line that is not blank is in one of them."""
    found: list[NoteChunk] = []
    for lines in _groups(text):
        found += _cut_group(lines)
    return found


def _groups(text: str) -> Iterator[list[tuple[int, str]]]:
    """Yields groups of numbered lines: a group ends before a heading, or at a blank line once it is long enough."""
    group: list[tuple[int, str]] = []
    size, in_code, has_body = 0, False, False
    for number, raw in enumerate(io.StringIO(text, newline=""), 1):  # splits lines as editors do
        line = raw.rstrip("\r\n")
        is_heading = not in_code and _HEADING.match(line) is not None
        is_blank = not line.strip()
        if group and ((is_heading and has_body) or (is_blank and size >= ENOUGH) or size + len(line) > LONGEST_PIECE):
            yield group
            group, size, has_body = [], 0, False
        if is_blank and not group:
            continue
        group.append((number, line))
        size += len(line) + 1
        in_code ^= _FENCE.match(line) is not None
        has_body |= not is_heading and not is_blank
    if group:
        yield group


def _cut_group(lines: list[tuple[int, str]]) -> Iterator[NoteChunk]:
    while lines and not lines[-1][1].strip():
        lines = lines[:-1]
    if not lines:
        return
    text = "\n".join(line for _, line in lines)
    for start in range(0, len(text), LONGEST_PIECE):  # several only if a single line is too long
        piece = text[start : start + LONGEST_PIECE]
        if piece.strip():
            yield NoteChunk(piece, lines[0][0], lines[-1][0])
