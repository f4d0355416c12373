"""The standard streams of a program that serves: reserved for its messages, and read and written line by line."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import select
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from forge.core.execution.threads import in_thread

PIECE = 256 * 1024  # bytes read at once
ATOMIC = getattr(select, "PIPE_BUF", 512)  # bytes that a writable pipe accepts without blocking


@contextmanager
def own_streams() -> Iterator[tuple[int, int]]:
    """Yields the input and the output. Other writes to the standard output go to the standard error."""
    given, taken = (fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 3) for number in (0, 1))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    try:
        yield given, taken
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()  # what was printed and not written yet
        with contextlib.suppress(OSError):
            os.dup2(given, 0)
            os.dup2(taken, 1)


class InputLines:
    """Reads the lines that a client sends; needs no thread where the system can poll the stream."""

    def __init__(self, file: int, longest: int, read: bytes = b"") -> None:
        """`read` was read from the file already."""
        self._file, self._longest = file, longest
        self._lines: deque[bytes] = deque()
        self._part: list[bytes] = []
        self._size = 0
        self._polls = True
        self._split(read)

    async def next(self) -> bytes | None:
        """Returns the next line, without its end; None when there are no more.

        A line of more than `longest` bytes is cut, but still longer than `longest`, so that the caller can tell.
        """
        while not self._lines:
            piece = await self._read()
            if not piece:
                return None
            self._split(piece)
        return self._lines.popleft()

    async def _read(self) -> bytes:
        if self._polls:
            try:
                await await_file(self._file)
                return os.read(self._file, PIECE)
            except PermissionError:  # a file or the null device: the system cannot poll it
                self._polls = False
        piece: bytes = await in_thread(lambda: os.read(self._file, PIECE))
        return piece

    def _split(self, piece: bytes) -> None:
        *ended, rest = piece.split(b"\n")
        for line in ended:
            self._add(line)
            self._lines.append(b"".join(self._part))
            self._part, self._size = [], 0
        self._add(rest)

    def _add(self, part: bytes) -> None:
        if part and self._size <= self._longest:
            self._part.append(part)
            self._size += len(part)


class OutputLines:
    """Writes whole lines, in order. A client that does not read delays the sender, not the event loop."""

    def __init__(self, file: int) -> None:
        self.is_closed = False
        self._file = file
        self._turn = asyncio.Lock()
        self._writing: set[asyncio.Task[None]] = set()

    async def write(self, line: bytes) -> None:
        """Writes a line, which has its end. Raises `ConnectionError` if the client is gone, or this is closed."""
        if self.is_closed:
            raise ConnectionError("the connection is closed")
        if len(line) <= ATOMIC and not self._writing and self._takes_bytes():
            self._write(line)
            return
        writing = asyncio.create_task(self._write_in_turn(line))
        self._writing.add(writing)
        writing.add_done_callback(self._forget)
        await asyncio.shield(writing)  # even if cancelled: half a line would break the stream

    def close(self) -> None:
        """Takes no further lines. Those that it took are still written."""
        self.is_closed = True

    async def finish(self, seconds: float) -> None:
        """Takes no further lines, and waits until those that it took are written, or the time is over."""
        self.close()
        if self._writing:
            await asyncio.wait(self._writing, timeout=seconds)

    def cancel(self) -> None:
        """Ends it at once; a line that is under way is cut."""
        self.close()
        for one in list(self._writing):
            one.cancel()

    async def _write_in_turn(self, line: bytes) -> None:
        async with self._turn:
            for start in range(0, len(line), ATOMIC):
                if not self._takes_bytes():
                    await await_file(self._file, to_write=True)
                self._write(line[start : start + ATOMIC])

    def _takes_bytes(self) -> bool:
        return bool(select.select([], [self._file], [], 0)[1])

    def _write(self, piece: bytes) -> None:
        view = memoryview(piece)
        try:
            while view:
                view = view[os.write(self._file, view) :]
        except OSError as error:
            self.is_closed = True
            raise ConnectionError(f"the client is gone: {error}") from None

    def _forget(self, writing: asyncio.Task[None]) -> None:
        self._writing.discard(writing)
        if not writing.cancelled():
            writing.exception()  # the sender received it, or is gone


async def await_file(file: int, *, to_write: bool = False) -> None:
    """Waits until a file has input, or takes bytes. Raises `PermissionError` if the system cannot poll the file."""
    loop = asyncio.get_running_loop()
    add, remove = (loop.add_writer, loop.remove_writer) if to_write else (loop.add_reader, loop.remove_reader)
    ready = loop.create_future()
    add(file, _wake, ready)
    try:
        await ready
    finally:
        remove(file)


def _wake(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
