"""The lines that a program that serves writes to its client."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from forge.core.execution.threads import in_thread
from forge.process.running.standard_streams import OutputLines

LONG = b"x" * 1_000_000 + b"\n"  # more than a pipe holds


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    given, taken = os.pipe()
    yield given, taken
    os.close(given)
    os.close(taken)


async def test_lines_that_were_taken_are_whole_although_the_output_ends_before_they_are_read(pipe):
    given, taken = pipe
    output = OutputLines(taken)
    sending = [asyncio.ensure_future(output.write(line)) for line in (LONG, b"short\n")]
    await asyncio.sleep(0)  # until the first one waits for its reader
    ending = asyncio.ensure_future(output.finish(30))
    reading = asyncio.ensure_future(in_thread(lambda: read_lines(given, 2)))
    await ending
    assert await reading == LONG + b"short\n"
    await asyncio.gather(*sending)
    with pytest.raises(ConnectionError, match="closed"):
        await output.write(b"one more\n")


async def test_a_client_that_reads_nothing_does_not_keep_an_output_from_ending(pipe):
    output = OutputLines(pipe[1])
    sending = asyncio.ensure_future(output.write(LONG))
    await asyncio.sleep(0)
    await output.finish(0.01)
    assert not sending.done()
    output.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending


async def test_a_short_line_does_not_overtake_a_long_one(pipe):
    given, taken = pipe
    output = OutputLines(taken)
    sending = [asyncio.ensure_future(output.write(line)) for line in (LONG, b"short\n")]
    assert await in_thread(lambda: read_lines(given, 2)) == LONG + b"short\n"
    await asyncio.gather(*sending)


def read_lines(given: int, count: int) -> bytes:
    found = b""
    while found.count(b"\n") < count:
        found += os.read(given, 1_000_000)
    return found
