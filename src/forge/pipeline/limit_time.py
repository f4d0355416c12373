"""Step: gives a tool the time that its spec allows, then cancels it, then abandons it."""

from __future__ import annotations

from typing import Any

from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.deadline import Deadline, DeadlinePassed
from forge.core.executor import Next, render_call
from forge.core.result import ToolResult
from forge.core.spec import ToolSpec

LONGEST = 86_400.0  # seconds: a day, however much a model asks for
SPARE = 10.0  # seconds that a tool with a deadline of its own has beyond it for cleaning up


class LimitTime:
    """Ends a call at its deadline. A call that never waits costs no timer."""

    name = "limit_time"

    def applies(self, spec: ToolSpec) -> bool:
        return spec.timeout is not None

    async def __call__(self, ctx: ToolContext, proceed: Next) -> ToolResult:
        seconds = ctx.spec.timeout
        if seconds is not None and getattr(ctx.tool, "keeps_deadline", False):
            seconds += SPARE
        requested: Any = ctx.arguments.get("timeout")
        if requested is not None and seconds is not None and isinstance(requested, int | float):
            # such a tool keeps its own deadline; this one only catches its fall
            seconds = max(seconds, min(requested, LONGEST) + SPARE)
        try:
            return await Deadline(proceed(ctx), seconds, waited_seconds=lambda: ctx.waited_seconds)
        except DeadlinePassed:
            ctx.cancelled = True
            late = ToolError(
                f"timed out after {seconds:g} s",
                ErrorKind.TIMEOUT,
                "Try a smaller step, or ask for more time if the tool has a timeout parameter.",
            )
            return ToolResult.failed(late, during=render_call(ctx.call)).with_data(timed_out=True)
