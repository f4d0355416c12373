"""Steps that authorize: the permissions that a call declares, and the requests that its tool makes to the network."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from forge.core.context import Gate, ToolContext
from forge.core.execution.chain import Next, StepObject
from forge.core.plain_values import plain
from forge.core.result import ToolResult
from forge.core.spec import Permission, ToolSpec
from forge.permissions.gate import CallGate, PolicyGate, gate_of
from forge.permissions.targets import find_requests
from forge.workspace.state import make_key

if TYPE_CHECKING:
    from forge.network.egress import Egress


class Authorize(StepObject):
    """Passes every declared permission on every target through the gate, then those that the running tool requires.

    A tool that declares only `optional_permissions` and a `target` needs them at once where a call names the target.
    Tools that declare nothing and that no rule names do without this step. Such a tool keeps the closed gate, so a tool
    that calls `ctx.require` must declare its `optional_permissions`.
    """

    name = "authorize"
    gate: Gate

    def __init__(self, gate: Gate) -> None:
        self.gate = gate

    def applies(self, spec: ToolSpec) -> bool:
        return self.gate.concerns(spec) if isinstance(self.gate, PolicyGate) else True

    async def __call__(self, ctx: ToolContext, proceed: Next) -> ToolResult:
        if Permission.EXECUTE in ctx.spec.permissions or Permission.EXECUTE in ctx.spec.optional_permissions:
            make_key()  # a program may make a state directory of its own
        if not isinstance(self.gate, PolicyGate):
            return await self._require_each(ctx, proceed)
        granted = await self.gate.authorize(ctx, may_try=True)
        own = gate_of(granted)
        if own.trial is None:
            result = await proceed(granted)
        else:
            from forge.permissions.trial import run_trial  # it loads what only calls of programs need

            result = await run_trial(granted, own, proceed)
        return _with_notes(await own.show_result(granted, result), own)

    async def after(self, ctx: ToolContext, result: ToolResult) -> ToolResult:
        """Shows the result of background work to a person who wanted to see it first."""
        return await gate_of(ctx).show_result(ctx, result)

    def forget(self, session_id: str) -> None:
        """Forgets the answers of a session, so that its questions are asked again."""
        if isinstance(self.gate, PolicyGate):
            self.gate.forget(session_id)

    async def _require_each(self, ctx: ToolContext, proceed: Next) -> ToolResult:
        """Judges each permission alone, for a gate that knows only `require`."""
        for permission, target in find_requests(ctx.spec, ctx.arguments, ctx.tool, ctx.scope):
            if permission is not None:
                await self.gate.require(ctx, permission, target)
        return await proceed(ctx.replace(gate=self.gate))


def _with_notes(result: ToolResult, gate: CallGate) -> ToolResult:
    """Adds notes for the model: the person's words with an approval, and the arguments that ran instead."""
    notes = [*gate.feedback]
    if gate.edited is not None:
        edited = dict(gate.edited)
        result = result.with_data(edited_arguments=plain(edited))
        notes.append(f"The person changed the arguments; the call ran with {ToolResult.of(edited).for_llm[:2_000]}")
    return dataclasses.replace(result, for_llm="\n".join([result.for_llm, *notes])) if notes else result


# Requests that a tool makes through `forge.network` are judged by the project's egress.


class GuardEgress(StepObject):
    """Applies the project's egress to every call. Without one, the surrounding egress applies: public addresses only.

    It guards every tool, also one that forgot to declare that it uses the network.
    """

    name = "guard_egress"

    def __init__(self, egress: Egress | None = None) -> None:
        self.egress = egress

    def applies(self, spec: ToolSpec) -> bool:
        return self.egress is not None

    async def __call__(self, ctx: ToolContext, proceed: Next) -> ToolResult:
        from forge.network.egress import use_egress

        assert self.egress is not None
        with use_egress(self.egress):
            return await proceed(ctx)
