"""Plain functions run in threads of their own."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from contextvars import ContextVar
from functools import partial

import pytest

from forge.core.execution import threads
from forge.core.execution.threads import in_thread

FORKING = """
import asyncio, os, time
from forge.core.execution import threads

answer = asyncio.run(threads.in_thread(lambda: "parent"))
until = time.monotonic() + 5
while not threads._threads.idle and time.monotonic() < until:
    time.sleep(0.001)
print(answer, threads._threads.idle, flush=True)
child = os.fork()
if child == 0:
    async def soon():
        async with asyncio.timeout(60):
            return [await threads.in_thread(lambda: "child"), await threads.in_thread(lambda: "child again")]
    print(asyncio.run(soon()), flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(asyncio.run(threads.in_thread(lambda: "parent again")))
"""


def test_a_forked_child_does_not_wait_for_the_idle_threads_of_its_parent() -> None:
    ran = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, timeout=150, check=True)
    assert ran.stdout.splitlines() == ["parent 1", "['child', 'child again']", "parent again"]


here: ContextVar[str] = ContextVar("here", default="nowhere")


def test_the_thread_sees_what_the_task_set_and_the_task_keeps_its_own():
    async def run() -> tuple[str, str, str]:
        here.set("task")
        seen = await in_thread(here.get)
        await in_thread(lambda: here.set("thread"))
        kept = here.get()
        here.set("afterwards")
        await in_thread(lambda: None)
        return seen, kept, here.get()

    assert asyncio.run(run()) == ("task", "task", "afterwards")


def test_what_a_function_raises_is_raised_with_the_place_where_it_was_raised():
    def broken() -> None:
        raise SystemExit("from inside")

    with pytest.raises(SystemExit, match="from inside") as caught:
        asyncio.run(in_thread(broken))
    assert caught.traceback[-1].name == "broken"


@pytest.mark.parametrize("kind", [asyncio.Task, asyncio.tasks._PyTask], ids=["C", "Python"])  # type: ignore[attr-defined]
def test_a_cancelled_task_does_not_wait_for_its_function(kind):
    begun, end = threading.Event(), threading.Event()

    def hung() -> str:
        begun.set()
        end.wait(30)
        return "too late"

    async def run() -> tuple[bool, str, str]:
        task = kind(in_thread(hung), loop=asyncio.get_running_loop())
        await in_thread(begun.wait)
        task.cancel("enough")
        with pytest.raises(asyncio.CancelledError) as stopped:
            await task
        end.set()
        return task.cancelled(), str(stopped.value), await in_thread(lambda: "another")

    assert asyncio.run(run()) == (True, "enough", "another")


def test_a_function_that_no_task_waits_for_any_more_holds_no_thread():
    async def run() -> int:
        await in_thread(lambda: None)
        coroutine = in_thread(lambda: None)
        coroutine.send(None)
        coroutine.close()
        before = threads._threads.alive
        await asyncio.gather(*(in_thread(lambda: None) for _ in range(before)))
        return threads._threads.alive - before

    assert asyncio.run(run()) <= 1


def test_a_thousand_hops_one_after_the_other_need_a_handful_of_threads():
    async def run() -> int:
        before = threads._threads.alive
        for number in range(1_000):
            assert await in_thread(partial(abs, number)) == number
        return threads._threads.alive - before

    assert asyncio.run(run()) <= 2
