"""Time, rate and retry."""

import asyncio
import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

from forge import Answer, PermissionRequest, Rate, Scope, ToolCall, ToolContext, ToolError, tool
from forge.events import ToolProgress
from forge.pipeline import standard_executor
from forge.pipeline.limit_calls import Isolate, LimitRate, LimitTime, Retry
from tests.patience import longer
from tests.pipeline.calling import call_once, events_of, executor_of

left_behind = threading.Event()


@tool(timeout=1)
async def sleeper(seconds: float) -> str:
    """Sleep."""
    await asyncio.sleep(seconds)
    return "awake"


@tool(timeout=0.05)
async def stubborn() -> str:
    """Swallow every cancellation."""
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass


@tool(timeout=0.05)
def hung() -> str:
    """Hang in a thread."""
    left_behind.wait(60)
    return "too late"


@tool(isolate=True, timeout=3)
def forked(path: str) -> str:
    """Start a child, leave both numbers, then hang."""
    child = os.fork()
    if child == 0:
        time.sleep(30)
        os._exit(0)
    Path(path).write_text(f"{os.getpid()} {child}")
    time.sleep(30)
    return "too late"


def runs(process: str) -> bool:
    """A zombie that nobody has buried yet does not run any more."""
    shown = subprocess.run(["ps", "-o", "stat=", "-p", process], capture_output=True, text=True)
    return shown.stdout.strip()[:1] not in ("", "Z")


@tool(isolate=True, timeout=30)
def isolated(word: str, ctx: ToolContext) -> str:
    """Answer from another process."""
    ctx.progress("working")
    print("this must not disturb the answer")
    return f"{word} from {os.getpid()}"


@tool(isolate=True, timeout=30)
def dies() -> str:
    """Die without a word."""
    os._exit(7)


@tool(timeout=0.05)
async def keeps_time(timeout: float) -> str:
    """A tool with a deadline of its own."""
    await asyncio.sleep(timeout)
    return "in time"


@pytest.mark.parametrize("made", [stubborn, hung])
def test_a_tool_that_does_not_stop_is_left_behind(made):
    left_behind.clear()
    started = time.monotonic()
    result = call_once(made, LimitTime())
    assert result.failure is not None
    assert result.failure.kind == "timeout"
    assert "timed out after 0.05 s" in result.for_llm
    assert time.monotonic() - started < 50
    left_behind.set()


def test_time_is_up_for_the_slow_and_not_for_the_quick():
    assert call_once(sleeper, LimitTime(), seconds=30).data["timed_out"] is True
    assert call_once(sleeper, LimitTime(), seconds=0).for_llm == "awake"


def test_a_timeout_parameter_is_the_tools_own_deadline():
    assert call_once(keeps_time, LimitTime(), timeout=0.1).for_llm == "in time"


@pytest.mark.parametrize("timeout", [10**400, 1e308])
def test_a_timeout_beyond_all_measure_is_a_day(timeout):
    @tool(timeout=0.05)
    async def patient(timeout: int | float) -> str:
        """A tool with a deadline of its own."""
        await asyncio.sleep(0.1)
        return "in time"

    assert call_once(patient, LimitTime(), timeout=timeout).for_llm == "in time"


def test_an_isolated_tool_is_really_killed_with_its_children(tmp_path):
    mark = tmp_path / "pid"
    for seconds in longer(3):
        forked.spec = forked.spec.changed(timeout=seconds)
        result = call_once(forked, LimitTime(), Isolate(), path=str(mark))
        if mark.exists():
            break
    assert result.failure is not None
    assert result.failure.kind == "timeout"
    processes = mark.read_text().split()
    end = time.monotonic() + 60
    while any(map(runs, processes)) and time.monotonic() < end:
        pass
    assert len(processes) == 2
    assert not any(map(runs, processes))


def test_an_isolated_tool_answers_reports_and_may_print():
    executor = executor_of([isolated], Isolate())
    seen = events_of(executor)
    result = asyncio.run(executor.execute(ToolCall("isolated", {"word": "hello"}), Scope()))
    assert result.for_llm.startswith("hello from ")
    assert str(os.getpid()) not in result.for_llm
    assert any(isinstance(event, ToolProgress) for event in seen)


def test_an_isolated_tool_that_dies_is_a_failed_call():
    result = call_once(dies, Isolate())
    assert "exit code 7" in result.for_llm


def test_passing_failures_are_tried_again_and_others_are_not():
    tries: list = []

    @tool
    def flaky(passing: bool) -> str:
        """Fail twice."""
        tries.append(passing)
        if len(tries) < 3:
            raise ToolError("busy", passing=passing)
        return "done"

    step = Retry(attempts=3, first_pause=0.001)
    assert call_once(flaky, step, passing=False).is_error
    assert len(tries) == 1
    tries.clear()
    assert call_once(flaky, step, passing=True).for_llm == "done"
    assert len(tries) == 3


def test_retrying_is_bounded_and_cancellable():
    @tool
    def busy() -> str:
        """Always busy."""
        raise ToolError("busy", passing=True)

    assert call_once(busy, Retry(attempts=2, first_pause=0.001)).data["attempts"] == 2

    async def main() -> None:
        executor = executor_of([busy], Retry(attempts=9, first_pause=60))
        waiting = asyncio.Event()
        executor.activity.subscribe(lambda event: waiting.set(), ToolProgress)
        task = asyncio.create_task(executor.execute(ToolCall("busy"), Scope()))
        await waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_a_rate_waits_while_it_can_and_tells_when_it_cannot():
    @tool(rate=Rate(calls=2, seconds=0.2), timeout=5)
    async def limited() -> float:  # on the loop: a thread begins late on a busy machine
        """Limited."""
        return time.monotonic()

    @tool(rate=Rate(calls=1, seconds=60), timeout=1)
    def scarce() -> str:
        """Scarce."""
        return "yes"

    executor = executor_of([limited, scarce], LimitRate())

    async def main() -> list:
        return await executor.execute_all([ToolCall(n) for n in ("limited",) * 4 + ("scarce",) * 2], Scope())

    *times, first, second = asyncio.run(main())
    moments = sorted(float(result.for_llm) for result in times)
    assert moments[2] - moments[0] >= 0.15
    assert first.for_llm == "yes"
    assert second.failure.kind == "rate_limited"


def test_calls_of_a_run_are_counted_and_another_session_has_its_own():
    @tool(rate=Rate(max_calls=2))
    def twice() -> str:
        """Twice."""
        return "ok"

    executor = executor_of([twice], LimitRate())

    async def main(session: str) -> list:
        return [await executor.execute(ToolCall("twice"), Scope(session_id=session)) for _ in range(3)]

    assert [result.success for result in asyncio.run(main("a"))] == [True, True, False]
    assert asyncio.run(main("b"))[0].success
    executor.clear_state("a")
    assert asyncio.run(main("a"))[0].success


def test_waiting_for_a_person_is_not_the_tools_time():
    @tool(timeout=1, optional_permissions={"write"})
    async def careful(ctx: ToolContext) -> str:
        """Ask in the middle."""
        await ctx.require("write", "a.txt")
        return "allowed"

    async def slow_person(request: PermissionRequest) -> Answer:
        await asyncio.sleep(1.2)
        return Answer.ONCE

    executor = standard_executor([careful], approve=slow_person)
    assert asyncio.run(executor.execute(ToolCall("careful"), Scope())).for_llm == "allowed"
