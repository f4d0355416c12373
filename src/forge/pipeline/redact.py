"""Step: registered secrets never reach a result."""

from __future__ import annotations

from forge.core.context import ToolContext
from forge.core.executor import Next, Step
from forge.core.result import ToolResult
from forge.core.secrets import Secrets
from forge.pipeline._step import having


def redact(secrets: Secrets) -> Step:
    """What merely looks like a secret stays, so that a file that was read can be edited; events and logs mask it."""

    async def step(ctx: ToolContext, proceed: Next) -> ToolResult:
        result = await proceed(ctx)
        return result if secrets.pattern is None else result.masked(secrets.mask_value)

    return having(step, screens=True)
