"""Writes the model's words to the standard output and notes to the standard error; or every event as JSON."""

from __future__ import annotations

import json
import os
import select
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Protocol, TextIO

from forge.cli.terminal.exit_codes import Ending
from forge.cli.terminal.markdown import MarkdownStream
from forge.cli.terminal.print_result import clip, harmless, wrap
from forge.core.events import Event, RunFinished


class Line(Protocol):
    """The input line of a conversation: everything else is written above it."""

    def print(self, text: str) -> None: ...

    def draw(self, lines: Sequence[str], partial: str = "") -> None: ...


class Output:
    """Writes both streams. If the standard error is a terminal, its last lines can be redrawn."""

    line: Line | None = None
    """The input line at the bottom of the terminal, if there is one."""

    def __init__(self, *, plain: bool = False) -> None:
        capable = not plain and os.environ.get("TERM") != "dumb"
        self.out_is_terminal = os.isatty(1)
        self.together = _is_same(1, 2)  # both go to one pipe or file, as with 2>&1: lines must not mix
        self.live = capable and os.isatty(2)
        self.colour = self.live and not os.environ.get("NO_COLOR")
        renders = capable and self.out_is_terminal and _is_utf8(sys.stdout) and not os.environ.get("NO_COLOR")
        self._markdown = MarkdownStream(lambda: shutil.get_terminal_size().columns - 1) if renders else None
        self._drawn = 0  # drawn lines that the next write erases
        self.after_blank = False  # the last line that stays is empty
        self._open = False  # the standard output is in the middle of a line
        self._pending = ""  # a carriage return whose line feed may follow
        self._partial = ""  # above an input line: the line that is not complete

    def write_above(self, line: Line) -> None:
        """Writes above this line from now on, and colours code."""
        self.line = line
        if self._markdown is not None:
            self._markdown.highlights = True

    def print(self, text: str) -> None:
        """Writes text of the model: its Markdown rendered on a capable terminal, for programs unchanged.

        Raises `OSError` if the output cannot be written.
        """
        if self.out_is_terminal:
            text = self._pending + text
            self._pending = "\r" if text.endswith("\r") else ""
            text = harmless(text.removesuffix("\r"))
        self._write_text(self._markdown.feed(text) if self._markdown is not None else text)

    def data(self, line: str) -> None:
        """Writes a line for programs. Raises `OSError` if the output cannot be written."""
        _write(1, f"{line}\n", "utf-8")

    def end_line(self) -> None:
        """Ends the line of the model's text, with all of it that was held back."""
        if self._markdown is not None:
            self._write_text(self._markdown.flush())
        if self._open:
            self._write_text("\n")

    def end_text(self) -> None:
        """Ends a text of the model: what follows is another one."""
        if self._markdown is not None:
            self._write_text(self._markdown.finish())
        self.end_line()

    def note(self, *lines: str) -> None:
        """Writes lines about events; errors are ignored."""
        self.erase()
        if self.together or (self.live and self.out_is_terminal):
            self.end_line()
        self._write_note("".join(f"{line}\n" for line in lines))
        self.after_blank = bool(lines) and not lines[-1]

    def draw(self, lines: Sequence[str]) -> None:
        """Draws these lines below everything, instead of those drawn before."""
        if not self.live:
            return
        if self.out_is_terminal:
            self.end_line()
        if self.line is not None:
            self.line.draw(lines)
            return
        self._write_note(self._eraser() + "".join(f"{line}\n" for line in lines))
        self._drawn = len(lines)

    def erase(self) -> None:
        if self.line is not None:
            self.line.draw((), self._partial)
        elif self._drawn:
            self._write_note(self._eraser())
            self._drawn = 0

    def paint(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and code and text else text

    def fit(self, text: str, indent: int = 0) -> str:
        """Returns one line, clipped to the terminal's width; elsewhere not clipped."""
        line = harmless(text).replace("\n", " ").replace("\t", "    ")
        return clip(line, shutil.get_terminal_size().columns - 1 - indent) if self.live else line

    def wrap(self, text: str, indent: int = 0) -> list[str]:
        """Returns lines that fit the terminal beside an indent, broken between words; elsewhere the line as it is."""
        line = harmless(text).replace("\t", "    ")
        return wrap(line, max(shutil.get_terminal_size().columns - 1 - indent, 20)) if self.live else [line]

    def _write_text(self, text: str) -> None:
        if not text:
            return
        if self.line is not None:
            whole, end, self._partial = f"{self._partial}{text}".rpartition("\n")
            self.line.draw((), self._partial)
            self.line.print(whole + end)
        else:
            self.erase()
            _write(1, text, sys.stdout.encoding if self.out_is_terminal else "utf-8")
        self._open = not text.endswith("\n")
        self.after_blank = False

    def _eraser(self) -> str:
        return f"\x1b[{self._drawn}A\r\x1b[J" if self._drawn else ""

    def _write_note(self, text: str) -> None:
        if self.line is not None:
            self.line.print(text)
            return
        with suppress(OSError):
            _write(2, text, sys.stderr.encoding if self.live else "utf-8")


def _is_utf8(stream: TextIO) -> bool:
    return (stream.encoding or "").lower().replace("-", "") == "utf8"


def _is_same(one: int, other: int) -> bool:
    try:
        return os.path.sameopenfile(one, other)
    except OSError:  # one is closed
        return False


_ASCII: dict[str, str | int | None] = {
    **dict.fromkeys("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "*"),
    "✓": "+",
    "✗": "x",
    "…": "...",
    "·": "-",
    "→": "->",
    "│": "|",
    "•": "*",
    "▸": ">",
    "▾": "v",
    "✂": "~",
    "↻": "~",
    "─": "-",
    "↑": "Up",
    "↓": "Down",
    "«": "<<",
    "»": ">>",
    "⟨": "<",
    "⟩": ">",
    "−": "-",
    "×": "x",
}


def as_ascii(text: str) -> str:
    """Replaces the signs of this program where the locale has none of them."""
    return text if text.isascii() or not wants_ascii() else text.translate(str.maketrans(_ASCII))


@cache
def wants_ascii() -> bool:
    """Returns whether a person chose a locale without Unicode. (Python writes UTF-8 even where they chose `C`.)"""
    named = os.environ.get("LC_ALL") or ""
    language = os.environ.get("LANG", "")
    if not named and language in ("C", "POSIX") and os.environ.get("LC_CTYPE", "C.UTF-8") == "C.UTF-8":
        named = language  # Python itself sets LC_CTYPE then
    return named in ("C", "POSIX") or (sys.__stderr__ is not None and not _is_utf8(sys.__stderr__))


def write_text(file: int, text: str) -> None:
    """Writes to the terminal, in its encoding."""
    stream = sys.__stdout__ if file == 1 else sys.__stderr__
    with suppress(OSError):
        _write(file, text, (stream.encoding if stream is not None else None) or "utf-8")


def _write(file: int, text: str, encoding: str) -> None:
    """Writes past Python's buffers, whose locks would keep an interrupted program from ending."""
    if os.isatty(file):
        text = as_ascii(text)
    view = memoryview(text.encode(encoding, "backslashreplace" if encoding.lower() != "utf-8" else "replace"))
    while view:
        try:
            view = view[os.write(file, view) :]
        except BlockingIOError:  # another program made the terminal non-blocking
            select.select([], [file], [])


# Prints a run for programs: every event as a line of JSON, or only the answer.


class Ndjson:
    """The view for `--json`. A run's last line is always its `run_finished`."""

    is_moving = False

    def __init__(self, out: Output) -> None:
        self.out = out
        self._finished: Event | None = None
        self._last = Event()

    def show(self, event: Event) -> None:
        if isinstance(event, RunFinished):
            self._finished = event
        else:
            self._write(event)

    def finish(self, ending: Ending) -> None:
        finished, self._finished = self._finished or self._build_finished(ending), None
        self._write(finished)

    def tick(self) -> None: ...

    def clear(self) -> None: ...

    def expand(self) -> None: ...

    def note(self, *lines: str) -> None: ...

    def _build_finished(self, ending: Ending) -> Event:
        """Builds the last event of a run that could not emit its own."""
        error = ending.error.text() if ending.error is not None else ""
        finished = RunFinished(ending.text, ending.reason, ending.turns, error=error)
        finished.seq, finished.session, finished.agent = self._last.seq + 1, self._last.session, self._last.agent
        return finished

    def _write(self, event: Event) -> None:
        self._last = event
        self.out.data(json.dumps(event.to_dict(), ensure_ascii=False))


class OnlyTheAnswer:
    """The view for `--quiet`."""

    is_moving = False

    def __init__(self, out: Output) -> None:
        self.out = out

    def show(self, event: Event) -> None: ...

    def tick(self) -> None: ...

    def clear(self) -> None: ...

    def expand(self) -> None: ...

    def note(self, *lines: str) -> None: ...

    def finish(self, ending: Ending) -> None:
        if ending.text:
            self.out.print(ending.text)
            self.out.end_line()
        if ending.message:
            self.out.note(*ending.message.splitlines())
