"""How many calls of a tool run at once."""

import asyncio
import os
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from forge import DefinitionError, Scope, ToolCall, ToolContext, ToolError, tool
from forge.pipeline import standard_executor
from forge.pipeline.limit_calls import LimitConcurrency, Places
from tests.pipeline.calling import call_once, executor_of


def running_at_once(**options):
    """A tool that counts how many of its calls run at once, for each account."""
    running: Counter[str] = Counter()
    most: Counter[str] = Counter()

    @tool(**options)
    async def pay(account: str) -> str:
        """Pay."""
        running[account] += 1
        running["all"] += 1
        for name in (account, "all"):
            most[name] = max(most[name], running[name])
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        running[account] -= 1
        running["all"] -= 1
        return "paid"

    return pay, most


async def pay_all(made, accounts, executor=None):
    executor = executor or executor_of([made], LimitConcurrency())
    calls = [ToolCall("pay", {"account": account}, id=f"call_{n}") for n, account in enumerate(accounts)]
    return [one.for_llm for one in await executor.execute_all(calls, Scope())]


def test_more_calls_than_allowed_at_once_wait_and_all_run():
    pay, most = running_at_once(max_concurrency=2)
    assert asyncio.run(pay_all(pay, "abcdefgh")) == ["paid"] * 8
    assert most["all"] == 2

    free, most = running_at_once()
    assert asyncio.run(pay_all(free, "abcdefgh")) == ["paid"] * 8
    assert most["all"] == 8


def test_places_are_counted_by_the_key():
    pay, most = running_at_once(max_concurrency=1, concurrency_key="account")
    assert asyncio.run(pay_all(pay, "aaabbb")) == ["paid"] * 6
    assert (most["a"], most["b"], most["all"]) == (1, 1, 2)


def test_agents_that_share_a_tool_share_its_places():
    pay, most = running_at_once(max_concurrency=1)

    async def both():
        return await asyncio.gather(*(pay_all(pay, "ab", standard_executor([pay])) for _ in range(3)))

    assert asyncio.run(both()) == [["paid", "paid"]] * 3
    assert most["all"] == 1


def test_a_cancelled_call_leaves_the_queue_and_a_failed_one_gives_its_place_back():
    let_go = asyncio.Event()

    @tool(max_concurrency=1)
    async def work(fail: bool = False) -> str:
        """Work."""
        if fail:
            raise ToolError("it broke")
        await let_go.wait()
        return "done"

    async def calls():
        executor = executor_of([work], LimitConcurrency())
        first, waits, last = (
            asyncio.create_task(executor.execute(ToolCall("work", id=f"call_{n}"), Scope())) for n in range(3)
        )
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        waits.cancel()
        assert isinstance((await asyncio.gather(waits, return_exceptions=True))[0], asyncio.CancelledError)
        let_go.set()
        failed = await executor.execute(ToolCall("work", {"fail": True}, id="call_4"), Scope())
        after = await executor.execute(ToolCall("work", id="call_5"), Scope())
        return (await first).for_llm, (await last).for_llm, failed.success, after.for_llm

    assert asyncio.run(calls()) == ("done", "done", False, "done")


def test_a_call_cancelled_just_as_its_turn_came_passes_the_place_on():
    places = Places()

    async def race():
        assert places.take_or_queue((), ("s", "1"), 1) is None
        turn = places.take_or_queue((), ("s", "2"), 1)
        assert turn is not None
        waits = asyncio.create_task(places.wait_for(turn, (), ("s", "2")))
        await asyncio.sleep(0)
        places.give_back((), ("s", "1"))  # its turn, told on the next round of the loop
        waits.cancel()
        await asyncio.gather(waits, return_exceptions=True)
        return places.take_or_queue((), ("s", "3"), 1)

    assert asyncio.run(race()) is None


def test_a_tool_that_calls_itself_does_not_wait_for_itself():
    @tool(max_concurrency=1)
    async def count_down(left: int, ctx: ToolContext) -> str:
        """Count down."""
        return (await ctx.run_tool("count_down", {"left": left - 1})).for_llm if left else "zero"

    assert call_once(count_down, LimitConcurrency(), left=3).for_llm == "zero"


def test_threads_with_event_loops_of_their_own_share_the_places():
    running, most, lock = 0, 0, threading.Lock()

    @tool(max_concurrency=2)
    def work() -> str:
        """Work."""
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        os.sched_yield()
        with lock:
            running -= 1
        return "done"

    def calls():
        executor = executor_of([work], LimitConcurrency())
        for n in range(20):
            assert asyncio.run(executor.execute(ToolCall("work", id=f"call_{n}"), Scope())).for_llm == "done"

    with ThreadPoolExecutor(8) as threads:
        for one in [threads.submit(calls) for _ in range(8)]:
            one.result()
    assert most <= 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_concurrency": -1}, "max_concurrency=-1 must be a number of calls"),
        ({"max_concurrency": True}, "max_concurrency=True must be a number of calls"),
        ({"concurrency_key": "account"}, "counts nothing without max_concurrency"),
        ({"max_concurrency": 1, "concurrency_key": "acount"}, "no parameter 'acount' to use as its concurrency_key"),
    ],
)
def test_a_limit_that_cannot_be_meant_is_refused(options, message):
    with pytest.raises(DefinitionError, match=message):

        @tool(**options)
        def pay(account: str) -> str:
            """Pay."""
            return account
