"""A text with \\n as its only line ending, and the way back to the text it was made of."""

from __future__ import annotations

import re
from bisect import bisect_left
from functools import cached_property

from forge.workspace.text import with_endings_of

FEW = 100  # places that are looked up by counting; for more a list of all endings is made
_ENDING = re.compile(r"\r\n|\n|\r")


class Newlines:
    """Texts are compared in `text`; places in it are found again in `original`, whose bytes stay as they are."""

    def __init__(self, original: str) -> None:
        self.original = original
        self.plain = "\r" not in original  # then both are the same, and nothing need be mapped
        self.text = original if self.plain else with_newlines(original)
        self._asked = 0

    def place(self, offset: int) -> int:
        """The offset in the original of an offset in the text."""
        if self.plain:
            return offset
        self._asked += 1
        if self._asked <= FEW and self._are_pairs:
            return offset + self.text.count("\n", 0, offset)
        return offset + bisect_left(self._pairs, offset)

    @cached_property
    def _are_pairs(self) -> bool:
        """Whether every line ends with a pair, as in almost every file that has any."""
        return self.original.count("\r\n") == self.text.count("\n")

    @cached_property
    def _pairs(self) -> list[int]:
        return [match.start() - before for before, match in enumerate(re.finditer("\r\n", self.original))]

    def ended(self, start: int, end: int, replacement: str) -> str:
        """A replacement for `original[start:end]`, with the line endings of the lines that it replaces.

        One that says its endings itself, with a carriage return somewhere, stays as it is.
        """
        if self.plain or "\n" not in replacement or "\r" in replacement:
            return replacement
        replaced = self.original[start:end]
        if replaced.endswith(("\n", "\r")):
            return with_endings_of(replaced, replacement)
        # the last line goes on behind the end: its ending counts for the lines that come to stand before it
        made = with_endings_of(f"{replaced}\0{self._ending_at(start, end)}", f"{replacement}\0\n")
        return made[: made.rindex("\0")]

    def _ending_at(self, start: int, end: int) -> str:
        following = _ENDING.search(self.original, end)
        if following is not None:
            return following[0]
        last = max(self.original.rfind("\n", 0, start), self.original.rfind("\r", 0, start))
        before = _ENDING.search(self.original, max(last - 1, 0))  # it may be the second half of a pair
        return "\n" if last < 0 or before is None else before[0]


def with_newlines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text
