"""Step: puts an OpenTelemetry span around every call, when that package is there and an application set it up."""

from __future__ import annotations

import sys
from collections.abc import Coroutine
from contextvars import ContextVar
from functools import cache
from typing import Any

from forge.core.context import ToolContext
from forge.core.executor import Next, Step
from forge.core.extras import is_installed
from forge.core.result import ToolResult
from forge.core.spec import ToolSpec
from forge.pipeline._step import add_attributes
from forge.pipeline.spans import TOOL, find_telemetry, run_operation

_refused: ContextVar[ToolContext | None] = ContextVar("refused", default=None)  # has its span already


def trace() -> Step:
    """Makes one span per call, refused ones included, and one for background work that failed."""

    def step(ctx: ToolContext, proceed: Next) -> Coroutine[Any, Any, ToolResult]:
        if find_telemetry() is None or _has_span(ctx):  # an application that sets up tracing has imported it
            return proceed(ctx)
        return _run_in_span(ctx, proceed)

    return add_attributes(step, applies=_is_in_use, screens=True)


async def _run_in_span(ctx: ToolContext, proceed: Next) -> ToolResult:
    with run_operation(TOOL, ctx.spec.name, _attributes(ctx)) as operation:
        try:
            result = await proceed(ctx)
        except BaseException:
            _refused.set(ctx)
            raise
        if result.failure is not None:
            operation.fail(str(result.failure.kind), result.failure.cause)
        return result


def _has_span(ctx: ToolContext) -> bool:
    """Says whether the result's call has a span already: a refusal further in, or successful background work."""
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
