"""Captures the output of programs within bounds: keeps its beginning and end, and shows pieces at a bounded rate."""

from __future__ import annotations

import array
import codecs
import fcntl
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

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


@dataclass(frozen=True, slots=True)
class OutputPlan:
    """The bounds of a program's output, and its listeners."""

    capture: Capture = Capture(256 * 1024, 768 * 1024)  # noqa: RUF009 - it cannot be changed
    merge: bool = False  # the standard error is a part of the output
    whole: bool = False  # output beyond `capture` is also stored in a file
    on_output: Callable[[str], None] | None = None  # receives the output as it comes
    on_errors: Callable[[str], None] | None = None  # receives the standard error instead of `on_output`


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


# Keeps a long output, of which a result holds only a part, outside of memory until it is written to a file.


MOST_KEPT = 64 * 1024 * 1024  # bytes that are kept, the first ones
LOOKED_AT = 64 * 1024  # bytes at the beginning that tell a text from other data
LONGEST_SECRET = 64 * 1024  # characters held back, so that no secret is cut in two


class WholeOutput:
    """The output of a program, in an unnamed file. If writing fails, `problem` says why."""

    def __init__(self, file: _Unnamed | None = None) -> None:
        self.name = ""  # of the one file for all results of a job; "": each result has its own file
        self.total_bytes = 0
        self.problem = ""  # why some of it is missing
        self._stored = 0
        self._newlines = 0
        self._is_ended = True  # with a newline
        self._masks: tuple[Callable[[str], str], ...] = ()
        self._file = file
        self._content = b""  # used instead of the file

    @classmethod
    def of(cls, content: bytes, name: str = "") -> WholeOutput:
        """Makes one from content in memory."""
        whole = cls()
        whole.name = name
        whole._content = content
        whole.total_bytes = whole._stored = len(content)
        whole._newlines, whole._is_ended = content.count(b"\n"), content.endswith(b"\n")
        return whole

    def snapshot(self, name: str) -> WholeOutput:
        """Returns the output so far; what is added later is not in it."""
        same = WholeOutput(self._file)
        vars(same).update(vars(self), name=name)
        return same

    @property
    def stored_bytes(self) -> int:
        return self._stored

    @property
    def is_binary(self) -> bool:
        """Returns whether the output is no text, by its beginning."""
        for piece in self._read(0, min(self._stored, LOOKED_AT)):
            decoder = codecs.getincrementaldecoder("utf-8")()
            try:
                return "\0" in decoder.decode(piece)
            except UnicodeDecodeError:
                return True
        return False

    @property
    def total_lines(self) -> int:
        """The number of stored lines: all, unless there is a `problem`. Counting the rest would slow its reading."""
        return self._newlines + (not self._is_ended)

    def add(self, piece: bytes | bytearray | memoryview) -> None:
        if not piece:
            return
        self.total_bytes += len(piece)
        if self.problem:
            return
        room = MOST_KEPT - self._stored
        stored = memoryview(piece)[:room]
        try:
            self._file = self._file or _Unnamed()
            self._file.write(stored)
        except OSError as error:
            self.problem = f"the rest could not be kept: {error.strerror}"
            return
        self._stored += len(stored)
        self._newlines += bytes(stored).count(b"\n")
        self._is_ended = stored[-1] == 0x0A if stored else self._is_ended
        if len(piece) > room:
            self.problem = f"only the first {MOST_KEPT // 1024 // 1024} MiB are kept"

    def masked(self, mask: Callable[[str], str]) -> WholeOutput:
        """Returns a copy whose texts all pass through `mask`."""
        same = WholeOutput(self._file)
        vars(same).update(vars(self), _masks=(*self._masks, mask))
        return same

    def pieces(self) -> Iterator[bytes]:
        """Yields the output from its beginning, piece by piece: all bytes as they are, with the secrets masked.

        A NUL in a text is written as ␀.
        """
        held, is_binary = "", self.is_binary
        decoder = codecs.getincrementaldecoder("latin-1" if is_binary else "utf-8")("surrogateescape")
        coding = "latin-1" if is_binary else "utf-8"
        for piece in self._read(0, self._stored):
            if is_binary and not self._masks:
                yield piece
                continue
            held += decoder.decode(piece)
            for mask in self._masks:
                held = mask(held)
            yield _encode(held[:-LONGEST_SECRET], coding)
            held = held[-LONGEST_SECRET:]
        yield _encode(held + decoder.decode(b"", final=True), coding)
        if self._stored < self.total_bytes and not is_binary:
            yield f"\n[the text ends here: {self.problem}]\n".encode()

    def _read(self, start: int, end: int) -> Iterator[bytes]:
        for position in range(start, end, PIECE):
            stop = min(position + PIECE, end)
            yield self._content[position:stop] if self._file is None else self._file.read(position, stop - position)

    def __reduce__(self) -> tuple[Callable[[], None], tuple[()]]:
        return _restore_nothing, ()


def _encode(text: str, coding: str) -> bytes:
    if coding == "latin-1":
        return text.encode(coding, "replace")  # a mask may have put other characters in
    return text.replace("\0", "␀").encode(coding, "surrogateescape")


class _Unnamed:
    """An unnamed file, gone when this object is."""

    def __init__(self) -> None:
        with tempfile.TemporaryFile(buffering=0) as file:
            self._number = os.dup(file.fileno())

    def write(self, piece: memoryview) -> None:
        while piece:
            piece = piece[os.write(self._number, piece) :]

    def read(self, start: int, size: int) -> bytes:
        return os.pread(self._number, size, start)

    def __del__(self) -> None:
        if (number := vars(self).get("_number")) is not None:
            os.close(number)


def _restore_nothing() -> None:
    """Unpickles as None: the file stays in its process."""
