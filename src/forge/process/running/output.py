"""Captures the output of programs within bounds: keeps its beginning and end, and shows pieces at a bounded rate."""

from __future__ import annotations

import codecs
import fcntl
import os
import threading
from collections.abc import Callable
from typing import NamedTuple

from forge.process.running.whole_output import WholeOutput

PIECE = 1024 * 1024  # bytes read at once, at most
OFTEN = 0.05  # seconds between two pieces that are shown
MOST_SHOWN = 16 * 1024  # bytes of one such piece

_LARGE_PIPE = 1031  # Linux: F_SETPIPE_SZ
_BUSY = 64 * 1024  # bytes at once: a full standard pipe is enlarged

_thread_state = threading.local()  # one buffer a thread: its content is copied before the next read


class Capture(NamedTuple):
    """The number of bytes of a stream to keep, at its beginning and at its end."""

    head: int
    tail: int


class CapturedOutput:
    """The beginning and the end of a stream of bytes."""

    def __init__(self, capture: Capture, *, wants_whole: bool = False) -> None:
        self.total = 0
        self.whole: WholeOutput | None = None  # the whole stream, once head and tail cannot hold it
        self._wants_whole = wants_whole
        self._most = capture
        self._head = bytearray()
        self._tail = bytearray()

    def add(self, piece: memoryview) -> None:
        if self._wants_whole:
            self._keep_whole(piece)
        self.total += len(piece)
        if missing := self._most.head - len(self._head):
            self._head += piece[:missing]
            piece = piece[missing:]
        if len(piece) >= self._most.tail:
            self._tail[:] = piece[len(piece) - self._most.tail :]
            return
        self._tail += piece
        if len(self._tail) > self._most.tail + PIECE:  # not at every piece: it moves the whole buffer
            del self._tail[: -self._most.tail]

    def _keep_whole(self, piece: memoryview) -> None:
        if self.whole is None:
            if self.total + len(piece) <= sum(self._most):
                return
            self.whole = WholeOutput()
            self.whole.add(self._head)
            self.whole.add(self._tail)
        self.whole.add(piece)

    @property
    def cut(self) -> int:
        """The number of bytes left out between beginning and end."""
        return self.total - len(self._head) - min(len(self._tail), self._most.tail)

    def text(self) -> str:
        """Decodes it as UTF-8, replacing errors; never cuts a character, and a line reports the bytes left out."""
        tail = self._tail[-self._most.tail :] if self._most.tail else b""
        if not self.cut:
            return (self._head + tail).decode(errors="replace")
        head, tail = drop_partial_end(self._head), drop_partial_start(tail)
        if not self._most.tail:
            return head.decode(errors="replace")
        note = f"\n[… {self.total - len(head) - len(tail)} bytes left out …]\n" if head else ""
        return f"{head.decode(errors='replace')}{note}{tail.decode(errors='replace')}"

    def since(self, position: int) -> tuple[bytes, int]:
        """Returns the kept bytes from a position on, and the number of bytes dropped before. For a stream without a
        head.
        """
        first = self.total - min(len(self._tail), self._most.tail)
        start = max(position, first)
        with memoryview(self._tail) as tail:  # copied once: it may be large
            return bytes(tail[len(tail) - (self.total - start) :]), start - position


class LiveOutput:
    """Passes pieces of text on as they arrive, at a bounded rate and size."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._waiting = bytearray()
        self._skipped = 0

    @property
    def waits(self) -> bool:
        return bool(self._waiting)

    def add(self, piece: memoryview) -> None:
        fits = MOST_SHOWN - len(self._waiting)
        self._waiting += piece[:fits]
        self._skipped += max(0, len(piece) - fits)

    def flush(self, *, last: bool = False) -> None:
        text = self._decoder.decode(bytes(self._waiting), final=last)
        self._waiting.clear()
        if self._skipped:
            text += f"\n[… {self._skipped} bytes not shown …]\n"
            self._skipped = 0
            self._decoder.reset()
        if text:
            self._show(text)


def read_piece(pipe: int, most: int = PIECE) -> memoryview | None:
    """Reads from the pipe; empty at its end; None if nothing is there now. Valid until the next read of this thread."""
    buffer: bytearray | None = getattr(_thread_state, "buffer", None)
    if buffer is None:
        buffer = _thread_state.buffer = bytearray(PIECE)
    view = memoryview(buffer)[:most]
    try:
        size = os.readv(pipe, [view])
    except BlockingIOError:
        return None
    except OSError:  # treated as its end
        size = 0
    if size == _BUSY:
        _enlarge(pipe)
    return view[:size]


def count_waiting_bytes(pipe: int) -> int:
    """Returns the number of bytes to read."""
    import array
    import termios

    found = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, found)
    return found[0]


def drop_partial_end(content: bytes | bytearray) -> bytes:
    """Removes an incomplete character at the end."""
    for back in range(1, min(4, len(content)) + 1):
        byte = content[-back]
        if byte < 0x80:
            break
        if byte >= 0xC0:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return bytes(content[:-back]) if back < needed else bytes(content)
    return bytes(content)


def drop_partial_start(content: bytes | bytearray) -> bytes:
    """Removes an incomplete character at the start."""
    start = 0
    while start < min(3, len(content)) and 0x80 <= content[start] < 0xC0:
        start += 1
    return bytes(content[start:])


def _enlarge(pipe: int) -> None:
    try:
        fcntl.fcntl(pipe, _LARGE_PIPE, PIECE)
    except (OSError, ValueError):  # not supported, or too many large pipes: keep its size
        return
