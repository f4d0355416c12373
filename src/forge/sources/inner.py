"""A tool called through another one: the gate decides on it as if it had been called by its own name."""

from __future__ import annotations

from typing import Any

from forge.core.context import ToolContext
from forge.core.tool import Tool


async def authorized(tool: Tool, parsed: dict[str, Any], ctx: ToolContext, holder: str) -> dict[str, Any]:
    """The arguments that may run: what a person edited counts. Raises `ToolError` if it is refused.

    `holder` is the parameter of the outer tool that holds them.

    So every rule about the inner tool holds, whichever way it is reached.
    """
    from forge.core.messages import ToolCall  # listing tools does without these
    from forge.permissions.call_gate import gate_of

    outer = gate_of(ctx)
    if not outer.judges:
        for permission, target in tool.wants(parsed, ctx.scope) or ():
            if permission is not None:
                await ctx.require(permission, target)
        return parsed
    call = ToolCall(tool.spec.name, parsed, ctx.call.id)
    inner = ToolContext(call, tool, parsed, ctx.scope, ctx.activity, ctx.owner)
    with ctx.asking():
        granted = await outer.authorize(inner)
    own = gate_of(granted)
    outer.adopt(own, {**ctx.arguments, holder: own.edited})  # words that came with a yes are for the model's own call
    return dict(granted.arguments)
