"""The policy page: the rules and their origins, refusals, and a new rule: what it changes, and its line in the file."""

from __future__ import annotations

import difflib
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml
from pydantic_core import from_json

from forge.console.api.requests import ApiError, ApiRequest
from forge.console.api.runs import version_change
from forge.console.console_state import ConsoleState
from forge.console.event_entries import WAITS, read_arguments
from forge.core.errors import ErrorKind, ToolError
from forge.core.messages import ToolCall
from forge.core.tool import Tool
from forge.durable.store.events import find_events
from forge.permissions.policy import Rules, explain_call, layered, load_rules
from forge.permissions.questions import Decision, PermissionRequest
from forge.permissions.rules import Rule, read_rule
from forge.process.sandbox import choose_tier, report_tiers
from forge.project.assemble.access import project_egress
from forge.project.audit.log_events import EventFilter, is_refusal
from forge.project.effective_config import find_origin
from forge.project.read_yaml import parse_yaml, read_text
from forge.project.trust import FoundConfig, accept, read_accepted_text
from forge.workspace.state import replace_file

MOST_EXAMPLES = 500
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
    console.add_notes(log.notes)
    found += list(_find_stored_denials(console, since))
    told: dict[tuple[Any, ...], dict[str, Any]] = {}
    for run, event in sorted(found, key=lambda one: -float(one[1].get("ts") or 0)):
        one = _denial(run, event)
        key = (one["session"], one["call"])
        if key not in told or run:
            told[key] = {**told.get(key, {}), **one}
    newest = sorted(told.values(), key=lambda one: -one["at"])[:MOST_EXAMPLES]
    return {"denials": [{**one, **_narrower_rule(console, one)} for one in newest], "unreadable": log.unreadable}


def _find_stored_denials(console: ConsoleState, since: float) -> Iterator[tuple[str, Mapping[str, Any]]]:
    kinds = ('"error_type":"permission_error"', '"error_type":"security_error"')
    found = console.runs.store.read_events(
        lambda connection: find_events(connection, kinds, LOOKED_AT, 4 * MOST_EXAMPLES)
    )
    for one in found:
        event = from_json(one.text)
        if _is_denial(event) and float(event.get("ts") or 0) >= since:
            yield one.run, event


def _is_denial(event: dict[str, Any]) -> bool:
    """Returns whether a call was refused; one that waits for an answer was not."""
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
        message = f"{file.path.name} was changed meanwhile"
        raise ApiError(ToolError(message, ErrorKind.USER, "Look at the new difference."), 409, **told)
    if loosens and asked.body_flag("confirm") is not True:
        message = f"the rule `{change.rule}` was to be added, and it loosens the policy"
        raise ApiError(ToolError(message, ErrorKind.USER, "Look at what it changes, and confirm it."), 409, **told)
    file.write(change)
    console.reload_policy()
    console.hub.tell("policy")
    return {**told, **version_change(console), "written": True}


# Tells what a new rule would change: may it loosen the policy, and which recent calls would it decide differently?


RECENT = 200  # calls of the log, the newest
MOST_CALLS = 50  # changes that are shown
PROJECT = "project"


def may_loosen(console: ConsoleState, rule: str) -> bool:
    """Returns whether a rule may allow more: an allow does, and so does an ask that stands after a deny."""
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
        if decisions[0] != decisions[1] and len(changes) < MOST_CALLS:
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
    console.add_notes(log.notes)
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


# Adds a rule to a project's own file: one line at the end of its list; all else stays.


@dataclass(frozen=True, slots=True)
class RuleChange:
    """A change of the file."""

    rule: str
    before: str
    after: str
    diff: str

    @property
    def was(self) -> str:
        return sha256(self.before.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class RuleFile:
    """The project's file; `why_not` says why it cannot be written."""

    path: Path | None
    why_not: str = ""
    is_found: bool = False  # it was found in the workspace, and counts only as long as it is trusted
    workspace: Path = Path()

    @classmethod
    def of(cls, console: ConsoleState) -> RuleFile:
        config = console.project.options.config
        if console.project.options.built is not None:
            return cls(None, "a build cannot be changed")
        if config is None:
            return cls(None, "this project uses no forge.yaml")
        path = Path(config)
        if path.suffix not in (".yaml", ".yml"):
            return cls(path, f"{path.name} is not a YAML file")
        return cls(path, "", isinstance(config, FoundConfig), console.workspace)

    def with_rule(self, rule: str) -> RuleChange:
        """Returns the change. Raises `PolicyError` for an invalid rule, `ToolError` for an unusable file."""
        if not rule.strip().isprintable():
            hint = "Type the rule again: it contains an invisible character."
            raise ToolError("a rule must be one line of visible characters", ErrorKind.VALIDATION, hint)
        rule = " ".join(rule.split())
        read_rule(rule, "the new rule")
        assert self.path is not None
        before = self._read()
        after = _add_rule(before, rule)
        load_rules(f"{after}\n")
        shown = difflib.unified_diff(
            before.splitlines(keepends=True), after.splitlines(keepends=True), self.path.name, self.path.name
        )
        return RuleChange(rule, before, after, "".join(shown))

    def _read(self) -> str:
        """Refuses a file that changed since it was trusted: writing it would trust the other changes unseen."""
        assert self.path is not None
        text = read_text(str(self.path))
        if self.is_found and text != read_accepted_text(FoundConfig(str(self.path))):
            message = f"{self.path.name} has changed since you trusted it; the trusted version is in force"
            raise ToolError(message, ErrorKind.CONFIG, "Run `forge trust` first: it shows the difference.")
        return text

    def write(self, change: RuleChange) -> None:
        """Writes all or nothing. The new text counts as trusted."""
        assert self.path is not None
        if self._read() != change.before:
            raise ToolError(f"{self.path.name} was changed meanwhile", ErrorKind.USER, "Look at the new difference.")
        path = self.path.resolve()
        try:
            replace_file(path, change.after, path.stat().st_mode & 0o777)
        except OSError as error:
            message = f"the rule could not be written to {self.path}: {error.strerror}"
            raise ToolError(
                message, ErrorKind.SYSTEM, "Nothing was changed. Make room or fix its permissions."
            ) from error
        if self.is_found:
            accept(self.workspace, change.after)


def _add_rule(text: str, rule: str) -> str:
    """Returns the document with one more rule, checked by reading it back."""
    quoted = json.dumps(rule, ensure_ascii=False)
    old = parse_yaml(text, "the file") or {}
    try:
        root = yaml.compose(text, yaml.SafeLoader)  # bounded, since it was read above
    except yaml.YAMLError as error:
        raise ToolError(f"the file cannot be read: {error}", ErrorKind.CONFIG, "Fix it by hand first.") from error
    permissions = _value(root, "permissions")
    rules = _value(permissions, "rules") if permissions is not None else None
    if isinstance(rules, yaml.SequenceNode) and rules.value:
        made = _after_last(text, rules, quoted)
    elif permissions is None:
        made = f"{text.rstrip()}\n\npermissions:\n  rules:\n    - {quoted}\n".lstrip("\n")
    else:
        raise _elsewhere(rule)
    wanted = {**old, "permissions": {**(old.get("permissions") or {})}}
    wanted["permissions"]["rules"] = [*(wanted["permissions"].get("rules") or ()), rule]
    try:
        if parse_yaml(made, "the file") == wanted:
            return made
    except ToolError:
        pass
    raise _elsewhere(rule)


def _after_last(text: str, rules: yaml.SequenceNode, quoted: str) -> str:
    last = rules.value[-1]
    at = last.end_mark.index
    if rules.flow_style:
        return f"{text[:at]}, {quoted}{text[at:]}"
    while at > 0 and text[at - 1] in " \n":  # the mark of a mapping is at the beginning of what comes next
        at -= 1
    line_end = text.find("\n", at)
    at = len(text) if line_end < 0 else line_end
    indent = " " * rules.start_mark.column
    return f"{text[:at]}\n{indent}- {quoted}{text[at:] or chr(10)}"


def _value(node: Any, key: str) -> Any:
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((value for name, value in node.value if name.value == key), None)


def _elsewhere(rule: str) -> ToolError:
    message = "the console cannot add to the way the rules are written in this file"
    return ToolError(message, ErrorKind.CONFIG, f"Add this line to permissions.rules yourself: - {rule}")
