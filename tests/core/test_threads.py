"""Plain functions run in threads of their own."""

from __future__ import annotations

import subprocess
import sys

FORKING = """
import asyncio, os, time
from forge.core import threads

answer = asyncio.run(threads.in_thread(lambda: "parent"))
until = time.monotonic() + 5
while not threads._idle and time.monotonic() < until:
    time.sleep(0.001)
print(answer, threads._idle, flush=True)
child = os.fork()
if child == 0:
    async def soon():
        async with asyncio.timeout(5):
            return [await threads.in_thread(lambda: "child"), await threads.in_thread(lambda: "child again")]
    print(asyncio.run(soon()), flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(asyncio.run(threads.in_thread(lambda: "parent again")))
"""


def test_a_forked_child_does_not_wait_for_the_idle_threads_of_its_parent() -> None:
    ran = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, timeout=20, check=True)
    assert ran.stdout.splitlines() == ["parent 1", "['child', 'child again']", "parent again"]
