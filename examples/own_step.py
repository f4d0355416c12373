"""A step of your own: one concern around every call, put where you want it in the list."""

import asyncio
import time

from forge import Scope, ToolCall, ToolContext, ToolRegistry, ToolResult, rules, tool
from forge.permissions import PolicyGate
from forge.pipeline import Next, ToolExecutor, standard_steps


@tool
def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello, {name}!"


async def measure(ctx: ToolContext, proceed: Next) -> ToolResult:
    started = time.perf_counter()
    result = await proceed(ctx)
    return result.with_data(milliseconds=round((time.perf_counter() - started) * 1e3, 3))


steps = [measure, *standard_steps(PolicyGate(rules("allow read")))]
executor = ToolExecutor(ToolRegistry([greet]), steps)
result = asyncio.run(executor.execute(ToolCall("greet", {"name": "Ada"}), Scope()))
print(result.for_llm, "measured" if "milliseconds" in result.data else "not measured")
