"""Step: puts an OpenTelemetry span around every call, when that package is there and an application set it up."""

from __future__ import annotations

import sys
from collections.abc import Coroutine
from contextvars import ContextVar
from functools import cache
from typing import Any

from forge.core.context import ToolContext
from forge.core.errors import ToolError, Waiting
from forge.core.executor import Next, Step
from forge.core.extras import is_installed
from forge.core.result import ToolResult
from forge.core.spec import ToolSpec
from forge.pipeline._step import add_attributes

OPERATION = "execute_tool"  # the GenAI conventions are still incubating: their names live here alone

_refused: ContextVar[ToolContext | None] = ContextVar("refused", default=None)  # has its span already


def trace() -> Step:
    """Makes one span per call, refused ones included, and one for background work that failed."""

    def step(ctx: ToolContext, proceed: Next) -> Coroutine[Any, Any, ToolResult]:
        telemetry: Any = sys.modules.get("opentelemetry.trace")
        if telemetry is None or _has_span(ctx):  # an application that sets up tracing has imported it
            return proceed(ctx)
        return _run_in_span(telemetry, ctx, proceed)

    return add_attributes(step, applies=_is_in_use, screens=True)


async def _run_in_span(telemetry: Any, ctx: ToolContext, proceed: Next) -> ToolResult:
    span = telemetry.get_tracer("forge").start_as_current_span(
        f"{OPERATION} {ctx.spec.name}",
        attributes=_attributes(ctx),
        record_exception=False,  # its text may hold a secret that is not masked yet
        set_status_on_exception=False,
    )
    with span as current:
        try:
            result = await proceed(ctx)
        except BaseException as error:
            _refused.set(ctx)
            kind = str(error.kind) if isinstance(error, ToolError) else type(error).__name__
            _mark_failed(telemetry, current, error, kind)
            raise
        if result.failure is not None:
            _mark_failed(telemetry, current, result.failure.cause, str(result.failure.kind))
        return result


def _has_span(ctx: ToolContext) -> bool:
    """Says whether the result's call has a span already: a refusal further in, or successful background work."""
    if ctx.outcome is None:
        return False
    refused = _refused.get()
    if refused is not None:
        _refused.set(None)
    return refused is ctx or ctx.outcome.failure is None


def _mark_failed(telemetry: Any, span: Any, cause: BaseException | None, kind: str) -> None:
    if isinstance(cause, Waiting):  # it resumes later, in another span
        span.set_attribute("forge.waits_for", str(cause.what.get("kind", "")))
        return
    span.set_attribute("error.type", kind)
    span.set_status(telemetry.Status(telemetry.StatusCode.ERROR, kind))


def _is_in_use(spec: ToolSpec) -> bool:
    return "opentelemetry.trace" in sys.modules or _is_installed()


@cache  # a search of all of sys.path, once a tool otherwise
def _is_installed() -> bool:
    return is_installed("otel")


def _attributes(ctx: ToolContext) -> dict[str, Any]:
    return {
        "gen_ai.operation.name": OPERATION,
        "gen_ai.tool.name": ctx.spec.name,
        "gen_ai.tool.call.id": ctx.call.id,
        "gen_ai.tool.type": "function",
        "gen_ai.conversation.id": ctx.scope.session_id,
        "gen_ai.agent.name": ctx.scope.agent,
    }
