"""A labelled text that a model has read, and where a value stands in it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from forge.core.result import RESULT, Label, ToolResult
from forge.core.spec import ToolSpec
from forge.permissions.labels.folding import decode_parts, fold, keep_letters, squeeze
from forge.permissions.labels.values import (
    DELEGATING,
    Address,
    find_addresses,
    is_short_number,
    read_address,
    spell_value,
)

AROUND = 40  # characters shown on either side of a found value
LONGEST_SHOWN = 120  # characters of a found value that are shown
DEEPEST_DATA = 50
MAKES_DATA_OF_TEXT = DELEGATING | {"json_parse", "csv_parse"}
TEXTS = frozenset({"answer", "body", "content", "output", "stderr", "stdout", "text"})  # data that is the text itself
MOST_FIELDS = 5_000  # values of a structured result that are kept beside its text
MOST_IN_FIELDS = 200_000  # characters of them
SHORTEST_SQUEEZED = 6  # characters of an address or an id that is looked for without blanks and boundaries
SHORTEST_TURNED = 8  # characters of one that is looked for backwards, and with other letters
SHORTEST_LETTERS = 12  # letters of a name that is
_ROT13 = str.maketrans("abcdefghijklmnopqrstuvwxyz", "nopqrstuvwxyzabcdefghijklm")
MONTHS = frozenset("jan feb mar apr may jun jul aug sep oct nov dec".split())
_WORD = re.compile(r"\w+")
_NAMED = r"(?:[\"'`#]|\b(?:id|no|nr|num|number|key|ref)\b[\s.:=#\"'`]*){}\b"  # how a text names a short number

Fields = Sequence[str] | Literal[True]
"""The values of the data that a tool's code returned; True: the text is this data as JSON. Empty: it is only a text."""


def find_fields(result: ToolResult, spec: ToolSpec | None) -> Fields:
    """Returns the values of the data that a tool's code returned beside the text, or as the text.

    A text that looks like data is a text: whoever wrote it chose how it looks. A script, a sub-agent or a tool that
    reads a text as data changes nothing about that.
    """
    if spec is None or spec.name in MAKES_DATA_OF_TEXT:
        return ()
    data = {key: value for key, value in result.data.items() if key != "repaired"} if result.data else {}
    value = data[RESULT] if [*data] == [RESULT] else data
    if not data or isinstance(value, str):
        return ()
    if result.for_llm[:1] in ("[", "{") and "repaired" not in result.data:
        try:
            if json.dumps(value, ensure_ascii=False, separators=(",", ":")) == result.for_llm:
                return True
        except (TypeError, ValueError, RecursionError):
            return ()
    found: list[str] = []
    left = MOST_IN_FIELDS
    if isinstance(value, Mapping):
        value = {key: one for key, one in value.items() if not (key in TEXTS and isinstance(one, str))}
    for leaf in _find_strings(value):
        left -= len(leaf)
        if len(found) >= MOST_FIELDS or left < 0:
            break
        if leaf != result.for_llm:
            found.append(leaf)
    return found


class Leaf:
    """A folded text of which a result consists."""

    __slots__ = ("_letters", "_squeezed", "is_field", "is_shown", "text")

    def __init__(self, text: str, *, is_field: bool = False, is_shown: bool = False) -> None:
        self.text = text
        self.is_field = is_field  # a whole value of structured data
        self.is_shown = is_shown  # the text in which the values of structured data are shown to the model
        self._squeezed: str | None = None
        self._letters: str | None = None

    @property
    def squeezed(self) -> str:
        if self._squeezed is None:
            self._squeezed = squeeze(self.text)
        return self._squeezed

    @property
    def letters(self) -> str:
        if self._letters is None:
            self._letters = keep_letters(self.text)
        return self._letters


class NamedAddress(NamedTuple):
    """An address in a text."""

    address: Address
    leaf: Leaf
    at: int
    length: int

    @property
    def is_field(self) -> bool:
        return self.leaf.is_field and self.length == len(self.leaf.text)


class ReadText:
    """A text that entered the context. It is folded when a value is first looked for in it, not when it arrives."""

    __slots__ = ("_addresses", "_counts", "_leaves", "arguments", "call", "fields", "labels", "text")

    def __init__(
        self,
        text: str,
        labels: tuple[Label, ...] = (),
        arguments: Mapping[str, Any] | str = "",
        fields: Fields = (),
        call: str = "",
    ) -> None:
        self.text = text
        self.labels = labels
        self.arguments = arguments  # of the call that returned it
        self.fields = fields
        self.call = call  # the call whose tool has read it while it ran; empty: the model has read it
        self._leaves: list[Leaf] | None = None
        self._counts: Counter[str] = Counter()  # of whole fields
        self._addresses: list[NamedAddress] | None = None

    @property
    def leaves(self) -> list[Leaf]:
        """The folded texts of which it consists: the values of structured data, or the whole; and decoded parts."""
        if self._leaves is None:
            self._leaves = [leaf for leaf in self._split() if leaf.text]
            self._counts = Counter(leaf.text for leaf in self._leaves if leaf.is_field)
        return self._leaves

    def _split(self) -> Iterator[Leaf]:
        fields, is_shown = self.fields, bool(self.fields)
        if fields is True:
            try:
                fields, is_shown = [*_find_strings(json.loads(self.text))], False
            except (ValueError, RecursionError):  # it was cut or changed meanwhile: then it is only a text
                fields, is_shown = (), False
        for field in fields:
            yield Leaf(fold(field), is_field=True)
            yield from (Leaf(fold(part)) for part in decode_parts(field))
        shown = "" if self.fields is True and fields else fold(self.text)
        if shown and not (is_shown and _is_made_of(shown, fields)):
            yield Leaf(shown, is_shown=is_shown)
            yield from (Leaf(fold(part), is_shown=is_shown) for part in decode_parts(self.text))

    @property
    def addresses(self) -> list[NamedAddress]:
        """The addresses in it."""
        if self._addresses is None:
            self._addresses = [
                NamedAddress(address, leaf, leaf.text.find(one), len(one))
                for leaf in self.leaves
                for one in find_addresses(leaf.text)
                if (address := read_address(one)) is not None
            ]
        return self._addresses

    @property
    def size(self) -> int:
        """Characters that are kept in memory for the search."""
        return 0 if self._leaves is None else 3 * sum(len(leaf.text) for leaf in self._leaves)

    def forget_leaves(self) -> None:
        """Frees the folded text; it is made again when needed."""
        self._leaves = self._addresses = None

    def has_field(self, value: str) -> bool:
        """Returns whether the value is a whole field of a structured result: data of the tool, not words of a text."""
        return bool(self.leaves) and value in self._counts

    def has_host(self, host: str) -> bool:
        """Returns whether a whole field is an address of this host."""
        return any(one.is_field and host in one.address.hosts for one in self.addresses)

    def quote(self, value: str, *, by_name: bool = False, anywhere: bool = False) -> str:
        """Returns the words around a value in a text; empty where it is not there, or is a whole field.

        `by_name`: a number counts only where the text names it, as in `id 13`, and not where it stands by chance.
        `anywhere`: a whole field counts, too.
        """
        named = re.compile(_NAMED.format(re.escape(value))) if by_name else None
        for spelled in spell_value(value):
            for leaf in self.leaves:
                if leaf.is_field and len(leaf.text) <= len(spelled) and not anywhere:
                    continue
                at = _find(leaf.text, spelled)
                if at < 0 or (named is not None and not named.search(leaf.text)):
                    continue
                if leaf.is_shown and not anywhere and self._is_only_shown(leaf, spelled, named):
                    continue
                return _excerpt(leaf.text, at, len(spelled))
        return "" if by_name else self._quote_disguised(value, anywhere=anywhere)

    def _is_only_shown(self, leaf: Leaf, value: str, named: re.Pattern[str] | None = None) -> bool:
        """Returns whether a value stands in the text as often as it is a whole field, and not once more."""
        fields = self._counts[value]
        if not fields:
            return False
        seen = len(named.findall(leaf.text)) if named is not None else _count(leaf.text, value, fields + 1)
        return seen <= fields

    def _quote_disguised(self, value: str, *, anywhere: bool) -> str:
        """Looks for a value that has blanks, markup or other letters inside or around it."""
        for form, wanted in _find_forms(value):
            for leaf in self.leaves:
                if leaf.is_field and not anywhere and len(getattr(leaf, form)) <= len(wanted):
                    continue
                text = getattr(leaf, form)
                at = text.find(wanted)
                if at >= 0 and not (leaf.is_shown and not anywhere and self._is_only_shown(leaf, value)):
                    return _excerpt(text, at, len(wanted))
        return ""

    def quote_address(self, address: Address) -> str:
        """Returns the words around an address that leads to the same place; a whole field is none."""
        for one in self.addresses:
            if one.is_field or (one.leaf.is_shown and self._is_only_shown(one.leaf, _text_of(one))):
                continue
            if address.leads_to(one.address):
                return _excerpt(one.leaf.text, one.at, one.length)
        for site in address.sites:
            for leaf in self.leaves:
                at = leaf.squeezed.find(site)
                is_data = (leaf.is_field and " " not in leaf.text) or leaf.is_shown
                if at >= 0 and not is_data and ("." in site or ":" in site) and len(site) >= SHORTEST_SQUEEZED:
                    return _excerpt(leaf.squeezed, at, len(site))
        return ""

    def says(self, value: str) -> bool:
        """Returns whether the value stands in the text, on its own and not as a part of something longer."""
        return any(
            _find(leaf.text, spelled, strict=True) >= 0 for spelled in spell_value(value) for leaf in self.leaves
        )

    def names_number(self, number: str) -> bool:
        """Returns whether the text names a short number, not only as a part of a date or before an item of a list."""
        around = rf"(?:(\w+)\W+)?(?<![\w.,:/-]){number}(?!\w|[.,:/-]\d)([.)] )?(?:\W*(?:of )?([a-z]+))?"
        for leaf in self.leaves:
            for match in re.finditer(around, leaf.text):
                is_date = any((word or "")[:3] in MONTHS for word in (match[1], match[3]))
                is_item = match[2] is not None and len(number) < 3 and (match[1] is None or match.start(1) == 0)
                if not is_date and not is_item:
                    return True
        return False

    def names_host(self, host: str) -> bool:
        """Returns whether an address in the text has this host."""
        return "." in host and any(host in one.address.hosts for one in self.addresses)

    def names_address(self, address: Address) -> bool:
        """Returns whether the text names this address, or a host above that of the address."""
        return any(address.is_below(one.address) for one in self.addresses)

    def echoes(self, value: str) -> bool:
        """Returns whether the value was in the arguments of the call, so that the result may only repeat it."""
        text = (
            self.arguments
            if isinstance(self.arguments, str)
            else json.dumps(self.arguments, default=str, ensure_ascii=False)
        )
        return value in fold(text)


def _is_made_of(shown: str, fields: Sequence[str]) -> bool:
    """Returns whether a text has no words but those of structured data, so that it only shows the data."""
    return {*_WORD.findall(shown)} <= {word for one in fields for word in _WORD.findall(fold(one))}


def _text_of(one: NamedAddress) -> str:
    return one.leaf.text[one.at : one.at + one.length]


def _find_forms(value: str) -> Iterator[tuple[str, str]]:
    """Yields the forms of a value that are looked for inside longer words; none if they stand there by chance."""
    if is_short_number(value) or (" " in value.strip() and len(value) < SHORTEST_LETTERS):
        return
    digits = sum(map(str.isdigit, value))
    has_signs = any(one in value for one in "@./:") and not value.endswith(".")
    if (has_signs or digits >= 3) and len(squeezed := squeeze(value)) >= SHORTEST_SQUEEZED:
        yield "squeezed", squeezed
        if len(squeezed) >= SHORTEST_TURNED:
            yield "squeezed", squeezed[::-1]
            yield "squeezed", squeezed.translate(_ROT13)
    letters = keep_letters(value)
    is_joined = any(one in value for one in "_-")
    if len(letters) >= SHORTEST_LETTERS or ((digits >= 3 or is_joined) and len(letters) >= 8):
        yield "letters", letters


def _find_strings(data: Any, depth: int = 0) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, Mapping) and depth < DEEPEST_DATA:
        for key, value in data.items():
            yield str(key)
            yield from _find_strings(value, depth + 1)
    elif isinstance(data, list | tuple) and depth < DEEPEST_DATA:
        for value in data:
            yield from _find_strings(value, depth + 1)
    elif isinstance(data, int | float) and not isinstance(data, bool):
        yield f"{data:g}" if isinstance(data, float) else str(data)


def _find(text: str, value: str, *, strict: bool = False) -> int:
    """Returns where the value stands between other characters than letters and digits; -1 where it does not.

    `strict` also refuses a part of an address, such as the host of a mail address.
    """
    at = text.find(value)
    is_word = not strict and len(value) >= 5 and value.isalpha()
    while at >= 0:
        end = at + len(value)
        if not (_joins(text, at - 1, -1, strict, is_word) or _joins(text, end, 1, strict, is_word)):
            return at
        at = text.find(value, at + 1)
    return -1


def _count(text: str, value: str, most: int) -> int:
    """Returns how often a value stands in a text, at most so often as is asked."""
    found = start = 0
    while found < most and (at := _find(text[start:], value)) >= 0:
        found += 1
        start += at + len(value)
    return found


def _joins(text: str, at: int, step: int, strict: bool, is_word: bool) -> bool:
    """Returns whether the character at a place belongs to the same word as the one beside it.

    A word of letters ends before a digit, as in `package2`.
    """
    if not 0 <= at < len(text):
        return False
    one = text[at]
    if is_word:
        return one.isalpha()
    if one.isalnum() or one == "_":
        return True
    return strict and one in "@.-/" and 0 <= at + step < len(text) and text[at + step].isalnum()


def _excerpt(leaf: str, at: int, length: int) -> str:
    before, after = leaf[max(0, at - AROUND) : at], leaf[at + length : at + length + AROUND]
    found = leaf[at : at + min(length, LONGEST_SHOWN)] + ("…" if length > LONGEST_SHOWN else "")
    return f"{'…' if at > AROUND else ''}{before}«{found}»{after}{'…' if at + length + AROUND < len(leaf) else ''}"
