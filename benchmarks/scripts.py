"""A call from a script against the same call made directly, on the clock, and the start of a script."""

from __future__ import annotations

import time

from benchmarks.timing import Measure, side_by_side_async
from forge import Scope, ToolCall, rules, tool
from forge.core.executor import ToolExecutor
from forge.core.registry import ToolRegistry
from forge.pipeline import standard_executor
from forge.tools.run_code import RunCode

CALLS = 100
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
    start = await _start(executor)
    return [
        Measure("script: a call from a script", "the same call, made directly", floor, ours, "µs", 2.0),
        Measure("script: start and end of a script without calls", "", 0.0, start, "ms", 10.0, absolute=True),
    ]


async def _directly(executor: ToolExecutor) -> float:
    begun = time.perf_counter()
    for number in range(CALLS):
        result = await executor.execute(ToolCall("look", {"name": str(number)}), SCOPE)
        assert result.success, result.for_llm
    return (time.perf_counter() - begun) / CALLS * 1e6


async def _from_a_script(executor: ToolExecutor) -> float:
    """Microseconds for each call, without the start of the script."""
    with_calls = await _seconds(executor, f"for n in range({CALLS}):\n    await look(str(n))")
    without = await _seconds(executor, "for n in range(1):\n    await look(str(n))")
    return (with_calls - without) / (CALLS - 1) * 1e6


async def _start(executor: ToolExecutor) -> float:
    return min([await _seconds(executor, "1") for _ in range(10)]) * 1e3


async def _seconds(executor: ToolExecutor, code: str) -> float:
    begun = time.perf_counter()
    result = await executor.execute(ToolCall("run_code", {"code": code}), SCOPE)
    assert result.success, result.for_llm
    return time.perf_counter() - begun
