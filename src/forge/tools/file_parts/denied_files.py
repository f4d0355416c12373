"""Finds the files that a search must not show, because a rule denies reading them."""

from __future__ import annotations

from collections.abc import Callable

from forge.core.context import ToolContext
from forge.core.spec import Permission
from forge.permissions.call_gate import gate_of
from forge.permissions.policy import Rules
from forge.permissions.request import Decision


def denied_predicate(ctx: ToolContext) -> Callable[[str], bool]:
    """Returns a predicate for the paths found. It costs nothing if no rule could deny reading."""
    return denied_by_rules(ctx) or _deny_none


def denied_by_rules(ctx: ToolContext) -> Callable[[str], bool] | None:
    """Returns the predicate, or None if no rule could deny reading."""
    gate = gate_of(ctx)
    if not gate.judges:
        return None
    policy = gate.policy
    if isinstance(policy, Rules) and not policy.may_deny(ctx.spec, Permission.READ):
        return None
    return lambda path: gate.judge(ctx, Permission.READ, path).decision is Decision.DENY


def _deny_none(path: str) -> bool:
    return False
