"""Searching 100,000 pieces of notes, against the query and the product it cannot do without; indexing one note."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy

from benchmarks.timing import ROUNDS, Measure
from forge.memory.memory import Memory
from forge.memory.search import build_expression

NOTES, PIECES = 1_000, 100  # and so many pieces in each
DIMENSIONS = 384
FEW, MANY = 100, 10_000  # notes
QUERIES = ("word7 word150 word900", "word1 word3 word40", "word2500 word31", "word20000")


class Random:
    """Vectors that mean nothing and take no time."""

    name = "random"
    dimensions = DIMENSIONS

    def __init__(self) -> None:
        self._generator = numpy.random.default_rng(8)

    def embed(self, texts: Sequence[str]) -> Any:
        return self._generator.standard_normal((len(texts), DIMENSIONS)).astype(numpy.float32)


async def measures() -> list[Measure]:
    with tempfile.TemporaryDirectory() as place:
        found = await _searching(Path(place))
    with tempfile.TemporaryDirectory() as place:
        found += await _indexing(Path(place))
    return found


async def _searching(top: Path) -> list[Measure]:
    memory = Memory(top / ".forge" / "memory", Random())
    write_notes(memory.notes.directory, NOTES, PIECES)
    done = await memory.reindex()
    assert done.chunks == NOTES * PIECES, done
    words = Memory(memory.notes.directory)  # the same notes and index, without an embedder
    database = sqlite3.connect(top / ".forge" / "memory.db")
    matrix = Random().embed([""] * done.chunks)
    vector = matrix[0]

    def fts() -> float:
        return _timed(lambda: [_query(database, query) for query in QUERIES]) / len(QUERIES)

    def product() -> float:
        return _timed(lambda: matrix @ vector)

    await memory.search("warm"), await words.search("warm")
    floors, hybrids, keywords = [], [], []
    for _ in range(ROUNDS):
        query, dot = fts(), product()
        floors.append((query, query + dot))
        hybrids.append(await _mean(memory))
        keywords.append(await _mean(words))
    floor_words = statistics.median(one for one, _ in floors)
    floor_both = statistics.median(both for _, both in floors)
    name = f"memory_search, {done.chunks:,} pieces"
    return [
        Measure(name, "one FTS5 query + one product", floor_both, statistics.median(hybrids), "ms", 3.0),
        Measure(f"{name}, words only", "one FTS5 query", floor_words, statistics.median(keywords), "ms", 3.0),
    ]


async def _indexing(top: Path) -> list[Measure]:
    """One changed note among few and among many, in turns."""
    memories = {}
    for number in (FEW, MANY):
        memory = memories[number] = Memory(top / str(number) / ".forge" / "memory")
        write_notes(memory.notes.directory, number, 3)
        await memory.reindex()
    times: dict[int, list[float]] = {FEW: [], MANY: []}
    for turn in range(ROUNDS * 3):
        for number, memory in memories.items():
            memory.write(f"changed for the {turn}th time")
            times[number].append(_timed(lambda memory=memory: memory.follow()))
    few, many = (statistics.median(times[number]) for number in (FEW, MANY))
    whole = f"one changed note among {MANY:,}"
    return [Measure(f"index {whole}", f"one changed note among {FEW}", few, many, "ms", 1.5)]


def write_notes(directory: Path, notes: int, pieces: int) -> None:
    """A diary in a made-up language, in which few words are common and most are rare."""
    directory.mkdir(parents=True)
    pick = random.Random(8)
    for number in range(notes):
        day = date.today() - timedelta(days=number + 1)
        parts = [f"## {at}\n\n{' '.join(_word(pick) for _ in range(30))}\n" for at in range(pieces)]
        (directory / f"{day}.md").write_text("\n".join(parts))


def _word(pick: random.Random) -> str:
    return f"word{min(int(pick.paretovariate(0.6)), 20_000)}"


def _query(database: sqlite3.Connection, query: str) -> Any:
    wanted = "SELECT rowid, bm25(words) AS score FROM words WHERE words MATCH ? ORDER BY score LIMIT 5"
    return database.execute(wanted, (build_expression(query),)).fetchall()


def _timed(work: Any) -> float:
    """Milliseconds on the clock."""
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1e3


async def _mean(memory: Memory) -> float:
    started = time.perf_counter()
    for query in QUERIES:
        assert (await memory.search(query)).hits
    return (time.perf_counter() - started) * 1e3 / len(QUERIES)


if __name__ == "__main__":
    for one in asyncio.run(measures()):
        print(one, one.ratio)
