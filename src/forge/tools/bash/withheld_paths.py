"""What a line that is allowed only to read must not see: the paths that the policy withholds, as they are right now."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from forge.core.context import ToolContext
from forge.core.execution.threads import in_thread
from forge.core.spec import Permission
from forge.permissions.call_gate import CallGate
from forge.permissions.policy import Decision, Rules
from forge.permissions.targets import paths
from forge.process.sandbox.layout import SETTINGS

MOST_LOOKED_AT = 20_000  # entries of the workspace and the roots, in search of a name that is withheld at any depth
MOST_HIDDEN = 100  # each costs a mount

_WILD = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class Reading:
    """A line may run because it only reads, so it runs where it can do nothing else."""

    hidden: tuple[Path, ...] = ()


def withholds(ctx: ToolContext, gate: CallGate) -> bool:
    """Whether the policy keeps anything from being read; True where it does not say."""
    policy = gate.policy
    return not isinstance(policy, Rules) or bool(_targets(policy, ctx)) or not _reads_by_default(ctx, gate)


async def hidden_paths(ctx: ToolContext, gate: CallGate) -> tuple[Path, ...] | None:
    """The paths to hide, so that nothing is read that the policy withholds; None where they cannot be named."""
    policy = gate.policy
    if not isinstance(policy, Rules) or not _reads_by_default(ctx, gate):
        return None
    targets = _targets(policy, ctx)
    if not targets:
        return ()
    if any(_WILD.search(target) for target in targets):
        return None
    found = await in_thread(lambda: _existing(targets, ctx))
    if found is None:
        return None
    hidden = [path for path in found if gate.judge(ctx, Permission.READ, path).decision is not Decision.ALLOW]
    # a rule may allow a directory and still withhold what is in it
    return None if any(map(os.path.isdir, set(found) - set(hidden))) else tuple(map(Path, hidden))


def _targets(policy: Rules, ctx: ToolContext) -> list[str]:
    return policy.restricted_targets(ctx.spec, Permission.READ, ctx.scope)


def _reads_by_default(ctx: ToolContext, gate: CallGate) -> bool:
    return gate.judge(ctx, Permission.READ, "").decision is Decision.ALLOW


def _existing(targets: Sequence[str], ctx: ToolContext) -> list[str] | None:
    """What is there under the names of rules, as rules that forbid take them; None if it is too much."""
    workspace = paths.roots(str(ctx.scope.workspace))[-1]
    anywhere = {paths.fold(target.rstrip("/")) for target in targets if "/" not in target.rstrip("/")}
    floating = {name for name in anywhere if name not in ("", ".", "..") and not name.startswith("~")}
    found: dict[str, None] = {}
    for target in targets:
        if paths.fold(target.rstrip("/")) not in floating:
            found |= dict.fromkeys(_anchored(os.path.join(workspace, os.path.expanduser(target))))
    if floating:
        named = _named(floating, [workspace, *(str(root.path) for root in ctx.scope.roots)])
        if named is None:
            return None
        found |= dict.fromkeys(named)
        found |= dict.fromkeys(one for one in SETTINGS if floating & set(paths.fold(one).split("/")))
    return list(found) if len(found) <= MOST_HIDDEN else None


def _anchored(path: str) -> Iterator[str]:
    """The entries that a path may mean, whatever the case of its letters."""
    places = ["/"]
    for name in (paths.fold(one) for one in paths.normalise(path).split("/") if one):
        places = [
            os.path.join(place, entry) for place in places for entry in _names(place) if paths.fold(entry) == name
        ]
    yield from places


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:  # no directory, or one that the program cannot read either
        return []


def _named(names: set[str], folders: list[str]) -> list[str] | None:
    found, looked_at = [], 0
    while folders:
        folder = folders.pop()
        for entry in _names(folder):
            looked_at += 1
            if looked_at > MOST_LOOKED_AT:
                return None
            path = os.path.join(folder, entry)
            if paths.fold(entry) in names:
                found.append(path)
            elif os.path.isdir(path) and not os.path.islink(path):
                folders.append(path)
    return found
