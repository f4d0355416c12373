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
from forge.core.execution.threads import MOST_IN_A_ROW, RecentDuration, in_thread

FORKING = """
import asyncio, os, time
from forge.core.execution import threads

answer = asyncio.run(threads.in_thread(lambda: "parent"))
until = time.monotonic() + 5
while not threads._idle and time.monotonic() < until:
    time.sleep(0.001)
print(answer, threads._idle, flush=True)
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


def test_a_function_that_no_task_waited_for_is_not_run_and_holds_no_thread():
    ran: list[str] = []

    async def run() -> int:
        await in_thread(lambda: None)
        coroutine = in_thread(lambda: ran.append("never"))
        coroutine.send(None)
        coroutine.close()
        before = threads._alive
        await asyncio.gather(*(in_thread(lambda: None) for _ in range(before)))
        return threads._alive - before

    assert asyncio.run(run()) <= 1
    assert ran == []


def test_a_thousand_hops_one_after_the_other_need_a_handful_of_threads():
    async def run() -> int:
        before = threads._alive
        for number in range(1_000):
            assert await in_thread(partial(abs, number)) == number
        return threads._alive - before

    assert asyncio.run(run()) <= 2


def a_quick_pace() -> RecentDuration:
    pace = RecentDuration()
    pace.is_quick = True
    return pace


def test_the_loop_waits_for_a_quick_function_and_no_other(monkeypatch):
    monkeypatch.setattr(threads, "QUICK", 60.0)
    monkeypatch.setattr(threads, "PATIENCE", 60.0)

    async def run(pace: RecentDuration | None) -> bool:
        """Whether another task had its turn meanwhile."""
        seen: list[str] = []
        asyncio.get_running_loop().call_soon(seen.append, "another")
        assert await in_thread(lambda: "value", pace) == "value"
        return bool(seen)

    async def runs() -> list[bool]:
        pace = RecentDuration()
        return [await run(pace), await run(pace), await run(None)]

    assert asyncio.run(runs()) == [True, False, True]


def test_a_function_that_was_slow_is_not_waited_for_the_next_time(monkeypatch):
    monkeypatch.setattr(threads, "QUICK", -1.0)
    pace = a_quick_pace()
    asyncio.run(in_thread(lambda: None, pace))
    assert not pace.is_quick


@pytest.mark.parametrize("kind", [asyncio.Task, asyncio.tasks._PyTask], ids=["C", "Python"])  # type: ignore[attr-defined]
def test_a_quick_function_that_is_slow_this_time_needs_the_loop_and_gets_it(kind):
    async def work() -> str:
        here.set("task")
        loop = asyncio.get_running_loop()

        async def answer() -> str:
            return "from the loop"

        def asks_the_loop() -> str:
            return asyncio.run_coroutine_threadsafe(answer(), loop).result(30)

        value = await in_thread(asks_the_loop, a_quick_pace())
        return f"{value}, {here.get()}"

    async def run() -> str:
        return str(await kind(work(), loop=asyncio.get_running_loop()))

    assert asyncio.run(run()) == "from the loop, task"


def test_an_outcome_that_comes_between_the_wait_and_the_suspension_is_not_lost(monkeypatch):
    monkeypatch.setattr(threads, "PATIENCE", 0.0)
    begin, ended = threading.Event(), threading.Event()

    def function() -> str:
        begin.wait(30)
        ended.set()
        return "value"

    async def work() -> str:
        return str(await in_thread(function, a_quick_pace()))

    class Late:
        """Passes on what the work waits for once the function has ended."""

        def __await__(self):
            inner = work()
            waited = inner.send(None)
            begin.set()
            assert ended.wait(30)
            while threads._work.qsize() or not waited.finished:
                pass
            yield waited
            with pytest.raises(StopIteration) as stop:
                inner.send(None)
            return stop.value.value

    async def run() -> object:
        return await Late()

    assert asyncio.run(run()) == "value"


@pytest.mark.parametrize("kind", [asyncio.Task, asyncio.tasks._PyTask], ids=["C", "Python"])  # type: ignore[attr-defined]
def test_a_cancelled_task_does_not_wait_for_a_function_that_was_quick_before(kind):
    begun, end = threading.Event(), threading.Event()

    def hung() -> None:
        begun.set()
        end.wait(30)

    async def run() -> tuple[bool, str]:
        task = kind(in_thread(hung, a_quick_pace()), loop=asyncio.get_running_loop())
        await in_thread(begun.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        end.set()
        return task.cancelled(), await in_thread(lambda: "another")

    assert asyncio.run(run()) == (True, "another")


def test_what_a_quick_function_raises_is_raised():
    def broken() -> None:
        raise SystemExit("from inside")

    with pytest.raises(SystemExit, match="from inside"):
        asyncio.run(in_thread(broken, a_quick_pace()))


def test_other_tasks_have_their_turn_however_many_quick_functions_are_called(monkeypatch):
    monkeypatch.setattr(threads, "QUICK", 60.0)
    monkeypatch.setattr(threads, "PATIENCE", 60.0)

    async def run() -> int:
        seen: list[str] = []
        pace = a_quick_pace()
        asyncio.get_running_loop().call_soon(seen.append, "another")
        calls = 0
        while not seen:
            await in_thread(lambda: None, pace)
            calls += 1
        return calls

    assert asyncio.run(run()) == MOST_IN_A_ROW + 1
