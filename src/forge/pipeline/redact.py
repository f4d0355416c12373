"""Step: registered secrets never reach a result."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from forge.core.context import ToolContext
from forge.core.executor import Next, Step
from forge.core.result import ToolResult
from forge.core.secrets import Secrets
from forge.pipeline._step import having


def redact(secrets: Secrets) -> Step:
    """What merely looks like a secret stays, so that a file that was read can be edited; events and logs mask it."""

    def step(ctx: ToolContext, proceed: Next) -> Coroutine[Any, Any, ToolResult]:
        if secrets.pattern is None and ctx.outcome is not None:  # no tool runs any more that could register one
            return proceed(ctx)
        return _masked(ctx, proceed, secrets)

    return having(step, screens=True)


async def _masked(ctx: ToolContext, proceed: Next, secrets: Secrets) -> ToolResult:
    result = await proceed(ctx)
    return result if secrets.pattern is None else result.masked(secrets.mask_value)
