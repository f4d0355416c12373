"""Indents a replacement whose writer used another indentation than the file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

Reindent = Callable[[str], str]
"""A line of the replacement, as it belongs into the file."""

TAB = 4  # columns, where tabs stand beside spaces


def indentation(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def find_uniform_shift(old: Sequence[str], found: Sequence[str]) -> Reindent | None:
    """Returns the shift if every line that is not blank moved by the same whitespace; None otherwise."""
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
            return lambda line: _remove_indent(line, removed)
    return None


def _remove_indent(line: str, removed: str) -> str:
    """Removes as much of the whitespace as the line begins with."""
    for size in range(len(removed), 0, -1):
        if line.startswith(removed[:size]):
            return line[size:]
    return line


def convert_units(
    file_unit: Callable[[], str], old: Sequence[str], new: Sequence[str], found: Sequence[str]
) -> Reindent | None:
    """Converts lines indented like `old` to the file's indentation: known levels, or its unit for deeper ones.

    None if that cannot be said: one indentation of `old` is two in the file, or a deeper one is less deep there.
    """
    pairs = {(indentation(a), indentation(b)) for a, b in zip(old, found, strict=True) if a.strip()}
    known = dict(pairs)
    depths = [_count_columns(known[indent]) for indent in sorted(known, key=_count_columns)]
    if len(pairs) > len(known) or depths != sorted(depths):
        return None
    if unknown := {indentation(line) for line in new if line.strip()} - known.keys():
        has_tabs = any("\t" in one for one in known.values())
        units = find_unit([*old, *new]), "\t" if has_tabs else file_unit()
        translated = {indent: _translate_indent(indent, known, *units) for indent in unknown}
        if any(len(ways) > 1 for ways in translated.values()):
            return None
        known |= {indent: ways.pop() for indent, ways in translated.items()}
    return lambda line: known[indent] + line[len(indent) :] if (indent := indentation(line)) in known else line


def _translate_indent(indent: str, known: Mapping[str, str], unit: str, file_unit: str) -> set[str]:
    """Returns the candidate indentations, counted in units from the nearest known ones."""
    columns = _count_columns(indent)
    shallower = [one for one in known if _count_columns(one) <= columns]
    deeper = [one for one in known if _count_columns(one) > columns]
    ways = set()
    if shallower:
        start = max(shallower, key=_count_columns)
        levels, rest = divmod(columns - _count_columns(start), max(_count_columns(unit), 1))
        ways.add(known[start] + file_unit * levels + " " * rest)
    if deeper:
        start = min(deeper, key=_count_columns)
        levels, rest = divmod(_count_columns(start) - columns, max(_count_columns(unit), 1))
        left = known[start]
        for part in [file_unit] * levels + [" " * rest if shallower else file_unit] * bool(rest):
            left = left.removesuffix(part)
        ways.add(left)
    return ways


def find_unit(lines: Sequence[str]) -> str:
    """Returns one level: a tab if most lines use tabs, else the most common number of spaces per step."""
    indents = [indentation(line) for line in lines if line.strip()]
    used = Counter(indent[0] for indent in indents if indent)
    if used["\t"] > used[" "]:
        return "\t"
    widths = [len(indent) for indent in indents]
    steps = Counter(abs(b - a) for a, b in pairwise(widths) if 1 < abs(b - a) <= 8)
    if steps:
        return " " * min(steps, key=lambda size: (-steps[size], size))
    return " " * next((size for size in (TAB, 2) if all(width % size == 0 for width in widths)), TAB)


def _count_columns(indent: str) -> int:
    return len(indent.expandtabs(TAB))
