"""Takes the words of a tool, and of a query: names are split, endings dropped, words of every question left out."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from forge.core.tool import Tool

_NAME_WEIGHT, _TEXT_WEIGHT = 3.0, 0.5  # of a word in the name and in a parameter's text; 1 in the description
_LONGEST_TEXT, _MOST_CHOICES, _DEEPEST = 500, 50, 2
_LONGEST_SUMMARY = 1_500  # characters: about as much as small embedders read
_COMMON = frozenset(  # words of questions, which say nothing about a tool
    "a about an and are at be by can could do doe find for from get give have help how i if in into"
    " is it let like me my need of on or please should show so some tell that the their them there"
    " these thi to up us use using want wa we what when where which who will with would you your".split()
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_a-zA-Z]+")


def split_words(text: str) -> list[str]:
    """Returns the words in lower case: `snake_case` and `camelCase` are split, a plural's s is dropped."""
    return [word[:-1] if len(word) > 3 and word.endswith("s") else word for word in map(str.lower, _WORD.findall(text))]


def words_of_query(query: str) -> set[str]:
    """Returns the words that say something; all words if none does."""
    asked = set(split_words(query))
    return asked - _COMMON or asked


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
    parts = [f"{' '.join(_WORD.findall(tool.spec.name))}: {tool.spec.description}"]
    for key in name_parameters(tool):
        shown = properties.get(key) if isinstance(properties, Mapping) else None
        text = shown.get("description") if isinstance(shown, Mapping) else ""
        parts.append(f"{' '.join(_WORD.findall(str(key)))}: {text if isinstance(text, str) else ''}")
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
