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
    from forge.permissions.gate import Grant

    outer = ctx.gate
    if not isinstance(outer, Grant):
        for permission, target in tool.wants(parsed, ctx.scope) or ():
            if permission is not None:
                await ctx.require(permission, target)
        return parsed
    call = ToolCall(tool.spec.name, parsed, ctx.call.id)
    inner = ToolContext(call, tool, parsed, ctx.scope, ctx.activity, ctx.owner)
    with ctx.asking():
        granted = await outer.gate.authorize(inner)
    if isinstance(granted.gate, Grant):  # what was said with the yes is for the call that the model made
        outer.review |= granted.gate.review
        outer.feedback += granted.gate.feedback
        if granted.gate.edited is not None:
            outer.edited = {**ctx.arguments, holder: granted.gate.edited}
    return dict(granted.arguments)
