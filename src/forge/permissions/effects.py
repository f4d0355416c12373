"""Judges the effects of a trial run: one decision for the run, `policy explain`, `policy test` and the console."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast, get_args

from forge.core.context import Scope, ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.messages import ToolCall
from forge.core.spec import Permission, ToolSpec
from forge.core.tool import Tool
from forge.permissions.conditions import CallLabels
from forge.permissions.labels.settings import matches_any
from forge.permissions.policy import (
    CallLabeller,
    ExplainedPermission,
    Rules,
    apply_labels,
    explain_call,
    find_protection,
    is_replaced_by_trial,
    protect,
)
from forge.permissions.questions import Decision, PermissionRequest, Policy, Ruling, describe_failure, strictest
from forge.permissions.targets import paths
from forge.process.sandbox.layout import SYSTEM, is_inside, is_inside_any
from forge.workspace.effects import Effect, EffectKind

MOST_EFFECTS = 20_000  # of one run that are judged; a run with more is offered outside the trial
MOST_TRACED = 500  # effects whose names are looked for in untrusted text

_LABELLED = ToolSpec(
    name="effect", description="", parameters={}, permissions=frozenset({Permission.WRITE}), target="path"
)
_RUNS_CODE = frozenset({"hooks", "config", "config.worktree", "commondir"})  # of a Git directory
_VERBS = {"write": "change", **{kind: kind for kind in get_args(EffectKind)}}
_SET_ID = 0o6000

log = logging.getLogger(__name__)


class JudgedEffect(NamedTuple):
    """An effect, and the ruling on it."""

    effect: Effect
    ruling: Ruling


class EffectsRuling(NamedTuple):
    """The rulings on all effects of a run. `decisive` is the strictest; None: there are no effects."""

    judged: list[JudgedEffect]
    decisive: Ruling | None

    @property
    def decision(self) -> Decision:
        return Decision.ALLOW if self.decisive is None else self.decisive.decision


def judge_effects(
    policy: Policy,
    ctx: ToolContext,
    effects: Sequence[Effect],
    read: CallLabeller | None = None,
    private: Collection[str] = (),
) -> EffectsRuling:
    """Judges each effect as the rules judge a write of a file tool, then by rules about effects and their number.

    `read`: what the run has read. `private`: the entries of `labels.private`.
    """
    judge = _EffectsJudge(policy, ctx, effects, read, private)
    judged = [JudgedEffect(effect, judge.judge(effect)) for effect in effects]
    rulings = [one.ruling for one in judged]
    if isinstance(policy, Rules):
        files = sum(effect.type != "folder" for effect in effects)
        rulings += filter(None, [policy.judge_number(ctx.spec, ctx.scope, files, judge.labels)])
    if len(effects) > MOST_TRACED and judge.labels is not None and judge.labels.meets("after:untrusted"):
        rulings.append(Ruling(Decision.ASK, f"untrusted text was read, and {len(effects):,} effects are too many"))
    return EffectsRuling(judged, strictest(rulings))


def explain_effects(
    policy: Policy,
    tool: Tool,
    arguments: Mapping[str, Any],
    scope: Scope,
    effects: Sequence[Effect],
    origins: CallLabeller | None = None,
) -> list[ExplainedPermission]:
    """Returns the ruling on everything that a call wants, if a trial run of it has these effects.

    The rulings on the effects replace the question that the trial replaces.
    """
    wants = explain_call(policy, tool, arguments, scope, origins)
    ctx = ToolContext(ToolCall(tool.spec.name, arguments), tool, arguments, scope)
    found = judge_effects(policy, ctx, effects, origins)
    before = [one for one in wants if not is_replaced_by_trial(one.permission, one.ruling)]
    after = [
        ExplainedPermission(Permission.WRITE, effect.shown, ruling, effect=effect.kind)
        for effect, ruling in found.judged
    ]
    if found.decisive is None:
        after = [ExplainedPermission(Permission.EXECUTE, "", Ruling(Decision.ALLOW, "a trial run has no effects"))]
    elif all(one.ruling is not found.decisive for one in after):  # the number of all effects decides
        after.append(ExplainedPermission(Permission.WRITE, f"{len(effects):,} paths", found.decisive, effect="change"))
    return [*before, *after]


def read_effects(written: Iterable[str], scope: Scope) -> list[Effect]:
    """Reads effects as a person writes them: `delete src/a.py`. Raises `ToolError`."""
    return [_read_effect(one, scope) for one in written]


def _read_effect(written: str, scope: Scope) -> Effect:
    kind, _, path = written.strip().partition(" ")
    path = path.strip()
    if kind not in _VERBS or not path or "\0" in path:
        raise ToolError(
            f"the effect {written!r:.80} cannot be read",
            ErrorKind.VALIDATION,
            f"Write one of {', '.join(_VERBS)} and a path, such as `delete src/a.py`.",
        )
    whole = Path(os.path.normpath(os.path.join(scope.workspace, path)))
    return Effect(whole, path, cast(EffectKind, _VERBS[kind]), None, None)


class _EffectsJudge:
    """Judges the effects of one call."""

    def __init__(
        self,
        policy: Policy,
        ctx: ToolContext,
        effects: Sequence[Effect],
        read: CallLabeller | None,
        private: Collection[str],
    ) -> None:
        self._policy, self._ctx, self._read, self._private = policy, ctx, read, private
        scope = ctx.scope
        folders = (scope.workspace, *(root.path for root in scope.roots if root.writable))
        self._workspace = paths.roots(str(scope.workspace))
        self._roots = tuple({spelling: None for folder in folders for spelling in paths.roots(str(folder))})
        self._is_traced = len(effects) <= MOST_TRACED
        self.labels = self._label([self._spell(str(effect.path)) for effect in effects])  # of all of them together

    def judge(self, effect: Effect) -> Ruling:
        try:
            return strictest(self._judge_all(effect)) or Ruling(Decision.DENY, "nothing judges it")
        except Exception as error:
            secrets = self._ctx.activity.secrets
            log.error("the policy failed on %s: %s", self._ctx.spec.name, secrets.mask_all(describe_failure(error)))
            return Ruling(Decision.DENY, f"the policy, which failed with {type(error).__name__}")

    def _label(self, names: list[str]) -> CallLabels | None:
        if self._read is None:
            return None
        return self._read.label_request(_LABELLED, {"path": names}, Permission.WRITE, "")

    def _judge_all(self, effect: Effect) -> Iterable[Ruling]:
        path = str(effect.path)
        if not is_inside_any(path, self._roots):
            yield Ruling(Decision.DENY, "its protection: it is outside the workspace and its writable roots")
            return
        yield self._judge_path(effect, path)
        if reason := _find_unusual(effect):
            yield Ruling(Decision.ASK, reason)
        state = effect.after
        if state is not None and state.type == "link":
            yield self._judge_link(effect, os.path.normpath(os.path.join(os.path.dirname(path), state.target)))

    def _judge_link(self, effect: Effect, target: str) -> Ruling:
        """Judges a new link as a write to where it leads: a later write may go through it."""
        if is_inside_any(target, self._roots):
            return self._judge_path(effect, target)
        if is_inside_any(target, SYSTEM):
            return Ruling(Decision.ALLOW, "it leads to the system's programs")
        return Ruling(Decision.ASK, "it is a link that leads out of the workspace")

    def _judge_path(self, effect: Effect, path: str) -> Ruling:
        ctx, target = self._ctx, self._spell(path)
        labels = self._label([target]) if self._is_traced else self.labels
        request = PermissionRequest(
            ctx.spec,
            ctx.call,
            {"path": target},
            Permission.WRITE,
            target,
            ctx.scope,
            labels=labels,
            effect=effect.kind,
        )
        policy = self._policy
        decided = policy.explain(request) if isinstance(policy, Rules) else policy(request)
        ruling = decided if isinstance(decided, Ruling) else Ruling(Decision(decided), "the policy")
        ruling = _protect(ruling, effect, target, ctx.scope)
        if ruling.decision is Decision.ALLOW and matches_any(self._private, "path", [target]):
            ruling = Ruling(Decision.ASK, "it is private by label", ruling.rule, ruling.layer)
        return ruling if labels is None else apply_labels(ruling, labels)

    def _spell(self, path: str) -> str:
        """Returns the path as rules and people write it: relative to the workspace, where it is inside."""
        for root in self._workspace:
            if path != root and is_inside(path, root):
                return path[len(root.rstrip("/")) + 1 :]
        return path


def _find_unusual(effect: Effect) -> str:
    """Returns why an effect asks whatever rules allow: a file tool cannot have it."""
    before, after = effect.before, effect.after
    if effect.type == "other" and effect.kind != "delete":
        return "it is a FIFO, a socket or a device" if after is not None else ""
    if after is None:
        return ""
    gained = after.mode & _SET_ID & ~(before.mode if before is not None else 0)
    return "it gets the rights of its owner when it runs (setuid, setgid)" if gained and after.type == "file" else ""


def _protect(ruling: Ruling, effect: Effect, target: str, scope: Scope) -> Ruling:
    """Returns the ruling; a deny, or for Git's own files a question, where no rule names the protected path."""
    guarded = protect(ruling, Permission.WRITE, target, scope)
    if guarded is ruling or _runs_code(effect, target):
        return guarded
    name, what = find_protection(target, scope) or ("", "")
    if name != ".git":
        return guarded
    if ruling.decision is Decision.ASK:
        return ruling
    return Ruling(Decision.ASK, f"{what} may be changed without a question only where a rule names it")


def _runs_code(effect: Effect, path: str) -> bool:
    """Returns whether a path of a Git directory may make Git run something: hooks, settings, a pointer to another."""
    names = paths.fold(path).split("/")
    inside = names[names.index(".git") + 1 :] if ".git" in names else [""]
    if not inside:
        return effect.type != "folder"
    if inside[0] in ("modules", "worktrees"):
        return bool(_RUNS_CODE & set(inside))
    if inside[0] == "hooks":
        return len(inside) > 1 and not inside[-1].endswith(".sample")
    is_new_settings = inside == ["config"] and effect.kind == "create"  # `git init`: a person sees what it says
    return inside[0] in _RUNS_CODE and not is_new_settings
