"""Policies: functions from a request to a decision, most of them a list of rules."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from forge.core.context import Scope
from forge.core.registry import CONVERSATION
from forge.core.spec import Permission, ToolSpec
from forge.permissions.labels.conditions import CallLabels
from forge.permissions.request import Decision, PermissionRequest, Policy, Ruling, strictest
from forge.permissions.rule import LAYERS, PolicyError, Rule, RuleEntry, read_rule, without_comment
from forge.permissions.target_forms import read_target_forms
from forge.permissions.targets.form import TargetForm

__all__ = [
    "Decision",
    "PermissionRequest",
    "Policy",
    "PolicyError",
    "Rule",
    "Rules",
    "Ruling",
    "layered",
    "load_rules",
    "rules",
]

RuleSource = str | Mapping[str, Any]

MOST_PARTS = 10_000  # tools and permissions whose rules are kept apart


@dataclass(frozen=True, slots=True)
class Rules:
    """A policy of rules, or of layers of them.

    In a list the last rule that matches decides. In layers, no more specific layer loosens a deny; otherwise
    the most specific layer in which a rule matches decides. Where nothing matches, `otherwise`; by default reading is
    allowed and everything else asks. A tool without permissions is allowed, and touched only by rules that name it.
    """

    rules: tuple[Rule, ...] = ()
    layers: tuple[tuple[str, Rules], ...] = ()  # the strictest first
    otherwise: Decision | None = None
    _parts: dict[Hashable, Rules] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __repr__(self) -> str:
        own = [rule.text for rule in self.rules[:3]] + (["…"] if len(self.rules) > 3 else [])
        layers = [f"{name}: {layer!r}" for name, layer in self.layers]
        return f"<Rules {'; '.join([*own, *layers]) or 'by default'}>"

    def __call__(self, request: PermissionRequest) -> Decision:
        return self.explain(request).decision

    def explain(self, request: PermissionRequest) -> Ruling:
        """Returns the decision, the rule it comes from and the reason."""
        permission, scope = request.permission, request.scope
        mine = self._rules_about(request.spec, permission)
        if mine.rules or mine.layers:
            mine = mine._rules_for(scope, request.labels)
        readings: list[TargetForm | None] = [None]  # where no rule looks at targets, they need not be read
        if any(rule.target for rule in mine.every()):
            readings = [*read_target_forms(permission, request.target, scope, request.arguments)]
        rulings = (_final_ruling(mine._decide(form, permission), form, permission) for form in readings)
        return strictest(ruling for ruling in rulings if ruling) or _default_ruling(permission)

    def concerns(self, spec: ToolSpec) -> bool:
        """Says whether the policy can ever refuse or ask about this tool."""
        for permission in spec.permissions | spec.optional_permissions or {None}:
            mine = self._rules_about(spec, permission)
            unmatched = mine._decide(None, permission) or _default_ruling(permission)
            if mine.every() or unmatched.decision is not Decision.ALLOW:
                return True
        return False

    def may_deny(self, spec: ToolSpec, permission: Permission) -> bool:
        """Says whether there is any target on which it denies this tool the permission."""
        mine = self._rules_about(spec, permission)
        if any(rule.decision is Decision.DENY for rule in mine.every()):
            return True
        return self.otherwise is Decision.DENY or any(layer.may_deny(spec, permission) for _, layer in self.layers)

    def restricted_targets(self, spec: ToolSpec, permission: Permission, scope: Scope) -> list[str]:
        """Returns the targets of the rules that deny this permission to the tool, or ask about it, for this caller.

        A rule with a condition about labels counts, whether it holds now or not.
        """
        mine = [rule for rule in self._rules_about(spec, permission).every() if rule.is_for(scope)]
        return [rule.target for rule in mine if rule.target and rule.decision is not Decision.ALLOW]

    def every(self) -> list[Rule]:
        """Returns all rules, those of layers included."""
        return [*self.rules, *(rule for _, layer in self.layers for rule in layer.every())]

    def _rules_about(self, spec: ToolSpec, permission: Permission | None) -> Rules:
        """Returns the rules about this tool and permission, found once."""
        key = (spec.name, spec.aliases, permission)
        found = self._parts.get(key)
        if found is None:
            mine = (rule for rule in self.rules if rule.concerns(spec, permission))
            layers = ((name, layer._rules_about(spec, permission)) for name, layer in self.layers)
            found = Rules(tuple(mine), tuple(layers), None if spec.name in CONVERSATION else self.otherwise)
            if len(self._parts) < MOST_PARTS:
                self._parts[key] = found
        return found

    def _rules_for(self, scope: Scope, labels: CallLabels | None = None) -> Rules:
        """Returns the rules about this caller whose conditions about labels hold."""
        mine = tuple(rule for rule in self.rules if rule.is_for(scope) and rule.holds(labels))
        layers = tuple((name, layer._rules_for(scope, labels)) for name, layer in self.layers)
        return Rules(mine, layers, self.otherwise)

    def _decide(self, form: TargetForm | None, permission: Permission | None) -> Ruling | None:
        found = self._decide_by_layers(form, permission) or self._decide_by_rules(form)
        if found is None and self.otherwise is not None and permission and (form is None or form.by_default):
            return _fallback_ruling(self.otherwise)
        return found

    def _decide_by_rules(self, form: TargetForm | None) -> Ruling | None:
        perhaps: Ruling | None = None  # an ask that may match: only a deny before it is stricter
        for rule in reversed(self.rules):
            if form is not None and not rule.matches(form):
                continue
            if not rule.target and form is not None and form.is_repeated:
                return perhaps
            words = f"the rule `{rule.text}` ({rule.where})"
            ruling = Ruling(rule.decision, words, rule.text, conditions=rule.conditions)
            if rule.decision is Decision.ASK and form is not None and not rule.surely_matches(form):
                perhaps = perhaps or ruling
                continue
            return ruling if rule.decision is Decision.DENY else perhaps or ruling
        return perhaps

    def _decide_by_layers(self, form: TargetForm | None, permission: Permission | None) -> Ruling | None:
        decided: Ruling | None = None
        for name, layer in self.layers:
            found = layer._decide(form, permission)
            if found is None:
                continue
            decided = replace(found, reason=f"{found.reason} of the {name} layer", layer=name)
            if found.decision is Decision.DENY:
                return decided
        return decided


def rules(*lines: RuleSource, otherwise: Decision | str | None = None) -> Rules:
    """Makes a policy from lines like `"allow read"` or `"deny execute rm *"`, or mappings. The last match wins.

    Args:
        lines: the rules, in their order.
        otherwise: the decision where no rule matches; by default reading is allowed and the rest asks.

    Example:
        >>> agent = Agent(Scripted("Hello!"), policy=rules("allow read", "ask write src/**", "deny execute git push *"))
    """
    entries = [RuleEntry(line, f"rule {number}") for number, line in enumerate(lines, 1)]
    return _make_rules(entries, None if otherwise is None else Decision(otherwise))


def layered(
    *,
    organisation: Rules | Iterable[RuleSource] | None = None,
    user: Rules | Iterable[RuleSource] | None = None,
    project: Rules | Iterable[RuleSource] | None = None,
    session: Rules | Iterable[RuleSource] | None = None,
    otherwise: Decision | str | None = None,
) -> Rules:
    """Combines rules of several origins. A deny of a stricter layer (the organisation's first) cannot be loosened.

    Args:
        organisation: the strictest layer.
        user: the rules of the person.
        project: the rules of the project.
        session: the rules of this run.
        otherwise: the decision where no rule matches.

    Example:
        >>> policy = layered(organisation=["deny network"], project=["allow *"])
        >>> Agent(None, policy=policy).gate.policy is policy
        True
    """
    given = zip(LAYERS, (organisation, user, project, session), strict=True)
    layers = tuple((name, _layer(name, layer)) for name, layer in given if layer is not None)
    return Rules(layers=layers, otherwise=None if otherwise is None else Decision(otherwise))


def load_rules(source: str | os.PathLike[str]) -> Rules:
    r"""Loads rules from a file or a text: one per line, or YAML (a list, `rules:`, `permissions:`, or layers).

    Raises `PolicyError`, which names the file, the line and the rule.

    Args:
        source: a path, or the text itself.

    Example:
        >>> _ = Path("my.rules").write_text("allow read\nask write src/**\n")
        >>> policy = load_rules("my.rules")
    """
    from forge.permissions.policy_files import read_document  # most agents have their rules in the program

    document = read_document(source)
    if isinstance(document, list):
        return _make_rules(document)
    return Rules(layers=tuple((name, _make_rules(entries)) for name, entries in document.items()))


def _layer(name: str, layer: object) -> Rules:
    if isinstance(layer, Rules):
        return layer
    if not isinstance(layer, Iterable):
        raise PolicyError(
            f"layered({name}=…): {layer!r} is not a list of rules. Pass rules(…), load_rules(…) or a list of rules."
        )
    lines = [layer] if isinstance(layer, str | Mapping) else list(layer)
    return _make_rules([RuleEntry(line, f"{name} rule {number}") for number, line in enumerate(lines, 1)])


def _make_rules(entries: Iterable[RuleEntry], otherwise: Decision | None = None) -> Rules:
    cleaned = ((without_comment(source) if isinstance(source, str) else source, where) for source, where in entries)
    return Rules(tuple(read_rule(source, where) for source, where in cleaned), (), otherwise)


def _final_ruling(ruling: Ruling | None, form: TargetForm | None, permission: Permission | None) -> Ruling | None:
    if ruling is not None and form is not None and form.starter and ruling.decision is Decision.DENY:
        words = f"{form.starter} may start a program that {ruling.reason} denies"
        ruling = Ruling(Decision.ASK, words, ruling.rule, ruling.layer)
    found = ruling or _ruling_without_match(form, permission)
    if found is None or form is None or not form.command or found.decision is Decision.ALLOW:
        return found
    return replace(found, reason=f"{found.reason}; it decides about `{form.command}`")


def _ruling_without_match(form: TargetForm | None, permission: Permission | None) -> Ruling | None:
    return _default_ruling(permission) if form is None or form.by_default else None


def _default_ruling(permission: Permission | None) -> Ruling:
    if permission is None:
        return Ruling(Decision.ALLOW, "no rule names it, and it declares no permission")
    if permission is Permission.READ:
        return Ruling(Decision.ALLOW, "no rule matches, and reading is allowed by default")
    return Ruling(Decision.ASK, f"no rule matches, and {permission} asks by default")


def _fallback_ruling(decision: Decision) -> Ruling:
    return Ruling(decision, f"no rule matches, and the policy's default is {decision}")
