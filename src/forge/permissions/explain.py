"""Explains the decision about everything a call wants, without a gate and without asking anyone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
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
    tool: str = ""  # the tool that is called through the called one, and wants it; "": the called one itself


class InnerCall(NamedTuple):
    """The call that a tool such as `mcp_call` makes, which is judged like a call of its own.

    Without a tool, only the note is known. The note ends the reason of each ruling.
    """

    name: str
    tool: Tool | None
    arguments: Mapping[str, Any]
    note: str = ""


def explain_call(
    policy: Policy, tool: Tool, arguments: Mapping[str, Any], scope: Scope, origins: CallLabeller | None = None
) -> list[ExplainedPermission]:
    """Returns the ruling on everything that a call with valid arguments wants, by the function that judges a run.

    A tool that calls another one has `find_inner_call(arguments, scope)`: the other call is explained, too. `origins`:
    what a run has read. Without it, no condition about labels holds. Raises `ToolError` for a call that would fail for
    another reason than that it is refused.
    """
    own = _explain_own(policy, tool, arguments, scope, origins)
    find_inner = getattr(tool, "find_inner_call", None)
    if find_inner is None or any(one.ruling.decision is Decision.DENY for one in own):
        return own
    inner: InnerCall = find_inner(arguments, scope)
    if inner.tool is None:
        return [*own, ExplainedPermission(None, "", Ruling(Decision.ASK, inner.note), optional=True, tool=inner.name)]
    more = explain_call(policy, inner.tool, inner.arguments, scope, origins)
    return own + [one._replace(ruling=_add_note(one.ruling, inner.note), tool=inner.name) for one in more]


def _add_note(ruling: Ruling, note: str) -> Ruling:
    if not note or ruling.decision is Decision.DENY:
        return ruling
    return replace(ruling, reason=f"{ruling.reason}; {note}")


def _explain_own(
    policy: Policy, tool: Tool, arguments: Mapping[str, Any], scope: Scope, origins: CallLabeller | None
) -> list[ExplainedPermission]:
    """Returns the ruling on everything that the called tool itself wants."""
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
