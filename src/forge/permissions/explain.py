"""Explains the decision about everything a call wants, without a gate and without asking anyone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from forge.core.context import Scope, ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.messages import ToolCall
from forge.core.spec import Permission
from forge.core.tool import Tool
from forge.permissions.policy import Decision, Policy, Ruling
from forge.permissions.policy_decision import CallLabeller, judge_call


class ExplainedPermission(NamedTuple):
    """One permission a call wants, and the policy's ruling on it."""

    permission: Permission | None
    target: str
    ruling: Ruling
    optional: bool = False  # asked for only while the tool runs, if at all, with a target not known before


def explain_call(
    policy: Policy, tool: Tool, arguments: Mapping[str, Any], scope: Scope, origins: CallLabeller | None = None
) -> list[ExplainedPermission]:
    """Returns the ruling on everything that a call with valid arguments wants, by the function that judges a run.

    `origins`: what a run has read. Without it, no condition about labels holds. Raises `ToolError` for a call that
    would fail for another reason than that it is refused.
    """
    ctx = ToolContext(ToolCall(tool.spec.name, arguments), tool, arguments, scope)
    try:
        at_once = [ExplainedPermission(*found) for found in judge_call(policy, ctx, read=origins)]
    except ToolError as error:
        if error.kind not in (ErrorKind.PERMISSION, ErrorKind.SECURITY):
            raise
        return [ExplainedPermission(None, "", Ruling(Decision.DENY, error.message))]
    later = sorted(tool.spec.optional_permissions - {one.permission for one in at_once})
    rulings = [(one, ruling) for one in later for _, _, ruling in judge_call(policy, ctx, (one, ""), origins)]
    return at_once + [ExplainedPermission(one, "", ruling, optional=True) for one, ruling in rulings]
