"""The same read-only call twice in a turn is answered, not run again."""

import asyncio
import threading

import pytest

from forge import Scope, ToolCall, ToolError, tool
from forge.pipeline.repeated_calls import SkipRepeats
from tests.pipeline.calling import executor_of


@pytest.fixture
def world():
    runs: list = []

    @tool(permissions={"read"}, repeatable=False)
    async def read(path: str, lines: list[int] = [], fail: bool = False) -> str:  # noqa: B006
        """Read."""
        await asyncio.sleep(0)
        runs.append(path)
        if fail and runs.count(path) == 1:
            raise ToolError("not yet")
        return f"content of {path}"

    @tool(permissions={"write"})
    def write(path: str) -> str:
        """Write."""
        return "written"

    return executor_of([read, write], SkipRepeats()), runs


def call(executor, name="read", turn="t1", **arguments):
    return asyncio.run(executor.execute(ToolCall(name, arguments), Scope(message_id=turn)))


def test_the_second_call_of_a_turn_is_answered_with_a_note(world):
    executor, runs = world
    assert call(executor, path="a").for_llm == "content of a"
    assert "same read call" in call(executor, path="a").for_llm
    assert runs == ["a"]


def test_key_order_does_not_matter_but_list_order_does(world):
    executor, runs = world
    first = ToolCall("read", '{"path": "a", "lines": [1, 2]}')
    for other in ('{"lines": [1, 2], "path": "a"}', '{"path": "a", "lines": [2, 1]}'):
        asyncio.run(executor.execute(first, Scope(message_id="t")))
        asyncio.run(executor.execute(ToolCall("read", other), Scope(message_id="t")))
    assert len(runs) == 2


def test_in_a_later_turn_it_runs_with_a_warning(world):
    executor, _ = world
    call(executor, path="a")
    call(executor, turn="t2", path="b")
    again = call(executor, turn="t3", path="a")
    assert again.for_llm == "content of a"
    assert again.data["warning"] == "same call 2 turns ago"


def test_only_calls_that_succeeded_count(world):
    executor, runs = world
    assert call(executor, path="a", fail=True).is_error
    assert call(executor, path="a", fail=True).success
    assert len(runs) == 2


def test_after_a_write_reading_again_is_not_a_repeat(world):
    executor, _ = world
    call(executor, path="a")
    call(executor, "write", path="a")
    assert call(executor, path="a").for_llm == "content of a"


def test_writes_are_never_skipped(world):
    executor, _ = world
    assert [call(executor, "write", path="a").for_llm for _ in range(3)] == ["written"] * 3


def test_the_same_call_side_by_side_runs_once(world):
    executor, runs = world

    async def main() -> list:
        calls = [ToolCall("read", {"path": "a"}) for _ in range(20)]
        return await executor.execute_all(calls, Scope(message_id="t"))

    results = asyncio.run(main())
    assert runs == ["a"]
    assert sum(result.for_llm == "content of a" for result in results) == 1


def test_clear_turn_lets_it_run_again(world):
    executor, _ = world
    call(executor, path="a")
    executor.clear_turn()
    assert call(executor, path="a").for_llm == "content of a"


def test_the_same_call_on_two_loops_at_once_runs_on_both():
    inside = threading.Barrier(2, timeout=60)

    @tool(permissions={"read"}, repeatable=False)
    async def meet(path: str) -> str:
        """Meet."""
        await asyncio.sleep(0)
        inside.wait()
        return path

    executor = executor_of([meet], SkipRepeats())
    results: list = []

    def work() -> None:
        results.append(asyncio.run(executor.execute(ToolCall("meet", {"path": "a"}), Scope(message_id="t"))))

    others = [threading.Thread(target=work) for _ in range(2)]
    for one in others:
        one.start()
    for one in others:
        one.join()
    assert [result.for_llm for result in results] == ["a", "a"]
