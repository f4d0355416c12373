"""Lets a person pick one of several entries with the arrow keys; what is typed filters them."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence

from forge.cli.terminal.keyboard import single_keys
from forge.cli.terminal.output import Output
from forge.cli.terminal.tables import clip

MOST = 12  # entries shown at once
HELP = "↑ ↓ choose · type to filter · Enter opens · Esc leaves"
_KEYS = re.compile(r"\x1b[\[O][\d;]*([A-Za-z~])|(\x1b)|([\x00-\x1f\x7f])|([^\x00-\x1f\x7f]+)")


def pick(rows: Sequence[str], out: Output) -> int | None:
    """Returns the number of the chosen row; None if the person leaves. Ctrl-C is a `KeyboardInterrupt`."""
    menu = _Menu(rows)
    try:
        with single_keys():
            while not menu.is_over:
                out.draw(menu.draw(out))
                keys = os.read(0, 1024)
                menu.press(keys.decode("utf-8", "replace") if keys else "\x04")
    finally:
        out.erase()
    return menu.chosen


class _Menu:
    """The entries that fit the filter, and the one that the cursor is on."""

    def __init__(self, rows: Sequence[str]) -> None:
        self.rows = rows
        self.filter = ""
        self.cursor = 0
        self.chosen: int | None = None
        self.is_over = False

    @property
    def _fitting(self) -> list[int]:
        words = self.filter.lower().split()
        return [number for number, row in enumerate(self.rows) if all(word in row.lower() for word in words)]

    def press(self, keys: str) -> None:
        for letter, escape, control, text in _KEYS.findall(keys):
            if letter in ("A", "B"):
                self.cursor = max(0, min(self.cursor + (1 if letter == "B" else -1), len(self._fitting) - 1))
            elif escape or control == "\x04":
                self.is_over = True
            elif control in ("\r", "\n"):
                fitting = self._fitting
                self.is_over = bool(fitting)
                self.chosen = fitting[self.cursor] if fitting else None
            elif control in ("\x7f", "\x08"):
                self.filter, self.cursor = self.filter[:-1], 0
            elif text:
                self.filter, self.cursor = self.filter + text, 0
            if self.is_over:
                return

    def draw(self, out: Output) -> list[str]:
        columns = shutil.get_terminal_size().columns - 3
        fitting = self._fitting
        first = max(0, min(self.cursor - MOST // 2, len(fitting) - MOST))
        lines = [out.paint(clip(HELP, columns), "2")]
        lines += [f"Filter: {clip(self.filter, columns - 8)}"] if self.filter else []
        for at, number in enumerate(fitting[first : first + MOST], first):
            row = clip(self.rows[number], columns)
            lines.append(f"{out.paint('▸', '36')} {out.paint(row, '1')}" if at == self.cursor else f"  {row}")
        left = len(fitting) - MOST
        lines += ["  Nothing fits." if not fitting else f"  … {left} more"] if left > 0 or not fitting else []
        return lines
