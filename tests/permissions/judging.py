"""Asks a policy about one permission on one target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from forge.core.context import Scope
from forge.core.messages import ToolCall
from forge.core.spec import Permission, ToolSpec
from forge.permissions.policy import PermissionRequest, Rules, rules

NOWHERE = Path("/nowhere/project")


def spec_of(name: str = "some_tool", *permissions: str, **fields: Any) -> ToolSpec:
    return ToolSpec(
        name=name, description="", parameters={}, permissions=frozenset(map(Permission, permissions)), **fields
    )


def request_for(
    permission: str | None,
    target: str = "",
    *,
    spec: ToolSpec | None = None,
    workspace: Path = NOWHERE,
    **scope: Any,
) -> PermissionRequest:
    spec = spec or spec_of("some_tool", *([permission] if permission else []))
    wanted = Permission(permission) if permission else None
    return PermissionRequest(spec, ToolCall(spec.name), {}, wanted, target, Scope(workspace=workspace, **scope))


def decide(policy: Rules | list[str], permission: str | None, target: str = "", **options: Any) -> str:
    made = policy if isinstance(policy, Rules) else rules(*policy)
    return str(made(request_for(permission, target, **options)))
