"""The parts that a search pattern is made of, whatever engine it is for."""

from __future__ import annotations

from typing import NamedTuple

POSIX = {
    "alnum": [(48, 57), (65, 90), (97, 122)],
    "alpha": [(65, 90), (97, 122)],
    "ascii": [(0, 127)],
    "blank": [(9, 9), (32, 32)],
    "cntrl": [(0, 31), (127, 127)],
    "digit": [(48, 57)],
    "graph": [(33, 126)],
    "lower": [(97, 122)],
    "print": [(32, 126)],
    "punct": [(33, 47), (58, 64), (91, 96), (123, 126)],
    "space": [(9, 13), (32, 32)],
    "upper": [(65, 90)],
    "word": [(48, 57), (65, 90), (95, 95), (97, 122)],
    "xdigit": [(48, 57), (65, 70), (97, 102)],
}


class BadPattern(Exception):
    """What is wrong with a pattern, and at which of its characters, counted from 1."""

    def __init__(self, problem: str, position: int) -> None:
        super().__init__(f"{problem} at position {position}")
        self.problem = problem
        self.position = position


class Literal(NamedTuple):
    """One character."""

    char: str
    folds: bool = False  # matches in either case


class Any(NamedTuple):
    """`.`: any character but those that end a line."""


class Set(NamedTuple):
    """A character class: ranges, and of `d D s S w W` those it contains."""

    ranges: tuple[tuple[int, int], ...]
    perl: str = ""
    negated: bool = False
    folds: bool = False


class At(NamedTuple):
    """A place between characters: `^ $ b B < >`, A and z."""

    place: str


class Group(NamedTuple):
    """A part in parentheses; `opening` is how Python begins it."""

    part: Part
    opening: str = "(?:"


class Reference(NamedTuple):
    """What a group matched, again."""

    text: str


class Repeat(NamedTuple):
    part: Part
    low: int
    high: int  # -1: no end
    lazy: bool


class Sequence(NamedTuple):
    parts: tuple[Part, ...]


class Choice(NamedTuple):
    parts: tuple[Part, ...]


Part = Literal | Any | Set | At | Group | Reference | Repeat | Sequence | Choice


class Pattern(NamedTuple):
    """A pattern, read."""

    part: Part
    source: str  # for ripgrep
    only_python: bool = False  # look-around, back-references
    only_ripgrep: str = ""  # what in it Python cannot express
    has_return: bool = False  # it speaks of carriage returns, which are then characters like any other
