"""Every call ends in exactly one result, whatever the tool, the steps or the caller do."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import threading
import time
import warnings
from contextvars import ContextVar
from itertools import count
from typing import Any

import pytest

from forge.core.activity import ActivityStream
from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.events import ToolFailed, ToolFinished, ToolOutput
from forge.core.execution.chain import StepObject
from forge.core.execution.deadline import Deadline
from forge.core.executor import ToolExecutor
from forge.core.messages import ToolCall
from forge.core.registry import ToolRegistry
from forge.core.result import ToolResult
from forge.core.secrets import Secrets
from forge.core.tool import Tool, tool
from forge.pipeline.limit_calls import LimitTime
from tests.core.calling import SCOPE, Heard, at_most, call, execute, executor, within


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


class Escape(BaseException):
    """Not even an Exception."""


def recursion() -> None:
    recursion()


RAISED: dict[str, Any] = {
    "SystemExit": SystemExit(3),
    "KeyboardInterrupt": KeyboardInterrupt(),
    "GeneratorExit": GeneratorExit(),
    "StopIteration": StopIteration("x"),
    "StopAsyncIteration": StopAsyncIteration(),
    "CancelledError": asyncio.CancelledError(),
    "MemoryError": MemoryError(),
    "ValueError": ValueError("odd"),
    "an unprintable one": Unprintable(),
    "a group": ExceptionGroup("many", [ValueError("a"), TypeError("b")]),
    "a base exception": Escape("out"),
    "a base group": BaseExceptionGroup("many", [SystemExit(), ValueError("a")]),
}


def kinds_of_tools(work: Any) -> dict[str, Tool]:
    """The same misbehaviour in a tool of every kind."""

    def plain() -> str:
        """Misbehave."""
        return work()

    async def asynchronous() -> str:
        """Misbehave."""
        return work()

    async def suspended() -> str:
        """Misbehave."""
        await asyncio.sleep(0)
        return work()

    def generator():
        """Misbehave."""
        yield "first"
        yield work()

    async def async_generator():
        """Misbehave."""
        yield "first"
        yield work()

    tools: list[Tool] = [tool(made) for made in (plain, asynchronous, suspended, generator, async_generator)]
    tools.append(Tool.from_schema("raw", "Misbehave.", {}, plain))
    return {made.spec.name: made for made in tools}


KINDS = sorted(kinds_of_tools(None))


@pytest.mark.parametrize("error", RAISED.values(), ids=RAISED)
@pytest.mark.parametrize("kind", KINDS)
def test_whatever_a_tool_raises_is_its_failed_result(kind, error):
    def work():
        raise error

    heard = Heard()
    made = kinds_of_tools(work)[kind]
    result = call(made, heard=heard)
    assert result.failure is not None
    assert result.for_llm.startswith(f"{made.spec.name}(): ")
    assert "Traceback" not in result.for_llm
    assert heard.balanced
    assert heard.names[-2:] == ["error", "tool_call_end"]
    json.dumps(result.to_dict())


@pytest.mark.parametrize("kind", KINDS)
def test_endless_recursion_is_a_failed_result(kind):
    result = call(kinds_of_tools(recursion)[kind])
    assert result.failure is not None
    assert "RecursionError" in result.for_llm


def test_an_unexpected_exception_is_named_with_its_message():
    def odd(text: str) -> str:
        """Be odd."""
        raise ValueError(f"odd {text}")

    result = call(odd, {"text": "a"})
    assert result.for_llm == 'odd(text="a"): ValueError: odd a'
    assert result.failure is not None
    assert result.failure.kind is ErrorKind.SYSTEM
    assert isinstance(result.failure.cause, ValueError)


def test_a_tool_error_reaches_the_model_as_written():
    def refuses() -> str:
        """Refuse."""
        raise ToolError("the file is locked", "user_error", "Close it first.")

    result = call(refuses)
    assert result.for_llm == "refuses(): the file is locked\nClose it first."
    assert result.failure is not None
    assert (result.failure.kind, result.failure.suggestion) == ("user_error", "Close it first.")


@pytest.mark.parametrize("error", [ValueError("inner words"), TimeoutError("inner words"), SystemExit("inner words")])
def test_a_tool_may_keep_its_errors_to_itself_and_the_log(error, caplog):
    @tool(expose_errors=False)
    def private() -> str:
        """Be private."""
        raise error

    heard = Heard()
    result = call(private, heard=heard)
    wire = json.dumps([result.to_dict(), *(event.to_dict() for event in heard)])
    assert "inner words" not in wire
    assert result.failure is not None
    log_id = result.failure.message.split()[-1]
    assert any(log_id in record.getMessage() and "inner words" in record.getMessage() for record in caplog.records)


def test_a_tool_that_keeps_its_errors_still_says_what_it_wants_to_say():
    @tool(expose_errors=False)
    def private(x: int) -> str:
        """Be private."""
        raise ToolError("the file is locked")

    assert "the file is locked" in call(private, {"x": 1}).for_llm
    assert "x: expected integer" in call(private, {"x": "a"}).for_llm


def test_background_work_of_such_a_tool_keeps_its_errors_too():
    @tool(expose_errors=False)
    async def private(ctx: ToolContext) -> ToolResult:
        """Be private."""

        async def work():
            raise ValueError("inner words")

        return ctx.background(work(), "begun")

    async def main() -> list[Any]:
        heard = Heard()
        runs = executor(private, heard=heard)
        await runs.execute(ToolCall("private"), SCOPE)
        assert await runs.background.settled(5)
        return [event.to_dict() for event in heard]

    wire = json.dumps(asyncio.run(main()))
    assert "tool_completed" in wire
    assert "inner words" not in wire


RETURNED: dict[str, Any] = {
    "None": (None, "Done."),
    "text": ("fine", "fine"),
    "a number": (5, "5"),
    "bytes": (b"\x00\xff", "[application/octet-stream, 2 bytes]"),
    "an object": ({"a": 1}, '{"a":1}'),
}


@pytest.mark.parametrize(("value", "text"), RETURNED.values(), ids=RETURNED)
@pytest.mark.parametrize("kind", ["plain", "asynchronous", "suspended", "raw"])
def test_whatever_a_tool_returns_is_its_result(kind, value, text):
    assert call(kinds_of_tools(lambda: value)[kind]).for_llm == text


def test_hostile_values_are_results_too():
    cycle: list[Any] = []
    cycle.append(cycle)
    for value in (cycle, float("nan"), "\ud800", 10**10_000):
        heard = Heard()
        result = call(kinds_of_tools(lambda value=value: value)["asynchronous"], heard=heard)
        assert result.success
        json.dumps([event.to_dict() for event in heard], allow_nan=False).encode()


@pytest.mark.parametrize("kind", ["plain", "asynchronous"])
def test_two_hundred_megabytes_are_a_result(kind):
    text = "x" * 200_000_000
    with at_most(5.0):
        assert len(call(kinds_of_tools(lambda: text)[kind]).for_llm) == 200_000_000
        result = call(kinds_of_tools(lambda: text.encode())[kind])
    assert len(result.attachments[0].data) == 200_000_000
    assert len(result.for_llm) < 100


async def test_a_tool_that_never_returns_is_left_at_its_deadline():
    async def hangs() -> str:
        """Hang."""
        await asyncio.Event().wait()
        return ""

    heard = Heard()
    with at_most(1.5):
        result = await execute(hangs, steps=[within(0.05)], heard=heard)
    assert result.failure is not None
    assert result.failure.kind == "timeout"
    assert heard.balanced


async def test_a_tool_that_ignores_cancellation_is_abandoned():
    attempts: list[int] = []

    async def stubborn() -> str:
        """Ignore everything."""
        while len(attempts) < 50:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                attempts.append(1)
        return "I won"

    heard = Heard()
    with at_most(1.5):
        result = await execute(stubborn, steps=[within(0.05, grace=0.05)], heard=heard)
    assert result.failure is not None
    assert result.failure.kind == "timeout"
    assert heard.balanced
    assert 1 <= len(attempts) <= 3
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_tool_that_blocks_in_a_thread_is_left_there_and_can_see_it():
    release, saw = threading.Event(), threading.Event()

    def blocks(ctx: ToolContext) -> str:
        """Block."""
        release.wait(30)
        if ctx.cancelled:
            saw.set()
        return ""

    with at_most(1.5):
        result = await execute(blocks, steps=[within(0.05)])
    assert result.failure is not None
    assert result.failure.kind == "timeout"
    release.set()
    assert await asyncio.to_thread(saw.wait, 5)


async def test_a_thousand_calls_at_once():
    async def adds(number: int) -> int:
        """Add one."""
        await asyncio.sleep(0)
        return number + 1

    heard = Heard()
    runs = executor(adds, heard=heard)
    with at_most(5.0):
        results = await asyncio.gather(
            *(runs.execute(ToolCall("adds", {"number": n}, f"c{n}"), SCOPE) for n in range(1_000))
        )
    assert [result.for_llm for result in results] == [str(n + 1) for n in range(1_000)]
    assert heard.balanced
    assert [event.seq for event in heard] == list(range(1, 2_001))


async def test_a_thousand_plain_calls_at_once():
    def adds(number: int) -> int:
        """Add one."""
        return number + 1

    runs = executor(adds)
    with at_most(5.0):
        results = await runs.execute_all([ToolCall("adds", {"number": n}) for n in range(1_000)], SCOPE)
    assert [result.for_llm for result in results] == [str(n + 1) for n in range(1_000)]


async def test_two_hundred_hung_tools_keep_nobody_from_being_answered():
    release = threading.Event()
    hung = threading.Semaphore(0)

    def hangs() -> str:
        """Hang."""
        hung.release()
        release.wait(60)
        return "released"

    def quick() -> str:
        """Be quick."""
        return "quick"

    runs = executor(hangs, quick)
    tasks = [asyncio.create_task(runs.execute(ToolCall("hangs"), SCOPE)) for _ in range(200)]
    try:
        for _ in range(200):
            assert await asyncio.to_thread(hung.acquire, timeout=60)
        with at_most(1.0):
            assert (await runs.execute(ToolCall("quick"), SCOPE)).for_llm == "quick"
    finally:
        release.set()
    assert {result.for_llm for result in await asyncio.gather(*tasks)} == {"released"}


async def test_plain_tools_run_side_by_side():
    together = threading.Barrier(50)

    def meets() -> str:
        """Meet the others."""
        together.wait(60)
        return "met"

    runs = executor(meets)
    results = await runs.execute_all([ToolCall("meets")] * 50, SCOPE)
    assert {result.for_llm for result in results} == {"met"}


async def test_a_slow_plain_tool_does_not_hold_up_the_loop():
    entered, release = threading.Event(), threading.Event()

    def slow() -> str:
        """Be slow."""
        entered.set()
        release.wait(20)
        return "slow"

    async def quick() -> str:
        """Be quick, and let the other go."""
        release.set()
        return "quick"

    runs = executor(slow, quick)
    first = asyncio.create_task(runs.execute(ToolCall("slow"), SCOPE))
    assert await asyncio.to_thread(entered.wait, 10)
    assert (await runs.execute(ToolCall("quick"), SCOPE)).for_llm == "quick"
    assert (await first).for_llm == "slow"


@pytest.mark.parametrize("listening", [False, True])
async def test_a_call_can_be_cancelled_from_outside(listening):
    entered = asyncio.Event()
    cleaned = []

    async def waits() -> str:
        """Wait."""
        try:
            entered.set()
            await asyncio.Event().wait()
        finally:
            cleaned.append(True)
        return ""

    heard = Heard()
    runs = executor(waits, heard=heard if listening else None)
    task = asyncio.create_task(runs.execute(ToolCall("waits"), SCOPE))
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned == [True]
    if listening:
        assert heard.balanced
        (failed,) = heard.of(ToolFailed)
        assert failed.error_type == "cancelled"
        (finished,) = heard.of(ToolFinished)
        assert finished.success is False


async def test_cancelling_a_call_in_a_thread_returns_at_once_and_the_thread_sees_it():
    entered, release, saw = threading.Event(), threading.Event(), threading.Event()

    def waits(ctx: ToolContext) -> str:
        """Wait."""
        entered.set()
        release.wait(20)
        if ctx.cancelled:
            saw.set()
        return ""

    heard = Heard()
    runs = executor(waits, heard=heard)
    task = asyncio.create_task(runs.execute(ToolCall("waits"), SCOPE))
    assert await asyncio.to_thread(entered.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert heard.balanced
    release.set()
    assert await asyncio.to_thread(saw.wait, 5)


async def test_a_cancellation_from_outside_passes_a_tool_that_ignores_it():
    entered = asyncio.Event()

    async def stubborn() -> str:
        """Ignore it."""
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass
        return "never mind"

    heard = Heard()
    runs = executor(stubborn, steps=[within(30)], heard=heard)
    task = asyncio.create_task(runs.execute(ToolCall("stubborn"), SCOPE))
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert heard.balanced


async def test_cancelling_a_turn_ends_all_its_calls():
    entered = asyncio.Semaphore(0)

    async def waits() -> str:
        """Wait."""
        entered.release()
        await asyncio.Event().wait()
        return ""

    heard = Heard()
    runs = executor(waits, heard=heard)
    calls = [ToolCall("waits") for _ in range(5)]
    turn = asyncio.create_task(runs.execute_all(calls, SCOPE))
    for _ in range(5):
        await entered.acquire()
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    assert len(heard.of(ToolFinished)) == 5
    assert heard.balanced


async def test_a_timeout_of_asyncio_around_a_call_works():
    async def waits() -> str:
        """Wait."""
        await asyncio.Event().wait()
        return ""

    heard = Heard()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await execute(waits, steps=[within(30)], heard=heard)
    assert heard.balanced


async def test_a_tool_may_use_groups_of_tasks_that_fail():
    async def copes() -> str:
        """Cope with a failing group."""

        async def fails() -> None:
            await asyncio.sleep(0)
            raise ValueError("odd")

        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(fails())
                tasks.create_task(asyncio.Event().wait())
        except* ValueError:
            pass
        await asyncio.sleep(0)
        return "coped"

    async def cancels_itself() -> str:
        """Give up."""
        raise asyncio.CancelledError

    runs = executor(copes, cancels_itself, steps=[within(5)])
    assert (await runs.execute(ToolCall("copes"), SCOPE)).for_llm == "coped"
    assert (await runs.execute(ToolCall("cancels_itself"), SCOPE)).is_error


def recorder(**options: Any) -> tuple[list[str], Tool]:
    """A tool that notes when it begins and ends."""
    notes: list[str] = []

    async def notes_down(label: str) -> str:
        """Note."""
        notes.append(f"+{label}")
        for _ in range(3):
            await asyncio.sleep(0)
        notes.append(f"-{label}")
        return label

    return notes, tool(**options)(notes_down)


def noting(*labels: str, name: str = "notes_down") -> list[ToolCall]:
    return [ToolCall(name, {"label": label}) for label in labels]


async def test_calls_of_a_turn_run_side_by_side_and_their_results_keep_the_order():
    notes, made = recorder()
    results = await executor(made).execute_all(noting("a", "b", "c"), SCOPE)
    assert [result.for_llm for result in results] == ["a", "b", "c"]
    assert notes[:3] == ["+a", "+b", "+c"]


async def test_results_keep_the_order_even_if_the_last_is_first():
    first = asyncio.Event()

    async def waits(label: str) -> str:
        """Wait for the other."""
        if label == "a":
            await first.wait()
        else:
            first.set()
        return label

    results = await executor(waits).execute_all(noting("a", "b", name="waits"), SCOPE)
    assert [result.for_llm for result in results] == ["a", "b"]


async def test_a_tool_that_is_not_parallel_runs_alone():
    notes, shared = recorder()

    @tool(parallel=False)
    async def alone(label: str) -> str:
        """Run alone."""
        notes.append(f"+{label}")
        await asyncio.sleep(0)
        notes.append(f"-{label}")
        return label

    calls = [*noting("a", "b"), *noting("X", name="alone"), *noting("Y", name="alone"), *noting("c", "d")]
    results = await executor(shared, alone).execute_all(calls, SCOPE)
    assert [result.for_llm for result in results] == ["a", "b", "X", "Y", "c", "d"]
    assert notes[4:8] == ["+X", "-X", "+Y", "-Y"]
    assert set(notes[:4]) == {"+a", "+b", "-a", "-b"}
    assert set(notes[8:]) == {"+c", "+d", "-c", "-d"}


async def test_what_ends_the_turn_runs_last():
    notes, shared = recorder()

    @tool(ends_turn=True)
    async def ends(label: str) -> str:
        """End."""
        notes.append(f"+{label}")
        return label

    @tool(parallel=False)
    async def alone(label: str) -> str:
        """Run alone."""
        notes.append(f"+{label}")
        return label

    calls = [*noting("END", name="ends"), *noting("a"), *noting("X", name="alone"), *noting("b")]
    results = await executor(shared, ends, alone).execute_all(calls, SCOPE)
    assert [result.for_llm for result in results] == ["END", "a", "X", "b"]
    assert notes[-1] == "+END"


async def test_every_call_of_a_turn_has_its_result_whatever_becomes_of_the_others():
    def fails() -> str:
        """Fail."""
        raise SystemExit

    async def works() -> str:
        """Work."""
        await asyncio.sleep(0)
        return "worked"

    heard = Heard()
    calls = [
        ToolCall("works"),
        ToolCall("fails"),
        ToolCall("no___such"),
        ToolCall("works", "{broken"),
        ToolCall("works"),
    ]
    results = await executor(fails, works, heard=heard).execute_all(calls, SCOPE)
    assert [result.success for result in results] == [True, False, False, False, True]
    assert heard.balanced


async def test_no_calls_have_no_results():
    assert await executor().execute_all([], SCOPE) == []


def test_steps_go_down_and_up_in_their_order():
    notes = []

    def step(name: str):
        async def run(ctx, proceed):
            notes.append(f"down {name}")
            result = await proceed(ctx)
            notes.append(f"up {name}")
            return result

        return run

    def works() -> str:
        """Work."""
        notes.append("work")
        return "worked"

    call(works, steps=[step("1"), step("2")])
    assert notes == ["down 1", "down 2", "work", "up 2", "up 1"]


@tool
async def three() -> int:
    """Return 3."""
    return 3


def test_steps_that_only_look_at_the_result_keep_their_place_among_the_others():
    seen: list[str] = []

    def marks(name: str, *, waits: bool = False, **attributes: Any) -> Any:
        async def later(result: ToolResult) -> ToolResult:
            await asyncio.sleep(0)
            return ToolResult.text(f"{result.for_llm} {name}")

        def look(ctx: ToolContext, result: ToolResult) -> Any:
            seen.append(name)
            return later(result) if waits else ToolResult.text(f"{result.for_llm} {name}")

        return Looks(look, **attributes)

    async def between(ctx: ToolContext, proceed: Any) -> ToolResult:
        seen.append("down")
        result: ToolResult = await proceed(ctx)
        return ToolResult.text(f"{result.for_llm} between")

    steps = [marks("d"), marks("c", waits=True), between, marks("b"), marks("a")]
    result = call(three, steps=steps)
    assert result.for_llm == "3 a b between c d"
    assert seen == ["down", "a", "b", "c", "d"]


@tool
async def late_three() -> int:
    """Return 3, later."""
    await asyncio.sleep(0)
    return 3


class Looks(StepObject):
    """A step that only looks at results."""

    name = "looks"

    def __init__(self, look: Any) -> None:
        self.after = look


@pytest.mark.parametrize("chosen", [three, late_three])
def test_steps_around_and_after_keep_their_place_whether_the_tool_waits_or_not(chosen):
    seen: list[str] = []

    def around(name: str) -> Any:
        async def step(ctx: ToolContext, proceed: Any) -> ToolResult:
            seen.append(name)
            return ToolResult.text(f"{(await proceed(ctx)).for_llm} {name}")

        return step

    async def later(result: ToolResult) -> ToolResult:
        await asyncio.sleep(0)
        return ToolResult.text(f"{result.for_llm} later")

    looks = Looks(lambda ctx, result: ToolResult.text(f"{result.for_llm} look"))
    waits = Looks(lambda ctx, result: later(result))
    steps = [around("d"), waits, looks, around("c"), around("b"), looks, around("a")]
    assert call(chosen, steps=steps).for_llm == "3 a look b c look later d"
    assert seen == ["d", "c", "b", "a"]


def test_nothing_runs_before_a_step_awaits_what_proceed_returns():
    seen: list[str] = []

    def notes(ctx: ToolContext, proceed: Any) -> Any:
        seen.append("inside")
        return proceed(ctx)

    async def closes(ctx: ToolContext, proceed: Any) -> ToolResult:
        proceed(ctx).close()
        assert seen == []
        return await asyncio.create_task(proceed(ctx))

    looks = Looks(lambda ctx, result: result)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a coroutine that is never awaited, too
        assert call(three, steps=[closes, looks, notes]).for_llm == "3"
        gc.collect()
    assert seen == ["inside"]


@pytest.mark.parametrize("chosen", [three, late_three])
@pytest.mark.parametrize("around", [[], [LimitTime()], [LimitTime(), LimitTime()]])
def test_a_step_that_forgets_its_result_is_named(chosen, around):
    async def forgets(ctx: ToolContext, proceed: Any) -> None:
        await proceed(ctx)

    result = call(chosen, steps=[*around, forgets])
    assert "the step forgets returned NoneType instead of a ToolResult" in result.for_llm


def test_a_step_that_is_listed_twice_looks_twice_when_it_waits():
    times = count(1)

    async def later(result: ToolResult) -> ToolResult:
        await asyncio.sleep(0)
        return ToolResult.text(f"{result.for_llm} later")

    def look(ctx: ToolContext, result: ToolResult) -> Any:
        return later(result) if next(times) == 2 else ToolResult.text(f"{result.for_llm} once")

    twice = Looks(look)
    other = Looks(lambda ctx, result: ToolResult.text(f"{result.for_llm} other"))
    assert call(three, steps=[twice, other, twice]).for_llm == "3 once other later"


def test_a_result_is_withheld_where_a_step_that_looks_at_it_fails():
    def broken(ctx: ToolContext, result: ToolResult) -> ToolResult:
        raise ValueError("a broken look")

    def screened(ctx: ToolContext, result: ToolResult) -> ToolResult:
        return ToolResult.text(f"screened: {result.for_llm}")

    result = call(three, steps=[Looks(screened), Looks(broken)])
    assert result.for_llm.startswith("screened: three: its result is withheld")
    assert "a broken look" in result.for_llm
    assert call(three, steps=[Looks(screened)]).for_llm == "screened: 3"


def test_a_step_may_answer_itself_or_change_the_result():
    async def answers(ctx, proceed):
        return ToolResult.text("answered")

    async def shouts(ctx, proceed):
        result = await proceed(ctx)
        return ToolResult.text(result.for_llm.upper())

    def works() -> str:
        """Work."""
        return "worked"

    assert call(works, steps=[answers]).for_llm == "answered"
    assert call(works, steps=[shouts]).for_llm == "WORKED"
    assert call(works, steps=[shouts, answers]).for_llm == "ANSWERED"


def test_a_step_that_does_not_apply_is_not_in_the_way():
    notes = []

    class Writes(StepObject):
        def applies(self, spec):
            return "write" in spec.permissions

        async def __call__(self, ctx, proceed):
            notes.append(ctx.spec.name)
            return await proceed(ctx)

    step = Writes()

    def reads() -> str:
        """Read."""
        return ""

    @tool(permissions={"write"})
    def writes() -> str:
        """Write."""
        return ""

    call(reads, steps=[step])
    call(writes, steps=[step])
    assert notes == ["writes"]


def test_steps_and_tools_only_ever_see_valid_arguments():
    seen = []

    async def step(ctx, proceed):
        seen.append(ctx.arguments)
        return await proceed(ctx)

    def takes(x: int) -> str:
        """Take."""
        return str(x)

    assert call(takes, {"x": "no"}, steps=[step]).is_error
    assert call(takes, "{broken", steps=[step]).is_error
    assert seen == []
    assert call(takes, {"x": "5"}, steps=[step]).for_llm == "5"
    assert seen == [{"x": 5}]


def works() -> str:
    """Work."""
    return "worked"


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(), Escape(), GeneratorExit(), Unprintable()])
@pytest.mark.parametrize("listening", [False, True])
def test_a_step_that_fails_is_a_failed_call(error, listening):
    async def step(ctx, proceed):
        raise error

    heard = Heard()
    result = call(works, steps=[step], heard=heard if listening else None)
    assert result.is_error
    assert heard.balanced


@pytest.mark.parametrize("listening", [False, True])
def test_a_step_that_forgets_its_result_is_a_failed_call(listening):
    async def step(ctx, proceed):
        await proceed(ctx)

    heard = Heard()
    runs = executor(works, steps=[step], heard=heard if listening else None)
    results = asyncio.run(runs.execute_all([ToolCall("works"), ToolCall("works")], SCOPE))
    assert [result.is_error for result in results] == [True, True]
    assert heard.balanced


def test_a_tool_class_that_forgets_its_result_is_a_failed_call():
    class Forgets(Tool):
        """Forget."""

        def run(self) -> str:
            return ""

        async def invoke(self, arguments: Any, ctx: ToolContext) -> ToolResult:
            return None  # type: ignore[return-value]

    heard = Heard()
    assert call(Forgets(), heard=heard).is_error
    assert heard.balanced


def test_arguments_that_break_a_validator_of_the_tools_own_are_a_failed_call():
    class Picky(Tool):
        """Be picky."""

        def run(self) -> str:
            return ""

        def parse(self, arguments: Any) -> dict[str, Any]:
            raise SystemExit("no")

    heard = Heard()
    assert call(Picky(), heard=heard).is_error
    assert heard.balanced


def test_a_step_that_looks_sees_every_refusal_wherever_it_stands():
    seen = []

    def look(ctx, result):
        seen.append(result.is_error)
        return result

    async def refuses(ctx, proceed):
        raise ToolError("not today")

    def takes(x: int) -> str:
        """Take."""
        return str(x)

    call(takes, {"x": 1}, steps=[Looks(look)])
    call(takes, {"x": "no"}, steps=[Looks(look)])
    call(takes, {"x": 1}, steps=[refuses, Looks(look)])
    call(takes, {"x": 1}, steps=[Looks(look), refuses])
    assert seen == [False, True, True, True]


def test_a_step_around_calls_looks_at_what_never_reached_it():
    seen: list[str] = []

    class Both(StepObject):
        name = "both"

        async def __call__(self, ctx, proceed):
            seen.append("around")
            return await proceed(ctx)

        def after(self, ctx, result):
            seen.append("after")
            return result

    def takes(x: int) -> str:
        """Take."""
        return str(x)

    call(takes, {"x": 1}, steps=[Both()])
    assert seen == ["around"]
    call(takes, {"x": "no"}, steps=[Both()])
    assert seen == ["around", "after"]


def test_a_looking_step_that_fails_does_not_lose_the_refusal():
    def broken(ctx, result):
        raise ValueError("screen broke")

    heard = Heard()

    def takes(x: int) -> str:
        """Take."""
        return str(x)

    assert call(takes, {"x": "no"}, steps=[Looks(broken)], heard=heard).is_error
    assert heard.balanced


def test_what_is_no_step_is_refused_with_what_a_step_is():
    class Unrelated:
        """Its `after` would never be called: it may be what masks results."""

        async def __call__(self, ctx, proceed):
            return await proceed(ctx)

        def after(self, ctx, result):
            return result

    class Empty(StepObject):
        pass

    class Whole(StepObject, Unrelated):
        after = Unrelated.after

    with pytest.raises(TypeError, match="is no step: pass a function"):
        executor(three, steps=[object()])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="or an object of a subclass of StepObject"):
        executor(three, steps=[Unrelated()])
    with pytest.raises(TypeError, match="is no step: define"):
        executor(three, steps=[Empty()])
    assert call(three, steps=[Whole()]).for_llm == "3"


def test_forgetting_reaches_the_steps_that_remember():
    class Remembers(Looks):
        def __init__(self) -> None:
            super().__init__(lambda ctx, result: result)
            self.forgotten: list[str] = []

        def forget(self, session_id: str) -> None:
            self.forgotten.append(session_id)

    async def forgets(ctx, proceed):
        return await proceed(ctx)

    remembers = Remembers()
    runs = executor(works, steps=[forgets, remembers])
    runs.clear_state("s")
    runs.clear_state()
    assert remembers.forgotten == ["s", ""]


def test_start_end_failure_and_background_are_logged_with_durations(caplog):
    caplog.set_level(logging.DEBUG, "forge")

    def fails() -> str:
        """Fail."""
        raise ValueError("odd")

    async def goes_on(ctx: ToolContext) -> ToolResult:
        """Go on."""

        async def work() -> str:
            return "done"

        return ctx.background(work(), "begun")

    async def main() -> None:
        runs = executor(works, fails, goes_on)
        for name in ("works", "fails", "goes_on"):
            await runs.execute(ToolCall(name), SCOPE)
        assert await runs.background.settled(5)

    asyncio.run(main())
    text = caplog.text
    assert "works started" in text
    for name in ("works", "goes_on"):
        assert any(name in line and " s" in line and "finished" in line for line in text.splitlines())
    assert any("fails" in line and "odd" in line and " s" in line for line in text.splitlines())
    assert "goes_on continues in the background" in text
    assert "goes_on completed in the background" in text


@pytest.mark.parametrize("expose", [True, False])
def test_secrets_stay_out_of_the_log(caplog, expose):
    caplog.set_level(logging.DEBUG, "forge")
    secret = "correct-horse-battery"

    @tool(expose_errors=expose)
    def leaks(key: str) -> str:
        """Leak."""
        raise ValueError(f"refused {key} and sk-abcdefghijklmnopqrstuvwx")

    runs = ToolExecutor(ToolRegistry([leaks]), [], secrets=Secrets([secret]))
    asyncio.run(runs.execute(ToolCall("leaks", {"key": secret}), SCOPE))
    assert "ValueError" in caplog.text
    assert secret not in caplog.text
    assert "sk-abcdefghijklmnopqrstuvwx" not in caplog.text


def test_an_executor_serves_one_event_loop_after_another():
    heard = Heard()

    def threaded(ctx: ToolContext) -> str:
        """Talk from a thread."""
        ctx.output("piece")
        return "done"

    runs = executor(threaded, heard=heard)
    for _ in range(3):
        assert asyncio.run(runs.execute(ToolCall("threaded"), SCOPE)).for_llm == "done"
    assert heard.names == ["tool_call_start", "tool_output_chunk", "tool_call_end"] * 3


def test_context_variables_reach_a_plain_tool():
    user: ContextVar[str] = ContextVar("user", default="nobody")

    def who() -> str:
        """Who is it?"""
        return user.get()

    async def main(name: str) -> str:
        user.set(name)
        return (await execute(who)).for_llm

    async def both() -> list[str]:
        return list(await asyncio.gather(main("ada"), main("bob")))

    assert asyncio.run(both()) == ["ada", "bob"]


def test_two_loops_in_two_threads_may_use_one_executor():
    def plain(number: int) -> int:
        """Add one."""
        return number + 1

    runs = executor(plain)
    got: list[str] = []

    def loop() -> None:
        async def main() -> None:
            results = await runs.execute_all([ToolCall("plain", {"number": 1}) for _ in range(50)], SCOPE)
            got.extend(result.for_llm for result in results)

        asyncio.run(main())

    threads = [threading.Thread(target=loop) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert got == ["2"] * 150


async def test_nobody_listening_costs_no_events():
    activity = ActivityStream()
    runs = ToolExecutor(ToolRegistry([works]), [], activity)
    await runs.execute(ToolCall("works"), SCOPE)
    heard = Heard()
    activity.subscribe(heard)
    await runs.execute(ToolCall("works"), SCOPE)
    assert heard.names == ["tool_call_start", "tool_call_end"]
    assert heard[0].seq == 1


async def test_a_listener_that_comes_during_a_call_hears_no_end_without_a_start():
    activity = ActivityStream()
    heard = Heard()

    async def lets_in(ctx: ToolContext) -> str:
        """Let a listener in."""
        activity.subscribe(heard)
        ctx.output("now")
        return ""

    await ToolExecutor(ToolRegistry([lets_in]), [], activity).execute(ToolCall("lets_in"), SCOPE)
    assert not heard.of(ToolFinished)
    assert all(isinstance(event, ToolOutput) for event in heard)


async def test_the_end_event_tells_how_long_it_took():
    heard = Heard()
    entered = time.perf_counter()
    await execute(works, heard=heard)
    (finished,) = heard.of(ToolFinished)
    assert 0 < finished.seconds < time.perf_counter() - entered


class _BadKey:
    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


@pytest.mark.parametrize("odd", [ToolCall([], {}), ToolCall("works", {_BadKey(): 1}), ToolCall({}, None)])  # type: ignore[arg-type, dict-item]
@pytest.mark.parametrize("listening", [True, False])
async def test_a_call_that_is_no_call_is_a_failed_result(odd, listening):
    runs = executor(works)
    if listening:
        runs.activity.subscribe(lambda event: None)
    assert (await runs.execute(odd, SCOPE)).is_error
    assert (await runs.execute_all([odd, ToolCall("works")], SCOPE))[1].success


async def test_a_generator_that_never_waits_still_ends_at_its_deadline():
    async def floods():
        """Flood."""
        while True:
            yield "x"

    async def step(ctx, proceed):
        return await Deadline(proceed(ctx), 0.1)

    runs = ToolExecutor(ToolRegistry([floods]), [step])
    with at_most(5.0):
        assert (await runs.execute(ToolCall("floods"), SCOPE)).is_error


async def test_a_thread_that_floods_its_listeners_does_not_hold_up_the_loop():
    @tool
    def floods(ctx: ToolContext) -> str:
        """Flood."""
        while not ctx.cancelled:
            ctx.output("x" * 1_000)
        return "stopped"

    async def step(ctx, proceed):
        return await Deadline(proceed(ctx), 0.2)

    runs = ToolExecutor(ToolRegistry([floods]), [step])
    runs.activity.subscribe(lambda event: event.to_dict())
    with at_most(5.0):
        assert (await runs.execute(ToolCall("floods"), SCOPE)).is_error
