"""Renders results: one line of JSON for programs; text, tables and coloured diffs for people."""

from __future__ import annotations

import json
import re
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import click

from forge.core.result import ToolResult

_HARMFUL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
)  # would steer the terminal or reorder it


def as_line(result: ToolResult, id_: Any, name: str) -> bytes:
    """Renders `ToolResult.to_dict()` as one line of UTF-8."""
    wire = {**result.to_dict(name=name), "id": id_}
    return json.dumps(wire, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def as_text(result: ToolResult) -> str:
    """Renders a result for a person at a terminal."""
    if result.failure is not None:
        failure = result.failure
        parts = [click.style(f"Error ({failure.kind}): {harmless(failure.message)}", fg="red")]
        return "\n".join([*parts, harmless(failure.suggestion)] if failure.suggestion else parts)
    if result.silent and result.data.get("delivered") is not False:  # such a message is for the person at the terminal
        return click.style("Done. The result is for the model alone; --json prints it.", dim=True)
    parts = [click.style(harmless(result.title), bold=True)] if result.title else []
    text = harmless(result.for_user or result.for_llm)
    parts.append(colour_diff(text.rstrip("\n")) if is_diff(text) else text)
    parts += [
        f"[attachment {harmless(one.name) or 'without name'}: {harmless(one.media_type)}, {len(one.data):,} bytes]"
        for one in result.attachments
    ]
    parts += [click.style(f"repaired: {harmless(note)}", dim=True) for note in result.data.get("repaired", ())]
    return "\n".join(parts)


def harmless(text: str) -> str:
    """Replaces characters that would move the cursor, change colours or reverse the text."""
    return _HARMFUL.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text.replace("\r\n", "\n"))


# Tables for the width of a terminal, by the columns that it gives to characters.


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


# Diffs.


MOST_DIFF_LINES = 12  # lines of a diff in the output of a run

_START = re.compile(r"(?:diff --git |--- |Binary file |deleted )")
_HEAD = re.compile(
    r"(?:diff --git |index |--- |\+\+\+ |rename |similarity |new file |deleted file |old mode |new mode )"
)
_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_NAMES = "bright_black"
_COLOURS = {"+": "green", "-": "red", "@": "cyan", "\\": _NAMES}


def is_diff(text: str) -> bool:
    return _START.match(text) is not None


def colour_diff(text: str) -> str:
    """Colours each line of a diff."""
    return "\n".join(click.style(line, fg=colour) if colour else line for line, colour in diff_lines(text.split("\n")))


def diff_lines(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yields each line of a diff with the name of its colour; an empty name for a line without a colour."""
    for line, is_head in _mark_heads(lines):
        yield line, _NAMES if is_head else _COLOURS.get(line[:1], "")


def summarise_diff(result: ToolResult) -> list[str]:
    """Returns the first changed lines if a result shows a diff; otherwise nothing."""
    if result.is_error or not is_diff(result.for_user):
        return []
    lines = list(_changed_lines(result.for_user))
    more = [f"… {len(lines) - MOST_DIFF_LINES:,} more lines"] if len(lines) > MOST_DIFF_LINES else []
    return [*lines[:MOST_DIFF_LINES], *more]


def colour_of(line: str) -> str:
    """Returns `green`, `red` or another colour's name; empty for a line without a colour."""
    return _NAMES if _HEAD.match(line) else _COLOURS.get(line[:1], "")


def _changed_lines(text: str) -> Iterator[str]:
    """Yields the hunks; for several files, each below its name."""
    lines = list(_mark_heads(text.rstrip("\n").split("\n")))
    several = sum(is_head and line.startswith("+++ ") for line, is_head in lines) > 1
    old = ""
    for line, is_head in lines:
        if not is_head:
            yield line
        elif line.startswith("--- "):
            old = line
        elif several and line.startswith("+++ "):
            yield old if line == "+++ /dev/null" else line


def _mark_heads(lines: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Yields each line, and whether it belongs to a head. Inside a hunk `--- x` is a removed line `-- x`."""
    old = new = 0  # lines left in the hunk
    for line in lines:
        if old > 0 or new > 0:
            old -= line[:1] in ("-", " ", "")
            new -= line[:1] in ("+", " ", "")
            yield line, False
            continue
        if found := _HUNK.match(line):
            old, new = (int(number or 1) for number in found.groups())
        yield line, _HEAD.match(line) is not None
