"""Decides about a call: for the run, `forge policy explain`, `forge policy test` and the console alike.

A policy that fails, or gives no clear answer, means no.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from forge.core.context import Scope, ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.registry import CONVERSATION
from forge.core.secrets import Secrets
from forge.core.spec import Permission, ToolSpec
from forge.permissions.failures import describe_failure
from forge.permissions.labels.call_labels import is_irreversible
from forge.permissions.labels.conditions import CallLabels
from forge.permissions.labels.trace import Trace
from forge.permissions.policy import Decision, PermissionRequest, Policy, Rules, Ruling
from forge.permissions.protected import protect
from forge.permissions.targets import CallJudge, Opaque, Scalar, find_requests

MOST_TARGETS = 1_000  # of one call

log = logging.getLogger(__name__)


class JudgedRequest(NamedTuple):
    """A permission on a target that a call wants, and the ruling on it."""

    permission: Permission | None
    target: str
    ruling: Ruling


class CallLabeller(Protocol):
    """The texts that a run has read. `Provenance` holds them."""

    def label_request(
        self,
        spec: ToolSpec,
        arguments: Mapping[str, Any],
        permission: Permission | None,
        target: str,
        secrets: Secrets | None = None,
        *,
        irreversible: bool = False,
        call: str = "",
    ) -> CallLabels | None: ...


def judge_call(
    policy: Policy, ctx: ToolContext, wanted: tuple[Permission, str] | None = None, read: CallLabeller | None = None
) -> Iterator[JudgedRequest]:
    """Yields the ruling on each permission that a call with valid arguments wants, or only on the `wanted` one.

    `read`: what the run has read. Raises `ToolError` where the tool itself refuses the call.
    """

    def judge(permission: Permission | None, target: str) -> Ruling:
        return _judge_request(policy, ctx, permission, target, read)

    if wanted is not None:
        yield JudgedRequest(*wanted, judge(*wanted))
        return
    if ctx.spec.name in CONVERSATION and not isinstance(policy, Rules):
        return
    found = find_requests(ctx.spec, ctx.arguments, ctx.tool, ctx.scope, CallJudge(policy, judge))
    targets = len({target for _, target in found})
    if targets > MOST_TARGETS:
        raise ToolError(
            f"it names {targets:,} targets; the limit for one call is {MOST_TARGETS:,}",
            ErrorKind.PERMISSION,
            "Split it into several calls.",
        )
    for permission, target in found:
        yield JudgedRequest(permission, target, _ask_always(ctx, judge(permission, target)))


def _ask_always(ctx: ToolContext, ruling: Ruling) -> Ruling:
    """Asks about a tool that a person must approve each time, whatever rules allow."""
    if ruling.decision is Decision.DENY:
        return ruling
    if ctx.tool.needs_person:
        return Ruling(Decision.ASK, "it changed, or may have changed, since a person last allowed it")
    if ctx.spec.confirm and ruling.decision is Decision.ALLOW:
        return Ruling(Decision.ASK, "the tool requires confirmation of every call")
    return ruling


def _judge_request(
    policy: Policy, ctx: ToolContext, permission: Permission | None, target: str, read: CallLabeller | None
) -> Ruling:
    arguments = (
        ctx.arguments if isinstance(policy, Rules) else copy_arguments(ctx.arguments)
    )  # rules do not look at them
    labels = (
        None
        if read is None
        else read.label_request(
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
