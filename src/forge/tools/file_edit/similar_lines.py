"""Measures how similar lines are, and finds the lines that are most like one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from heapq import nlargest
from itertools import chain

MOST_MEASURED = 500  # lines: more than these are chosen from by the pieces that they share
PIECES = 10  # of a line that are looked for in the others
PIECE = 3  # characters


class Line:
    """A line that others are compared with."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._places: dict[str, int] = {}  # of each character, as the bits of a number
        for index, character in enumerate(text):
            self._places[character] = self._places.get(character, 0) | 1 << index

    def measure(self, other: str) -> float:
        """Returns 100 for equal texts, 0 for texts without a common character.

        This is the length of their longest common subsequence, doubled, as a share of both lengths. It takes a step per
        character of the other text: a number's bits hold a whole row of the table (Hyyrö, 2004).
        """
        if not self.text or not other:
            return 100.0 if self.text == other else 0.0
        every = row = (1 << len(self.text)) - 1
        find = self._places.get
        for character in other:
            same = row & find(character, 0)
            row = (row + same) | (row - same)
        common = (~row & every).bit_count()
        return 200.0 * common / (len(self.text) + len(other))

    def find_similar(self, lines: Sequence[str], least: float, most: int) -> list[int]:
        """Returns the numbers of the lines that measure at least `least`, the most similar first."""
        share = least / (200.0 - least)  # a shorter line cannot reach it
        shortest, longest = len(self.text) * share, len(self.text) / share
        numbers = [number for number, line in enumerate(lines) if shortest <= len(line) <= longest]
        if len(numbers) > MOST_MEASURED:
            numbers = self._choose(numbers, lines)
        scores = {lines[number]: 0.0 for number in numbers}
        for text in scores:  # many lines are equal
            scores[text] = self.measure(text)
        alike = [number for number in numbers if scores[lines[number]] >= least]
        return nlargest(most, alike, key=lambda number: (scores[lines[number]], -number))

    def _choose(self, numbers: list[int], lines: Sequence[str]) -> list[int]:
        """Returns the lines that share the most pieces with this one."""
        last = max(len(self.text) - PIECE, 0)
        starts = {round(index * last / (PIECES - 1)) for index in range(PIECES)}
        pieces = {self.text[start : start + PIECE] for start in starts}
        shared = Counter(chain.from_iterable([n for n in numbers if piece in lines[n]] for piece in pieces))
        return [number for number, _ in shared.most_common(MOST_MEASURED)]
