"""Work that goes on after a tool returned: its result arrives once."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from dataclasses import replace
from typing import Any

import pytest

from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.events import ToolCompleted
from forge.core.execution.chain import StepObject
from forge.core.executor import ToolExecutor
from forge.core.messages import ToolCall
from forge.core.result import ToolResult
from forge.core.tool import Tool, tool
from forge.pipeline.limit_calls import Retry
from tests.core.calling import SCOPE, Heard, at_most, executor


class Escape(BaseException):
    pass


def going_on(work: Any) -> Tool:
    @tool
    async def goes_on(ctx: ToolContext) -> ToolResult:
        """Go on in the background."""
        return ctx.background(work, "begun")

    return goes_on


async def completed(runs: ToolExecutor, heard: Heard, times: int = 1) -> list[ToolResult]:
    """Run the only tool and wait for its background work."""
    (name,) = runs.registry
    for _ in range(times):
        begun = await runs.execute(ToolCall(name), SCOPE)
        assert begun.pending, begun.for_llm
    assert await runs.background.settled(10)
    return [event.result for event in heard.of(ToolCompleted)]


async def test_the_call_returns_at_once_and_the_result_follows():
    release = asyncio.Event()

    async def work() -> str:
        await release.wait()
        return "finished"

    heard = Heard()
    runs = executor(going_on(work), heard=heard)
    begun = await runs.execute(ToolCall("goes_on", id="c"), SCOPE)
    assert begun.pending
    assert begun.for_llm == "begun"
    assert heard.names == ["tool_call_start", "tool_call_end"]
    release.set()
    assert await runs.background.settled(5)
    (event,) = heard.of(ToolCompleted)
    assert event.call.id == "c"
    assert event.session == "test"
    assert event.result.for_llm == "finished"


async def test_a_coroutine_will_do_as_well_as_a_function():
    async def work() -> str:
        return "finished"

    for given in (work, work()):
        heard = Heard()
        (result,) = await completed(executor(going_on(given), heard=heard), heard)
        assert result.for_llm == "finished"


async def test_a_plain_tool_may_leave_work_in_the_background_too():
    async def work() -> str:
        return "finished"

    @tool
    def goes_on(ctx: ToolContext) -> ToolResult:
        """Go on in the background."""
        return ctx.background(work, "begun")

    heard = Heard()
    (result,) = await completed(executor(goes_on, heard=heard), heard)
    assert result.for_llm == "finished"


async def test_a_plain_tool_may_hand_its_completion_to_another_thread():
    @tool
    def goes_on(ctx: ToolContext) -> ToolResult:
        """Go on in the background."""
        threading.Thread(target=ctx.completion(), args=("finished",)).start()
        return ToolResult.started("begun")

    heard = Heard()
    done = asyncio.Event()
    runs = executor(goes_on, heard=heard)
    runs.activity.subscribe(lambda _: done.set(), ToolCompleted)
    begun = await runs.execute(ToolCall("goes_on"), SCOPE)
    assert begun.pending, begun.for_llm
    await asyncio.wait_for(done.wait(), 60)
    assert [event.result.for_llm for event in heard.of(ToolCompleted)] == ["finished"]


@pytest.mark.parametrize(
    "error",
    [ValueError("odd"), SystemExit(1), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit(), Escape()],
    ids=lambda error: type(error).__name__,
)
async def test_background_work_that_fails_completes_once_with_a_failure(error):
    async def work() -> str:
        await asyncio.sleep(0)
        raise error

    heard = Heard()
    (result,) = await completed(executor(going_on(work), heard=heard), heard)
    assert result.is_error
    assert heard.balanced


async def test_what_is_no_work_is_a_failed_call():
    for nothing in (5, None, "text"):
        runs = executor(going_on(nothing))
        assert (await runs.execute(ToolCall("goes_on"), SCOPE)).is_error
    heard = Heard()
    (result,) = await completed(executor(going_on(lambda: 5), heard=heard), heard)
    assert result.is_error


class Tells(Tool):
    """Tell the end through a callback."""

    def __init__(self, tell: Any) -> None:
        self.tell = tell

    def set_callback(self, callback: Any) -> None:
        self.callback = callback

    async def run(self) -> ToolResult:
        self.tell(self.callback)
        return ToolResult.started("begun")


async def told(tell: Any) -> list[ToolResult]:
    heard = Heard()
    runs = executor(Tells(tell), heard=heard)
    first = asyncio.Event()
    runs.activity.subscribe(lambda _: first.set(), ToolCompleted)
    await runs.execute(ToolCall("tells"), SCOPE)
    await asyncio.wait_for(first.wait(), 60)
    assert await runs.background.settled(5)
    assert heard.balanced
    return [event.result for event in heard.of(ToolCompleted)]


async def test_only_the_first_word_counts():
    def tell(callback: Any) -> None:
        callback("first")
        callback("second")
        callback(ValueError("third"))

    assert [result.for_llm for result in await told(tell)] == ["first"]


async def test_a_hundred_threads_complete_it_once():
    together = threading.Barrier(100)
    threads: list[threading.Thread] = []

    def tell(callback: Any) -> None:
        def say(number: int) -> None:
            together.wait(60)
            callback(f"thread {number}")

        threads.extend(threading.Thread(target=say, args=(n,)) for n in range(100))
        for thread in threads:
            thread.start()

    results = await told(tell)
    for thread in threads:
        await asyncio.to_thread(thread.join, 10)
    await asyncio.sleep(0)
    assert len(results) == 1
    assert results[0].for_llm.startswith("thread ")


async def test_any_value_may_be_told():
    cycle: list[Any] = []
    cycle.append(cycle)
    for value in (None, cycle, b"x", {"a": 1}, ToolResult.error("no"), object()):
        (result,) = await told(lambda callback, value=value: callback(value))
        assert result.for_llm


async def test_an_exception_that_is_told_is_a_failure():
    (result,) = await told(lambda callback: callback(ValueError("odd")))
    assert result.is_error
    assert "odd" in result.for_llm


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(), KeyboardInterrupt(), Escape()])
async def test_a_listener_that_throws_on_completion_harms_nobody(error):
    def throws(event: Any) -> None:
        raise error

    async def work() -> str:
        return "finished"

    heard = Heard()
    runs = executor(going_on(work))
    runs.activity.subscribe(throws)
    runs.activity.subscribe(heard)
    results = await completed(runs, heard, times=3)
    assert [result.for_llm for result in results] == ["finished"] * 3


async def test_a_listener_may_call_the_tool_again_when_it_completes():
    count = 0

    async def work() -> str:
        return "finished"

    heard = Heard()
    runs = executor(going_on(work), heard=heard)
    tasks: list[Any] = []
    done = asyncio.Event()

    def again(event: ToolCompleted) -> None:
        nonlocal count
        count += 1
        if count < 5:
            tasks.append(asyncio.ensure_future(runs.execute(ToolCall("goes_on"), SCOPE)))
        else:
            done.set()

    runs.activity.subscribe(again, ToolCompleted)
    await runs.execute(ToolCall("goes_on"), SCOPE)
    await asyncio.wait_for(done.wait(), 60)
    assert await runs.background.settled(5)
    assert len(heard.of(ToolCompleted)) == 5


async def test_steps_that_look_see_what_comes_later():
    class Shouts(StepObject):
        name = "shouts"

        def after(self, ctx, result):
            return ToolResult(for_llm=result.for_llm.upper(), pending=result.pending)

    async def work() -> str:
        return "finished"

    heard = Heard()
    runs = executor(going_on(work), steps=[Shouts()], heard=heard)
    (result,) = await completed(runs, heard)
    assert result.for_llm == "FINISHED"


async def test_a_looking_step_that_fails_does_not_lose_the_completion():
    class Breaks(StepObject):
        name = "breaks"

        def after(self, ctx, result):
            if not result.pending:
                raise ValueError("screen broke")
            return result

    async def work() -> str:
        return "finished"

    heard = Heard()
    (result,) = await completed(executor(going_on(work), steps=[Breaks()], heard=heard), heard)
    assert result.is_error


async def test_open_work_can_be_cancelled_and_says_so():
    started = asyncio.Event()

    async def work() -> str:
        started.set()
        await asyncio.Event().wait()
        return ""

    heard = Heard()
    runs = executor(going_on(work), heard=heard)
    await runs.execute(ToolCall("goes_on"), SCOPE)
    await started.wait()
    assert await runs.background.settled(0.02) is False
    runs.background.cancel()
    assert await runs.background.settled(5)
    (event,) = heard.of(ToolCompleted)
    assert event.result.failure.kind == "cancelled"


async def test_nothing_under_way_is_settled_at_once():
    with at_most(1.0):
        assert await executor().background.settled()


async def test_the_call_may_be_over_long_before_its_work_is():
    release = asyncio.Event()

    async def work() -> str:
        await release.wait()
        return "late"

    heard = Heard()
    runs = executor(going_on(work), heard=heard)
    for _ in range(20):
        await runs.execute(ToolCall("goes_on"), SCOPE)
    runs.registry.remove("goes_on")
    release.set()
    assert await runs.background.settled(5)
    assert [event.result.for_llm for event in heard.of(ToolCompleted)] == ["late"] * 20


def test_a_word_after_the_loop_is_gone_does_no_harm():
    callbacks: list[Any] = []
    runs = executor(Tells(callbacks.append))
    asyncio.run(runs.execute(ToolCall("tells"), SCOPE))
    callbacks[0]("too late")
    thread = threading.Thread(target=callbacks[0], args=("much too late",))
    thread.start()
    thread.join(60)


async def test_a_tool_may_use_its_completion_from_any_task_or_thread():
    for where in ("task", "thread", "loop"):

        def tell(callback: Any, where: str = where) -> None:
            if where == "task":
                asyncio.get_running_loop().call_soon(callback, where)
            elif where == "thread":
                threading.Thread(target=callback, args=(where,)).start()
            else:
                callback(where)

        assert [result.for_llm for result in await told(tell)] == [where]


@pytest.mark.parametrize("when", ["before it ends", "after it ended"])
@pytest.mark.parametrize("is_pending", [True, False], ids=["pending", "another result"])
async def test_a_call_that_returns_another_result_needs_no_completion(when, is_pending):
    callbacks: list[Any] = []

    class Answers(Tells):
        """Return a result, and tell another one."""

        async def run(self) -> ToolResult:
            self.tell(self.callback)
            return ToolResult.started("begun") if is_pending else ToolResult.text("direct")

    heard = Heard()
    runs = executor(Answers(callbacks.append if when == "after it ended" else lambda tell: tell("told")), heard=heard)
    await runs.execute(ToolCall("answers", id="c"), SCOPE)
    for tell in callbacks:
        tell("told")
    await asyncio.sleep(0)  # what was told arrives through the loop
    assert await runs.background.settled(5)
    assert [event.result.for_llm for event in heard.of(ToolCompleted)] == (["told"] if is_pending else [])
    assert bool(tuple(runs.background.take_completed(SCOPE.session_id))) is is_pending


async def test_a_call_that_is_tried_again_reports_the_work_of_the_attempt_that_began_it():
    class Uploads(Tells):
        """Upload in the background, at the second attempt."""

        attempts = 0

        async def run(self) -> ToolResult:
            Uploads.attempts += 1
            if Uploads.attempts == 1:
                raise ToolError("the server is busy", ErrorKind.SYSTEM, passing=True)
            self.tell(self.callback)
            return ToolResult.started("begun")

    callbacks: list[Any] = []
    heard = Heard()
    runs = executor(Uploads(callbacks.append), steps=[Retry(first_pause=0.001)], heard=heard)
    assert (await runs.execute(ToolCall("uploads"), SCOPE)).pending
    gc.collect()  # no code holds the completion of the first attempt
    callbacks.pop()("uploaded")
    assert await runs.background.settled(5)
    assert [event.result.for_llm for event in heard.of(ToolCompleted)] == ["uploaded"]


def test_threads_may_add_work_while_another_loop_waits_for_its_own():
    runs = executor(going_on(None))
    is_over = threading.Event()
    held: list[Any] = []

    def offer(call: str) -> ToolContext:
        (one,) = runs.registry.values()
        ctx = ToolContext(ToolCall("goes_on", id=call), one, scope=replace(SCOPE, session_id=call))
        held.append(runs.background.completion(ctx))
        return ctx

    async def add() -> None:
        for number in range(300):
            offer(f"kept {number}")
        while not is_over.is_set():
            runs.background.end_call(offer("changes"), pending=False)
            held.pop()

    async def wait() -> None:
        for _ in range(500):
            assert await runs.background.settled(0)

    before = sys.getswitchinterval()
    thread = threading.Thread(target=lambda: asyncio.run(add()))
    try:
        sys.setswitchinterval(1e-5)
        thread.start()
        asyncio.run(wait())
    finally:
        is_over.set()
        thread.join(60)
        sys.setswitchinterval(before)
