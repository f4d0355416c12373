"""Asks a policy about a call: a policy that fails, or gives no clear answer, means no."""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from forge.core.context import Scope, ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.spec import Permission
from forge.permissions.failures import describe_failure
from forge.permissions.labels.call_labels import is_irreversible
from forge.permissions.labels.conditions import CallLabels
from forge.permissions.labels.settings import current_provenance
from forge.permissions.labels.trace import Trace
from forge.permissions.policy import Decision, PermissionRequest, Policy, Rules, Ruling
from forge.permissions.protected import protect
from forge.permissions.targets import Opaque, Scalar

log = logging.getLogger(__name__)


def ruling_of(policy: Policy, ctx: ToolContext, permission: Permission | None, target: str) -> Ruling:
    """Returns the policy's ruling on a permission on a target."""
    arguments = (
        ctx.arguments if isinstance(policy, Rules) else copy_arguments(ctx.arguments)
    )  # rules do not look at them
    provenance = current_provenance.get()
    labels = (
        None
        if provenance is None
        else provenance.label_request(
            ctx.spec,
            ctx.arguments,
            permission,
            target,
            ctx.activity.secrets,
            irreversible=is_irreversible(ctx.spec, ctx.tool, ctx.arguments),
            call=ctx.call.id,
        )
    )
    request = PermissionRequest(ctx.spec, ctx.call, arguments, permission, target, ctx.scope, labels=labels)
    try:
        decided = policy.explain(request) if isinstance(policy, Rules) else policy(request)
        ruling = decided if isinstance(decided, Ruling) else Ruling(Decision(decided), "the policy")
        ruling = ask_if_unresolved(protect(ruling, permission, target, ctx.scope), permission, target, ctx.scope)
        return ruling if labels is None else apply_labels(ruling, labels)
    except Exception as error:
        log.error("the policy failed on %s: %s", ctx.spec.name, ctx.activity.secrets.mask_all(describe_failure(error)))
        return Ruling(Decision.DENY, f"the policy, which failed with {type(error).__name__}")


def apply_labels(ruling: Ruling, labels: CallLabels) -> Ruling:
    """Adds to a ruling what labels say. Where the default profile has a reason to ask, an allow becomes a question.

    A rule that has a condition about labels decides itself.
    """
    if ruling.conditions:
        traces = () if ruling.decision is Decision.ALLOW else labels.explain(ruling.conditions)
        return replace(ruling, reason=_add_traces(ruling.reason, traces), traces=traces) if traces else ruling
    traces = () if ruling.decision is Decision.DENY else labels.find_reasons()
    if not traces:
        return ruling
    why = ruling.reason if ruling.decision is Decision.ASK else ""
    return Ruling(Decision.ASK, _add_traces(why, traces), ruling.rule, ruling.layer, traces=traces)


def _add_traces(reason: str, traces: tuple[Trace, ...]) -> str:
    more = f" (and {len(traces) - 1} more)" if len(traces) > 1 else ""
    return f"{reason}; {traces[0]}{more}" if reason else f"{traces[0]}{more}"


def ask_if_unresolved(ruling: Ruling, permission: Permission | None, target: str, scope: Scope) -> Ruling:
    """Asks instead of allowing a destructive program with unknown targets, unless a rule allows that very line."""
    if (
        permission is not Permission.EXECUTE
        or ruling.decision is not Decision.ALLOW
        or isinstance(target, Opaque | Scalar)
    ):
        return ruling
    from forge.permissions.shell.destructive import explain_unresolved  # it loads a parser of shell lines

    reason = explain_unresolved(target, scope)
    if not reason or ruling.rule.endswith(f" {target.strip()}"):
        return ruling
    return Ruling(Decision.ASK, reason, ruling.rule, ruling.layer)


def copy_arguments(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns a copy that shares nothing with the original."""
    try:
        return MappingProxyType(copy.deepcopy(dict(arguments)))
    except Exception as error:  # an object that does not let itself be copied
        raise ToolError(
            f"the arguments cannot be checked: {type(error).__name__} while copying them",
            ErrorKind.PERMISSION,
            "Send plain JSON data.",
        ) from error
