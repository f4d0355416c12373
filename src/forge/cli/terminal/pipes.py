"""Reads and writes the standard streams past Python's buffers, whose locks would keep an interrupted program from
ending.
"""

from __future__ import annotations

import os
import select

from forge.core.execution.threads import in_thread

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
