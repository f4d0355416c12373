"""Writes the model's words to the standard output and notes to the standard error."""

from __future__ import annotations

import os
import select
import shutil
import sys
import unicodedata
from collections.abc import Sequence
from contextlib import suppress

from forge.cli.terminal.print_result import harmless

_ZERO_WIDTH = frozenset({"Mn", "Me", "Cf"})


class Output:
    """Writes both streams. If the standard error is a terminal, its last lines can be redrawn."""

    def __init__(self, *, plain: bool = False) -> None:
        capable = not plain and os.environ.get("TERM") != "dumb"
        self.out_is_terminal = os.isatty(1)
        self.together = _is_same(1, 2)  # both go to one pipe or file, as with 2>&1: lines must not mix
        self.live = capable and os.isatty(2)
        self.colour = self.live and not os.environ.get("NO_COLOR")
        self._drawn = 0  # drawn lines that the next write erases
        self._open = False  # the standard output is in the middle of a line
        self._pending = ""  # a carriage return whose line feed may follow

    def say(self, text: str) -> None:
        """Writes text of the model, for programs unchanged. Raises `OSError` if the output cannot be written."""
        if self.out_is_terminal:
            text = self._pending + text
            self._pending = "\r" if text.endswith("\r") else ""
            text = harmless(text.removesuffix("\r"))
        if text:
            self.erase()
            _write(1, text, sys.stdout.encoding if self.out_is_terminal else "utf-8")
            self._open = not text.endswith("\n")

    def data(self, line: str) -> None:
        """Writes a line for programs. Raises `OSError` if the output cannot be written."""
        _write(1, f"{line}\n", "utf-8")

    def end_line(self) -> None:
        if self._open:
            self.say("\n")

    def note(self, *lines: str) -> None:
        """Writes lines about events; errors are ignored."""
        self.erase()
        if self._open and (self.together or (self.live and self.out_is_terminal)):
            self.end_line()
        self._write_note("".join(f"{line}\n" for line in lines))

    def draw(self, lines: Sequence[str]) -> None:
        """Draws these lines below everything, instead of those drawn before."""
        if not self.live:
            return
        if self._open and self.out_is_terminal:
            self.end_line()
        self._write_note(self._eraser() + "".join(f"{line}\n" for line in lines))
        self._drawn = len(lines)

    def erase(self) -> None:
        if self._drawn:
            self._write_note(self._eraser())
            self._drawn = 0

    def paint(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and text else text

    def fit(self, text: str, indent: int = 0) -> str:
        """Returns one line, clipped to the terminal's width; elsewhere not clipped."""
        line = harmless(text).replace("\n", " ").replace("\t", "    ")
        return clip(line, shutil.get_terminal_size().columns - 1 - indent) if self.live else line

    def _eraser(self) -> str:
        return f"\x1b[{self._drawn}A\r\x1b[J" if self._drawn else ""

    def _write_note(self, text: str) -> None:
        with suppress(OSError):
            _write(2, text, sys.stderr.encoding if self.live else "utf-8")


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


def _is_same(one: int, other: int) -> bool:
    try:
        return os.path.sameopenfile(one, other)
    except OSError:  # one is closed
        return False


def _width(character: str) -> int:
    if unicodedata.category(character) in _ZERO_WIDTH:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _write(file: int, text: str, encoding: str) -> None:
    """Writes past Python's buffers, whose locks would keep an interrupted program from ending."""
    view = memoryview(text.encode(encoding, "backslashreplace" if encoding.lower() != "utf-8" else "replace"))
    while view:
        try:
            view = view[os.write(file, view) :]
        except BlockingIOError:  # another program made the terminal non-blocking
            select.select([], [file], [])
