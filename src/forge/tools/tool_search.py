"""Finds tools by their purpose, by words and by meaning, so that a thousand tools cost nothing until a search."""

from __future__ import annotations

import logging
import math
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import mul
from threading import Lock
from typing import Annotated, Any, NamedTuple

from forge.core.arguments.parameters import ParameterLimits
from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.registry import RUN_CODE, ToolRegistry
from forge.core.result import ToolResult
from forge.core.spec import Category, ToolSpec
from forge.core.tool import Tool

log = logging.getLogger(__name__)

MAX_QUERY = 1_000  # characters
MAX_DESCRIPTION = 200  # characters of a description in the answer


class ToolSearch(Tool, category=Category.BUILTIN, idempotent=True, timeout=10.0):
    """Find tools by what they do. There are more than you see: search before you call something impossible."""

    reveals_tools = True

    def __init__(self, registry: ToolRegistry) -> None:
        self._registry = registry
        self._lock = Lock()
        self._index: ToolIndex | None = None
        self._indexed = -1  # the version of the registry
        self._ranking: VectorRanking | None = None

    def inside(self, registry: ToolRegistry) -> ToolSearch:
        own = ToolSearch(registry)
        own._ranking = self._ranking  # with the vectors that it has
        return own

    def rank_by_meaning(self, embed: Embed) -> ToolSearch:
        """Ranks by meaning, too, from now on. `embed` turns texts into vectors; if it fails, words alone count.

        The first search calls it.
        """

        self._ranking = VectorRanking(embed)
        return self

    def run(
        self,
        ctx: ToolContext,
        query: Annotated[str, "A few words."],
        regex: bool = False,
        max_results: Annotated[int, ParameterLimits(ge=1, le=50)] = 5,
    ) -> ToolResult:
        if not query.strip():
            raise ToolError("the query is empty", ErrorKind.VALIDATION, "Say in a few words what the tool should do.")
        if len(query) > MAX_QUERY:
            raise ToolError(
                f"the query has more than {MAX_QUERY:,} characters", ErrorKind.VALIDATION, "Use a few words."
            )
        found, total = self._search(query, ctx.spec.name, regex=regex)
        hits = [hit.tool.spec for hit in found[:max_results]]
        in_scripts = RUN_CODE in (self._registry.sent or ())  # found tools are called from scripts
        hidden = [spec.name for spec in hits if self._registry.is_deferred(spec)]
        if hidden and not in_scripts:
            self._registry.reveal(hidden, ctx.scope.session_id)
        return _answer(hits, total, query, in_scripts=in_scripts)

    def _search(self, query: str, own_name: str, *, regex: bool) -> tuple[list[ToolHit], int]:
        """Returns the best tools, at most 50, and the number of tools that fit."""
        with self._lock:  # a second search waits for the index
            index = self._update_index(own_name)
            found, total = index.find_matching(query) if regex else index.rank_by_words(query)
            tools = index.tools
        if regex or self._ranking is None:
            return found, total
        try:
            found = self._ranking.rank(query, found, tools)
        except Exception as error:  # search works without it
            self._ranking = None
            log.warning("tool_search ranks by words alone from now on, because the embedder failed: %r", error)
        return found, max(total, len(found))

    def _update_index(self, own_name: str) -> ToolIndex:
        version = self._registry.version  # before the tools are read: a change meanwhile makes the index old, not wrong
        if self._index is None:
            self._index = ToolIndex()
        if self._indexed != version:
            tools = dict(self._registry)
            for name in (own_name, RUN_CODE):
                tools.pop(name, None)
            self._index.update(tools)
            self._indexed = version
        return self._index


def _answer(hits: list[ToolSpec], total: int, query: str, *, in_scripts: bool = False) -> ToolResult:
    lines = [_signature_of(spec) if in_scripts else f"- `{spec.name}` - {_shorten(spec.description)}" for spec in hits]
    if not lines:
        lines = [f"No tool matches {query[:100]!r}. Try other words for what it should do."]
    if total > len(hits):
        lines.append(f"[{len(hits)} of {total} matches; see more with max_results={min(total, 50)}]")
    tools = [{"name": spec.name, "description": spec.description} for spec in hits]
    return ToolResult(for_llm="\n".join(lines), data={"tools": tools, "total": total, "truncated": total > len(hits)})


def _signature_of(spec: ToolSpec) -> str:
    from forge.tools.shared.signatures import write_signature  # only in code mode

    return write_signature(spec, summary=True)


def _shorten(description: str) -> str:
    line = " ".join(description.split())
    return line if len(line) <= MAX_DESCRIPTION else f"{line[:MAX_DESCRIPTION]}…"


# Indexes the words of all tools. A change of the registry costs only the tools that were added, changed or removed.

MOST_RANKED = 50  # tools that a search ranks

_FREQUENCY, _LENGTH = 0.8, 0.4  # BM25's k1 and b
_DRIFT = 1.25  # by which the number of tools may grow or shrink before all words are weighed again


class ToolHit(NamedTuple):
    """A tool and how well it fits."""

    tool: Tool
    score: float


class _Entry(NamedTuple):
    """A tool in the index, with its words."""

    tool: Tool
    words: dict[str, float]


class ToolIndex:
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

    def rank_by_words(self, query: str) -> tuple[list[ToolHit], int]:
        """Returns the best tools, at most 50, and how many match at all. A tool with exactly this name is first."""
        from heapq import nlargest  # listing tools does without it

        scores: dict[str, float] = defaultdict(float)
        for word, share in words_of_query(query).items():
            holders = self._weights.get(word, {})
            rarity = share * self._rarity(holders)
            for name, weight in holders.items():
                scores[name] += rarity * weight
        for word in words_of_values(query):  # alone, they find nothing
            holders = self._weights.get(word, {})
            rarity = _VALUE_SHARE * self._rarity(holders)
            for name in scores.keys() & holders.keys():
                scores[name] += rarity * holders[name]
        least = min(nlargest(MOST_RANKED, scores.values()), default=0.0)
        best = [(score, name) for name, score in scores.items() if score >= least]
        best = [(math.inf if self._has_name(name, query) else score, name) for score, name in best]
        best.sort(key=lambda pair: (-pair[0], pair[1]))
        return [ToolHit(self._entries[name].tool, score) for score, name in best[:MOST_RANKED]], len(scores)

    def find_matching(self, pattern: str) -> tuple[list[ToolHit], int]:
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
        return [ToolHit(tool, 1.0) for tool in hits[:MOST_RANKED]], len(hits)

    def _rarity(self, holders: Mapping[str, float]) -> float:
        return math.log(1 + (len(self._entries) - len(holders) + 0.5) / (len(holders) + 0.5))

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


# Takes the words of a tool, and of a query: names are split, endings dropped, words of every question left out.

_NAME_WEIGHT, _TEXT_WEIGHT = 3.0, 0.5  # of a word in the name and in a parameter's text; 1 in the description
_LONGEST_TEXT, _MOST_CHOICES, _DEEPEST = 500, 50, 2
_LONGEST_SUMMARY = 1_500  # characters: about as much as small embedders read
_COMMON = frozenset(  # words of questions, which say nothing about a tool
    [
        "a",
        "about",
        "an",
        "and",
        "are",
        "at",
        "be",
        "by",
        "can",
        "could",
        "do",
        "doe",
        "find",
        "for",
        "from",
        "get",
        "give",
        "have",
        "help",
        "how",
        "i",
        "if",
        "in",
        "into",
        "is",
        "it",
        "let",
        "like",
        "me",
        "my",
        "need",
        "of",
        "on",
        "or",
        "please",
        "should",
        "show",
        "so",
        "some",
        "tell",
        "that",
        "the",
        "their",
        "them",
        "there",
        "these",
        "thi",
        "to",
        "up",
        "us",
        "use",
        "using",
        "want",
        "wa",
        "we",
        "what",
        "when",
        "where",
        "which",
        "who",
        "will",
        "with",
        "would",
        "you",
        "your",
    ]
)
_NUMBER_SHARE, _VALUE_SHARE = 0.3, 0.6  # of a number in a query, and of a parameter that a value stands for
_VALUES = {  # what a value looks like, and the words of the parameters that take such values
    r"(?i)\b(?:\d{4}-\d\d-\d\d|\d{1,2}/\d{1,2}/\d{2,4}|\d{1,2}(?:st|nd|rd|th)|today|tomorrow|yesterday|tonight|weekend"
    r"|(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.? \d"
    r"|(?:mon|tues|wednes|thurs|fri|satur|sun)day)\b": ("date",),
    r"(?i)\b\d{1,2}(?::\d\d)? ?[ap]\.?m\b|\b\d\d?:\d\d\b": ("time",),
    r"(?i)https?://|www\.": ("url",),
    r"[^\s@]@[^\s@]+\.\w": ("email",),
    r"\b(?:in|near|at|around|to|from) [A-Z][a-z]+": ("location", "city"),
}
_WORD = r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_a-zA-Z]+"


def split_words(text: str) -> list[str]:
    """Returns the words in lower case: `snake_case` and `camelCase` are split, a plural's s is dropped."""
    return [
        word[:-1] if len(word) > 3 and word.endswith("s") else word for word in map(str.lower, re.findall(_WORD, text))
    ]


def words_of_query(query: str) -> dict[str, float]:
    """Returns the words that say something, each with its share; all words if none does. A number says less."""
    asked = set(split_words(query))
    return {word: _NUMBER_SHARE if word.isdigit() else 1.0 for word in asked - _COMMON or asked}


def words_of_values(query: str) -> set[str]:
    """Returns the words of parameters that would take a value of the query: a date, a time, a place, an address."""
    named = {word for pattern, words in _VALUES.items() if re.search(pattern, query) for word in words}
    return named - set(split_words(query))


def weigh_words(tool: Tool) -> dict[str, float]:
    """Returns the words of a tool, each with its weight: the name says most, the texts of parameters least."""
    spec, words = tool.spec, defaultdict[str, float](float)
    texts = [(name, _NAME_WEIGHT) for name in (spec.name, *spec.aliases)]
    texts += [(spec.description, 1.0), *((key, 1.0) for key in name_parameters(tool))]
    if not hasattr(tool, "parameter_names"):
        texts += [(text, _TEXT_WEIGHT) for text in _parameter_texts(spec.parameters)]
    for text, weight in texts:
        for word in split_words(text):
            words[word] += weight
    return words


def name_parameters(tool: Tool) -> Iterable[str]:
    """Returns the parameters' names; some tools know them without building their schema."""
    known: Iterable[str] | None = getattr(tool, "parameter_names", None)
    if known is not None:
        return known
    properties = tool.spec.parameters.get("properties")
    return properties if isinstance(properties, dict) else ()


def summarize(tool: Tool) -> str:
    """Returns a tool's purpose as a text for an embedder: its name in words, the description, the parameters."""
    knows_names = hasattr(tool, "parameter_names")  # its schema is not built for a search
    properties = None if knows_names else tool.spec.parameters.get("properties")
    parts = [f"{' '.join(re.findall(_WORD, tool.spec.name))}: {tool.spec.description}"]
    for key in name_parameters(tool):
        shown = properties.get(key) if isinstance(properties, Mapping) else None
        text = shown.get("description") if isinstance(shown, Mapping) else ""
        parts.append(f"{' '.join(re.findall(_WORD, str(key)))}: {text if isinstance(text, str) else ''}")
    return " ".join(parts)[:_LONGEST_SUMMARY]


def _parameter_texts(schema: Any, depth: int = 0) -> Iterator[str]:
    """Yields the descriptions and choices of the parameters, and the names of those inside them."""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    for key, shown in properties.items() if isinstance(properties, Mapping) else ():
        if depth:
            yield str(key)
        if not isinstance(shown, Mapping):
            continue
        if isinstance(text := shown.get("description"), str):
            yield text[:_LONGEST_TEXT]
        if isinstance(choices := shown.get("enum"), list | tuple):
            yield " ".join(str(choice)[:50] for choice in choices[:_MOST_CHOICES])
        if depth < _DEEPEST:
            yield from _parameter_texts(shown, depth + 1)
            yield from _parameter_texts(shown.get("items"), depth + 1)


# Ranks the tools that a search by words found by their meaning, with the vectors of an embedder.

Vector = Sequence[float]
Embed = Callable[[Sequence[str]], Sequence[Vector]]

EMBEDDING_SECONDS = 3.0  # for new vectors in one search; tools beyond keep their place by words
_AT_ONCE = 8  # texts
_SHARE = 0.6  # of the meaning in a score; the rest is that of the words
_ALONE = 0.4  # cosine from which a tool is found without a common word
_FEW = 200  # tools: so many are all compared by meaning
_MOST_VECTORS = 10_000  # kept


class VectorRanking:
    """Compares queries and tools with an embedder. The vector of a tool is made once, when a search needs it."""

    def __init__(self, embed: Embed, seconds: float = EMBEDDING_SECONDS) -> None:
        self._embed = embed
        self._seconds = seconds
        self._vectors: dict[str, Vector] = {}  # by text
        self._lock = Lock()

    def rank(self, query: str, hits: Sequence[ToolHit], tools: Sequence[Tool]) -> list[ToolHit]:
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
                rest += [ToolHit(tool, 0.0)] if words else []
                continue
            cosine = sum(map(mul, wanted, vector))
            if words or cosine >= _ALONE:
                ranked.append(ToolHit(tool, _SHARE * cosine + (1 - _SHARE) * words))
        ranked.sort(key=lambda hit: (-hit.score, hit.tool.spec.name))
        return [*ranked, *rest][:MOST_RANKED]

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
