"""Which files a search may not show, because a rule denies reading them."""

from __future__ import annotations

from collections.abc import Callable

from forge.core.context import ToolContext
from forge.core.spec import Permission
from forge.permissions.call_gate import gate_of
from forge.permissions.policy import Decision, Rules


def denied(ctx: ToolContext) -> Callable[[str], bool]:
    """A question to ask about each path found. It costs nothing where no rule could deny reading."""
    return rules_out(ctx) or _nothing


def rules_out(ctx: ToolContext) -> Callable[[str], bool] | None:
    """The same; None where no rule could deny reading."""
    gate = gate_of(ctx)
    if not gate.judges:
        return None
    policy = gate.policy
    if isinstance(policy, Rules) and not policy.may_deny(ctx.spec, Permission.READ):
        return None
    return lambda path: gate.judge(ctx, Permission.READ, path).decision is Decision.DENY


def _nothing(path: str) -> bool:
    return False
