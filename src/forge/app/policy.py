"""The policy of a project: its configuration's rules, then those given for this call."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from forge.app.config import Configuration
from forge.core.context import Scope
from forge.core.messages import ToolCall
from forge.core.spec import Permission, ToolSpec
from forge.permissions.policy import Decision, PermissionRequest, Rules, Ruling, layered, load_rules
from forge.permissions.targets import targets_of


class Explained(NamedTuple):
    """One thing a call wants, and what the policy says to it."""

    permission: Permission | None
    target: str
    ruling: Ruling
    optional: bool = False  # asked for only while the tool runs, if at all, with a target not known before


def project_policy(configuration: Configuration, policy: str | None) -> Rules:
    """A rule file given for this call is the more specific layer: it decides, but what the project denies stays denied.

    Raises `PolicyError`.
    """
    return layered(
        project=load_rules(Path(configuration.name)) if configuration.rules else None,  # again, for the lines
        session=load_rules(Path(policy)) if policy is not None else None,
    )


def explained(policy: Rules, spec: ToolSpec, arguments: Mapping[str, Any], scope: Scope) -> list[Explained]:
    """What the policy says to everything that a call with valid arguments wants."""

    def judge(permission: Permission | None, target: str) -> Ruling:
        request = PermissionRequest(spec, ToolCall(spec.name, arguments), arguments, permission, target, scope)
        ruling = policy.explain(request)
        if ruling.decision is Decision.ALLOW and spec.confirm:
            return Ruling(Decision.ASK, "the tool wants every call confirmed")
        return ruling

    wanted: list[Permission | None] = [*sorted(spec.permissions)] or [None]
    later = sorted(spec.optional_permissions - spec.permissions)
    found = [
        Explained(permission, target, judge(permission, target))
        for permission in wanted
        for target in targets_of(spec, arguments)
    ]
    return found + [Explained(permission, "", judge(permission, ""), optional=True) for permission in later]
