"""Keeps the index up to date with the notes, and searches it.

Only changed notes are read. If the system reports the changes, not even the directory is read.
"""

from __future__ import annotations

import heapq
import logging
import os
import re
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

from forge.core.errors import ToolError
from forge.core.plain_values import sendable
from forge.memory.index import (
    FILE,
    SHIFT,
    Index,
    IndexedNote,
    IndexedPiece,
    NoteContent,
    digest_of,
    dimensions_of,
    notes_since,
    pieces_of,
    read_pieces,
    separate_letters,
    split_note,
    state_of,
)
from forge.memory.notes import Notes, NotesWatch, day_of, decode_note
from forge.workspace.state import NAME, explain_unusable, state_directory
from forge.workspace.state.store import StoreError

if TYPE_CHECKING:
    from forge.memory.vectors import Matrix


log = logging.getLogger(__name__)


class IndexFollower:
    """One process's view of the notes and the index. Its owner calls it from one thread at a time."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self.index = Index(_index_path(notes))
        self._watch = NotesWatch(notes.directory)
        self._identity, self._generation = 0, 0  # of the index, when it was last read
        self._notes_by_id: dict[int, IndexedNote] = {}
        self._notes_by_name: dict[str, IndexedNote] = {}
        self._changed: set[int] = set()  # notes whose vectors must be read again
        self._matrix: Matrix | None = None
        self._fading: tuple[date, dict[int, float]] | None = None  # the weight of each note on a day
        self._recent: set[str] = set()  # written so recently that another write may go unnoticed
        self._problems: dict[str, str] = {}  # notes that cannot be read
        self._is_complete = False  # every note was checked

    def close(self) -> None:
        self._watch.close()
        self.index.close()

    def follow(self, remarks: list[str], *, thorough: bool = False) -> int:
        """Indexes the notes that changed. Returns how many did. `thorough`: every note is checked."""
        names = self._watch.take_changes()
        self._read_changes()
        if thorough or names is None or not self._is_complete or self._notes.has_folders:
            candidates = self._find_differing(self._notes.stamps())
        else:
            candidates = [name for name in names if name.endswith(".md") and not name.startswith(".")]
            candidates += self._recent - names
        self._is_complete = False
        changed = self._index_changed(candidates)
        self._is_complete = True
        remarks += self._problems.values()
        return changed

    def find(
        self, query: str, vector: Sequence[float] | None, today: date, most: int
    ) -> list[tuple[IndexedPiece, float]]:
        """Returns the best pieces with their scores."""
        with self.index.reading() as connection:
            self._read_changes(connection)
            fading = self._weights_on(today)
            words = score_by_words(connection, query)
            if vector is None:
                best = best_by_words(words, fading, most)
            else:
                best = self._matrix_of(connection).best(vector, words, fading, most)
            found = read_pieces(connection, [id_ for id_, _ in best])
            return [(found[id_], score) for id_, score in best if score > 0 and id_ in found]

    def set_aside_damaged(self, error: StoreError) -> str:
        """Sets a damaged index aside, unless the store did so already. Returns a message."""
        message = error.message if "set aside" in error.message else self.index.set_aside()
        self._reset()
        return f"{message}. A new index was built from the notes; nothing is lost"

    def discard(self) -> None:
        """Deletes the index."""
        self.close()
        if self.index.path is not None:
            for suffix in ("-wal", "-shm", ""):
                self.index.path.with_name(self.index.path.name + suffix).unlink(missing_ok=True)
        self._reset()

    def _reset(self) -> None:
        """Resets this view: the next update checks every note."""
        self._identity, self._generation = 0, 0
        self._notes_by_id.clear()
        self._notes_by_name.clear()
        self._changed.clear()
        self._recent.clear()
        self._problems.clear()
        self._matrix = self._fading = None
        self._is_complete = False

    def _read_changes(self, connection: Any = None) -> None:
        """Reads the changes that this process or another made to the index."""
        if connection is None:
            with self.index.reading() as opened:
                return self._read_changes(opened)
        identity, generation = state_of(connection)
        if identity != self._identity:  # it was rebuilt
            self._reset()
            self._identity = identity
        if generation == self._generation:
            return None
        known, gone = notes_since(connection, self._generation)
        for id_ in gone:
            if (old := self._notes_by_id.pop(id_, None)) and self._notes_by_name.get(old.name) is old:
                del self._notes_by_name[old.name]
        for one in known:
            self._notes_by_id[one.id] = self._notes_by_name[one.name] = one
        self._changed.update(gone, (one.id for one in known))
        self._fading = None
        self._generation = generation
        return None

    def _find_differing(self, stamps: dict[str, str]) -> list[str]:
        different = [
            name
            for name, stamp in stamps.items()
            if name not in self._notes_by_name or self._notes_by_name[name].stamp != stamp
        ]
        self._problems = {name: message for name, message in self._problems.items() if name in stamps}
        return [*different, *(name for name in self._notes_by_name if name not in stamps)]

    def _index_changed(self, candidates: Sequence[str]) -> int:
        """Indexes the candidates that differ from the index."""
        different = [name for name in candidates if self._is_different(name)]
        different.sort(key=self._notes_by_name.__contains__)  # new names first: they may be renamed notes
        if not different:
            return 0
        changed = self.index.update(different, self._read)
        self._read_changes()
        return changed

    def _is_different(self, name: str) -> bool:
        known = self._notes_by_name.get(name)
        if known is None:
            return True
        note = self._read(name)
        return note is None or note.digest != known.digest or bool(note.stamp and note.stamp != known.stamp)

    def _read(self, name: str) -> NoteContent | None:
        """Reads a note. A note that is not text or is too long counts as removed, and a remark says so."""
        self._problems.pop(name, None)
        self._recent.discard(name)
        try:
            note = self._notes.read(name)
            if note is None:
                return None
            text = decode_note(name, note.content).text
        except ToolError as error:
            self._problems[name] = f"left out: {error.message}"
            return None
        if not note.stamp:
            self._recent.add(name)
        return NoteContent(note.stamp, day_of(name), digest_of(note.content), split_note(text))

    def _weights_on(self, today: date) -> dict[int, float]:
        if self._fading is None or self._fading[0] != today:
            self._fading = today, {id_: fade(known.day, today) for id_, known in self._notes_by_id.items()}
        return self._fading[1]

    def _matrix_of(self, connection: Any) -> Matrix:
        from forge.memory.vectors import Matrix  # loads numpy

        if self._matrix is None or self._matrix.width not in (0, dimensions_of(connection)):
            self._matrix = Matrix()
            self._matrix.load(connection, pieces_of(connection))
        elif self._changed:
            self._matrix.change(connection, self._changed)
        self._changed = set()
        return self._matrix


def _index_path(notes: Notes) -> Any:
    """Returns the path beside the project's other state; None (in memory) if that is not writable."""
    directory = state_directory(notes.workspace)
    if directory == notes.workspace / NAME and os.access(directory, os.W_OK):
        return directory / FILE
    log.warning("%s: the index of the notes is held in memory", explain_unusable(notes.workspace)[0])
    return None


# Scores the pieces for a query by keywords and by age; `vectors` adds the similarity of embeddings.

HALF_LIFE = 7.0  # days in which a dated note loses half of its weight
MOST_WORDS = 32  # of a query
LONGEST_WORD = 64

_WORD = re.compile(r"\w+")
_STOP_WORDS = frozenset(
    (
        "a about an and any are as at be been but by can could did do does for from had has have how i if in is "
        "it its me my of on or our shall should so than that the their them then there these they this to us "
        "was we were what when where which who whom whose why will with would you your"
    ).split()
)  # ignored unless the query has no other words: the best hit scores 1, and these alone must not


def build_expression(query: str) -> str:
    """Returns an FTS5 expression that matches any word of the query; "" if it has none. Any query is safe."""
    words = _WORD.findall(separate_letters(sendable(query[:10_000])).replace("_", " ").casefold())
    unique = dict.fromkeys(word[:LONGEST_WORD] for word in words)
    unique = dict.fromkeys(word for word in unique if word not in _STOP_WORDS) or unique
    return " OR ".join(f'"{word}"' for word in list(unique)[:MOST_WORDS])  # \w matches no quotes


def score_by_words(connection: sqlite3.Connection, query: str) -> dict[int, float]:
    """Returns the keyword score of every piece that has a word of the query: its BM25 relative to the best, 0 to 1.

    BM25 has no upper bound and depends on the number of notes, so it is only comparable within one query.
    """
    wanted = build_expression(query)
    if not wanted:
        return {}
    found: dict[int, float] = dict(
        connection.execute("SELECT rowid, bm25(words) FROM words WHERE words MATCH ?", (wanted,)).fetchall()
    )
    best = min(found.values(), default=0.0)  # SQLite's scores are negative, the best is the lowest
    if not best < 0:
        return dict.fromkeys(found, 1.0)
    return {id_: value / best for id_, value in found.items()}


def fade(day: date | None, today: date) -> float:
    """Returns the weight of a note by its age: 1.0 if it has no date, or a date of today or later."""
    return 1.0 if day is None else 0.5 ** (max((today - day).days, 0) / HALF_LIFE)


def best_by_words(words: Mapping[int, float], fading: Mapping[int, float], most: int) -> list[tuple[int, float]]:
    """Returns the pieces with the highest keyword score, for a search without vectors."""
    scored = ((value * fading.get(id_ >> SHIFT, 0.0), id_) for id_, value in words.items())
    return [(id_, score) for score, id_ in heapq.nlargest(most, scored)]
