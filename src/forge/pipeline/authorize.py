"""Step: whatever a call declares is granted before the tool runs."""

from __future__ import annotations

import dataclasses

from forge.core.context import Gate, ToolContext
from forge.core.executor import Next
from forge.core.plain_values import plain
from forge.core.result import ToolResult
from forge.core.spec import ToolSpec
from forge.permissions.call_gate import CallGate, gate_of
from forge.permissions.gate import PolicyGate
from forge.permissions.targets import find_requests


def authorize(gate: Gate) -> Authorize:
    """Every declared permission on every target passes the gate, and so does what the tool requires while it runs.

    A tool that declares only `optional_permissions` and a `target` needs them at once where a call names the target.
    """
    return Authorize(gate)


class Authorize:
    """Left out of the chain of tools that the gate does not concern: those that declare nothing and no rule names.

    Such a tool keeps the closed gate, so a tool that calls `ctx.require` must declare its `optional_permissions`.
    """

    screens = True  # the result of background work may be one that somebody wants to see first

    def __init__(self, gate: Gate) -> None:
        self.gate = gate

    def applies(self, spec: ToolSpec) -> bool:
        return self.gate.concerns(spec) if isinstance(self.gate, PolicyGate) else True

    async def __call__(self, ctx: ToolContext, proceed: Next) -> ToolResult:
        if ctx.outcome is not None:
            return await gate_of(ctx).show_result(ctx, await proceed(ctx))
        if not isinstance(self.gate, PolicyGate):
            return await self._one_by_one(ctx, proceed)
        granted = await self.gate.authorize(ctx)
        own = gate_of(granted)
        return _with_notes(await own.show_result(granted, await proceed(granted)), own)

    def clear_state(self, session_id: str) -> None:
        """A session that begins anew is asked anew."""
        if isinstance(self.gate, PolicyGate):
            self.gate.forget(session_id)

    async def _one_by_one(self, ctx: ToolContext, proceed: Next) -> ToolResult:
        """For a gate that knows only `require`."""
        for permission, target in find_requests(ctx.spec, ctx.arguments, ctx.tool, ctx.scope):
            if permission is not None:
                await self.gate.require(ctx, permission, target)
        return await proceed(ctx.replace(gate=self.gate))


def _with_notes(result: ToolResult, gate: CallGate) -> ToolResult:
    """The model learns what the person said with a yes, and which arguments ran instead of its own."""
    notes = [f"The person approved this and said: {said}" for said in gate.feedback]
    if gate.edited is not None:
        edited = dict(gate.edited)
        result = result.with_data(edited_arguments=plain(edited))
        notes.append(f"The person changed the arguments; it ran with {ToolResult.of(edited).for_llm[:2_000]}")
    return dataclasses.replace(result, for_llm="\n".join([result.for_llm, *notes])) if notes else result
