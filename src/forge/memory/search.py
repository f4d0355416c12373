"""Which pieces answer a query best: by meaning, by words, and by how long ago they were written down."""

from __future__ import annotations

import heapq
import re
import sqlite3
from collections.abc import Mapping
from datetime import date

from forge.core.plain_values import sendable
from forge.memory._tables import SHIFT, spaced

HALF_LIFE = 7.0  # days in which a dated note loses half of its weight
MOST_WORDS = 32  # of a query
LONGEST_WORD = 64

_WORD = re.compile(r"\w+")
_EMPTY = frozenset(
    "a about an and any are as at be been but by can could did do does for from had has have how i if in is it its me"
    " my of on or our shall should so than that the their them then there these they this to us was we were what when"
    " where which who whom whose why will with would you your".split()
)  # the best hit counts as 1, which none is that has only these


def expression(query: str) -> str:
    """An FTS5 expression that finds any of the words, whatever characters the query holds; "" if it has no words."""
    words = _WORD.findall(spaced(sendable(query[:10_000])).replace("_", " ").casefold())
    unique = dict.fromkeys(word[:LONGEST_WORD] for word in words)
    unique = dict.fromkeys(word for word in unique if word not in _EMPTY) or unique
    return " OR ".join(f'"{word}"' for word in list(unique)[:MOST_WORDS])  # \w: no quote is among them


def by_words(connection: sqlite3.Connection, query: str) -> dict[int, float]:
    """The keyword score of every piece that has a word of the query: its BM25 as a part of the best one's, so 0 to 1.

    BM25 has no upper end and depends on how many notes there are, so only the comparison within a query says something.
    """
    wanted = expression(query)
    if not wanted:
        return {}
    found: dict[int, float] = dict(
        connection.execute("SELECT rowid, bm25(words) FROM words WHERE words MATCH ?", (wanted,)).fetchall()
    )
    best = min(found.values(), default=0.0)  # SQLite's are below zero, the best the lowest
    if not best < 0:
        return dict.fromkeys(found, 1.0)
    return {id_: value / best for id_, value in found.items()}


def fade(day: date | None, today: date) -> float:
    """What is left of a note's weight: all of it for one that has no date, or one of today or later."""
    return 1.0 if day is None else 0.5 ** (max((today - day).days, 0) / HALF_LIFE)


def best_by_words(words: Mapping[int, float], fading: Mapping[int, float], most: int) -> list[tuple[int, float]]:
    """The pieces with the highest score where there are no vectors."""
    scored = ((value * fading.get(id_ >> SHIFT, 0.0), id_) for id_, value in words.items())
    return [(id_, score) for score, id_ in heapq.nlargest(most, scored)]
