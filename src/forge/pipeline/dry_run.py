"""Step: says what a call would do instead of doing it. Calls that only read are run."""

from __future__ import annotations

from forge.core.context import ToolContext
from forge.core.executor import Next, Step, readable
from forge.core.messages import ToolCall
from forge.core.result import ToolResult
from forge.core.spec import Permission, ToolSpec
from forge.pipeline._step import having


def dry_run() -> Step:
    """For all that needs more than `read`. It goes outside `authorize`: nobody is asked about what will not happen."""

    async def step(ctx: ToolContext, proceed: Next) -> ToolResult:
        return would_do(ctx)

    return having(step, applies=_changes_something)


def would_do(ctx: ToolContext) -> ToolResult:
    needs = ", ".join(sorted(ctx.spec.permissions | ctx.spec.optional_permissions))
    targets = [str(ctx.arguments[name]) for name in ctx.spec.targets if name in ctx.arguments]
    call = readable(ToolCall(ctx.spec.name, dict(ctx.arguments), ctx.call.id))
    text = f"Dry run, nothing was done. Would call {call}"
    text += f", which needs {needs}" + (f" on {', '.join(targets)}" if targets else "")
    data = {"dry_run": True, "permissions": sorted(ctx.spec.permissions), "targets": targets}
    return ToolResult(for_llm=f"{text}.", title=f"Would call {ctx.spec.name}", data=data)


def _changes_something(spec: ToolSpec) -> bool:
    return bool((spec.permissions | spec.optional_permissions) - {Permission.READ})
