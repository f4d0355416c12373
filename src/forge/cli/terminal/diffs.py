"""Colours diffs for people."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import click

from forge.core.result import ToolResult

MOST = 12  # lines of a diff in the output of a run

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
    more = [f"… {len(lines) - MOST:,} more lines"] if len(lines) > MOST else []
    return [*lines[:MOST], *more]


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
