"""Ranks the tools that a search by words found by their meaning, with the vectors of an embedder."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from operator import mul
from threading import Lock

from forge.core.tool import Tool
from forge.tools.tool_search.index import MOST, Hit
from forge.tools.tool_search.words import summarize

Vector = Sequence[float]
Embed = Callable[[Sequence[str]], Sequence[Vector]]

SECONDS = 3.0  # for new vectors in one search; tools beyond keep their place by words
_AT_ONCE = 8  # texts
_SHARE = 0.6  # of the meaning in a score; the rest is that of the words
_ALONE = 0.4  # cosine from which a tool is found without a common word
_FEW = 200  # tools: so many are all compared by meaning
_MOST_VECTORS = 10_000  # kept


class VectorRanking:
    """Compares queries and tools with an embedder. The vector of a tool is made once, when a search needs it."""

    def __init__(self, embed: Embed, seconds: float = SECONDS) -> None:
        self._embed = embed
        self._seconds = seconds
        self._vectors: dict[str, Vector] = {}  # by text
        self._lock = Lock()

    def rank(self, query: str, hits: Sequence[Hit], tools: Sequence[Tool]) -> list[Hit]:
        """Returns the hits in the order of words and meaning together; tools that only mean the same are added.

        Tools without a common word are compared only if there are few tools in all. Raises what the embedder raises.
        """
        wanted = _unit(self._embed([query])[0])
        most = max((hit.score for hit in hits if hit.score < math.inf), default=0.0) or 1.0
        by_words = {hit.tool.spec.name: min(hit.score / most, math.inf) for hit in hits}
        others = [tool for tool in tools if tool.spec.name not in by_words] if len(tools) <= _FEW else []
        candidates = [*(hit.tool for hit in hits), *others]
        texts = [summarize(tool) for tool in candidates]
        known = self._make_vectors(texts)
        ranked, rest = [], []
        for tool, text in zip(candidates, texts, strict=True):
            words, vector = by_words.get(tool.spec.name, 0.0), known.get(text)
            if vector is None:
                rest += [Hit(tool, 0.0)] if words else []
                continue
            cosine = sum(map(mul, wanted, vector))
            if words or cosine >= _ALONE:
                ranked.append(Hit(tool, _SHARE * cosine + (1 - _SHARE) * words))
        ranked.sort(key=lambda hit: (-hit.score, hit.tool.spec.name))
        return [*ranked, *rest][:MOST]

    def _make_vectors(self, texts: Sequence[str]) -> dict[str, Vector]:
        """Returns the vectors of the texts, as many as there is time for: the first ones first."""
        with self._lock:
            missing = [text for text in dict.fromkeys(texts) if text not in self._vectors]
            if len(self._vectors) + len(missing) > _MOST_VECTORS:
                self._vectors.clear()
                missing = list(dict.fromkeys(texts))
            end = time.monotonic() + self._seconds
            for start in range(0, len(missing), _AT_ONCE):
                batch = missing[start : start + _AT_ONCE]
                self._vectors |= zip(batch, map(_unit, self._embed(batch)), strict=True)
                if time.monotonic() > end:
                    break
            return {text: self._vectors[text] for text in texts if text in self._vectors}


def _unit(vector: Vector) -> Vector:
    values = [float(value) for value in vector]
    length = math.sqrt(sum(map(mul, values, values)))
    return [value / length for value in values] if length else values
