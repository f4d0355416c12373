"""Normalises a text to \\n line endings, and maps offsets back to the original text."""

from __future__ import annotations

import re
from bisect import bisect_left
from functools import cached_property

from forge.workspace.text import with_endings_of

FEW = 100  # places that are looked up by counting; for more a list of all endings is made
_ENDING = re.compile(r"\r\n|\n|\r")


class Newlines:
    """Compares in `text` and maps offsets to `original`, whose bytes stay unchanged."""

    def __init__(self, original: str) -> None:
        self.original = original
        self.plain = "\r" not in original  # then both are the same, and nothing need be mapped
        self.text = original if self.plain else normalise_newlines(original)
        self._asked = 0

    def original_offset(self, offset: int) -> int:
        """Converts an offset in the text to an offset in the original."""
        if self.plain:
            return offset
        self._asked += 1
        if self._asked <= FEW and self._are_pairs:
            return offset + self.text.count("\n", 0, offset)
        return offset + bisect_left(self._pairs, offset)

    @cached_property
    def _are_pairs(self) -> bool:
        """True if every line ends with a pair, as in almost every file that has any."""
        return self.original.count("\r\n") == self.text.count("\n")

    @cached_property
    def _pairs(self) -> list[int]:
        return [match.start() - before for before, match in enumerate(re.finditer("\r\n", self.original))]

    def adopt_endings(self, start: int, end: int, replacement: str) -> str:
        """A replacement for `original[start:end]`, with the line endings of the lines that it replaces.

        One that says its endings itself, with a carriage return somewhere, stays as it is.
        """
        if self.plain or "\n" not in replacement or "\r" in replacement:
            return replacement
        replaced = self.original[start:end]
        if replaced.endswith(("\n", "\r")):
            return with_endings_of(replaced, replacement)
        # the last line continues after the end: its ending applies to the new lines before it
        made = with_endings_of(f"{replaced}\0{self._find_ending(start, end)}", f"{replacement}\0\n")
        return made[: made.rindex("\0")]

    def _find_ending(self, start: int, end: int) -> str:
        following = _ENDING.search(self.original, end)
        if following is not None:
            return following[0]
        last = max(self.original.rfind("\n", 0, start), self.original.rfind("\r", 0, start))
        before = _ENDING.search(self.original, max(last - 1, 0))  # it may be the second half of a pair
        return "\n" if last < 0 or before is None else before[0]


def normalise_newlines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text
