"""An agent that goes in circles is nudged, then the person is asked, then it is stopped."""

import asyncio
import gc
import tracemalloc
from itertools import count

import pytest

from forge import Scope, ToolCall, tool
from forge.pipeline.repeated_calls import BreakLoops
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
    executor = executor_of([look, clock], BreakLoops(ask))

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
    assert results[4].data["stop_reason"] == "stopped: the same call with the same result was made 5 times"
    assert "[Stopped: " in results[4].for_llm


def test_a_call_that_succeeded_is_a_success_also_when_it_is_stopped():
    stopped = run("aaaaa")[4]
    assert stopped.success
    assert stopped.for_llm.startswith("nothing new\n")


def test_what_is_stopped_stays_stopped_while_it_is_repeated():
    results = run("a" * 10)
    assert ["stop" in result.data for result in results] == [False] * 4 + [True] * 6
    results = run([*"aaaaaa", "clock", *"aaa"])
    assert ["stop" in result.data for result in results] == [False] * 4 + [True] * 2 + [False] * 4


def test_a_longer_round_is_asked_about_once():
    asked: list = []

    async def ask(ctx, why):
        asked.append(why)
        return True

    results = run("ab" * 7, ask)
    assert len(asked) == 1
    assert all("stop" not in result.data for result in results)
    assert len(run("ab" * 6)) == 12
    assert ["stop" in result.data for result in run("ab" * 6)] == [False] * 9 + [True] * 3


def test_a_person_may_let_it_go_on_until_the_eighth():
    asked: list = []

    async def ask(ctx, why):
        asked.append(why)
        return True

    results = run("a" * 9, ask)
    assert ["stop" in result.data for result in results] == [False] * 7 + [True] * 2
    assert len(asked) == 1


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
    executor = executor_of([look], BreakLoops(yes))

    async def main() -> list:
        return [await executor.execute(ToolCall("look", {"att": n}), Scope(message_id=str(n))) for n in range(4)] + [
            await executor.execute(ToolCall("look", '{"at": '), Scope(message_id=f"b{n}")) for n in range(5)
        ]

    results = asyncio.run(main())
    assert all(result.is_error for result in results)
    assert results[-1].data["stop"] == "loop"
    assert "stop" not in results[-2].data


def test_agents_and_sessions_do_not_disturb_each_other():
    executor = executor_of([look], BreakLoops())

    async def main() -> list:
        call = ToolCall("look", {"at": "a"})
        return [await executor.execute(call, Scope(session_id=str(n % 6), message_id=str(n))) for n in range(12)]

    assert all("rounds" not in result.data for result in asyncio.run(main()))


def test_clear_state_forgets():
    executor = executor_of([look], BreakLoops())

    async def main() -> list:
        results = []
        for turn in range(6):
            if turn % 2 == 0:
                executor.clear_state("local")
            results.append(await executor.execute(ToolCall("look", {"at": "a"}), Scope(message_id=str(turn))))
        return results

    assert all("rounds" not in result.data for result in asyncio.run(main()))


@pytest.mark.parametrize("as_text", [True, False])
def test_long_results_and_arguments_are_compared_but_not_kept(as_text):
    @tool
    def echo(text: str) -> str:
        """Echo."""
        return text

    step = BreakLoops()
    executor = executor_of([echo], step)

    def arguments(filler: str):
        return f'{{"text": "{filler * 1_000_000}"}}' if as_text else {"text": filler * 1_000_000}

    async def main() -> list:
        fillers = [*"abcde", *"fffff"]
        return [
            (await executor.execute(ToolCall("echo", arguments(filler)), Scope(message_id=str(turn)))).data
            for turn, filler in enumerate(fillers)
        ]

    tracemalloc.start()
    try:
        data = asyncio.run(main())
        gc.collect()
        # Kept arguments would be six megabytes; a thread may still hold the last one it parsed.
        assert tracemalloc.get_traced_memory()[0] < 3_000_000
    finally:
        tracemalloc.stop()
    assert ["rounds" in one or "stop" in one for one in data] == [False] * 7 + [True] * 3


def test_an_error_is_not_kept_whole_and_keeps_its_own_failure():
    @tool
    def fail(number: int) -> str:
        """Fail."""
        raise ValueError("x" * 5_000)

    executor = executor_of([fail], BreakLoops())

    async def main() -> list:
        return [await executor.execute(ToolCall("fail", {"number": n}), Scope(message_id=str(n))) for n in range(6)]

    results = asyncio.run(main())
    assert [result.data.get("stop") for result in results] == [None] * 4 + ["loop"] * 2
    assert results[5].data["stop_reason"] == "stopped: the same error occurred 6 times in a row"
    assert results[5].failure.message.startswith("ValueError: xxx")


def test_arguments_that_cannot_be_written_down_are_no_harm():
    cyclic: dict = {"at": 1}
    cyclic["more"] = [cyclic] * 2
    executor = executor_of([look], BreakLoops())

    async def main() -> list:
        return [await executor.execute(ToolCall("look", cyclic), Scope(message_id=str(n))) for n in range(3)]

    assert all("withheld" not in result.for_llm for result in asyncio.run(main()))
