"""The gate of one call, as its tool and the steps see it, for any kind of gate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from forge.core.context import Gate, ToolContext
from forge.core.messages import ToolCall
from forge.core.result import ToolResult
from forge.core.spec import Permission
from forge.core.tool import Tool
from forge.permissions.answers import Answer
from forge.permissions.request import Decision, PermissionRequest, Policy, Ruling


def gate_of(ctx: ToolContext) -> CallGate:
    """Returns the gate of a call. A gate that knows only `require` answers everything else as `CallGate` does."""
    return ctx.gate if isinstance(ctx.gate, CallGate) else _Requiring(ctx.gate)


class CallGate:
    """The interface of a call's gate. These are the answers of a gate that knows no rules and has no one to ask."""

    __slots__ = ()
    judges = False  # True: it knows the rules and what was granted, so `judge` and `authorize` mean something
    review = False
    edited: Mapping[str, Any] | None = None  # the arguments that run instead of those of the model
    feedback: Sequence[str] = ()  # words that came with a yes
    policy: Policy | None = None

    async def require(self, ctx: ToolContext, permission: Permission, target: str) -> None:
        """Raises `ToolError` if the permission is refused."""
        raise NotImplementedError

    def judge(self, ctx: ToolContext, permission: Permission | None = None, target: str = "") -> Ruling:
        """Returns the ruling of `require`, or without a permission that of the whole call. Asks no one."""
        return Ruling(Decision.ASK, "the gate of this call has no rules")

    def rule_allows(self, ctx: ToolContext, permission: Permission) -> bool:
        """Returns whether a rule allows the permission to this call; a person's approval of the call does not count."""
        ruling = self.judge(ctx, permission, "")
        return ruling.decision is Decision.ALLOW and bool(ruling.rule)

    async def confirm(self, ctx: ToolContext, question: str) -> bool:
        """Asks the person about something that no rule decides."""
        return False

    async def ask(self, ctx: ToolContext, request: PermissionRequest) -> Answer:
        """Puts a question of the tool's own to the person who is asked about its calls."""
        return Answer.no(by="nobody")

    async def fill_form(self, ctx: ToolContext, message: str, form: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Puts a form of the tool's own to the person. Returns the answer; None if it was declined."""
        return None

    async def show_result(self, ctx: ToolContext, result: ToolResult) -> ToolResult:
        """Shows the result to a person who wanted to see it before the model does."""
        return result

    def remembered(self, session_id: str) -> list[str]:
        """Returns what "always" covers in a session, for people."""
        return []

    async def authorize(self, inner: ToolContext) -> ToolContext:
        """Judges a call that this call makes. Returns the context to run it with."""
        return inner

    def adopt(self, inner: CallGate, edited: Mapping[str, Any]) -> None:
        """Takes over what was said about a call that this call made; `edited` runs if the person changed arguments."""


class _Requiring(CallGate):
    """Adapts a gate that knows only `require`."""

    __slots__ = ("_gate",)

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    async def require(self, ctx: ToolContext, permission: Permission, target: str) -> None:
        await self._gate.require(ctx, permission, target)


# --- Authorizes a tool that is called through another one, as if it had been called by its own name.


async def authorize_inner(tool: Tool, parsed: dict[str, Any], ctx: ToolContext, holder: str) -> dict[str, Any]:
    """Returns the authorized arguments, including a person's edits. Raises `ToolError` if the call is refused.

    `holder` is the parameter of the outer tool that holds the arguments. Every rule about the inner tool thus applies,
    whichever way the tool is called.
    """

    outer = gate_of(ctx)
    if not outer.judges:
        for permission, target in tool.required_permissions(parsed, ctx.scope) or ():
            if permission is not None:
                await ctx.require(permission, target)
        return parsed
    call = ToolCall(tool.spec.name, parsed, ctx.call.id)
    inner = ToolContext(call, tool, parsed, ctx.scope, ctx.activity, ctx.owner)
    with ctx.pause_clock():
        granted = await outer.authorize(inner)
    own = gate_of(granted)
    outer.adopt(own, {**ctx.arguments, holder: own.edited})  # feedback with a yes belongs to the model's own call
    return dict(granted.arguments)
