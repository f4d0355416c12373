"""Reserves the standard streams for the protocol, and waits for input; needs no part of the SDK."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


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


async def await_readable(file: int) -> None:
    """Waits for input. Raises `PermissionError` if the system cannot poll the file."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(file, _wake, ready)
    try:
        await ready
    finally:
        loop.remove_reader(file)


def _wake(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
