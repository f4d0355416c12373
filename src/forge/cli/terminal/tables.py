"""Lays out tables for the width of a terminal. Only the last column, free text, is shortened."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence

from forge.cli.terminal.columns import clip, pad, width_of

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
