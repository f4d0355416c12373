"""An agent that goes in circles is nudged, then the person is asked, then it is stopped."""

import asyncio
from itertools import count

import pytest

from forge import Scope, ToolCall, tool
from forge.pipeline.break_loops import break_loops
from tests.pipeline.calling import executor_of


@tool
def look(at: str) -> str:
    """Look."""
    return "nothing new"


@tool
def clock() -> int:
    """Changes every time."""
    return next(clock_ticks)


clock_ticks = count()


def run(names, ask=None, *, same_turn=False):
    executor = executor_of([look, clock], break_loops(ask))

    async def main() -> list:
        results = []
        for turn, name in enumerate(names):
            call = ToolCall("clock") if name == "clock" else ToolCall("look", {"at": name})
            scope = Scope(message_id="one" if same_turn else str(turn))
            results.append(await executor.execute(call, scope))
        return results

    return asyncio.run(main())


async def yes(ctx, why):
    return True


def test_the_third_identical_call_is_nudged_and_the_second_is_not():
    first, second, third = run("aaa")
    assert first.for_llm == second.for_llm == "nothing new"
    assert "try something else" in third.for_llm
    assert third.success


def test_with_nobody_to_ask_the_fifth_is_the_last():
    results = run("aaaaa")
    assert results[3].success
    assert results[4].data["stop"] == "loop"
    assert results[4].is_error


def test_a_person_may_let_it_go_on_until_the_eighth():
    asked: list = []

    async def ask(ctx, why):
        asked.append(why)
        return True

    results = run("a" * 8, ask)
    assert [result.success for result in results] == [True] * 7 + [False]
    assert len(asked) == 1
    assert results[7].data["stop"] == "loop"


@pytest.mark.parametrize("period", [2, 3, 4, 5])
def test_longer_rounds_count_as_well(period):
    names = "abcde"[:period]
    results = run(names * 3)
    assert "rounds" not in results[period * 3 - 2].data
    assert results[-1].data["rounds"] == 3


def test_a_different_result_is_no_loop():
    assert all("rounds" not in result.data for result in run(["clock"] * 12))


def test_something_else_in_between_starts_anew():
    results = run(["a", "a", "clock", "a", "a", "clock", "a", "a"])
    assert all("rounds" not in result.data for result in results)


def test_identical_calls_of_one_turn_count_once():
    assert all("rounds" not in result.data for result in run("a" * 12, same_turn=True))


def test_five_identical_errors_in_a_row_stop_even_invalid_arguments():
    executor = executor_of([look], break_loops(yes))

    async def main() -> list:
        return [await executor.execute(ToolCall("look", {"att": n}), Scope(message_id=str(n))) for n in range(4)] + [
            await executor.execute(ToolCall("look", '{"at": '), Scope(message_id=f"b{n}")) for n in range(5)
        ]

    results = asyncio.run(main())
    assert all(result.is_error for result in results)
    assert results[-1].data["stop"] == "loop"
    assert "stop" not in results[-2].data


def test_agents_and_sessions_do_not_disturb_each_other():
    executor = executor_of([look], break_loops())

    async def main() -> list:
        call = ToolCall("look", {"at": "a"})
        return [await executor.execute(call, Scope(session_id=str(n % 6), message_id=str(n))) for n in range(12)]

    assert all("rounds" not in result.data for result in asyncio.run(main()))


def test_clear_state_forgets():
    executor = executor_of([look], break_loops())

    async def main() -> list:
        results = []
        for turn in range(6):
            if turn % 2 == 0:
                executor.clear_state("local")
            results.append(await executor.execute(ToolCall("look", {"at": "a"}), Scope(message_id=str(turn))))
        return results

    assert all("rounds" not in result.data for result in asyncio.run(main()))
