"""Step: runs a tool with `isolate=True` in a process of its own."""

from __future__ import annotations

from typing import cast

from forge.core.context import ToolContext
from forge.core.executor import Next, Step
from forge.core.result import ToolResult
from forge.core.spec import ToolSpec
from forge.core.tool import Tool
from forge.pipeline._step import add_attributes


def isolate() -> Step:
    async def step(ctx: ToolContext, proceed: Next) -> ToolResult:
        from forge.process.running.isolated import run_isolated  # only where it is asked for

        return await run_isolated(cast(Tool, ctx.tool), ctx.arguments, ctx)

    return add_attributes(step, applies=_asks_for_it)


def _asks_for_it(spec: ToolSpec) -> bool:
    return spec.isolate
