"""Authorizes a tool that is called through another one, as if it had been called by its own name."""

from __future__ import annotations

from typing import Any

from forge.core.context import ToolContext
from forge.core.tool import Tool


async def authorize_inner(tool: Tool, parsed: dict[str, Any], ctx: ToolContext, holder: str) -> dict[str, Any]:
    """Returns the authorized arguments, including a person's edits. Raises `ToolError` if the call is refused.

    `holder` is the parameter of the outer tool that holds the arguments. Every rule about the inner tool thus applies,
    whichever way the tool is called.
    """
    from forge.core.messages import ToolCall  # not needed to list tools
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
    outer.adopt(own, {**ctx.arguments, holder: own.edited})  # feedback with a yes belongs to the model's own call
    return dict(granted.arguments)
