"""Step: says what a call would do instead of doing it. Calls that only read are run."""

from __future__ import annotations

from typing import Any

from forge.core.context import ToolContext
from forge.core.errors import ToolError
from forge.core.executor import Next, Step, readable
from forge.core.messages import ToolCall
from forge.core.result import ToolResult
from forge.core.spec import Permission, ToolSpec
from forge.pipeline._step import having


def dry_run(gate: Any = None) -> Step:
    """For all that needs more than `read`. It goes outside `authorize`: nobody is asked about what will not happen.

    A gate that can `judge` is heard first: what it would refuse is not announced as something that would be done.
    """

    async def step(ctx: ToolContext, proceed: Next) -> ToolResult:
        return would_do(ctx, gate)

    return having(step, applies=_changes_something)


def would_do(ctx: ToolContext, gate: Any = None) -> ToolResult:
    call = readable(ToolCall(ctx.spec.name, dict(ctx.arguments), ctx.call.id))
    targets = [str(ctx.arguments[name]) for name in ctx.spec.targets if name in ctx.arguments]
    needs = ", ".join(sorted(ctx.spec.permissions | ctx.spec.optional_permissions))
    needs += f" on {', '.join(targets)}" if targets else ""
    decision, verdict = _verdict(ctx, gate)
    title, text = f"Would call {ctx.spec.name}", f"Would call {call}, which needs {needs}"
    if decision == "deny":
        title, text = f"Would not call {ctx.spec.name}", f"Would not call {call}, which needs {needs}"
    text = f"Dry run, nothing was done. {text}{f'; {verdict}' if verdict else ''}."
    data = {"dry_run": True, "permissions": sorted(ctx.spec.permissions), "targets": targets, "decision": decision}
    return ToolResult(for_llm=text, title=title, data=data)


def _verdict(ctx: ToolContext, gate: Any) -> tuple[str, str]:
    """What the policy says, and the same in words; nobody is asked."""
    judge = getattr(gate, "judge", None)
    if judge is None:
        return "", ""
    try:
        ruling = judge(ctx)
    except ToolError as error:
        return "deny", f"it would be refused: {error.message}"
    decision = str(ruling.decision)
    if decision == "deny":
        return decision, f"it would be denied by {ruling.reason}"
    return decision, f"a person would be asked ({ruling.reason})" if decision == "ask" else ""


def _changes_something(spec: ToolSpec) -> bool:
    return bool((spec.permissions | spec.optional_permissions) - {Permission.READ})
