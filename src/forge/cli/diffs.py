"""Diffs in colour, for people who look at what changes."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click

from forge.core.result import ToolResult

MOST = 12  # lines of a diff in the record of a run

_START = re.compile(r"(?:diff --git |--- |Binary file |deleted )")
_HEAD = re.compile(
    r"(?:diff --git |index |--- |\+\+\+ |rename |similarity |new file |deleted file |old mode |new mode )"
)
_COLOURS = {"+": "green", "-": "red", "@": "cyan", "\\": "bright_black"}


def is_diff(text: str) -> bool:
    return _START.match(text) is not None


def coloured(text: str, before: str = "") -> str:
    """The diff with each line in its colour; `before` is what stands before every line, such as a bar."""
    return "\n".join(_coloured(line, before) for line in text.split("\n"))


def summary(result: ToolResult) -> list[str]:
    """The first changed lines, if a result shows the person a diff; otherwise nothing."""
    if result.is_error or not is_diff(result.for_user):
        return []
    lines = list(_changed(result.for_user))
    more = [f"… {len(lines) - MOST:,} more lines"] if len(lines) > MOST else []
    return [*lines[:MOST], *more]


def colour_of(line: str) -> str:
    """`green`, `red` or another colour's name; empty for a line that stays as it is."""
    if _HEAD.match(line):
        return "bright_black"
    return _COLOURS.get(line[:1], "")


def _coloured(line: str, before: str) -> str:
    found = colour_of(line.removeprefix(before)) if line.startswith(before) else ""
    return click.style(line, fg=found) if found else line


def _changed(text: str) -> Iterator[str]:
    several = text.count("\n+++ ") > 1
    for line in text.rstrip("\n").split("\n"):
        if not _HEAD.match(line) or (several and line.startswith("+++ ")):
            yield line
