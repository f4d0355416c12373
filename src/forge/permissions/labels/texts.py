"""A labelled text that a model has read, and where a value stands in it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from forge.core.label import Label
from forge.core.lazy import lazy_pattern
from forge.permissions.labels.folding import LONGEST_DECODED, decode_parts, fold
from forge.permissions.labels.values import find_addresses, host_of, is_short_number, spell_date

AROUND = 40  # characters shown on either side of a found value
LONGEST_SHOWN = 120  # characters of a found value that are shown
DEEPEST = 50

_VALUE_TEXT = r'"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*'
_VALUE = lazy_pattern(_VALUE_TEXT)
_TOKEN = lazy_pattern(rf"(?:[\s\[\]{{}}:,]+|true|false|null|{_VALUE_TEXT})")
_NAMED = r"(?:[\"'`#]|\b(?:id|no|nr|num|number|key|ref)\b[\s.:=#\"'`]*){}\b"  # how a text names a short number


class ReadText:
    """A text that entered the context. It is folded when a value is first looked for in it, not when it arrives."""

    __slots__ = ("_are_fields", "_leaves", "arguments", "fields", "labels", "text")

    def __init__(
        self,
        text: str,
        labels: tuple[Label, ...] = (),
        arguments: Mapping[str, Any] | str = "",
        fields: frozenset[str] = frozenset(),
    ) -> None:
        self.text = text
        self.labels = labels
        self.arguments = arguments  # of the call that returned it
        self.fields = fields  # folded values that the tool itself set apart, such as the addresses of search results
        self._leaves: list[str] | None = None
        self._are_fields: list[bool] = []  # for each leaf: whether it is a whole field of a structured result

    @property
    def leaves(self) -> list[str]:
        """The folded texts of which it consists: the values of a JSON text, otherwise the whole, and decoded parts."""
        if self._leaves is None:
            parts = list(_split(self.text))
            self._leaves = [fold(leaf) for leaf, _ in parts]
            self._are_fields = [is_field for _, is_field in parts]
        return self._leaves

    @property
    def size(self) -> int:
        """Characters that are kept in memory for the search."""
        return 0 if self._leaves is None else sum(map(len, self._leaves))

    def forget_leaves(self) -> None:
        """Frees the folded text; it is made again when needed."""
        self._leaves = None

    def has_field(self, value: str) -> bool:
        """Says whether the value is a whole field of a structured result: data of the tool, not the words of a text."""
        return value in self._find_fields()

    def has_host(self, host: str) -> bool:
        """Says whether a whole field is an address of this host."""
        return any("." in one and not one.count(" ") and host_of(one) == host for one in self._find_fields())

    def _find_fields(self) -> set[str]:
        leaves = self.leaves
        return {*self.fields, *(leaf for leaf, is_field in zip(leaves, self._are_fields, strict=True) if is_field)}

    def quote(self, value: str, *, by_name: bool = False) -> str:
        """Returns the words around a value in a text; empty where it is not there, or is a whole field.

        `by_name`: a number counts only where the text names it, as in `id 13`, and not where it stands by chance.
        """
        if value in self.fields and not is_short_number(value):
            return ""
        named = re.compile(_NAMED.format(re.escape(value))) if by_name else None
        for spelled in spell_date(value):
            for leaf, is_field in zip(self.leaves, self._are_fields, strict=True):
                if (
                    (len(leaf) > len(spelled) or not is_field)
                    and (at := _find(leaf, spelled)) >= 0
                    and (named is None or named.search(leaf))
                ):
                    return _excerpt(leaf, at, len(spelled))
        return ""

    def says(self, value: str) -> bool:
        """Says whether the value stands in the text, on its own and not as a part of something longer."""
        return any(_find(leaf, spelled, strict=True) >= 0 for spelled in spell_date(value) for leaf in self.leaves)

    def names_host(self, host: str) -> bool:
        """Says whether an address in the text has this host."""
        return "." in host and any(host in leaf and host in map(host_of, find_addresses(leaf)) for leaf in self.leaves)

    def echoes(self, value: str) -> bool:
        """Says whether the value was in the arguments of the call, so that the result may only repeat it."""
        text = (
            self.arguments
            if isinstance(self.arguments, str)
            else json.dumps(self.arguments, default=str, ensure_ascii=False)
        )
        return value in fold(text)


def _split(text: str) -> Iterator[tuple[str, bool]]:
    """Yields the parts of a text, and whether a part is a whole field of structured data."""
    if text[:1] in ("[", "{"):
        try:
            yield from _find_strings(json.loads(text))
            return
        except (ValueError, RecursionError):
            end = _find_end(text)
            yield from _find_tokens(text[:end])
            text = text[end:]
    yield text, False
    if len(text) <= LONGEST_DECODED:
        yield from ((part, False) for part in decode_parts(text))


def _find_end(text: str) -> int:
    """Returns where a JSON text ends that the output limit has cut."""
    end = 0
    while (match := _TOKEN.match(text, end)) is not None and match.end() > end:
        end = match.end()
    return end


def _find_tokens(text: str) -> Iterator[tuple[str, bool]]:
    """Yields the values of the whole part of a JSON text that was cut."""
    for match in _VALUE.finditer(text):
        try:
            yield from _find_strings(json.loads(match.group()))
        except ValueError:  # a control character in a string
            yield match.group(), False


def _find_strings(data: Any, depth: int = 0) -> Iterator[tuple[str, bool]]:
    if isinstance(data, str):
        yield data, True
        yield from ((part, False) for part in decode_parts(data))
    elif isinstance(data, dict) and depth < DEEPEST:
        for key, value in data.items():
            yield key, True
            yield from _find_strings(value, depth + 1)
    elif isinstance(data, list) and depth < DEEPEST:
        for value in data:
            yield from _find_strings(value, depth + 1)
    elif data is not None:
        yield f"{data:g}" if isinstance(data, float) else str(data), True


def _find(text: str, value: str, *, strict: bool = False) -> int:
    """Returns where the value stands between other characters than letters and digits; -1 where it does not.

    `strict` also refuses a part of an address, such as the host of a mail address.
    """
    at = text.find(value)
    while at >= 0:
        end = at + len(value)
        if not (_joins(text, at - 1, -1, strict=strict) or _joins(text, end, 1, strict=strict)):
            return at
        at = text.find(value, at + 1)
    return -1


def _joins(text: str, at: int, step: int, *, strict: bool) -> bool:
    """Says whether the character at a place belongs to the same word as the one beside it."""
    if not 0 <= at < len(text):
        return False
    if text[at].isalnum() or text[at] == "_":
        return True
    return strict and text[at] in "@.-/" and 0 <= at + step < len(text) and text[at + step].isalnum()


def _excerpt(leaf: str, at: int, length: int) -> str:
    before, after = leaf[max(0, at - AROUND) : at], leaf[at + length : at + length + AROUND]
    found = leaf[at : at + min(length, LONGEST_SHOWN)] + ("…" if length > LONGEST_SHOWN else "")
    return f"{'…' if at > AROUND else ''}{before}«{found}»{after}{'…' if at + length + AROUND < len(leaf) else ''}"
