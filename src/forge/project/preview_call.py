"""Previews a call: every permission it needs, the ruling on each, and what the egress refuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from forge.core.context import Scope, ToolContext
from forge.core.errors import ToolError
from forge.core.messages import ToolCall
from forge.core.spec import Permission
from forge.core.tool import Tool
from forge.network.address import read_url
from forge.network.egress import Egress
from forge.permissions.effects import explain_effects, read_effects
from forge.permissions.labels.settings import LabelSettings
from forge.permissions.policy import CallLabeller, ExplainedPermission, Rules, explain_call
from forge.permissions.questions import Decision, Ruling
from forge.permissions.trial import explain_trial
from forge.project.assemble.access import project_egress
from forge.project.config.declaration import Configuration

EGRESS = "egress"
REDIRECT = "a redirect to another server cannot be foreseen: the rules judge its address when it comes"
_JUDGED = frozenset({"http_request", "web_fetch", "webhook_call"})  # by the egress, too
_STRICTNESS = (Decision.ALLOW, Decision.ASK, Decision.DENY)


class CallPreview(NamedTuple):
    """The permissions of a call; `decisive` is the strictest that is not optional."""

    wants: list[ExplainedPermission]
    decisive: ExplainedPermission

    @property
    def decision(self) -> Decision:
        return self.decisive.ruling.decision


def preview_call(
    configuration: Configuration,
    policy: Rules,
    tool: Tool,
    arguments: Mapping[str, Any],
    scope: Scope,
    origins: CallLabeller | None = None,
    effects: Sequence[str] | None = None,
    *,
    tries: bool = True,
) -> CallPreview:
    """Previews a call with valid arguments. Raises `ToolError` if the configuration cannot be used.

    `effects`: what a trial run of the call does, such as `delete src/a.py`. Without them, a trial run that replaces a
    question on this machine is named; `tries=False`: the answer is the same on every machine.
    """
    if effects is None:
        wants = explain_call(policy, tool, arguments, scope, origins)
        if tries:
            ctx = ToolContext(ToolCall(tool.spec.name, arguments), tool, arguments, scope)
            settings = configuration.labels.settings
            labels = settings if isinstance(settings, LabelSettings) else None
            wants = explain_trial(wants, policy, ctx, labels, configuration.trial, origins)
    else:
        wants = explain_effects(policy, tool, arguments, scope, read_effects(effects, scope), origins)
    if tool.spec.name in _JUDGED and "url" in arguments:
        wants += _egress_refusals(configuration, arguments["url"])
    if tool.spec.name == "http_request" and _may_judge_redirects(policy, tool, wants):
        wants.append(ExplainedPermission(Permission.NETWORK, "", Ruling(Decision.ASK, REDIRECT), optional=True))
    certain = [one for one in wants if not one.optional]
    return CallPreview(wants, max(certain, key=lambda one: _STRICTNESS.index(one.ruling.decision)))


def _may_judge_redirects(policy: Rules, tool: Tool, wants: list[ExplainedPermission]) -> bool:
    """Returns whether a rule about the network could decide otherwise about the address of a redirect."""
    if any(one.ruling.decision is Decision.DENY for one in wants):
        return False
    return any(rule.concerns(tool.spec, Permission.NETWORK) for rule in policy.all_rules())


def _egress_refusals(configuration: Configuration, url: str) -> list[ExplainedPermission]:
    """Returns a refusal of the egress, which no rule can allow. Addresses of names are not resolved here."""

    egress = project_egress(configuration) or Egress()
    try:
        egress.judge(read_url(url))
    except ToolError as error:
        ruling = Ruling(Decision.DENY, f"{error.message}. {error.suggestion}", "", EGRESS)
        return [ExplainedPermission(Permission.NETWORK, url, ruling)]
    return []
