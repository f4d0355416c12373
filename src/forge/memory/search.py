"""Scores the pieces for a query by keywords and by age; `vectors` adds the similarity of embeddings."""

from __future__ import annotations

import heapq
import re
import sqlite3
from collections.abc import Mapping
from datetime import date

from forge.core.plain_values import sendable
from forge.memory.index_tables import SHIFT, separate_letters

HALF_LIFE = 7.0  # days in which a dated note loses half of its weight
MOST_WORDS = 32  # of a query
LONGEST_WORD = 64

_WORD = re.compile(r"\w+")
_STOP_WORDS = frozenset(
    "a about an and any are as at be been but by can could did do does for from had has have how i if in is it its me"
    " my of on or our shall should so than that the their them then there these they this to us was we were what when"
    " where which who whom whose why will with would you your".split()
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
