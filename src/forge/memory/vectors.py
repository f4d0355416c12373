"""Holds all vectors of the index in one matrix, so that a search is one matrix product."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy

from forge.memory.index import SHIFT, piece_id_range

Floats = numpy.ndarray[Any, numpy.dtype[numpy.float32]]
Scores = numpy.ndarray[Any, numpy.dtype[numpy.float64]]
Numbers = numpy.ndarray[Any, numpy.dtype[numpy.int64]]

_BATCH = 10_000  # vectors read at once
_GONE = -1  # instead of an id: the row is empty


def pack_vector(vector: Sequence[float]) -> bytes:
    """Normalises a vector to length one, as float16 bytes; a zero vector stays zero."""
    values = numpy.nan_to_num(numpy.asarray(vector, dtype=numpy.float64), posinf=0.0, neginf=0.0)
    length = float(numpy.linalg.norm(values))
    return (values / length if length else values).astype(numpy.float16).tobytes()


class Matrix:
    """The vectors, as float32 for speed, and the ids of the pieces they belong to."""

    def __init__(self) -> None:
        self._ids: Numbers = numpy.empty(0, numpy.int64)
        self._rows: Floats = numpy.empty((0, 0), numpy.float32)
        self._used = 0
        self._gone = 0
        self._fading: Mapping[int, float] | None = None  # the last mapping, and its table
        self._faded: Scores = numpy.empty(0, numpy.float64)
        self._order: Numbers = numpy.empty(0, numpy.int64)

    @property
    def width(self) -> int:
        """The length of the vectors; 0 while there are none."""
        return int(self._rows.shape[1])

    def load(self, connection: sqlite3.Connection, pieces: int) -> None:
        """Loads all vectors. `pieces`: the approximate number of pieces."""
        self._ids, self._rows = numpy.empty(pieces, numpy.int64), numpy.empty((0, 0), numpy.float32)
        self._used = self._gone = 0
        self._add(connection.execute("SELECT id, vector FROM vectors ORDER BY id"))
        self._order = numpy.argsort(self._ids[: self._used])

    def change(self, connection: sqlite3.Connection, notes: Iterable[int]) -> None:
        """Reloads the vectors of these notes."""
        changed = list(notes)
        if changed:
            rows = numpy.flatnonzero(numpy.isin(self._ids[: self._used] >> SHIFT, changed))
            self._ids[rows] = _GONE
            self._rows[rows] = 0.0
            self._gone += len(rows)
            for note in changed:
                query = "SELECT id, vector FROM vectors WHERE id BETWEEN ? AND ?"
                self._add(connection.execute(query, piece_id_range(note)))
        if self._gone * 4 > self._used:
            remaining = numpy.flatnonzero(self._ids[: self._used] != _GONE)
            self._ids, self._rows = self._ids[remaining], self._rows[remaining]
            self._used, self._gone = len(remaining), 0
        self._order = numpy.argsort(self._ids[: self._used])

    def best(
        self, query: Sequence[float], words: Mapping[int, float], fading: Mapping[int, float], most: int
    ) -> list[tuple[int, float]]:
        """Returns the pieces with the highest score. `words`: keyword scores by piece; `fading`: weights by note.

        A piece without a vector is scored by its keywords alone.
        """
        ids = self._ids[: self._used]
        vector = numpy.frombuffer(pack_vector(query), numpy.float16).astype(numpy.float32)
        fits = self._rows.shape[1] == len(vector)
        cosines = self._rows[: self._used] @ vector if fits else numpy.zeros(self._used)
        scores = cosines.astype(numpy.float64) * 0.7  # float64: notes that are years old still have a tiny score
        if fading is not self._fading:
            self._fading, self._faded = fading, _weight_table(fading)
        faded = self._faded
        rest: list[tuple[int, float]] = []
        if words:
            hits = numpy.fromiter(words.keys(), numpy.int64, len(words))
            found = numpy.fromiter(words.values(), numpy.float64, len(words)) * 0.3
            rows, is_here = self._find_rows(hits)
            scores[rows[is_here]] += found[is_here]
            alone = ~is_here
            rest = list(zip(hits[alone].tolist(), (found * faded[hits >> SHIFT])[alone].tolist(), strict=True))
        scores *= faded[ids >> SHIFT]  # an empty row uses the last entry, which is 0
        taken = numpy.argpartition(scores, -most)[-most:] if len(scores) > most else numpy.arange(len(scores))
        pairs = [(int(ids[row]), float(scores[row])) for row in taken if ids[row] != _GONE]
        return sorted([*pairs, *rest], key=lambda pair: (-pair[1], -pair[0]))[:most]

    def _find_rows(self, hits: Numbers) -> tuple[Numbers, numpy.ndarray[Any, numpy.dtype[numpy.bool_]]]:
        """Returns the rows of these ids, and a mask of those that exist."""
        if not self._used:
            return numpy.zeros(len(hits), numpy.int64), numpy.zeros(len(hits), numpy.bool_)
        ids = self._ids[: self._used]
        at = numpy.searchsorted(ids, hits, sorter=self._order)
        rows = self._order[numpy.minimum(at, self._used - 1)]
        return rows, ids[rows] == hits

    def _add(self, found: sqlite3.Cursor) -> None:
        while batch := found.fetchmany(_BATCH):
            width = self._rows.shape[1] or len(batch[0][1]) // 2
            fitting = [row for row in batch if len(row[1]) == 2 * width]
            end = self._used + len(fitting)
            self._make_room(end, width)
            values = numpy.frombuffer(b"".join(vector for _, vector in fitting), numpy.float16)
            self._ids[self._used : end] = [id_ for id_, _ in fitting]
            self._rows[self._used : end] = values.reshape(-1, width)
            self._used = end

    def _make_room(self, rows: int, width: int) -> None:
        if rows <= len(self._rows):
            return
        capacity = max(rows, len(self._ids), len(self._rows) * 5 // 4)
        ids, values = numpy.empty(capacity, numpy.int64), numpy.empty((capacity, width), numpy.float32)
        if self._used:
            ids[: self._used], values[: self._used] = self._ids[: self._used], self._rows[: self._used]
        self._ids, self._rows = ids, values


def _weight_table(fading: Mapping[int, float]) -> Scores:
    """Returns the weights by note id, with one more entry for empty rows."""
    table = numpy.zeros(max(fading, default=0) + 2, numpy.float64)
    table[[*fading]] = [*fading.values()]
    return table
