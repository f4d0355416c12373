"""Indentation of a replacement whose writer saw, or wrote, another indentation than the file has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise

Reindent = Callable[[str], str]
"""A line of the replacement, as it belongs into the file."""

TAB = 4  # columns, where tabs stand beside spaces


def indentation(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def uniform_shift(old: Sequence[str], found: Sequence[str]) -> Reindent | None:
    """How the lines moved, if every line that is not blank moved by the same whitespace; None if not."""
    pairs = [(indentation(a), indentation(b)) for a, b in zip(old, found, strict=True) if a.strip()]
    if not pairs:
        return None
    here, there = pairs[0]
    if there.endswith(here):
        added = there[: len(there) - len(here)]
        if all(b == added + a for a, b in pairs):
            return lambda line: added + line if line.strip() else line
    if here.endswith(there):
        removed = here[: len(here) - len(there)]
        if all(a == removed + b for a, b in pairs):
            return lambda line: _without(line, removed)
    return None


def _without(line: str, removed: str) -> str:
    """As much of the whitespace taken off as the line begins with."""
    for size in range(len(removed), 0, -1):
        if line.startswith(removed[:size]):
            return line[size:]
    return line


def in_units_of(file_unit: Callable[[], str], old: Sequence[str], new: Sequence[str], found: Sequence[str]) -> Reindent:
    """Lines indented like those of `old`, as the file indents: its own where they stood, its unit for deeper ones."""
    known = {indentation(a): indentation(b) for a, b in zip(old, found, strict=True) if a.strip()}

    def reindent(line: str) -> str:
        indent = indentation(line)
        if not line.strip():
            return line
        if indent in known:
            return known[indent] + line[len(indent) :]
        has_tabs = any("\t" in one for one in known.values())
        unit = "\t" if has_tabs else file_unit()
        return _translated(indent, known, unit_of([*old, *new]), unit) + line[len(indent) :]

    return reindent


def _translated(indent: str, known: dict[str, str], unit: str, file_unit: str) -> str:
    """From the nearest known indentation that is not deeper, so many units more, or from the least so many less."""
    columns = _columns(indent)
    shallower = [one for one in known if _columns(one) <= columns]
    start = max(shallower, key=_columns) if shallower else min(known, key=_columns)
    difference = columns - _columns(start)
    levels, rest = divmod(abs(difference), max(_columns(unit), 1))
    if difference >= 0:
        return known[start] + file_unit * levels + " " * rest
    left = known[start]
    for _ in range(levels + bool(rest)):
        left = left.removesuffix(file_unit)
    return left


def unit_of(lines: Sequence[str]) -> str:
    """One level: a tab where tabs are the rule, else as many spaces as most steps from line to line have."""
    indents = [indentation(line) for line in lines if line.strip()]
    used = Counter(indent[0] for indent in indents if indent)
    if used["\t"] > used[" "]:
        return "\t"
    widths = [len(indent) for indent in indents]
    steps = Counter(abs(b - a) for a, b in pairwise(widths) if 1 < abs(b - a) <= 8)
    if steps:
        return " " * min(steps, key=lambda size: (-steps[size], size))
    return " " * next((size for size in (TAB, 2) if all(width % size == 0 for width in widths)), TAB)


def _columns(indent: str) -> int:
    return len(indent.expandtabs(TAB))
