"""The program that waits for the next page: used once, never two, and gone when nobody needs it."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys

import pytest

from forge.tools.web import read_page as spare_program
from forge.tools.web.read_page import PageReader, WebPage, _Spare

KILLED = """
import asyncio, os, signal
from tests.tools.test_web_read_page import read, waiting
async def main():
    await read("x")
    print(waiting().program.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""


async def read(text: str) -> WebPage:
    async with PageReader() as reader:
        return await reader.read(f"<p>{text}</p>", "http://a.example/", "markdown")


def waiting() -> _Spare:
    return spare_program._spares.waiting[asyncio.get_running_loop()]


def is_gone(pid: int, seconds: float = 60.0) -> bool:
    """Whether a process ends in time."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([process], [], [], seconds)[0])
    finally:
        os.close(process)


async def test_the_next_page_is_read_by_the_program_that_waits():
    assert await read("one") == WebPage("", "one")
    first = waiting().program
    async with PageReader() as reader:
        assert await reader.start() is first
        assert await reader.read("<p>two</p>", "http://a.example/", "markdown") == WebPage("", "two")
    assert waiting().program is not first


async def test_another_limit_needs_another_program():
    await read("one")
    spare = waiting().program
    async with PageReader(seconds=3) as reader:
        assert await reader.start() is not spare


async def test_one_that_was_killed_meanwhile_is_not_used():
    await read("one")
    spare = waiting().program
    assert spare is not None
    os.kill(spare.pid, signal.SIGKILL)
    await spare.wait_ended()
    assert await read("two") == WebPage("", "two")


async def test_many_pages_at_once_leave_one_program_waiting():
    pages = await asyncio.gather(*(read(str(number)) for number in range(5)))
    assert [page.text for page in pages] == ["0", "1", "2", "3", "4"]
    assert len([one for one in spare_program._spares.waiting if not one.is_closed()]) == 1


async def test_nobody_took_it_in_time():
    await read("one")
    spare = waiting()
    assert spare.timer is not None
    assert 0 < spare.timer.when() - asyncio.get_running_loop().time() <= 30
    spare._expire()  # what the timer does
    await asyncio.gather(*spare_program._spares.ending)
    assert spare.program is not None
    assert not spare.program.is_running
    assert asyncio.get_running_loop() not in spare_program._spares.waiting
    assert await read("two") == WebPage("", "two")


def test_it_ends_with_the_event_loop():
    async def once() -> _Spare:
        await read("one")
        return waiting()

    spare = asyncio.run(once())
    assert spare.program is not None
    assert is_gone(spare.program.pid, 0.0)
    assert asyncio.run(read("two")) == WebPage("", "two")


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="pidfd_open is of Linux")
def test_it_ends_when_its_parent_is_killed():
    ran = subprocess.run([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True, check=False)
    assert ran.returncode == -signal.SIGKILL
    assert is_gone(int(ran.stdout))
