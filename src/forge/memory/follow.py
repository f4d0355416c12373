"""Keeps the index in step with the notes, and searches it: what this process knows of both.

Only notes that changed are read. Where the system tells which did, not even the directory is looked through.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

from forge.core.errors import ToolError
from forge.memory._tables import Read
from forge.memory._watch import Watch
from forge.memory.chunks import digest_of, split
from forge.memory.index import (
    FILE,
    Index,
    Known,
    Row,
    dimensions_of,
    notes_since,
    pieces_of,
    rows,
    state_of,
)
from forge.memory.notes import Notes, day_of, decoded
from forge.memory.search import best_by_words, by_words, fade
from forge.workspace.state import NAME, state_directory, why_not
from forge.workspace.state.store import StoreError

if TYPE_CHECKING:  # it loads numpy
    from forge.memory.vectors import Matrix

log = logging.getLogger(__name__)


class Following:
    """One process's view. Its owner calls it from one thread at a time."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self.index = Index(_place_of_index(notes))
        self._watch = Watch(notes.directory)
        self._identity, self._generation = 0, 0  # of the index, as far as it is known
        self._known: dict[int, Known] = {}
        self._names: dict[str, Known] = {}
        self._changed: set[int] = set()  # notes whose vectors are to be read again
        self._matrix: Matrix | None = None
        self._fading: tuple[date, dict[int, float]] | None = None  # what is left of each note's weight on a day
        self._unsettled: set[str] = set()  # written so lately that they may be written again unnoticed
        self._problems: dict[str, str] = {}  # notes that cannot be read
        self._is_complete = False  # every note was looked at

    def close(self) -> None:
        self._watch.close()
        self.index.close()

    def follow(self, remarks: list[str], *, thorough: bool = False) -> int:
        """Take in what changed in the notes. How many did. `thorough`: every note is looked at."""
        names = self._watch.changed()
        self._learn()
        if thorough or names is None or not self._is_complete or self._notes.has_folders:
            candidates = self._differing(self._notes.stamps())
        else:
            candidates = [name for name in names if name.endswith(".md") and not name.startswith(".")]
            candidates += self._unsettled - names
        self._is_complete = False
        changed = self._take(candidates)
        self._is_complete = True
        remarks += self._problems.values()
        return changed

    def find(self, query: str, vector: Sequence[float] | None, today: date, most: int) -> list[tuple[Row, float]]:
        """The best pieces with their scores."""
        with self.index.reading() as connection:
            self._learn(connection)
            fading = self._fading_on(today)
            words = by_words(connection, query)
            if vector is None:
                best = best_by_words(words, fading, most)
            else:
                best = self._matrix_of(connection).best(vector, words, fading, most)
            found = rows(connection, [id_ for id_, _ in best])
            return [(found[id_], score) for id_, score in best if score > 0 and id_ in found]

    def start_anew(self, error: StoreError) -> str:
        """After damage: away with the index, unless the store has seen to that. What happened, in words."""
        said = error.message if "set aside" in error.message else self.index.set_aside()
        self._forget()
        return f"{said}. A new index was made from the notes, nothing is lost"

    def discard(self) -> None:
        """Remove the index."""
        self.close()
        if self.index.path is not None:
            for suffix in ("-wal", "-shm", ""):
                self.index.path.with_name(self.index.path.name + suffix).unlink(missing_ok=True)
        self._forget()

    def _forget(self) -> None:
        """Know nothing: the next look is at everything."""
        self._identity, self._generation = 0, 0
        self._known.clear()
        self._names.clear()
        self._changed.clear()
        self._unsettled.clear()
        self._problems.clear()
        self._matrix = self._fading = None
        self._is_complete = False

    def _learn(self, connection: Any = None) -> None:
        """Take in what this process or another did to the index since."""
        if connection is None:
            with self.index.reading() as opened:
                return self._learn(opened)
        identity, generation = state_of(connection)
        if identity != self._identity:  # somebody made it anew
            self._forget()
            self._identity = identity
        if generation == self._generation:
            return None
        known, gone = notes_since(connection, self._generation)
        for id_ in gone:
            if (old := self._known.pop(id_, None)) and self._names.get(old.name) is old:
                del self._names[old.name]
        for one in known:
            self._known[one.id] = self._names[one.name] = one
        self._changed.update(gone, (one.id for one in known))
        self._fading = None
        self._generation = generation
        return None

    def _differing(self, stamps: dict[str, str]) -> list[str]:
        different = [
            name for name, stamp in stamps.items() if name not in self._names or self._names[name].stamp != stamp
        ]
        self._problems = {name: said for name, said in self._problems.items() if name in stamps}
        return [*different, *(name for name in self._names if name not in stamps)]

    def _take(self, candidates: Sequence[str]) -> int:
        """Index those of these notes that are not what the index knows."""
        different = [name for name in candidates if self._is_different(name)]
        different.sort(key=self._names.__contains__)  # the new ones first: they may be old ones under a new name
        if not different:
            return 0
        changed = self.index.update(different, self._read)
        self._learn()
        return changed

    def _is_different(self, name: str) -> bool:
        known = self._names.get(name)
        if known is None:
            return True
        note = self._read(name)
        return note is None or note.digest != known.digest or bool(note.stamp and note.stamp != known.stamp)

    def _read(self, name: str) -> Read | None:
        """A note as it is now. One that is no text, or too long, counts as gone, and a remark says so."""
        self._problems.pop(name, None)
        self._unsettled.discard(name)
        try:
            note = self._notes.read(name)
            if note is None:
                return None
            text = decoded(name, note.content).text
        except ToolError as error:
            self._problems[name] = f"left out: {error.message}"
            return None
        if not note.stamp:
            self._unsettled.add(name)
        return Read(note.stamp, day_of(name), digest_of(note.content), split(text))

    def _fading_on(self, today: date) -> dict[int, float]:
        if self._fading is None or self._fading[0] != today:
            self._fading = today, {id_: fade(known.day, today) for id_, known in self._known.items()}
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


def _place_of_index(notes: Notes) -> Any:
    """Beside the project's other state; in memory where nothing can be written."""
    directory = state_directory(notes.workspace)
    if directory == notes.workspace / NAME and os.access(directory, os.W_OK):
        return directory / FILE
    log.warning("%s: the index of the notes is kept in memory", why_not(notes.workspace)[0])
    return None
