"""What a run writes on: the standard output for what the model says, the standard error for what it does."""

from __future__ import annotations

import os
import select
import shutil
import sys
import unicodedata
from collections.abc import Sequence
from contextlib import suppress

from forge.cli.terminal.show import harmless

_ZERO_WIDTH = frozenset({"Mn", "Me", "Cf"})


class Output:
    """Where the standard error is a terminal, its last lines can be drawn again and again."""

    def __init__(self, *, plain: bool = False) -> None:
        capable = not plain and os.environ.get("TERM") != "dumb"
        self.out_is_terminal = os.isatty(1)
        self.together = _is_same(1, 2)  # both go to one pipe or file, as with 2>&1: lines must not run into another
        self.live = capable and os.isatty(2)
        self.colour = self.live and not os.environ.get("NO_COLOR")
        self._drawn = 0  # lines below, that the next writing takes away
        self._open = False  # the standard output stands in the middle of a line
        self._kept = ""  # half of a line end, of which the rest is still to come

    def say(self, text: str) -> None:
        """What the model says. To a program it goes as it is. Raises `OSError` when nobody takes it."""
        if self.out_is_terminal:
            text = self._kept + text
            self._kept = "\r" if text.endswith("\r") else ""
            text = harmless(text.removesuffix("\r"))
        if text:
            self.erase()
            _write(1, text, sys.stdout.encoding if self.out_is_terminal else "utf-8")
            self._open = not text.endswith("\n")

    def data(self, line: str) -> None:
        """A line for programs. Raises `OSError` when nobody takes it."""
        _write(1, f"{line}\n", "utf-8")

    def end_line(self) -> None:
        if self._open:
            self.say("\n")

    def note(self, *lines: str) -> None:
        """Lines about what happens; nobody has to read them."""
        self.erase()
        if self._open and (self.together or (self.live and self.out_is_terminal)):
            self.end_line()
        self._tell("".join(f"{line}\n" for line in lines))

    def draw(self, lines: Sequence[str]) -> None:
        """Put these lines below everything, in the place of those drawn before."""
        if not self.live:
            return
        if self._open and self.out_is_terminal:
            self.end_line()
        self._tell(self._eraser() + "".join(f"{line}\n" for line in lines))
        self._drawn = len(lines)

    def erase(self) -> None:
        if self._drawn:
            self._tell(self._eraser())
            self._drawn = 0

    def paint(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and text else text

    def fitted(self, text: str, indent: int = 0) -> str:
        """One line, no longer than the terminal is wide; elsewhere as long as it is."""
        line = harmless(text).replace("\n", " ").replace("\t", "    ")
        return clip(line, shutil.get_terminal_size().columns - 1 - indent) if self.live else line

    def _eraser(self) -> str:
        return f"\x1b[{self._drawn}A\r\x1b[J" if self._drawn else ""

    def _tell(self, text: str) -> None:
        with suppress(OSError):
            _write(2, text, sys.stderr.encoding if self.live else "utf-8")


def clip(text: str, columns: int) -> str:
    """The text in so many columns of a terminal."""
    if len(text) * 2 <= columns or (text.isascii() and len(text) <= columns):
        return text
    taken = 0
    cut = 0  # where it ends, if it does not fit
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
    """Past Python's buffers, whose locks would keep an interrupted program from ending."""
    view = memoryview(text.encode(encoding, "backslashreplace" if encoding.lower() != "utf-8" else "replace"))
    while view:
        try:
            view = view[os.write(file, view) :]
        except BlockingIOError:  # another program has made the terminal so
            select.select([], [file], [])
