"""Resolves the paths of file tools at the moment of use, and finds the files that a rule hides from a search.

A path is judged again if a link may have changed since the approval.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.spec import Permission
from forge.permissions.gate import gate_of
from forge.permissions.policy import Rules
from forge.permissions.questions import Decision
from forge.permissions.targets import identity
from forge.workspace.paths import Location, PathValidator, quote_path


async def resolve_approved(
    ctx: ToolContext, permission: Permission, path: str, *, blank: bool = False
) -> list[Location]:
    """Returns the locations of a path: its target and, if it is a link, the link itself.

    Of a link that leads outside only the link itself can be written, that is deleted.
    """
    paths = PathValidator.of(ctx.scope)
    locations = _find_locations(paths, permission, path, blank)
    spelled = paths.normalize(path)
    if gate_of(ctx).judges and any(str(location.path) != spelled for location in locations):
        await _judge_again(ctx, permission, path, locations)
    return locations


def _find_locations(paths: PathValidator, permission: Permission, path: str, blank: bool) -> list[Location]:
    itself = paths.resolve(path, blank=blank, follow=False)
    if not os.path.islink(itself.path):  # a link that is put there later is refused when it is opened
        return [itself]
    try:
        target = paths.resolve(path, blank=blank, follow=True)
    except ToolError:
        if permission is not Permission.WRITE:
            raise
        return [itself]
    return [itself] if target == itself else [target, itself]


async def _judge_again(ctx: ToolContext, permission: Permission, path: str, locations: list[Location]) -> None:
    """Judges the path again if its target is not the one that the gate approved."""
    await ctx.require(permission, path)
    meant = identity(permission, path, ctx.scope)
    for location in locations:
        ruling = gate_of(ctx).judge(ctx, permission, str(location.path))
        if ruling.decision is Decision.DENY:
            raise ToolError(
                f"{quote_path(path)} leads to {quote_path(location.shown)}, which is denied by {ruling.reason}",
                ErrorKind.PERMISSION,
                "Do something else, or ask the person to change the policy.",
            )
        if ruling.decision is Decision.ASK and not (isinstance(meant, frozenset) and str(location.path) in meant):
            raise ToolError(f"{quote_path(path)} was replaced while it was checked", ErrorKind.SECURITY, "Try again.")


# Finds the files that a search must not show, because a rule denies reading them.


def denied_predicate(ctx: ToolContext) -> Callable[[str], bool]:
    """Returns a predicate for the paths found. It costs nothing if no rule could deny reading."""
    return denied_by_rules(ctx) or _deny_none


def denied_by_rules(ctx: ToolContext) -> Callable[[str], bool] | None:
    """Returns the predicate, or None if no rule and no protection could deny reading."""
    gate = gate_of(ctx)
    if not gate.judges:
        return None
    policy = gate.policy
    if isinstance(policy, Rules) and not (ctx.scope.hidden or policy.may_deny(ctx.spec, Permission.READ)):
        return None
    return lambda path: gate.judge(ctx, Permission.READ, path).decision is Decision.DENY


def _deny_none(path: str) -> bool:
    return False
