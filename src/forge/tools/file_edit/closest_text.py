"""Helps a model whose text was not found: shows the most similar lines and the differences."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from heapq import nlargest
from itertools import chain
from typing import NamedTuple

from forge.tools.file_edit.find_text import normalise_newlines

LONGEST_LINE = 300  # characters of a line that are compared
SHOWN_LINE = 120  # characters of a line that are shown
SHOWN = 8  # lines of a region that are shown
MOST_LINES = 400_000  # lines of a file that are looked at
PROBES = 3  # lines of the text that are looked for
MOST_REGIONS = 5  # places that are compared for each of them
_OVERLOOKED = re.compile(r"^ +| +$| {2,}| +(?=\t)|(?<=\t) +")
ALIKE = 60.0  # of 100: less is not worth showing


class Region(NamedTuple):
    """Lines of a file, counted from 0, that look like the text."""

    first: int
    lines: list[str]
    score: float


def find_closest(text: str, old: str) -> Region | None:
    """Returns the lines most similar to `old`, or None. Takes about a second for 10 MB."""
    lines = normalise_newlines(text).split("\n")[:MOST_LINES]
    wanted = normalise_newlines(old).strip("\n").split("\n")[:200]
    if not any(line.strip() for line in wanted):
        return None
    starts = {number - index for index, number in _find_alike(lines, wanted)}
    measured = [Line(line.strip()[:LONGEST_LINE]) for line in wanted]
    regions = [_score_region(lines, measured, max(start, 0)) for start in starts]
    best = max(regions, key=lambda region: (region.score, -region.first), default=None)
    return best if best and best.score >= ALIKE else None


def describe_closest(text: str, old: str, new: str) -> str:
    """Describes for the model a text that was not found."""
    notes = []
    if (
        len("".join(new.split())) >= 3
        and (offset := normalise_newlines(text).find(normalise_newlines(new).strip("\n"))) >= 0
    ):
        notes.append(f"new_text is already there, at line {_line_at(text, offset)}.")
    region = find_closest(text, old)
    if region is None:
        return "\n".join(notes or ["Nothing in the file looks like it."])
    return "\n".join([*notes, _describe_region(region, normalise_newlines(old).strip("\n").split("\n"))])


def mark_whitespace(line: str) -> str:
    """Returns a line with tabs as →, and easily overlooked spaces as ·."""
    shown = _OVERLOOKED.sub(lambda spaces: "·" * len(spaces[0]), line[:SHOWN_LINE])
    return shown.replace("\t", "→") + "…" * (len(line) > SHOWN_LINE)


def _find_alike(lines: list[str], wanted: list[str]) -> list[tuple[int, int]]:
    """Returns pairs of similar lines: their numbers in the text and in the file."""
    keys = [line[:LONGEST_LINE].strip() for line in lines]
    telling = sorted(range(len(wanted)), key=lambda index: -len(wanted[index].strip()))[:PROBES]
    pairs = []
    for index in telling:
        probe = wanted[index].strip()[:LONGEST_LINE]
        if probe:
            pairs += [(index, number) for number in Line(probe).find_similar(keys, ALIKE, MOST_REGIONS)]
    return pairs


def _score_region(lines: list[str], wanted: Sequence[Line], first: int) -> Region:
    """Scores the similarity of the lines from here on, averaged and weighted by their length."""
    found = lines[first : first + len(wanted)]
    weights = [len(line.text) + 1 for line in wanted]
    scores = [
        line.measure(there.strip()[:LONGEST_LINE]) * weight
        for line, there, weight in zip(wanted, found, weights, strict=False)
    ]
    return Region(first, found, sum(scores) / sum(weights))


def _describe_region(region: Region, wanted: Sequence[str]) -> str:
    differs = next((i for i, (a, b) in enumerate(zip(wanted, region.lines, strict=False)) if a != b), 0)
    start = max(0, min(differs - 2, len(region.lines) - SHOWN))
    shown = region.lines[start : start + SHOWN]
    numbered = [f"{region.first + start + i + 1:6}\t{mark_whitespace(line)}" for i, line in enumerate(shown)]
    last = region.first + len(region.lines)
    where = f"lines {region.first + 1}-{last}" if len(region.lines) > 1 else f"line {last}"
    return "\n".join(
        [
            f"Closest is {where} of the file (→ is a tab, · a space):",
            *numbered,
            f"First difference, line {region.first + differs + 1}:",
            f"  file:     {mark_whitespace(region.lines[differs])}"
            if differs < len(region.lines)
            else "  the file ends",
            f"  old_text: {mark_whitespace(wanted[differs])}",
        ]
    )


def _line_at(text: str, offset: int) -> int:
    return normalise_newlines(text).count("\n", 0, offset) + 1


# Measures how similar lines are, and finds the lines that are most like one line.

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
