"""The standard streams of a program that serves: reserved for its messages, and read line by line."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from forge.core.execution.threads import in_thread

PIECE = 256 * 1024  # bytes read at once


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
                await await_readable(self._file)
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


async def await_readable(file: int) -> None:
    """Waits for input. Raises `PermissionError` if the system cannot poll the file."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(file, wake, ready)
    try:
        await ready
    finally:
        loop.remove_reader(file)


async def await_writable(file: int) -> None:
    """Waits until a file takes bytes. Raises `PermissionError` if the system cannot poll the file."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_writer(file, wake, ready)
    try:
        await ready
    finally:
        loop.remove_writer(file)


def wake(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
