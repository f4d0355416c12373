"""Tells what a new rule would change: may it loosen the policy, and which recent calls would it decide differently?"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from forge.console.console_state import ConsoleState
from forge.console.event_entries import read_arguments
from forge.core.errors import ToolError
from forge.core.tool import Tool
from forge.permissions.policy import Rules, explain_call, layered
from forge.permissions.request import Decision
from forge.permissions.rules import Rule, read_rule
from forge.project.audit.log_events import EventFilter

RECENT = 200  # calls of the log, the newest
MOST = 50  # changes that are shown
PROJECT = "project"


def may_loosen(console: ConsoleState, rule: str) -> bool:
    """Tells whether a rule may allow more: an allow does, and so does an ask that stands after a deny."""
    new = read_rule(rule, "the new rule")
    if new.decision is Decision.ASK:
        return any(one.decision is Decision.DENY and _may_overlap(one, new) for one in _project_rules(console.policy))
    return new.decision is Decision.ALLOW


def decision_changes(console: ConsoleState, rule: str) -> dict[str, Any]:
    """Returns the recent calls that the policy would decide differently, and the number of calls that were tried."""
    after = _with_rule(console.policy, read_rule(rule, "the new rule"))
    changes: list[dict[str, Any]] = []
    tried = 0
    for tool, arguments, agent in _recent_calls(console):
        scope = replace(console.scope, agent=agent) if agent else console.scope
        try:
            parsed = tool.parse(arguments)
            decisions = [_decide(policy, tool, parsed, scope) for policy in (console.policy, after)]
        except (ToolError, ValueError):
            continue
        tried += 1
        if decisions[0] != decisions[1] and len(changes) < MOST:
            named = {"tool": tool.spec.name, "arguments": dict(arguments), "agent": agent}
            changes.append({**named, "before": decisions[0], "after": decisions[1]})
    return {"changes": console.secrets.mask_everything(changes), "tried": tried}


def _project_rules(policy: Rules) -> tuple[Rule, ...]:
    return next((layer.rules for name, layer in policy.layers if name == PROJECT), ())


def _may_overlap(one: Rule, other: Rule) -> bool:
    return one.permission is None or other.permission is None or one.permission is other.permission


def _with_rule(policy: Rules, rule: Rule) -> Rules:
    known: Any = dict(policy.layers)
    project = replace(known.get(PROJECT, Rules()), rules=(*_project_rules(policy), rule))
    return layered(**{**known, PROJECT: project}, otherwise=policy.otherwise)


def _decide(policy: Rules, tool: Tool, arguments: Mapping[str, Any], scope: Any) -> str:
    order = (Decision.ALLOW, Decision.ASK, Decision.DENY)
    wants = [one.ruling.decision for one in explain_call(policy, tool, arguments, scope) if not one.optional]
    return str(max(wants, key=order.index, default=Decision.ALLOW))


def _recent_calls(console: ConsoleState) -> Iterator[tuple[Tool, dict[str, Any], str]]:
    """Yields each of the newest calls once, by the index of the log."""
    log = console.open_log(EventFilter(events=("tool_call_start",)))
    entries = log.last(RECENT)
    console.say(log.notes)
    seen: set[str] = set()
    for entry in reversed(entries):
        call = entry.event.get("call")
        if not isinstance(call, dict):
            continue
        given = call.get("arguments")
        arguments = read_arguments(given) if isinstance(given, str) else given
        tool = console.registry.get(str(call.get("name", "")))
        agent = str(entry.event.get("agent", ""))
        key = json.dumps([call.get("name"), arguments, agent], sort_keys=True, default=str)
        if tool is not None and isinstance(arguments, dict) and key not in seen:
            seen.add(key)
            yield tool, arguments, agent
