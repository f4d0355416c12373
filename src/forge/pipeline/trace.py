"""Step: puts an OpenTelemetry span around every call, when that package is there and an application set it up."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

from forge.core.context import ToolContext
from forge.core.executor import Next
from forge.core.extras import is_installed
from forge.core.result import ToolResult
from forge.core.spec import ToolSpec
from forge.pipeline.spans import TOOL, find_telemetry, run_operation


class TraceCalls:
    """Makes one span per call, refused ones included, and one for background work that failed."""

    name = "trace"

    def applies(self, spec: ToolSpec) -> bool:
        return "opentelemetry.trace" in sys.modules or _is_installed()

    async def __call__(self, ctx: ToolContext, proceed: Next) -> ToolResult:
        if find_telemetry() is None:  # an application that sets up tracing has imported it
            return await proceed(ctx)
        with run_operation(TOOL, ctx.spec.name, _attributes(ctx)) as operation:
            result = await proceed(ctx)
            if result.failure is not None:
                operation.fail(str(result.failure.kind), result.failure.cause)
            return result

    def after(self, ctx: ToolContext, result: ToolResult) -> ToolResult:
        if result.failure is not None and find_telemetry() is not None:
            with run_operation(TOOL, ctx.spec.name, _attributes(ctx)) as operation:
                operation.fail(str(result.failure.kind), result.failure.cause)
        return result


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
