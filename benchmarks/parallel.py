"""A hundred tools of ten milliseconds at once, async and plain."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

from benchmarks.timing import Measure, wall
from forge import Scope, ToolCall, rules, tool
from forge.pipeline import standard_executor

MANY = 100
ROUNDS = 21


@tool
async def nap(number: int) -> int:
    """Sleep for ten milliseconds."""
    await asyncio.sleep(0.01)
    return number


@tool
def plain_nap(number: int) -> int:
    """Sleep for ten milliseconds, in a thread."""
    time.sleep(0.01)
    return number


async def bare_naps() -> None:
    await asyncio.gather(*(asyncio.sleep(0.01) for _ in range(MANY)))


async def bare_threads() -> None:
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(MANY) as pool:
        await asyncio.gather(*(loop.run_in_executor(pool, time.sleep, 0.01) for _ in range(MANY)))


def naps(name: str) -> Callable[[], Awaitable[None]]:
    executor = standard_executor([nap, plain_nap], policy=rules("allow read"))

    async def all_at_once() -> None:
        calls = [ToolCall(name, {"number": number}) for number in range(MANY)]
        results = await executor.execute_all(calls, Scope())
        assert [result.for_llm for result in results] == [str(number) for number in range(MANY)]

    return all_at_once


async def _compared(floor: Callable[[], Awaitable[None]], ours: Callable[[], Awaitable[None]]) -> tuple[float, float]:
    await wall(floor), await wall(ours)
    pairs = [(await wall(floor), await wall(ours)) for _ in range(ROUNDS)]
    return statistics.median(one for one, _ in pairs), statistics.median(other for _, other in pairs)


async def measures() -> list[Measure]:
    return [
        Measure(
            "100 async tools of 10 ms at once", "asyncio.sleep", *await _compared(bare_naps, naps("nap")), "ms", 1.3
        ),
        Measure(
            "100 plain tools of 10 ms at once", "threads", *await _compared(bare_threads, naps("plain_nap")), "ms", 1.5
        ),
    ]
