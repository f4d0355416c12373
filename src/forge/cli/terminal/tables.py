"""Lays out tables for the width of a terminal, by the columns that it gives to characters."""

from __future__ import annotations

import shutil
import sys
import unicodedata
from collections.abc import Sequence

NARROWEST = 20  # columns for the free text; with less room it gets a line of its own
INDENT = "    "


def table_lines(rows: Sequence[Sequence[str]], columns: int | None = None) -> list[str]:
    """Returns the lines of a table for the standard output; where that is not a terminal, nothing is shortened."""
    if columns is None:
        columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    count = len(rows[0]) - 1 if rows else 0
    widths = [max(width_of(row[at]) for row in rows) for at in range(count)]
    room = columns - sum(widths) - 2 * count
    lines = []
    for row in rows:
        start = "  ".join(pad(cell, width) for cell, width in zip(row, widths, strict=False))
        text = row[count]
        if not columns:
            lines.append(f"{start}  {text}".rstrip())
        elif room >= NARROWEST:
            lines.append(f"{start}  {clip(text, room)}".rstrip())
        else:
            lines.append(start.rstrip())
            lines += [clip(f"{INDENT}{text}", columns)] if text and row is not rows[0] else []
    return lines


# Measures, clips and wraps text by the columns that a terminal gives to its characters.


_ZERO_WIDTH = frozenset({"Mn", "Me", "Cf"})


def width_of(text: str) -> int:
    """Returns the number of columns that a text of one line takes."""
    return len(text) if text.isascii() else sum(map(_width, text))


def clip(text: str, columns: int) -> str:
    """Clips the text to so many columns of a terminal."""
    if len(text) * 2 <= columns or (text.isascii() and len(text) <= columns):
        return text
    taken = 0
    cut = 0  # the end of the text if it does not fit
    for index, character in enumerate(text):
        taken += _width(character)
        if taken > columns:
            return f"{text[:cut]}…"
        if taken < columns:
            cut = index + 1
    return text


def pad(text: str, columns: int) -> str:
    """Adds spaces up to so many columns."""
    return text + " " * (columns - width_of(text))


def wrap(text: str, columns: int) -> list[str]:
    """Breaks one line into lines of at most so many columns: after spaces where there are some, else within a word.

    The lines together are the text: nothing is added or left out.
    """
    columns = max(columns, 2)  # a wide character must fit
    if len(text) * 2 <= columns or (text.isascii() and len(text) <= columns):
        return [text]
    lines: list[str] = []
    start = taken = 0
    after_space = 0  # where the line can be broken; not after `start`: nowhere
    for index, character in enumerate(text):
        width = _width(character)
        if taken + width > columns:
            cut = after_space if after_space > start else index
            lines.append(text[start:cut])
            start, taken = cut, width_of(text[cut:index])
        taken += width
        if character == " ":
            after_space = index + 1
    return [*lines, text[start:]]


def _width(character: str) -> int:
    if unicodedata.category(character) in _ZERO_WIDTH:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
