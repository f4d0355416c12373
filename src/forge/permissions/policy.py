"""Policies: what a list of rules says about a request, and the one decision about a call, also for explanations."""

from __future__ import annotations

import copy
import logging
import os
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol

from forge.core.context import Scope, ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.messages import ToolCall
from forge.core.secrets import Secrets
from forge.core.spec import Permission, ToolSpec
from forge.core.tool import Tool
from forge.permissions.conditions import CallLabels, Trace, is_irreversible
from forge.permissions.questions import Decision, PermissionRequest, Policy, Ruling, describe_failure, strictest
from forge.permissions.rules import LAYERS, PolicyError, Rule, RuleEntry, read_rule, without_comment
from forge.permissions.target_forms import read_target_forms
from forge.permissions.targets import CallJudge, Opaque, Scalar, TargetForm, find_requests, paths

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
TrialMode = Literal["off", "auto", "always"]

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
        mine = self._rules_about(request.spec, permission, request.effect)
        if mine.rules or mine.layers:
            mine = mine._rules_for(scope, request.labels)
        readings: list[TargetForm | None] = [None]  # where no rule looks at targets, they need not be read
        if any(rule.target for rule in mine.all_rules()):
            readings = [*read_target_forms(permission, request.target, scope, request.arguments)]
        rulings = (_final_ruling(mine._decide(form, permission), form, permission) for form in readings)
        return strictest(ruling for ruling in rulings if ruling) or _default_ruling(permission)

    def concerns(self, spec: ToolSpec) -> bool:
        """Returns whether the policy can ever refuse or ask about this tool."""
        for permission in spec.permissions | spec.optional_permissions or {None}:
            mine = self._rules_about(spec, permission)
            unmatched = mine._decide(None, permission) or _default_ruling(permission)
            if mine.all_rules() or unmatched.decision is not Decision.ALLOW:
                return True
        return False

    def may_deny(self, spec: ToolSpec, permission: Permission) -> bool:
        """Returns whether there is any target on which it denies this tool the permission."""
        mine = self._rules_about(spec, permission)
        if any(rule.decision is Decision.DENY for rule in mine.all_rules()):
            return True
        return self.otherwise is Decision.DENY or any(layer.may_deny(spec, permission) for _, layer in self.layers)

    def restricted_targets(self, spec: ToolSpec, permission: Permission, scope: Scope) -> list[str]:
        """Returns the targets of the rules that deny this permission to the tool, or ask about it, for this caller.

        A rule with a condition about labels counts, whether it holds now or not.
        """
        mine = [rule for rule in self._rules_about(spec, permission).all_rules() if rule.is_for(scope)]
        return [rule.target for rule in mine if rule.target and rule.decision is not Decision.ALLOW]

    def judge_number(self, spec: ToolSpec, scope: Scope, files: int, labels: CallLabels | None = None) -> Ruling | None:
        """Returns the strictest ruling of rules about the number of files that a run changed; None if none matches."""
        own = (
            Ruling(rule.decision, f"the rule `{rule.text}` ({rule.where}): it would change {files:,}", rule.text)
            for rule in self.rules
            if rule.over is not None and files > rule.over and rule.is_about(spec, Permission.WRITE)
            if rule.is_for(scope) and rule.holds(labels)
        )
        layers = ((name, layer.judge_number(spec, scope, files, labels)) for name, layer in self.layers)
        return strictest([*own, *(replace(found, layer=name) for name, found in layers if found is not None)])

    def decisions_about_targets(self, spec: ToolSpec, permission: Permission, scope: Scope) -> set[Decision]:
        """Returns the decisions of the rules that name a target of this permission, for the tool and this caller."""
        mine = self._rules_about(spec, permission).all_rules()
        return {rule.decision for rule in mine if rule.may_target(permission) and rule.is_for(scope)}

    def restricts(self, spec: ToolSpec, permission: Permission, scope: Scope) -> bool:
        """Returns whether rules deny this permission to the tool, or ask about it: for some target, or for all."""
        mine = [rule for rule in self._rules_about(spec, permission).all_rules() if rule.is_for(scope)]
        about = [rule for rule in mine if rule.may_target(permission) or rule.permission is permission]
        return any(rule.decision is not Decision.ALLOW for rule in about)

    def all_rules(self) -> list[Rule]:
        """Returns all rules, those of layers included."""
        return [*self.rules, *(rule for _, layer in self.layers for rule in layer.all_rules())]

    def _rules_about(self, spec: ToolSpec, permission: Permission | None, effect: str = "") -> Rules:
        """Returns the rules about this tool and permission, found once."""
        key = (spec.name, spec.aliases, spec.only_talks, permission, effect)
        found = self._parts.get(key)
        if found is None:
            mine = (rule for rule in self.rules if rule.concerns(spec, permission, effect))
            layers = ((name, layer._rules_about(spec, permission, effect)) for name, layer in self.layers)
            found = Rules(tuple(mine), tuple(layers), None if spec.only_talks else self.otherwise)
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
            message = f"the rule `{rule.text}` ({rule.where})"
            ruling = Ruling(rule.decision, message, rule.text, conditions=rule.conditions)
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
        message = f"{form.starter} may start a program that {ruling.reason} denies"
        ruling = Ruling(Decision.ASK, message, ruling.rule, ruling.layer)
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
    return Ruling(Decision.ASK, f"no rule matches, and {permission} asks by default", is_default=True)


def _fallback_ruling(decision: Decision) -> Ruling:
    return Ruling(decision, f"no rule matches, and the policy's default is {decision}", is_default=True)


# Decides about a call: for the run, `forge policy explain`, `forge policy test` and the console alike.
#
# A policy that fails, or gives no clear answer, means no.


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
    policy: Policy,
    ctx: ToolContext,
    wanted: tuple[Permission | None, str] | None = None,
    read: CallLabeller | None = None,
) -> Iterator[JudgedRequest]:
    """Yields the ruling on each permission that a call with valid arguments wants, or only on the `wanted` one.

    `read`: what the run has read. Raises `ToolError` where the tool itself refuses the call.
    """

    def judge(permission: Permission | None, target: str) -> Ruling:
        return _judge_request(policy, ctx, permission, target, read)

    if wanted is not None:
        yield JudgedRequest(*wanted, judge(*wanted))
        return
    if ctx.spec.only_talks and not isinstance(policy, Rules):
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
    if ctx.spec.confirm and (ruling.decision is Decision.ALLOW or ruling.is_default):
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


# Explains the decision about everything a call wants, without a gate and without asking anyone.


class ExplainedPermission(NamedTuple):
    """One permission a call wants, and the policy's ruling on it."""

    permission: Permission | None
    target: str
    ruling: Ruling
    optional: bool = False  # asked for only while the tool runs, if at all, with a target not known before
    tool: str = ""  # the tool that is called through the called one, and wants it; "": the called one itself
    effect: str = ""  # of a trial run: create, change, delete or mode
    trial: str = ""  # how a trial run that replaces this question is made here, such as "overlay"; "": none does


class JudgedInnerCall(NamedTuple):
    """The call that a tool such as `mcp_call` makes, which is judged like a call of its own.

    Without a tool, only the note is known. The note ends the reason of each ruling.
    """

    name: str
    tool: Tool | None
    arguments: Mapping[str, Any]
    note: str = ""


def is_replaced_by_trial(permission: Permission | None, ruling: Ruling) -> bool:
    """Returns whether a trial run replaces this question: no rule, no label and no wish of the tool asks it."""
    return permission is Permission.EXECUTE and ruling.decision is Decision.ASK and ruling.is_default


def wants_trial(permission: Permission | None, ruling: Ruling, mode: TrialMode) -> bool:
    """Returns whether a program is tried where that is possible: only the default asks, or every program is tried."""
    return permission is Permission.EXECUTE and (is_replaced_by_trial(permission, ruling) or mode == "always")


def judge_with_trial(
    permission: Permission | None, ruling: Ruling, mode: TrialMode, why_not: str | None = None
) -> Ruling:
    """Returns the ruling on a permission of a call that runs as a trial. `why_not`: why it does not after all."""
    is_asked = ruling.decision is Decision.ASK
    if why_not is None:
        if is_replaced_by_trial(permission, ruling):
            return Ruling(Decision.ALLOW, "it runs as a trial")
        if permission is Permission.NETWORK and is_asked:
            sends = f"{ruling.reason}; it runs as a trial, but what it sends cannot be discarded"
            return replace(ruling, reason=sends)
        return ruling
    if not wants_trial(permission, ruling, mode):
        return ruling
    if mode == "always":
        why_not = why_not or "no trial is possible here"
        if ruling.decision is Decision.ALLOW:
            return Ruling(Decision.ASK, f"every program is tried first, but {why_not}")
    return replace(ruling, reason=f"{ruling.reason}; {why_not}") if why_not and is_asked else ruling


def explain_call(
    policy: Policy, tool: Tool, arguments: Mapping[str, Any], scope: Scope, origins: CallLabeller | None = None
) -> list[ExplainedPermission]:
    """Returns the ruling on everything that a call with valid arguments wants, by the function that judges a run.

    A tool that calls another one has `find_inner_call(arguments, scope)`: the other call is explained, too. `origins`:
    what a run has read. Without it, no condition about labels holds. Raises `ToolError` for a call that would fail for
    another reason than that it is refused.
    """
    own = _explain_own(policy, tool, arguments, scope, origins)
    if any(one.ruling.decision is Decision.DENY for one in own):
        return own
    inner: JudgedInnerCall | None = tool.find_inner_call(arguments, scope)
    if inner is None:
        return own
    if inner.tool is None:
        return [*own, ExplainedPermission(None, "", Ruling(Decision.ASK, inner.note), optional=True, tool=inner.name)]
    more = explain_call(policy, inner.tool, inner.arguments, scope, origins)
    return own + [one._replace(ruling=_add_note(one.ruling, inner.note), tool=inner.name) for one in more]


def explain_tool(policy: Policy, tool: Tool, scope: Scope) -> list[ExplainedPermission]:
    """Returns the ruling on each permission that a tool declares, for no target: its arguments are not known."""
    ctx = ToolContext(ToolCall(tool.spec.name, {}), tool, {}, scope)
    declared: list[Permission | None] = [*sorted(tool.spec.permissions)] or [None]
    found = [(one, one in tool.spec.optional_permissions) for one in declared]
    found += [(one, True) for one in sorted(tool.spec.optional_permissions - tool.spec.permissions)]
    return [
        ExplainedPermission(one, "", _ask_always(ctx, ruling), optional=optional)
        for one, optional in found
        for _, _, ruling in judge_call(policy, ctx, (one, ""))
    ]


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


# Files that no tool may write unless a rule names them: Git's, Forge's own, and those that start code.


ARTEFACTS = ".forge/files"  # what `file_create` makes is no state of Forge's

_HOOK = "a Git hook (core.hooksPath)"
_DECLARED = "a part of a hook of this project"
_KEPT_OUTSIDE = "the file of a secret that programs never hold"
_STATE, _CONFIGURATION, _SKILL = "Forge's own state", "Forge's configuration", "a skill, with its guardrails,"


def protect(ruling: Ruling, permission: Permission | None, target: str, scope: Scope) -> Ruling:
    """Returns the ruling, or a deny where the target is protected and the deciding rule does not name it."""
    if permission not in (Permission.WRITE, Permission.READ) or ruling.decision is Decision.DENY or not target:
        return ruling
    reads = permission is Permission.READ
    found = find_secret_file(target, scope) or (None if reads else find_protection(target, scope))
    if found is None:
        return ruling
    name, what = found
    if ruling.decision is Decision.ALLOW and name in ruling.rule:
        return ruling
    done = "read" if reads else "written"
    return Ruling(Decision.DENY, f"its protection: {what} may be {done} only where a rule names it", rule="")


def find_secret_file(target: str, scope: Scope) -> tuple[str, str] | None:
    """Returns the name of the hidden file that a path leads to, and its kind; None if it leads to none."""
    if not scope.hidden or isinstance(target, Opaque) or len(target) > paths.LONGEST_PATH or "\0" in target:
        return None
    around = paths.roots(str(scope.workspace))
    for path in paths.spellings(target, around[0]):
        if found := _find_declared(paths.fold(path), scope.hidden, around):
            return os.path.basename(found), _KEPT_OUTSIDE
    return None


def find_protection(target: str, scope: Scope) -> tuple[str, str] | None:
    """Returns the protected name that a path leads to, and its kind; None if it is not protected."""
    if isinstance(target, Opaque) or len(target) > paths.LONGEST_PATH or "\0" in target:
        return None
    around = paths.roots(str(scope.workspace))
    for path in paths.spellings(target, around[0]):
        names = _names_below(paths.fold(path), tuple(map(paths.fold, around)))
        if (
            found := _find_protected(names)
            or _find_skill(paths.fold(path), scope, around)
            or _find_hook(paths.fold(path), scope)
        ):
            return found
        if name := _find_declared(paths.fold(path), scope.protected, around):
            return name, _DECLARED
    return None


def _find_hook(path: str, scope: Scope) -> tuple[str, str] | None:
    """Finds a hook in a folder that the repository's settings name, such as `.husky`."""
    from forge.process.git_hooks import hook_folders  # a run that writes no file needs none

    for root in (scope.workspace, *(root.path for root in scope.roots)):
        for folder in hook_folders(str(root)):
            for start in paths.roots(str(root)):
                hooks = paths.fold(f"{start.rstrip('/')}/{folder}")
                if path == hooks or path.startswith(f"{hooks}/"):
                    return folder, _HOOK
    return None


def _find_declared(path: str, declared: Iterable[str], around: tuple[str, ...]) -> str:
    """Returns the file or folder, of those that a scope declares, which a path leads to; "" for none."""
    for name in declared:
        for root in (paths.fold(one).rstrip("/") for start in around for one in paths.spellings(name, start)):
            if path == root or path.startswith(f"{root}/"):
                return name
    return ""


def _find_skill(path: str, scope: Scope, around: tuple[str, ...]) -> tuple[str, str] | None:
    """Finds a skill in a folder of any name that the project lists."""
    if not path.endswith(".md"):
        return None
    for folder in scope.skills:
        for root in (one for start in around for one in paths.spellings(folder, start)):
            inner = path.removeprefix(f"{paths.fold(root).rstrip('/')}/")
            if inner != path and ("/" not in inner or inner.endswith("/skill.md")):
                return folder, _SKILL
    return None


def _names_below(path: str, around: tuple[str, ...]) -> list[str]:
    """Returns the names below the workspace, or of the whole path where it lies elsewhere."""
    for root in around:
        if path == root or path.startswith(f"{root.rstrip('/')}/"):
            path = path[len(root) :]
            break
    return [name for name in path.split("/") if name]


def _find_protected(names: list[str]) -> tuple[str, str] | None:
    for position, name in enumerate(names):
        if name == ".git":
            return name, "a file inside .git"
        if name == ".forge" and "/".join(names[position : position + 2]) != ARTEFACTS:
            return name, _STATE
        if name == "skills" and names[-1].endswith(".md") and (names[-1] == "skill.md" or position == len(names) - 2):
            return name, _SKILL
    if names and names[-1] in ("forge.yaml", "forge.yml"):
        return "forge.y", _CONFIGURATION
    return None
