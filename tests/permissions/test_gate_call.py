"""What a call may ask of its gate, whoever guards it."""

from __future__ import annotations

from forge.core.context import ToolContext
from forge.core.messages import ToolCall
from forge.core.result import ToolResult
from forge.core.spec import Permission
from forge.core.tool import tool
from forge.permissions.gate import Grant, PolicyGate, gate_of
from forge.permissions.policy import Decision, PermissionRequest, rules
from forge.permissions.questions import Answer


@tool(permissions={"read"}, target="path")
def look(path: str) -> str:
    """Look at a file."""
    return path


def context(gate: object = None) -> ToolContext:
    made = ToolContext(ToolCall("look", {"path": "a"}, "1"), look, {"path": "a"})
    return made if gate is None else made.replace(gate=gate)


class Requires:
    """A gate of somebody's own, which knows only what the protocol demands."""

    def __init__(self) -> None:
        self.asked: list[tuple[Permission, str]] = []

    async def require(self, ctx: ToolContext, permission: Permission, target: str) -> None:
        self.asked.append((permission, target))


async def test_a_gate_that_knows_only_require_opens_nothing_and_asks_nobody() -> None:
    own = Requires()
    ctx = context(own)
    gate = gate_of(ctx)
    request = PermissionRequest(ctx.spec, ctx.call, {}, None, "", ctx.scope, question="Go on?")
    assert not gate.judges
    assert gate.judge(ctx, Permission.READ, "a").decision is Decision.ASK
    assert not gate.rule_allows(ctx, Permission.READ)
    assert not await gate.confirm(ctx, "Go on?")
    assert (await gate.ask(ctx, request)).kind == "no"
    assert gate.remembered("s") == []
    assert await gate.show_result(ctx, ToolResult.of("a")) == ToolResult.of("a")
    await gate.require(ctx, Permission.WRITE, "b")
    assert own.asked == [(Permission.WRITE, "b")]


def test_a_call_that_nothing_guards_has_a_gate_that_judges_nothing() -> None:
    assert not gate_of(context()).judges
    assert not gate_of(context()).rule_allows(context(), Permission.NETWORK)


async def test_a_grant_judges_and_asks_the_person() -> None:
    questions: list[str] = []

    async def approve(request: PermissionRequest) -> Answer:
        questions.append(request.question)
        return Answer("once")

    grant = Grant(PolicyGate(rules("allow read"), approve))
    ctx = context(grant)
    gate = gate_of(ctx)
    assert gate is grant
    assert gate.judges
    assert gate.policy is grant.gate.policy
    assert gate.judge(ctx, Permission.READ, "a").decision is Decision.ALLOW
    assert gate.rule_allows(ctx, Permission.READ)
    assert not gate.rule_allows(ctx, Permission.WRITE)
    assert await gate.confirm(ctx, "Go on?")
    assert questions == ["Go on?"]


async def test_an_outer_call_takes_over_what_was_said_about_the_inner_one() -> None:
    outer, inner = Grant(PolicyGate()), Grant(PolicyGate(), review=True, feedback=["carefully"], edited={"path": "b"})
    outer.adopt(inner, {"arguments": {"path": "b"}})
    assert (outer.review, outer.feedback, outer.edited) == (True, ["carefully"], {"arguments": {"path": "b"}})
    plain = Grant(PolicyGate())
    plain.adopt(Grant(PolicyGate()), {"arguments": None})
    assert (plain.review, plain.feedback, plain.edited) == (False, [], None)
