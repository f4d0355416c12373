"""Step: puts an OpenTelemetry span around every call, when that package is there and an application set it up."""

from __future__ import annotations

import sys
from collections.abc import Coroutine
from contextvars import ContextVar
from functools import cache
from typing import Any

from forge.core.context import ToolContext
from forge.core.executor import Chain, Step
from forge.core.extras import is_installed
from forge.core.result import ToolResult
from forge.core.spec import ToolSpec
from forge.pipeline._step import make_surround_step
from forge.pipeline.spans import TOOL, find_telemetry, run_operation

_refused: ContextVar[ToolContext | None] = ContextVar("refused", default=None)  # has its span already


def trace() -> Step:
    """Makes one span per call, refused ones included, and one for background work that failed."""

    def surround(run: Chain) -> Chain:
        def step(ctx: ToolContext) -> ToolResult | Coroutine[Any, Any, ToolResult]:
            if find_telemetry() is None or _has_span(ctx):  # an application that sets up tracing has imported it
                return run(ctx)
            return _run_in_span(ctx, run)

        return step

    return make_surround_step(surround, applies=_is_in_use, screens=True)


async def _run_in_span(ctx: ToolContext, run: Chain) -> ToolResult:
    with run_operation(TOOL, ctx.spec.name, _attributes(ctx)) as operation:
        try:
            result = run(ctx)
            if not isinstance(result, ToolResult):
                result = await result
        except BaseException:
            _refused.set(ctx)
            raise
        if result.failure is not None:
            operation.fail(str(result.failure.kind), result.failure.cause)
        return result


def _has_span(ctx: ToolContext) -> bool:
    """Returns whether the result's call has a span already: a refusal further in, or successful background work."""
    if ctx.outcome is None:
        return False
    refused = _refused.get()
    if refused is not None:
        _refused.set(None)
    return refused is ctx or ctx.outcome.failure is None


def _is_in_use(spec: ToolSpec) -> bool:
    return "opentelemetry.trace" in sys.modules or _is_installed()


@cache  # a search of all of sys.path, once a tool otherwise
def _is_installed() -> bool:
    return is_installed("otel")


def _attributes(ctx: ToolContext) -> dict[str, Any]:
    return {
        "gen_ai.tool.name": ctx.spec.name,
        "gen_ai.tool.call.id": ctx.call.id,
        "gen_ai.tool.type": "function",
        "gen_ai.conversation.id": ctx.scope.session_id,
        "gen_ai.agent.name": ctx.scope.agent,
    }
