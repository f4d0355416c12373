"""What a program that a tool starts may reach, where there is a sandbox."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from forge.core.context import ToolContext
from forge.core.spec import Permission
from forge.permissions.gate import Grant
from forge.permissions.policy import Decision
from forge.process.sandbox import Confinement
from forge.workspace.paths import PathValidator


def confinement(ctx: ToolContext, paths: PathValidator, *, network: bool, readable: Iterable[Path] = ()) -> Confinement:
    """The workspace and the declared roots as they are declared, `readable` besides, and the network if it is open."""
    beside = [root for root in paths.roots if root.path != paths.workspace]
    writable = tuple(root.path for root in beside if root.writable and paths.writes)
    only_read = [root.path for root in beside if root.path not in writable]
    return Confinement(
        workspace=paths.workspace,
        writable=writable,
        readable=(*only_read, *([] if paths.writes else [paths.workspace]), *readable),
        network=network or _allowed(ctx),
    )


def _allowed(ctx: ToolContext) -> bool:
    """Whether a rule opens the network: a person's yes to the command is not about it."""
    if not isinstance(ctx.gate, Grant):
        return False
    ruling = ctx.gate.judge(ctx, Permission.NETWORK, "")
    return ruling.decision is Decision.ALLOW and bool(ruling.rule)
