"""Reads what a person types, and the standard streams past Python's buffers."""

from __future__ import annotations

import os
import re
import select
import shutil
import sys
import termios
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import click

from forge.cli.terminal.output import Output
from forge.cli.terminal.print_result import clip
from forge.core.execution.threads import in_thread

LONGEST_MESSAGE = 1024 * 1024  # characters of one message
FENCE = '"""'
QUIET = 0.25  # seconds without a key, after which keys count as an answer
MOST_WAITS = 40  # such periods, if somebody keeps typing


class Keyboard:
    """Reads messages. Ctrl-C at a terminal is a `KeyboardInterrupt`; None is the end of the input."""

    def __init__(self) -> None:
        self.is_terminal = sys.stdin.isatty()
        self._edits = self.is_terminal and sys.stdout.isatty()
        if self._edits:
            with suppress(ImportError):  # some builds of Python lack it
                import readline  # noqa: F401 - makes input() edit lines

    def message(self, prompt: str = "> ") -> str | None:
        """Reads a message: a line; several lines if one ends in a backslash, or from `\"""` to `\"""`."""
        line = self._read_line(prompt)
        if line is None:
            return None
        lines = [line]
        if line.lstrip().startswith(FENCE):
            return self._read_fenced(line)
        while lines[-1].endswith("\\") and (more := self._read_line("… ")) is not None:
            lines[-1] = lines[-1][:-1]
            lines.append(more)
        return "\n".join(lines)[:LONGEST_MESSAGE].strip()

    def _read_fenced(self, first: str) -> str:
        text = first.lstrip()[len(FENCE) :]
        while FENCE not in text and (more := self._read_line("… ")) is not None and len(text) < LONGEST_MESSAGE:
            text += f"\n{more}"
        return text.partition(FENCE)[0].strip()

    def _read_line(self, prompt: str) -> str | None:
        read: Callable[[], str] = (lambda: input(prompt)) if self._edits else (lambda: self._plain_line(prompt))
        try:
            return _without_surrogates(read())
        except EOFError:
            if self.is_terminal:
                click.echo(err=True)
            return None

    def _plain_line(self, prompt: str) -> str:
        if self.is_terminal:
            click.echo(prompt, nl=False, err=True)
        line = sys.stdin.buffer.readline(LONGEST_MESSAGE)
        if not line:
            raise EOFError
        return line.decode("utf-8", "replace").rstrip("\r\n")


def is_in_front() -> bool:
    """Returns whether this program may read the terminal: one in the background would be stopped by the system."""
    if not os.isatty(0):
        return False
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:  # a terminal without job control
        return True


async def read_typed() -> bytes:
    """Reads what is typed, in a thread: a line, or keys inside `single_keys`; empty at the end of the input.

    If cancelled, it leaves the next line to others.
    """
    over, end = os.pipe()

    def read() -> bytes:
        try:
            ready, _, _ = select.select([0, over], [], [])
            return os.read(0, 65_536) if over not in ready else b""
        finally:
            os.close(over)

    try:
        line: bytes = await in_thread(read)
        return line
    finally:
        os.close(end)


@contextmanager
def single_keys() -> Iterator[None]:
    """Makes the terminal pass on each key at once and unseen. Ctrl-C still interrupts."""
    before = termios.tcgetattr(0)
    tty.setcbreak(0, termios.TCSANOW)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSANOW, before)


async def take_typed_ahead() -> str:
    """Returns what was typed before a question, and what is typed until the keyboard is quiet for a moment.

    Inside `single_keys`: a key that was meant for something else must not answer the question.
    """
    typed = take_typed()
    for _ in range(MOST_WAITS):
        if not await in_thread(lambda: select.select([0], [], [], QUIET)[0]):
            break
        typed += take_typed()
    return typed


def take_typed() -> str:
    """Returns what was typed so far, without control characters. The beginning of a line that has no end is dropped
    where the terminal passes on whole lines.
    """
    typed = b""
    with suppress(OSError, termios.error):
        while os.isatty(0) and select.select([0], [], [], 0)[0] and (piece := os.read(0, PIECE)):
            typed += piece
        termios.tcflush(0, termios.TCIFLUSH)
    text = _KEYS.sub(lambda key: key[4] or ("\n" if key[3] in ("\r", "\n") else ""), typed.decode("utf-8", "replace"))
    return text.strip("\n")


def _without_surrogates(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


# Reads and writes the standard streams past Python's buffers, whose locks would keep an interrupted program from
# ending.


PIECE = 64 * 1024
ATOMIC = 512  # bytes that a pipe said to be writable takes without waiting, on every system


async def read_some() -> bytes:
    """Reads the next piece of the input, empty at its end, without blocking the loop."""
    piece: bytes = await in_thread(lambda: os.read(0, PIECE))
    return piece


def read_all(most: int) -> bytes:
    """Reads the whole input; of a longer one, a little more than `most`."""
    pieces, size = [], 0
    while size <= most and (piece := os.read(0, PIECE)):
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)


async def write_soon(content: bytes) -> None:
    """Writes all before it returns, without blocking the loop if the reader is slow."""
    if len(content) <= getattr(select, "PIPE_BUF", ATOMIC) and select.select([], [1], [], 0)[1]:
        write_all(content)
    else:
        await in_thread(lambda: write_all(content))


def write_all(content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(1, view) :]


# Picking one of several entries with the arrow keys; what is typed filters them.


MOST_ENTRIES = 12  # entries shown at once
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
        first = max(0, min(self.cursor - MOST_ENTRIES // 2, len(fitting) - MOST_ENTRIES))
        lines = [out.paint(clip(HELP, columns), "2")]
        lines += [f"Filter: {clip(self.filter, columns - 8)}"] if self.filter else []
        for at, number in enumerate(fitting[first : first + MOST_ENTRIES], first):
            row = clip(self.rows[number], columns)
            lines.append(f"{out.paint('▸', '36')} {out.paint(row, '1')}" if at == self.cursor else f"  {row}")
        left = len(fitting) - MOST_ENTRIES
        lines += ["  Nothing fits." if not fitting else f"  … {left} more"] if left > 0 or not fitting else []
        return lines
