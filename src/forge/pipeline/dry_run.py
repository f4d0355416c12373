"""Step: describes a call instead of running it. Calls that only read are run."""

from __future__ import annotations

from forge.core.context import ToolContext
from forge.core.errors import ToolError
from forge.core.execution.chain import Next, Step, StepObject
from forge.core.messages import ToolCall, render_call
from forge.core.result import ToolResult
from forge.core.spec import Permission, ToolSpec
from forge.permissions.gate import PolicyGate, preview_changes
from forge.permissions.questions import Decision, Ruling
from forge.permissions.targets import targets_of

SHOWN = 10  # targets named in the text; the data has them all


def dry_run(gate: PolicyGate | None = None) -> Step:
    """Makes a step that describes calls which need more than `read`, instead of running them.

    Put it outside `authorize`, so that no one is asked about a dry run.

    Args:
        gate: with a gate, the description says what the policy would decide.

    Example:
        >>> callable(dry_run())
        True
    """

    return _DryRun(gate)


class _DryRun(StepObject):
    name = "dry_run"

    def __init__(self, gate: PolicyGate | None) -> None:
        self._gate = gate

    def applies(self, spec: ToolSpec) -> bool:
        return bool((spec.permissions | spec.optional_permissions) - {Permission.READ})

    async def __call__(self, ctx: ToolContext, proceed: Next) -> ToolResult:
        return await describe_effects(ctx, self._gate)


async def describe_effects(ctx: ToolContext, gate: PolicyGate | None = None) -> ToolResult:
    call = render_call(ToolCall(ctx.spec.name, dict(ctx.arguments), ctx.call.id))
    targets = [str(target) for target in targets_of(ctx.spec, ctx.arguments, ctx.tool) if target]
    needs = ", ".join(sorted(ctx.spec.permissions | ctx.spec.optional_permissions)) + _name_targets(targets)
    data = {"dry_run": True, "permissions": sorted(ctx.spec.permissions), "targets": targets}
    does, verdict = "Would call", ""
    if gate is not None:
        ruling = gate.judge(ctx)
        data["decision"] = str(ruling.decision)
        does = "Would not call" if ruling.decision is Decision.DENY else does
        verdict = _verdict(ruling)
    text = f"Dry run, nothing was done. {does} {call}, which needs {needs}{verdict}."
    try:
        change = await preview_changes(ctx)
    except ToolError as error:
        data["problem"] = error.message
        return ToolResult(for_llm=f"{text} It would fail: {error.message}.", title=f"{does} {ctx.spec.name}", data=data)
    shown = f"{text} It would change:\n{change}" if change else text
    return ToolResult(for_llm=shown, for_user=change, title=f"{does} {ctx.spec.name}", data=data)


def _name_targets(targets: list[str]) -> str:
    more = f" and {len(targets) - SHOWN:,} more" if len(targets) > SHOWN else ""
    return f" on {', '.join(targets[:SHOWN])}{more}" if targets else ""


def _verdict(ruling: Ruling) -> str:
    if ruling.decision is Decision.ALLOW:
        return ""
    if ruling.decision is Decision.ASK:
        return f"; a person would be asked ({ruling.reason})"
    how = "denied by" if ruling.reason.startswith("the ") else "denied:"  # a rule, or why it cannot be judged
    return f"; it would be {how} {ruling.reason}"
