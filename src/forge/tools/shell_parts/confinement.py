"""Defines what a program that a tool starts may reach in a sandbox."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from forge.core.context import ToolContext
from forge.core.spec import Permission
from forge.permissions.gate import is_opened
from forge.process.sandbox.layout import Confinement, confinement_of
from forge.workspace.paths import PathValidator


def confinement(
    ctx: ToolContext, paths: PathValidator, *, network: bool, readable: Sequence[Path] = (), home: Path | None = None
) -> Confinement:
    """Returns the confinement: the workspace, the declared roots, `readable`, and the network if it is open."""
    opened = network or is_opened(ctx, Permission.NETWORK)
    return confinement_of(ctx.scope, paths, also=readable, network=opened, home=home)
