"""Indexes the words of all tools. A change of the registry costs only the tools that were added, changed or removed."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from heapq import nlargest
from typing import NamedTuple

from forge.core.errors import ErrorKind, ToolError
from forge.core.spec import ToolSpec
from forge.core.tool import Tool
from forge.tools.tool_search.words import name_parameters, weigh_words, words_of_query

MOST = 50  # tools that a search ranks

_FREQUENCY, _LENGTH = 1.2, 0.75  # BM25's k1 and b
_DRIFT = 1.25  # by which the number of tools may grow or shrink before all words are weighed again


class Hit(NamedTuple):
    """A tool and how well it fits."""

    tool: Tool
    score: float


class _Entry(NamedTuple):
    """A tool in the index, with its words."""

    tool: Tool
    words: dict[str, float]


class Index:
    """Finds tools by the words of their names, descriptions and parameters (BM25), or by a pattern."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}  # by name
        self._specs: dict[str, ToolSpec] = {}  # the ones that were read, by name
        self._weights: dict[str, dict[str, float]] = defaultdict(dict)  # word -> name -> how much it says
        self._mean = 1.0  # length of a tool's text; the one that the weights were made with
        self._weighed = 0  # tools when all weights were made

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def tools(self) -> list[Tool]:
        return [entry.tool for entry in self._entries.values()]

    def update(self, tools: Mapping[str, Tool]) -> None:
        """Makes the index that of exactly these tools, by name. Reads only new and changed ones."""
        for name in [name for name, spec in self._specs.items() if name not in tools or tools[name].spec is not spec]:
            self._remove(name)
        new = tools.keys() - self._entries.keys()
        for name in new:
            self._specs[name] = tools[name].spec
            self._entries[name] = _Entry(tools[name], weigh_words(tools[name]))
        if not self._weighed / _DRIFT <= len(self) <= self._weighed * _DRIFT:
            self._weigh_all()
        else:
            for name in new:
                self._weigh(name)

    def rank_by_words(self, query: str) -> tuple[list[Hit], int]:
        """Returns the best tools, at most 50, and how many match at all. A tool with exactly this name is first."""
        scores: dict[str, float] = defaultdict(float)
        for word in words_of_query(query):
            holders = self._weights.get(word, {})
            rarity = math.log(1 + (len(self._entries) - len(holders) + 0.5) / (len(holders) + 0.5))
            for name, weight in holders.items():
                scores[name] += rarity * weight
        least = min(nlargest(MOST, scores.values()), default=0.0)
        best = [(score, name) for name, score in scores.items() if score >= least]
        best = [(math.inf if self._has_name(name, query) else score, name) for score, name in best]
        best.sort(key=lambda pair: (-pair[0], pair[1]))
        return [Hit(self._entries[name].tool, score) for score, name in best[:MOST]], len(scores)

    def find_matching(self, pattern: str) -> tuple[list[Hit], int]:
        """Returns the tools whose text matches the pattern; hits in the name first."""
        from pydantic_core import SchemaError, SchemaValidator, core_schema  # its regular expressions take linear time

        try:
            found = SchemaValidator(core_schema.str_schema(pattern=f"(?i){pattern}")).isinstance_python
        except SchemaError as error:
            raise ToolError(
                f"the pattern cannot be used: {_reason(error)}",
                ErrorKind.VALIDATION,
                "Correct it (look-around and back-references are not supported), or search with plain words.",
            ) from None
        hits = [tool for tool in self.tools if found(_text_of(tool))]
        hits.sort(key=lambda tool: (not found(tool.spec.name), tool.spec.name))
        return [Hit(tool, 1.0) for tool in hits[:MOST]], len(hits)

    def _has_name(self, name: str, query: str) -> bool:
        return query.strip().lower() in (name.lower(), *self._specs[name].aliases)

    def _remove(self, name: str) -> None:
        del self._specs[name]
        for word in self._entries.pop(name).words:
            holders = self._weights[word]
            holders.pop(name, None)
            if not holders:
                del self._weights[word]

    def _weigh_all(self) -> None:
        self._weights = defaultdict(dict)
        self._weighed = len(self._entries)
        lengths = [sum(entry.words.values()) for entry in self._entries.values()]
        self._mean = sum(lengths) / max(len(lengths), 1) or 1.0
        for name in self._entries:
            self._weigh(name)

    def _weigh(self, name: str) -> None:
        words = self._entries[name].words
        norm = _FREQUENCY * (1 - _LENGTH + _LENGTH * sum(words.values()) / self._mean)
        for word, count in words.items():
            self._weights[word][name] = count * (_FREQUENCY + 1) / (count + norm)


def _text_of(tool: Tool) -> str:
    return f"{tool.spec.name}\n{tool.spec.description}\n{' '.join(name_parameters(tool))}"


def _reason(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if "error" in line.lower()]
    return (lines[-1] if lines else str(error)).removeprefix("error: ")[:200]
