"""Step: gives a tool the time that its spec allows, then cancels it, then abandons it."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.deadline import Deadline, DeadlinePassed
from forge.core.executor import Chain, Step, no_result_error, render_call
from forge.core.result import ToolResult
from forge.core.spec import ToolSpec
from forge.pipeline._step import make_surround_step

LONGEST = 86_400.0  # seconds: a day, however much a model asks for
SPARE = 10.0  # seconds that a tool with a deadline of its own has beyond it for cleaning up


def limit_time() -> Step:
    def surround(run: Chain) -> Chain:
        def step(ctx: ToolContext) -> ToolResult | Coroutine[Any, Any, ToolResult]:
            coming = run(ctx)
            if isinstance(coming, ToolResult):
                return coming
            try:
                waited = coming.send(None)
            except StopIteration as stop:  # it never had to wait, so neither do we
                if isinstance(stop.value, ToolResult):
                    return stop.value
                raise no_result_error(stop.value) from None
            return _await_until_deadline(ctx, coming, waited)

        return step

    return make_surround_step(surround, applies=_is_limited)


async def _await_until_deadline(
    ctx: ToolContext, coroutine: Coroutine[Any, Any, ToolResult], waited: Any
) -> ToolResult:
    """Awaits a suspended call until its deadline."""
    seconds = ctx.spec.timeout
    if seconds is not None and getattr(ctx.tool, "keeps_deadline", False):
        seconds += SPARE
    requested: Any = ctx.arguments.get("timeout")
    if requested is not None and seconds is not None and isinstance(requested, int | float):
        seconds = max(
            seconds, min(requested, LONGEST) + SPARE
        )  # such a tool keeps its own deadline; this one only catches its fall
    try:
        return await Deadline(coroutine, seconds, waited=waited, waited_seconds=lambda: ctx.waited_seconds)
    except DeadlinePassed:
        ctx.cancelled = True
        late = ToolError(
            f"timed out after {seconds:g} s",
            ErrorKind.TIMEOUT,
            "Try a smaller step, or ask for more time if the tool has a timeout parameter.",
        )
        return ToolResult.failed(late, during=render_call(ctx.call)).with_data(timed_out=True)


def _is_limited(spec: ToolSpec) -> bool:
    return spec.timeout is not None
