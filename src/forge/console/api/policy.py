"""The policy page: the rules and their origins, refusals, and a narrower rule with one click."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic_core import from_json

from forge.console.api.requests import ApiError, ApiRequest
from forge.console.api.run_versions import version_change
from forge.console.console_state import ConsoleState
from forge.console.event_entries import WAITS, read_arguments
from forge.console.rule_effects import decision_changes, may_loosen
from forge.console.rule_file import RuleFile
from forge.core.errors import ErrorKind, ToolError
from forge.core.messages import ToolCall
from forge.durable.store.events import find_events
from forge.permissions.policy import Rules, explain_call
from forge.permissions.request import Decision, PermissionRequest
from forge.permissions.rules import Rule
from forge.project.assemble.access import project_egress
from forge.project.audit.log_events import EventFilter, is_refusal
from forge.project.effective_config import find_origin

MOST = 500
LOOKED_AT = 5_000  # rows of events of the store, the newest
DAY = 86_400
LONGEST_RULE = 2_000


def show_policy(console: ConsoleState, asked: ApiRequest) -> dict[str, Any]:
    configuration = console.configuration
    file = RuleFile.of(console)
    egress = project_egress(configuration)
    return {
        "layers": [_layer(console, name, rules) for name, rules in console.policy.layers],
        "defaults": [
            {"text": "allow read", "why": "reading is allowed by default"},
            {"text": "ask write", "why": "writing asks by default"},
            {"text": "ask execute", "why": "running programs asks by default"},
            {"text": "ask network", "why": "network requests ask by default"},
        ],
        "egress": {
            "mode": egress.mode if egress is not None else "open",
            "domains": list(egress.domains) if egress is not None else [],
            "private": list(egress.private) if egress is not None else [],
            "where": find_origin(configuration, "egress"),
        },
        "sandbox": _sandbox(console),
        "can_write": not file.why_not,
        "file": str(file.path) if file.path is not None else None,
        "why_not": file.why_not,
    }


def _layer(console: ConsoleState, name: str, rules: Rules) -> dict[str, Any]:
    where = next((layer.name for layer in console.configuration.layers if layer.kind == name), "")
    if name == "session" and console.project.options.policy is not None:
        where = console.project.options.policy
    return {"name": name, "where": where, "rules": [_rule(rule) for rule in rules.rules]}


def _rule(rule: Rule) -> dict[str, Any]:
    more = {name: getattr(rule, name) for name in ("tool", "target", "agent", "user", "channel", "text", "where")}
    return {"decision": str(rule.decision), "permission": str(rule.permission or ""), **more}


def _sandbox(console: ConsoleState) -> dict[str, Any]:
    from forge.process.sandbox import choose_tier, report_tiers  # tries what there is, once a process

    wanted = console.configuration.sandbox
    where = find_origin(console.configuration, "sandbox")
    notes = [f"{one['tier']}: {one['detail']}" for one in report_tiers()]
    try:
        tier = str(choose_tier(wanted))
    except ToolError as error:
        tier, notes = "", [error.message, *notes]
    return {"wanted": str(wanted), "tier": tier, "where": where, "notes": notes}


def show_denials(console: ConsoleState, asked: ApiRequest) -> dict[str, Any]:
    """Lists refusals from the log of events and from the stored runs; the first report of a call counts."""
    since = time.time() - asked.number("since", DAY, 60, 30 * DAY)
    log = console.open_log(EventFilter(events=("tool_call_end",), since=since, denied=True))
    found: list[tuple[str, Mapping[str, Any]]] = [("", entry.event) for entry in log if _is_denial(entry.event)]
    console.say(log.notes)
    found += list(_find_stored_denials(console, since))
    told: dict[tuple[Any, ...], dict[str, Any]] = {}
    for run, event in sorted(found, key=lambda one: -float(one[1].get("ts") or 0)):
        one = _denial(run, event)
        key = (one["session"], one["call"])
        if key not in told or run:
            told[key] = {**told.get(key, {}), **one}
    newest = sorted(told.values(), key=lambda one: -one["at"])[:MOST]
    return {"denials": [{**one, **_narrower_rule(console, one)} for one in newest], "unreadable": log.unreadable}


def _find_stored_denials(console: ConsoleState, since: float) -> Iterator[tuple[str, Mapping[str, Any]]]:
    kinds = ('"error_type":"permission_error"', '"error_type":"security_error"')
    found = console.runs.store.read_events(lambda connection: find_events(connection, kinds, LOOKED_AT, 4 * MOST))
    for one in found:
        event = from_json(one.text)
        if _is_denial(event) and float(event.get("ts") or 0) >= since:
            yield one.run, event


def _is_denial(event: dict[str, Any]) -> bool:
    """Tells whether a call was refused; one that waits for an answer was not."""
    waits = (event.get("result") or {}).get("suggestion") == WAITS
    return is_refusal(event) and not waits and isinstance(event.get("call"), dict)


def _denial(run: str, event: Mapping[str, Any]) -> dict[str, Any]:
    call, result = event.get("call") or {}, event.get("result") or {}
    reason = str(result.get("error") or result.get("for_llm") or "")[:2_000]
    kind = str(result.get("error_type", ""))
    by = "guard" if kind == "security_error" else "person" if "the person refused" in reason else "rule"
    arguments = call.get("arguments")
    arguments = read_arguments(arguments) if isinstance(arguments, str) else arguments
    return {
        "at": float(event.get("ts") or 0),
        "session": str(event.get("session", "")),
        "run": run,
        "agent": str(event.get("agent", "")),
        "call": str(call.get("id", "")),
        "tool": str(call.get("name", "")),
        "arguments": arguments if isinstance(arguments, dict) else {},
        "reason": reason,
        "error_type": kind,
        "by": by,
    }


def _narrower_rule(console: ConsoleState, denial: Mapping[str, Any]) -> dict[str, str]:
    """Returns a rule that allows exactly this call, if the project may have such a rule."""
    tool = console.registry.get(denial["tool"])
    if tool is None or denial["error_type"] != "permission_error":
        return {"suggestion": ""}
    try:
        parsed = tool.parse(denial["arguments"])
        wants = [one for one in explain_call(console.policy, tool, parsed, console.scope) if not one.optional]
    except (ToolError, ValueError):
        return {"suggestion": ""}
    refused = [one for one in wants if one.ruling.decision is not Decision.ALLOW]
    if len(refused) != 1 or refused[0].ruling.layer not in ("", "project"):
        return {"suggestion": ""}
    one = refused[0]
    call = ToolCall(tool.spec.name, parsed)
    request = PermissionRequest(tool.spec, call, parsed, one.permission, one.target, console.scope)
    rule = request.remember
    return {"suggestion": rule if rule.startswith("allow ") else f"allow {rule}" if rule else ""}


def add_rule(console: ConsoleState, asked: ApiRequest) -> dict[str, Any]:
    """Shows the difference first; `was` names the file's version, and only that version is written."""
    file = RuleFile.of(console)
    if file.why_not or file.path is None:
        raise ToolError(
            f"no rule can be added here: {file.why_not}", ErrorKind.CONFIG, "`forge init` creates a forge.yaml."
        )
    change = file.with_rule(asked.body_text("rule", most=LONGEST_RULE))
    told = {"rule": change.rule, "file": str(file.path), "diff": change.diff, "was": change.was}
    told |= version_change(console)
    loosens = may_loosen(console, change.rule)
    if asked.body.get("write") is not True:
        return {**told, "written": False, "loosens": loosens, **decision_changes(console, change.rule)}
    if asked.body_text("was", most=100) != change.was:
        words = f"{file.path.name} was changed meanwhile"
        raise ApiError(ToolError(words, ErrorKind.USER, "Look at the new difference."), 409, **told)
    if loosens and asked.body_flag("confirm") is not True:
        words = f"the rule `{change.rule}` was to be added, and it loosens the policy"
        raise ApiError(ToolError(words, ErrorKind.USER, "Look at what it changes, and confirm it."), 409, **told)
    file.write(change)
    console.reload_policy()
    console.hub.tell("policy")
    return {**told, **version_change(console), "written": True}
