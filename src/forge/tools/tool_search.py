"""Finds tools by their purpose, so that a thousand tools cost a model nothing until it searches."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any

from forge.core.arguments.parameters import Limits
from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.registry import ToolRegistry
from forge.core.result import ToolResult
from forge.core.spec import Category, ToolSpec
from forge.core.tool import Tool

REVEALED_TURNS = 50  # for which a found tool stays visible: taking a definition away empties the provider's cache
RUN_CODE = "run_code"  # the tool that runs scripts
MAX_QUERY = 1_000  # characters
MAX_DESCRIPTION = 200  # characters of a description in the answer

_FREQUENCY, _LENGTH = 1.2, 0.75  # BM25's k1 and b
_NAME_WEIGHT, _TEXT_WEIGHT = 3.0, 0.5  # of a word in the name and in a parameter's text; 1 in the description
_LONGEST_TEXT, _MOST_CHOICES, _DEEPEST = 500, 50, 2
_COMMON = frozenset(  # words of questions, which say nothing about a tool
    "a about an and are at be by can could do doe find for from get give have help how i if in into"
    " is it let like me my need of on or please should show so some tell that the their them there"
    " these thi to up us use using want wa we what when where which who will with would you your".split()
)
_WORD = r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_a-zA-Z]+"  # compiled by the first search


class ToolSearch(Tool, category=Category.BUILTIN, idempotent=True, timeout=10.0):
    """Find tools by what they do. There are more than you see: search before you say that something is impossible."""

    def __init__(self, registry: ToolRegistry) -> None:
        self._registry = registry
        self._index: _Index | None = None

    def inside(self, registry: ToolRegistry) -> ToolSearch:
        return ToolSearch(registry)

    def run(
        self,
        ctx: ToolContext,
        query: Annotated[str, "A few words, or a pattern."],
        regex: Annotated[bool, "The query is a regular expression."] = False,
        max_results: Annotated[int, Limits(ge=1, le=50)] = 5,
    ) -> ToolResult:
        if not query.strip():
            raise ToolError("the query is empty", ErrorKind.VALIDATION, "Say in a few words what the tool should do.")
        if len(query) > MAX_QUERY:
            raise ToolError(
                f"the query has more than {MAX_QUERY:,} characters", ErrorKind.VALIDATION, "Use a few words."
            )
        index = self._current_index(ctx.spec.name)
        found = index.find_matching(query) if regex else index.rank_by_words(query)
        hits = found[:max_results]
        in_scripts = RUN_CODE in (self._registry.sent or ())  # found tools are called from scripts
        hidden = [spec.name for spec in hits if self._registry.is_deferred(spec)]
        if hidden and not in_scripts:
            self._registry.reveal(hidden, ctx.scope.session_id, turns=REVEALED_TURNS)
        return _answer(hits, len(found), query, in_scripts=in_scripts)

    def _current_index(self, own_name: str) -> _Index:
        version = self._registry.version  # before the tools are read: a change meanwhile makes the index old, not wrong
        index = self._index
        if index is None or index.version != version:
            tools = [one for one in list(self._registry.values()) if one.spec.name not in (own_name, RUN_CODE)]
            index = self._index = _Index(version, tools)
        return index


class _Index:
    """Returns the words of every tool's name, description and parameters."""

    def __init__(self, version: int, tools: list[Tool]) -> None:
        self.version = version
        self.specs = [tool.spec for tool in tools]
        self.texts = [f"{tool.spec.name}\n{tool.spec.description}\n{' '.join(_parameters(tool))}" for tool in tools]
        words = [_weigh_words(tool) for tool in tools]
        lengths = [sum(counts.values()) for counts in words]
        mean = sum(lengths) / max(len(lengths), 1)
        self.weights: dict[str, dict[int, float]] = defaultdict(dict)  # word -> tool -> how much it says
        for number, counts in enumerate(words):
            norm = _FREQUENCY * (1 - _LENGTH + _LENGTH * lengths[number] / mean)
            for word, count in counts.items():
                self.weights[word][number] = count * (_FREQUENCY + 1) / (count + norm)

    def rank_by_words(self, query: str) -> list[ToolSpec]:
        """Ranks tools by BM25, the best first; a tool with exactly this name comes first."""
        scores: dict[int, float] = defaultdict(float)
        asked = set(_split(query))
        for word in asked - _COMMON or asked:
            holders = self.weights.get(word, {})
            rarity = math.log(1 + (len(self.specs) - len(holders) + 0.5) / (len(holders) + 0.5))
            for number, weight in holders.items():
                scores[number] += rarity * weight
        wanted = query.strip().lower()
        for number in scores:
            if wanted in (self.specs[number].name.lower(), *self.specs[number].aliases):
                scores[number] = math.inf
        return [self.specs[number] for number in sorted(scores, key=lambda n: (-scores[n], self.specs[n].name))]

    def find_matching(self, pattern: str) -> list[ToolSpec]:
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
        hits = [spec for spec, text in zip(self.specs, self.texts, strict=True) if found(text)]
        return sorted(hits, key=lambda spec: (not found(spec.name), spec.name))


def _answer(hits: list[ToolSpec], total: int, query: str, *, in_scripts: bool = False) -> ToolResult:
    lines = [_signature_of(spec) if in_scripts else f"- `{spec.name}` - {_shorten(spec.description)}" for spec in hits]
    if not lines:
        lines = [f"No tool matches {query[:100]!r}. Try other words for what it should do."]
    if total > len(hits):
        lines.append(f"[{len(hits)} of {total} matches; see more with max_results={min(total, 50)}]")
    tools = [{"name": spec.name, "description": spec.description} for spec in hits]
    return ToolResult(for_llm="\n".join(lines), data={"tools": tools, "total": total, "truncated": total > len(hits)})


def _signature_of(spec: ToolSpec) -> str:
    from forge.tools.signatures import write_signature  # only in code mode

    return write_signature(spec, summary=True)


def _weigh_words(tool: Tool) -> dict[str, float]:
    """Returns the words of a tool, each with its weight: the name says most, the texts of parameters least."""
    spec, words = tool.spec, defaultdict[str, float](float)
    texts = [(name, _NAME_WEIGHT) for name in (spec.name, *spec.aliases)]
    texts += [(spec.description, 1.0), *((key, 1.0) for key in _parameters(tool))]
    if not hasattr(tool, "parameter_names"):
        texts += [(text, _TEXT_WEIGHT) for text in _parameter_texts(spec.parameters)]
    for text, weight in texts:
        for word in _split(text):
            words[word] += weight
    return words


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


def _parameters(tool: Tool) -> Iterable[str]:
    """Returns the parameters' names; some tools know them without building their schema."""
    known: Iterable[str] | None = getattr(tool, "parameter_names", None)
    if known is not None:
        return known
    properties = tool.spec.parameters.get("properties")
    return properties if isinstance(properties, dict) else ()


def _split(text: str) -> list[str]:
    """Returns the words in lower case: `snake_case` and `camelCase` are split, a plural's s is dropped."""
    return [
        word[:-1] if len(word) > 3 and word.endswith("s") else word for word in map(str.lower, re.findall(_WORD, text))
    ]


def _shorten(description: str) -> str:
    line = " ".join(description.split())
    return line if len(line) <= MAX_DESCRIPTION else f"{line[:MAX_DESCRIPTION]}…"


def _reason(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if "error" in line.lower()]
    return (lines[-1] if lines else str(error)).removeprefix("error: ")[:200]
