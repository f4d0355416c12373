"""Explains a policy's ruling on everything a call wants, without a gate and without asking anyone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from forge.core.context import Scope
from forge.core.messages import ToolCall
from forge.core.spec import Permission, ToolSpec
from forge.core.tool import Tool
from forge.permissions.labels.call_labels import is_irreversible
from forge.permissions.labels.conditions import CallLabels
from forge.permissions.policy import Decision, PermissionRequest, Rules, Ruling
from forge.permissions.policy_decision import apply_labels, ask_if_unresolved
from forge.permissions.protected import protect
from forge.permissions.targets import find_requests


class RunOrigins(Protocol):
    """The texts that a run has read. `Provenance` holds them."""

    def label_request(
        self,
        spec: ToolSpec,
        arguments: Mapping[str, Any],
        permission: Permission | None,
        target: str,
        *,
        irreversible: bool,
    ) -> CallLabels | None: ...


class ExplainedPermission(NamedTuple):
    """One permission a call wants, and the policy's ruling on it."""

    permission: Permission | None
    target: str
    ruling: Ruling
    optional: bool = False  # asked for only while the tool runs, if at all, with a target not known before


def explain_call(
    policy: Rules, tool: Tool, arguments: Mapping[str, Any], scope: Scope, origins: RunOrigins | None = None
) -> list[ExplainedPermission]:
    """Returns the policy's ruling on everything that a call with valid arguments wants, as the gate judges it.

    `origins`: what a run has read. Without it, no condition about labels holds.
    """

    spec = tool.spec

    def judge(permission: Permission | None, target: str) -> Ruling:
        is_final = is_irreversible(spec, tool, arguments)
        labels = (
            None
            if origins is None
            else origins.label_request(spec, arguments, permission, target, irreversible=is_final)
        )
        call = ToolCall(spec.name, arguments)
        request = PermissionRequest(spec, call, arguments, permission, target, scope, labels=labels)
        ruling = ask_if_unresolved(
            protect(policy.explain(request), permission, target, scope), permission, target, scope
        )
        ruling = ruling if labels is None else apply_labels(ruling, labels)
        if ruling.decision is Decision.ALLOW and spec.confirm:
            return Ruling(Decision.ASK, "the tool requires confirmation of every call")
        return ruling

    at_once = find_requests(spec, arguments, tool, scope)
    later = sorted(spec.optional_permissions - {permission for permission, _ in at_once})
    found = [ExplainedPermission(permission, target, judge(permission, target)) for permission, target in at_once]
    return found + [ExplainedPermission(permission, "", judge(permission, ""), optional=True) for permission in later]
