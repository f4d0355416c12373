"""The index of the notes, in a SQLite file of its own: words in FTS5, vectors as float16. It can be rebuilt."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import date
from pathlib import Path
from typing import NamedTuple

from forge.memory.index_tables import (
    SHIFT,
    NoteContent,
    count_of,
    create_tables,
    damage_error,
    embedder_of,
    fact,
    set_fact,
    update_note,
)
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
    """Tells if the error means a damaged index, which can be rebuilt."""
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
