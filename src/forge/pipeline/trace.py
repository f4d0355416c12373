"""Step: an OpenTelemetry span around every call, when that package is there and an application set it up."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Any

from forge.core.context import ToolContext
from forge.core.executor import Next, Step
from forge.core.result import ToolResult
from forge.core.spec import ToolSpec
from forge.pipeline._step import having

OPERATION = "execute_tool"  # the GenAI conventions are still incubating: their names live here alone


def trace() -> Step:
    async def step(ctx: ToolContext, proceed: Next) -> ToolResult:
        telemetry: Any = sys.modules.get("opentelemetry.trace")
        if telemetry is None:  # whoever sets up tracing has imported it
            return await proceed(ctx)
        tracer = telemetry.get_tracer("forge")
        with tracer.start_as_current_span(f"{OPERATION} {ctx.spec.name}", attributes=_attributes(ctx)) as span:
            result = await proceed(ctx)
            if result.failure is not None:
                span.set_attribute("error.type", str(result.failure.kind))
                span.set_status(telemetry.Status(telemetry.StatusCode.ERROR, str(result.failure.kind)))
            return result

    return having(step, applies=_is_there)


def _is_there(spec: ToolSpec) -> bool:
    return find_spec("opentelemetry") is not None


def _attributes(ctx: ToolContext) -> dict[str, Any]:
    return {
        "gen_ai.operation.name": OPERATION,
        "gen_ai.tool.name": ctx.spec.name,
        "gen_ai.tool.call.id": ctx.call.id,
        "gen_ai.tool.type": "function",
        "gen_ai.conversation.id": ctx.scope.session_id,
        "gen_ai.agent.name": ctx.scope.agent,
    }
