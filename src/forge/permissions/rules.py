"""Reads, checks and matches one rule."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from forge.core.arguments.names import near
from forge.core.context import Scope
from forge.core.spec import Permission, ToolSpec
from forge.permissions.conditions import CONDITIONS, CallLabels
from forge.permissions.questions import Decision
from forge.permissions.target_forms import read_target_forms
from forge.permissions.targets import PATHS, Scalar, TargetForm, hosts, is_scalar, paths, text_of

LAYERS = ("organisation", "user", "project", "session")
"""From the strictest layer, whose denies stay, to the most specific one, which decides everything else."""

SYNTAX = (
    'A rule reads ACTION PERMISSION|tool:GLOB|* [TARGET] [CONDITION …], like "deny execute rm *", "allow tool:http_*"'
    ' or "deny network from:untrusted".'
)
EFFECTS = "effects"
"""In place of a permission: the rule is about what a trial run did to files."""

_KINDS = {
    "write": frozenset({"create", "change", "delete", "mode"}),
    "create": frozenset({"create"}),
    "change": frozenset({"change", "mode"}),
    "delete": frozenset({"delete"}),
}
_EFFECTS_SYNTAX = (
    'A rule about effects reads ACTION effects write|create|change|delete [TARGET], like "allow effects write src/**",'
    ' or "ask effects over 50 files".'
)
_OVER = re.compile(r"over\s+([0-9][0-9_,]{0,11})\s+files?", re.IGNORECASE)
_KEYS = ("action", "permission", "tool", "target", "agent", "user", "channel", *CONDITIONS, "match", "not_match")
_COMMENT = re.compile(r"(?:^|\s)#.*")
_EXAMPLE_SCOPE = Scope(workspace=Path("/project"))


class PolicyError(ValueError):
    """A policy cannot be used as it is written; the message names the position and the rule, and says what to write.

    Example:
        >>> rules("alow read")
        Traceback (most recent call last):
        ...
        forge.permissions.rules.PolicyError: ...
    """


class RuleEntry(NamedTuple):
    """A rule as it was written, and its position."""

    source: Any
    where: str


def without_comment(line: str) -> str:
    return _COMMENT.sub("", line).strip() if "#" in line else line.strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A decision, and the calls it is about. Empty fields match everything."""

    decision: Decision
    permission: Permission | None = None  # None: any declared one, and with `tool` none at all too
    tool: str = ""
    target: str = ""
    agent: str = ""
    user: str = ""
    channel: str = ""
    conditions: tuple[str, ...] = ()  # about labels, such as `from:untrusted`: all of them must hold
    effects: str = ""  # about effects of trial runs only: write (all of them), create, change or delete
    over: int | None = None  # about all effects of a run together, if they are more than this number of files
    text: str = ""  # as it was written
    where: str = ""  # a file and line, or its number in a list

    @property
    def permission_text(self) -> str:
        """The permission as a mapping writes it; empty for all."""
        if self.effects:
            return f"{EFFECTS} {self.effects}" if self.over is None else f"{EFFECTS} over {self.over} files"
        return str(self.permission) if self.permission else ""

    def concerns(self, spec: ToolSpec, permission: Permission | None, effect: str = "") -> bool:
        """Returns whether the rule can match this tool's requests, for any target and any caller.

        `effect`: of a request about an effect of a trial run: create, change, delete or mode.
        """
        if self.permission is not None and self.permission is not permission:
            return False
        if self.effects and (self.over is not None or effect not in _KINDS[self.effects]):
            return False
        return self.is_about(spec, permission)

    def is_about(self, spec: ToolSpec, permission: Permission | None) -> bool:
        """Returns whether the rule names this tool, or all tools that need a permission."""
        if not self.tool:
            return permission is not None and not spec.only_talks
        if spec.only_talks and not self.tool.strip("*"):
            return False  # `tool:*` means the tools that do things
        return any(self._names(name) for name in (spec.name, *spec.aliases))

    def may_target(self, permission: Permission) -> bool:
        """Returns whether its target may be one of this permission: that of `allow tool:bash git *` is no host."""
        if not self.target or self.permission is permission or permission is not Permission.NETWORK:
            return bool(self.target)
        is_word = bool(self.tool) and not any(one in self.target for one in ".:*")  # a command of the tool
        return not is_word and not any(map(str.isspace, self.target))

    def is_for(self, scope: Scope) -> bool:
        """Returns whether the rule is about this caller."""
        if not (self.agent or self.user or self.channel):
            return True
        who = ((self.agent, scope.agent), (self.user, scope.user), (self.channel, scope.channel))
        return all(not wanted or fnmatchcase(actual, wanted) for wanted, actual in who)

    def holds(self, labels: CallLabels | None) -> bool:
        """Returns whether its conditions about labels hold. Where nothing is known of labels, none does."""
        return not self.conditions or (labels is not None and all(map(labels.meets, self.conditions)))

    def matches(self, form: TargetForm) -> bool:
        return not self.target or form.matches(self.target, generous=self.decision is not Decision.ALLOW)

    def surely_matches(self, form: TargetForm) -> bool:
        """Returns whether the rule matches for more reasons than that the target could not be read."""
        return not self.target or form.surely_matches(self.target)

    def _names(self, name: str) -> bool:
        if self.decision is Decision.ALLOW:
            return fnmatchcase(name, self.tool)
        return fnmatchcase(name.lower(), self.tool.lower())


def read_rule(source: str | Mapping[str, Any], where: str) -> Rule:
    """Reads a rule from a line or a mapping. Raises `PolicyError`."""
    if isinstance(source, str):
        return _check_target(_read_line(source, where))
    if isinstance(source, Mapping):
        return _read_mapping(source, where)
    raise _make_error(where, source, f"it is {type(source).__name__}, not a string or a mapping")


def _read_line(line: str, where: str) -> Rule:
    words = line.split(maxsplit=2)
    if "\n" in line.strip():
        raise _make_error(
            where, line, "it has several lines", "Pass one rule per string, or all of them to load_rules."
        )
    if len(words) < 2:
        raise _make_error(where, line, "it has no permission after the action" if words else "it is empty")
    action, form, target = words[0], words[1], words[2].strip() if len(words) > 2 else ""
    target, conditions = _split_conditions(target, line, where)
    tool = form.removeprefix("tool:") if form.startswith("tool:") else ""
    if form == "tool:":
        raise _make_error(where, line, 'no tool name follows "tool:"')
    effects, over = "", None
    if form.lower() == EFFECTS:
        (effects, over, target), form = _read_effects(target, action, line, where), Permission.WRITE
    target = _unquote(target)
    return Rule(
        decision=_read_decision(action, line, where),
        permission=None if tool or form == "*" else _read_permission(form, line, where),
        tool=tool,
        target="" if target == "*" else target,
        conditions=conditions,
        effects=effects,
        over=over,
        text=line.strip(),
        where=where,
    )


def _read_mapping(source: Mapping[str, Any], where: str) -> Rule:
    text = _render_rule(source)
    for key, value in source.items():
        if key not in _KEYS:
            raise _make_error(where, text, f"it has an unknown key {key!r}{_suggest_word(str(key), _KEYS)}")
        if key == "target" and isinstance(value, bool | int | float):  # as YAML reads `target: 7`
            continue
        if key not in ("match", "not_match") and not (isinstance(value, str) and value.strip()):
            raise _make_error(where, text, f"its {key} is {value!r}, not a string")
    permission = source.get("permission", "*")
    if "permission" not in source and "tool" not in source:
        raise _make_error(where, text, "it has neither a permission nor a tool")
    effects, over, rest = "", None, ""
    first, _, words = permission.strip().partition(" ")
    if first.lower() == EFFECTS:
        effects, over, rest = _read_effects(words.strip(), source.get("action", ""), text, where)
        permission = Permission.WRITE
        if rest or (over is not None and "target" in source):
            problem = "its path belongs to `target`" if rest else "a number of files has no target"
            raise _make_error(where, text, problem, _EFFECTS_SYNTAX)
    rule = Rule(
        decision=_read_decision(source.get("action", ""), text, where),
        permission=None if permission == "*" else _read_permission(permission, text, where),
        tool=source.get("tool", "").removeprefix("tool:"),
        target="" if source.get("target") == "*" else str(text_of(source.get("target", ""))).strip(),
        agent=source.get("agent", ""),
        user=source.get("user", ""),
        channel=source.get("channel", ""),
        conditions=tuple(
            _read_condition(f"{name}:{source[name]}", text, where) for name in CONDITIONS if name in source
        ),
        effects=effects,
        over=over,
        text=text,
        where=where,
    )
    _check_examples(_check_target(rule), source)
    return rule


def _read_effects(words: str, action: str, rule: str, where: str) -> tuple[str, int | None, str]:
    """Reads what follows `effects`: the kind of effects, or a number of files, and the target."""
    if found := _OVER.fullmatch(words):
        if action.lower() == Decision.ALLOW:
            problem = "a number of files can only ask or deny"
            raise _make_error(where, rule, problem, "Write ask or deny, or allow the paths.")
        return "write", int(re.sub(r"[_,]", "", found[1])), ""
    kind, _, target = words.partition(" ")
    if not words or kind.lower() in _KINDS:
        return kind.lower() or "write", None, target.strip()
    raise _make_error(where, rule, f"{kind!r} is no kind of effect", _EFFECTS_SYNTAX)


def _unquote(target: str) -> str:
    is_quoted = len(target) > 1 and target[0] in "\"'" and target.count(target[0]) == 2 and target[-1] == target[0]
    return target[1:-1] if is_quoted else target


def _split_conditions(target: str, line: str, where: str) -> tuple[str, tuple[str, ...]]:
    """Splits the conditions off the end of a target. A quoted target has none of its own."""
    found: list[str] = []
    while True:
        rest, _, word = target.rpartition(" ")
        name, mark, value = word.partition(":")
        if not mark or name.lower() not in CONDITIONS or not value or value[-1] in "\"'" or value.startswith("//"):
            return target, tuple(reversed(found))
        found.append(_read_condition(word, line, where))
        target = rest.strip()


def _read_condition(text: str, rule: str, where: str) -> str:
    name, _, value = text.lower().partition(":")
    only = CONDITIONS[name]
    if only and value != only:
        raise _make_error(where, rule, f"its condition {text!r} is unknown; write {name}:{only}")
    return f"{name}:{value.strip()}"


def _check_target(rule: Rule) -> Rule:
    problem = ""
    if rule.target and rule.permission in PATHS:
        problem = paths.problem_with(rule.target)
    elif rule.target and rule.permission is Permission.NETWORK and not is_scalar(rule.target):
        problem = hosts.problem_with(rule.target)
    if problem:
        raise _make_error(rule.where, rule.text, f"its target {rule.target!r} would match nothing: {problem}")
    return rule


def _check_examples(rule: Rule, source: Mapping[str, Any]) -> None:
    for key in ("match", "not_match"):
        examples = source.get(key, ())
        if (
            isinstance(examples, str)
            or not isinstance(examples, Sequence)
            or not all(isinstance(e, str | bool | int | float) for e in examples)
        ):
            raise _make_error(rule.where, rule.text, f"its {key} is not a list of strings")
        for example in map(text_of, examples):
            if any(_fits(rule, example)) is not (key == "match"):
                does = "does not match" if key == "match" else "matches"
                raise _make_error(
                    rule.where, rule.text, f"it {does} its {key} example {example!r}", "Fix the target or the example."
                )


def _fits(rule: Rule, example: str) -> Iterator[bool]:
    """Returns whether an example fits: examples are targets; for a rule that has only a tool, names of tools."""
    if not rule.target and rule.tool:
        yield rule._names(example)
        return
    meanings = [example, Scalar(example)] if is_scalar(example) else [example]  # a file does not say which it is
    permissions = (rule.permission,) if rule.permission else Permission
    for permission, meant in ((permission, meant) for permission in permissions for meant in meanings):
        readings = read_target_forms(permission, meant, _EXAMPLE_SCOPE)
        if rule.decision is Decision.ALLOW:  # only what has a default can be allowed
            yield all(rule.matches(form) for form in readings if form.by_default)
        else:
            yield any(rule.matches(form) for form in readings if not form.starter)


def _read_decision(action: str, rule: str, where: str) -> Decision:
    try:
        return Decision(action.lower())
    except ValueError:
        raise _make_error(
            where, rule, f"unknown action {action!r}{_suggest_word(action, Decision, 'allow, ask or deny')}"
        ) from None


def _read_permission(name: str, rule: str, where: str) -> Permission:
    try:
        return Permission(name.lower())
    except ValueError:
        known = f"{', '.join(Permission)}, {EFFECTS}, * or tool:NAME"
        raise _make_error(
            where, rule, f"unknown permission {name!r}{_suggest_word(name, [*Permission, EFFECTS], known)}"
        ) from None


def _suggest_word(word: str, words: Sequence[str] | type[Decision] | type[Permission], otherwise: str = "") -> str:
    known = [str(one) for one in words]
    hint = near(word, known, 1)
    return f"; did you mean {hint[0]!r}?" if hint else f"; known: {otherwise or ', '.join(known)}"


def _render_rule(source: Mapping[str, Any]) -> str:
    """Renders the mapping as the nearest line."""
    fields = {str(key): value for key, value in source.items() if key not in ("match", "not_match")}
    first = [
        str(fields.pop("action", "")),
        str(fields.pop("permission", "")),
        f"tool:{fields.pop('tool')}" if "tool" in fields else "",
    ]
    conditions = [f"{name}:{fields.pop(name)}" for name in CONDITIONS if name in fields]
    more = [f"{key}={value}" for key, value in fields.items()]
    words = [
        *first,
        str(text_of(fields.pop("target", ""))),
        *conditions,
        *(one for one in more if not one.startswith("target=")),
    ]
    return " ".join(word for word in words if word)[:500]


def _make_error(where: str, rule: object, problem: str, advice: str = SYNTAX) -> PolicyError:
    shown = rule if isinstance(rule, str) else repr(rule)
    end = "" if problem.endswith("?") else "."
    return PolicyError(f"{where}: the rule {shown.strip()[:200]!r} cannot be used: {problem}{end} {advice}")
