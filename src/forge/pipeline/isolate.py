"""Step: runs a tool with `isolate=True` in a process of its own."""

from __future__ import annotations

from typing import cast

from forge.core.context import ToolContext
from forge.core.executor import Next
from forge.core.result import ToolResult
from forge.core.spec import ToolSpec
from forge.core.tool import Tool


class Isolate:
    """Runs the tool in a process that a time-out really kills."""

    name = "isolate"

    def applies(self, spec: ToolSpec) -> bool:
        return spec.isolate

    async def __call__(self, ctx: ToolContext, proceed: Next) -> ToolResult:
        from forge.process.running.isolated import run_isolated  # only where it is asked for

        return await run_isolated(cast(Tool, ctx.tool), ctx.arguments, ctx)
