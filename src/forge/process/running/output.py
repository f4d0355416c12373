"""What a program writes, within bounds: its beginning and its end are kept, and pieces are shown at a bounded rate."""

from __future__ import annotations

import codecs
import fcntl
import os
import threading
from collections.abc import Callable
from typing import NamedTuple

from forge.process.running.whole_output import Whole

PIECE = 1024 * 1024  # bytes read at once, at most
OFTEN = 0.05  # seconds between two pieces that are shown
MOST_SHOWN = 16 * 1024  # bytes of one such piece

_LARGE_PIPE = 1031  # Linux: F_SETPIPE_SZ
_BUSY = 64 * 1024  # bytes at once: what fills a usual pipe gets a larger one

_here = threading.local()  # one buffer a thread: what is read is copied where it belongs before the next read


class Capture(NamedTuple):
    """How many bytes of a stream are kept, at its beginning and at its end."""

    head: int
    tail: int


class Kept:
    """The beginning and the end of a stream of bytes."""

    def __init__(self, capture: Capture, *, wants_whole: bool = False) -> None:
        self.total = 0
        self.whole: Whole | None = None  # all of it, from when on the two do not hold it
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
        if len(self._tail) > self._most.tail + PIECE:  # not at every piece: it moves all that is kept
            del self._tail[: -self._most.tail]

    def _keep_whole(self, piece: memoryview) -> None:
        if self.whole is None:
            if self.total + len(piece) <= sum(self._most):
                return
            self.whole = Whole()
            self.whole.add(self._head)
            self.whole.add(self._tail)
        self.whole.add(piece)

    @property
    def cut(self) -> int:
        """How many bytes between the two are not kept."""
        return self.total - len(self._head) - min(len(self._tail), self._most.tail)

    def text(self) -> str:
        """As UTF-8, whatever it is; characters are never cut in half, and a line says what was left out."""
        tail = self._tail[-self._most.tail :] if self._most.tail else b""
        if not self.cut:
            return (self._head + tail).decode(errors="replace")
        head, tail = without_half_an_end(self._head), without_half_a_beginning(tail)
        if not self._most.tail:
            return head.decode(errors="replace")
        note = f"\n[… {self.total - len(head) - len(tail)} bytes left out …]\n" if head else ""
        return f"{head.decode(errors='replace')}{note}{tail.decode(errors='replace')}"

    def since(self, position: int) -> tuple[bytes, int]:
        """All that is kept from a position on, and how many bytes before it are gone. For a stream without a head."""
        first = self.total - min(len(self._tail), self._most.tail)
        start = max(position, first)
        with memoryview(self._tail) as tail:  # copied once: it may be large
            return bytes(tail[len(tail) - (self.total - start) :]), start - position


class Shown:
    """Hands pieces of text on while they come, some a second, each of a bounded size."""

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
    """What is in the pipe; empty at its end; None if nothing is there now. Good until the next read of this thread."""
    buffer: bytearray | None = getattr(_here, "buffer", None)
    if buffer is None:
        buffer = _here.buffer = bytearray(PIECE)
    view = memoryview(buffer)[:most]
    try:
        size = os.readv(pipe, [view])
    except BlockingIOError:
        return None
    except OSError:  # as good as its end
        size = 0
    if size == _BUSY:
        _enlarge(pipe)
    return view[:size]


def waiting_bytes(pipe: int) -> int:
    """How much there is to read."""
    import array
    import termios

    found = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, found)
    return found[0]


def without_half_an_end(content: bytes | bytearray) -> bytes:
    """Without the first bytes of a character whose others were cut off."""
    for back in range(1, min(4, len(content)) + 1):
        byte = content[-back]
        if byte < 0x80:
            break
        if byte >= 0xC0:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return bytes(content[:-back]) if back < needed else bytes(content)
    return bytes(content)


def without_half_a_beginning(content: bytes | bytearray) -> bytes:
    """Without the last bytes of a character whose first ones were cut off."""
    start = 0
    while start < min(3, len(content)) and 0x80 <= content[start] < 0xC0:
        start += 1
    return bytes(content[start:])


def _enlarge(pipe: int) -> None:
    try:
        fcntl.fcntl(pipe, _LARGE_PIPE, PIECE)
    except (OSError, ValueError):  # not on this system, or too many of them: it stays as it is
        return
