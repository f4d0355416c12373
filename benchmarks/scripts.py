"""A call from a script against the same call made directly, on the clock, and the start of a script.

The interpreter is a process of its own. So a call from a script is at least one message to that process and its answer,
and the same call made directly. The second row has this sum as its floor: nothing of Forge is in the message.
"""

from __future__ import annotations

import time

from benchmarks.timing import Measure, side_by_side_async
from forge import Scope, ToolCall, rules, tool
from forge.core.executor import ToolExecutor
from forge.core.registry import ToolRegistry
from forge.pipeline import standard_executor
from forge.tools.run_code import RunCode

CALLS = 190
SCOPE = Scope()


@tool(permissions={"read"})
def look(name: str) -> str:
    """Look at something: a plain function, as most tools are.

    Args:
        name: what to look at.
    """
    return name


async def measures() -> list[Measure]:
    registry = ToolRegistry([look])
    registry.add(RunCode(registry))
    executor = standard_executor(registry, policy=rules("allow read"))
    floor, ours = await side_by_side_async(lambda: _directly(executor), lambda: _from_a_script(executor))
    trip, again = await side_by_side_async(lambda: _round_trips(executor), lambda: _from_a_script(executor))
    start = await _start(executor)
    return [
        Measure("script: a call from a script", "the same call, made directly", floor, ours, "µs", 3.0),
        Measure(
            "script: a call from a script", "a bare message to the interpreter, then the call", trip, again, "µs", 1.5
        ),
        Measure("script: start and end of a script without calls", "", 0.0, start, "ms", 10.0, absolute=True),
    ]


async def _directly(executor: ToolExecutor) -> float:
    begun = time.perf_counter()
    for number in range(CALLS):
        result = await executor.execute(ToolCall("look", {"name": str(number)}), SCOPE)
        assert result.success, result.for_llm
    return (time.perf_counter() - begun) / CALLS * 1e6


async def _round_trips(executor: ToolExecutor) -> float:
    """Microseconds for a message to the interpreter, its answer, and a direct call."""
    import pydantic_monty as monty

    with monty.Monty(max_processes=1) as pool, pool.checkout() as session:
        at = session.feed_start(f"for n in range({CALLS}):\n    echo(str(n))")
        begun = time.perf_counter()
        while isinstance(at, monty.FunctionSnapshot):
            result = await executor.execute(ToolCall("look", {"name": at.args[0]}), SCOPE)
            at = at.resume({"return_value": result.for_llm})
        assert isinstance(at, monty.MontyComplete), at
    return (time.perf_counter() - begun) / CALLS * 1e6


async def _from_a_script(executor: ToolExecutor) -> float:
    """Microseconds for each call, without the start of the script."""
    with_calls = await _least(executor, f"for n in range({CALLS}):\n    await look(str(n))")
    without = await _least(executor, "for n in range(1):\n    await look(str(n))")
    return (with_calls - without) / (CALLS - 1) * 1e6


async def _start(executor: ToolExecutor) -> float:
    return await _least(executor, "1", times=10) * 1e3


async def _least(executor: ToolExecutor, code: str, times: int = 3) -> float:
    return min([await _seconds(executor, code) for _ in range(times)])


async def _seconds(executor: ToolExecutor, code: str) -> float:
    begun = time.perf_counter()
    result = await executor.execute(ToolCall("run_code", {"code": code}), SCOPE)
    assert result.success, result.for_llm
    return time.perf_counter() - begun
