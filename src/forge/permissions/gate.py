"""The gate every call passes: the policy, then the person, whose answers are remembered."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakValueDictionary

from forge.core.context import Gate, ToolContext, entered
from forge.core.errors import ErrorKind, ToolError, Waiting
from forge.core.events import PermissionAnswered, PermissionAsked
from forge.core.messages import ToolCall
from forge.core.result import ToolResult
from forge.core.spec import Permission, ToolSpec
from forge.core.tool import Tool
from forge.permissions.labels.settings import LabelSettings, current_provenance
from forge.permissions.policy import (
    JudgedRequest,
    Rules,
    TrialMode,
    copy_arguments,
    judge_call,
    judge_with_trial,
    rules,
    wants_trial,
)
from forge.permissions.questions import (
    Answer,
    Approver,
    Decision,
    PermissionRequest,
    Policy,
    Ruling,
    answer_of,
    approve_all,
    ask_own_form,
    describe_failure,
    nobody,
    strictest,
)
from forge.permissions.refusals import denial, no_answer, no_one_to_ask, refusal, withheld_result
from forge.permissions.remember import RememberedAnswer, RememberedAnswers, fingerprint, make_memory
from forge.permissions.targets import CallJudge, identity, text_of

if TYPE_CHECKING:  # it loads what only calls of programs need
    from forge.permissions.trial import Trial
    from forge.process.sandbox.layout import Confinement

# The gate of one call, as its tool and the steps see it, for any kind of gate.


def gate_of(ctx: ToolContext) -> CallGate:
    """Returns the gate of a call. A gate that knows only `require` answers everything else as `CallGate` does."""
    return ctx.gate if isinstance(ctx.gate, CallGate) else _Requiring(ctx.gate)


class CallGate:
    """The interface of a call's gate. These are the answers of a gate that knows no rules and has no one to ask."""

    __slots__ = ()
    judges = False  # True: it knows the rules and what was granted, so `judge` and `authorize` mean something
    review = False
    edited: Mapping[str, Any] | None = None  # the arguments that run instead of those of the model
    feedback: Sequence[str] = ()  # words that came with a yes
    policy: Policy | None = None
    policies: Sequence[Policy] = ()  # all that a call has to pass: its own, and that of whoever it works for
    trial: Trial | None = None  # the call runs as a trial: its program must be confined by it

    async def require(self, ctx: ToolContext, permission: Permission, target: str) -> None:
        """Raises `ToolError` if the permission is refused."""
        raise NotImplementedError

    def judge(self, ctx: ToolContext, permission: Permission | None = None, target: str = "") -> Ruling:
        """Returns the ruling of `require`, or without a permission that of the whole call. Asks no one."""
        return Ruling(Decision.ASK, "the gate of this call has no rules")

    def rule_allows(self, ctx: ToolContext, permission: Permission) -> bool:
        """Returns whether a rule allows the permission to this call; a person's approval of the call does not count."""
        ruling = self.judge(ctx, permission, "")
        return ruling.decision is Decision.ALLOW and bool(ruling.rule)

    async def confirm(self, ctx: ToolContext, question: str) -> bool:
        """Asks the person about something that no rule decides."""
        return False

    async def ask(self, ctx: ToolContext, request: PermissionRequest) -> Answer:
        """Puts a question of the tool's own to the person who is asked about its calls."""
        return Answer.no(by="nobody")

    async def ask_outside(self, ctx: ToolContext, reason: str) -> ToolContext:
        """Asks about a call that cannot be tried after all. Returns the context to run it with."""
        raise NotImplementedError

    async def fill_form(self, ctx: ToolContext, message: str, form: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Puts a form of the tool's own to the person. Returns the answer; None if it was declined."""
        return None

    async def show_result(self, ctx: ToolContext, result: ToolResult) -> ToolResult:
        """Shows the result to a person who wanted to see it before the model does."""
        return result

    def remembered(self, session_id: str) -> list[str]:
        """Returns what "always" covers in a session, for people."""
        return []

    async def authorize(self, inner: ToolContext) -> ToolContext:
        """Judges a call that this call makes. Returns the context to run it with."""
        return inner

    def adopt(self, inner: CallGate, edited: Mapping[str, Any]) -> None:
        """Takes over what was said about a call that this call made; `edited` runs if the person changed arguments."""


class _Requiring(CallGate):
    """Adapts a gate that knows only `require`."""

    __slots__ = ("_gate",)

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    async def require(self, ctx: ToolContext, permission: Permission, target: str) -> None:
        await self._gate.require(ctx, permission, target)


# --- Authorizes a tool that is called through another one, as if it had been called by its own name.


async def authorize_inner(tool: Tool, parsed: dict[str, Any], ctx: ToolContext, holder: str) -> dict[str, Any]:
    """Returns the authorized arguments, including a person's edits. Raises `ToolError` if the call is refused.

    `holder` is the parameter of the outer tool that holds the arguments. Every rule about the inner tool thus applies,
    whichever way the tool is called.
    """

    name, budget = tool.spec.name, ctx.scope.budget
    left_out = budget is not None and budget.offered is not None and name not in budget.offered
    if left_out and name in getattr(ctx.executor, "registry", ()):  # one that the agent has, and not in this turn
        raise ToolError(f"{name} is not offered in this turn", ErrorKind.PERMISSION, "Go on without it.")
    outer = gate_of(ctx)
    call = ToolCall(tool.spec.name, parsed, ctx.call.id)
    inner = ToolContext(call, tool, parsed, ctx.scope, ctx.activity, ctx.owner)
    notes = await ctx.executor.before_inner(inner) if ctx.executor is not None else []  # hooks see its own name, too
    parsed = dict(inner.arguments)
    if not outer.judges:
        for permission, target in tool.required_permissions(parsed, ctx.scope) or ():
            if permission is not None:
                await ctx.require(permission, target)
        return parsed
    grant = outer
    while isinstance(grant, JoinedGrant):
        grant = grant.own
    if isinstance(grant, Grant):
        grant.feedback += notes
    with ctx.pause_clock():
        granted = await outer.authorize(inner)
    own = gate_of(granted)
    outer.adopt(own, {**ctx.arguments, holder: own.edited})  # feedback with a yes belongs to the model's own call
    return dict(granted.arguments)


__all__ = ["Answer", "Approver", "CallGate", "Grant", "PolicyGate", "approve_all", "gate_of", "nobody", "rule_allows"]

ROUNDS = 5  # questions about one call: an edit may need another


class PermissionNeed(NamedTuple):
    """A permission on a target that needs a person's approval."""

    permission: Permission | None
    target: str
    ruling: Ruling
    grant_key: Hashable  # equal for the same permission on the same thing, as it is at this moment


class _AsksThroughGate(CallGate):
    """The part of a grant that its gate answers."""

    __slots__ = ()
    gate: PolicyGate | JoinedGate

    async def confirm(self, ctx: ToolContext, question: str) -> bool:
        return await self.gate.confirm(ctx, question)

    async def ask(self, ctx: ToolContext, request: PermissionRequest) -> Answer:
        return await self.gate.ask(ctx, request)

    async def fill_form(self, ctx: ToolContext, message: str, form: Mapping[str, Any]) -> Mapping[str, Any] | None:
        return await self.gate.fill_form(ctx, message, form)

    def remembered(self, session_id: str) -> list[str]:
        return self.gate.remembered(session_id)


@dataclass(slots=True, eq=False, repr=False)
class Grant(_AsksThroughGate):
    """The permissions granted to one call, and the gate its tool sees: asking again for a granted one asks no one."""

    gate: PolicyGate
    approved: set[Hashable] = field(default_factory=set)
    review: bool = False  # a person wants to see the result first
    edited: Mapping[str, Any] | None = None  # what runs instead of what the model sent
    feedback: list[str] = field(default_factory=list)  # the person's words with a yes, and what hooks add
    may_try: bool = False  # who runs the call settles a trial
    trial: Trial | None = None
    outside: str = ""  # why the call is no longer tried

    judges = True

    @property
    def policy(self) -> Policy:  # type: ignore[override]
        return self.gate.policy

    @property
    def policies(self) -> Sequence[Policy]:  # type: ignore[override]
        return (self.gate.policy,)

    async def require(self, ctx: ToolContext, permission: Permission, target: str) -> None:
        await self.gate.ask_until_approved(ctx, self, (permission, text_of(target)))

    def judge(self, ctx: ToolContext, permission: Permission | None = None, target: str = "") -> Ruling:
        return self.gate.judge_for(ctx, self, (permission, target) if permission else None)

    async def ask_outside(self, ctx: ToolContext, reason: str) -> ToolContext:
        self.trial, self.outside = None, reason
        self.approved.clear()  # what was approved was a trial
        return (await self.gate.ask_until_approved(ctx, self)).replace(gate=self)

    async def show_result(self, ctx: ToolContext, result: ToolResult) -> ToolResult:
        return await self.gate.review(ctx, result) if self.review and not result.pending else result

    async def authorize(self, inner: ToolContext) -> ToolContext:
        return await self.gate.authorize(inner)

    def adopt(self, inner: CallGate, edited: Mapping[str, Any]) -> None:
        self.review |= inner.review
        self.feedback += inner.feedback
        if inner.edited is not None:
            self.edited = edited


def rule_allows(ctx: ToolContext, permission: Permission) -> bool:
    """Returns whether a rule allows the permission to this call; a person's approval of the call does not count."""
    return gate_of(ctx).rule_allows(ctx, permission)


class PolicyGate:
    """Decides about calls with a policy and someone to ask. The policy is fixed: tools it does not concern skip it.

    Args:
        policy: the policy; by default reading is allowed and the rest asks.
        approve: answers what asks.
        labels: follows untrusted and private text into later calls of a run; False: not at all.
        trial: "auto": where only the default asks about a program, it runs as a trial, and its effects are judged, if
            that is possible here; "always": programs that rules allow, too; "off": never.

    Example:
        >>> steps = standard_steps(PolicyGate(rules("allow read")))
        >>> len(steps) > 5
        True
    """

    def __init__(
        self,
        policy: Policy | None = None,
        approve: Approver | None = nobody,
        labels: LabelSettings | bool = True,
        trial: TrialMode = "auto",
    ) -> None:
        self.labels = LabelSettings() if labels is True else labels or None
        self.trial = check_trial_mode(trial)
        self._policy = rules() if policy is None else policy
        self.approve = nobody if approve is None else approve
        self._remembered = RememberedAnswers()
        self._locks: WeakValueDictionary[Hashable, asyncio.Lock] = WeakValueDictionary()

    @property
    def policy(self) -> Policy:
        return self._policy

    def use_policy(self, policy: Policy) -> None:
        """Judges by other rules from now on. They may differ in rules about permissions: tools without any skip it."""
        self._policy = policy

    def concerns(self, spec: ToolSpec) -> bool:
        """Returns whether calls of this tool must pass: it declares an effect or confirmation, or a rule may name it.

        Optional permissions count, since they are asked for while the tool runs, through this gate.
        """
        if spec.permissions or spec.optional_permissions or spec.confirm or spec.irreversible:
            return True
        if isinstance(self._policy, Rules):
            return self._policy.concerns(spec)
        return not spec.only_talks

    async def require(self, ctx: ToolContext, permission: Permission, target: str) -> None:
        """Requires one permission, on its own. Raises `ToolError` if it is refused."""
        await self.ask_until_approved(ctx, Grant(self), (permission, text_of(target)))

    async def authorize(self, ctx: ToolContext, *, may_try: bool = False) -> ToolContext:
        """Judges all that a call declares. Returns the context to run with, whose gate is the call's `Grant`.

        Any deny refuses it before anyone is asked; all that asks is one question. Raises `ToolError` if it is refused.
        `may_try`: the caller settles the `trial` that the grant may have, with `run_trial`.
        """
        grant = Grant(self, may_try=may_try)
        return (await self.ask_until_approved(ctx, grant)).replace(gate=grant)

    def judge(self, ctx: ToolContext, permission: Permission | None = None, target: str = "") -> Ruling:
        """Returns the strictest ruling over all a call declares, or over one permission, without asking anyone."""
        return self.judge_for(ctx, Grant(self), (permission, target) if permission else None)

    async def review(self, ctx: ToolContext, result: ToolResult) -> ToolResult:
        """Shows a result to the person before the model sees it."""
        request = PermissionRequest(
            ctx.spec, ctx.call, copy_arguments(ctx.arguments), None, "", ctx.scope, result=result, editable=False
        )
        async with self._lock(ctx):
            answer = await self._ask(ctx, request)
        return withheld_result(answer.feedback) if answer.kind == "no" else result

    async def confirm(self, ctx: ToolContext, question: str) -> bool:
        """Asks whether to continue with something that no rule decides."""
        request = PermissionRequest(
            ctx.spec, ctx.call, copy_arguments(ctx.arguments), None, "", ctx.scope, question=question, editable=False
        )
        async with self._lock(ctx):
            return (await self._ask(ctx, request)).kind != "no"

    async def ask(self, ctx: ToolContext, request: PermissionRequest) -> Answer:
        """Puts a running tool's own question to the person who is asked about its calls. Its time stops meanwhile."""
        with ctx.pause_clock():
            async with self._lock(ctx):
                return await self._ask(ctx, request)

    async def fill_form(self, ctx: ToolContext, message: str, form: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Puts a tool's own form to the person. Returns the answer; None if it was declined."""
        return await ask_own_form(self, ctx, message, form)

    def forget(self, session_id: str = "") -> None:
        """Forgets the "always" answers of a session, or of all."""
        self._remembered.forget(session_id)

    def remembered(self, session_id: str) -> list[str]:
        """Returns the rules that "always" covers in a session, for people."""
        return self._remembered.rules(session_id)

    def judge_for(self, ctx: ToolContext, grant: Grant, wanted: tuple[Permission, str] | None = None) -> Ruling:
        """Judges like `judge`, and allows what `grant` already holds."""

        def rule_on(found: JudgedRequest) -> Ruling:
            if grant.trial is not None:
                found = found._replace(ruling=judge_with_trial(found.permission, found.ruling, self.trial))
            if found.ruling.decision is Decision.ASK and self._is_granted(ctx, grant, _make_need(ctx, found)):
                return Ruling(Decision.ALLOW, "a person already allowed it")
            return found.ruling

        try:
            strict = strictest(map(rule_on, self._judge(ctx, wanted)))
        except ToolError as error:
            return Ruling(Decision.DENY, error.message)
        return strict or Ruling(Decision.ALLOW, "it needs no permission")

    async def ask_until_approved(
        self, ctx: ToolContext, grant: Grant, wanted: tuple[Permission, str] | None = None
    ) -> ToolContext:
        """Asks about `wanted`, or all the call declares, until nothing is open. Returns the approved context."""
        if not self._find_needs(ctx, grant, wanted):
            return ctx
        async with self._lock(ctx):
            for _ in range(ROUNDS):
                # judged again each time: an "always" may have come meanwhile, or a link may lead elsewhere now
                needs = self._find_needs(ctx, grant, wanted)
                if not needs:
                    return ctx
                ctx = await self._ask_about(ctx, grant, needs, editable=wanted is None)
        raise ToolError(
            f"its effect changed between all {ROUNDS} questions to the person", ErrorKind.PERMISSION, "Try again later."
        )

    def _find_needs(
        self, ctx: ToolContext, grant: Grant, wanted: tuple[Permission, str] | None = None
    ) -> list[PermissionNeed]:
        """Returns the permissions that a person must be asked about. Raises if anything is denied."""
        needs = []
        for found in self._judge(ctx, wanted):
            if found.ruling.decision is Decision.DENY:
                request = PermissionRequest(
                    ctx.spec, ctx.call, ctx.arguments, found.permission, found.target, ctx.scope
                )
                raise denial(request, found.ruling)
            need = self._find_need(ctx, grant, found)
            if need is not None and not self._is_granted(ctx, grant, need):
                needs.append(need)
        return needs

    def _find_need(self, ctx: ToolContext, grant: Grant, found: JudgedRequest) -> PermissionNeed | None:
        """Returns what a person must be asked about; None if nothing asks, or a trial run replaces the question."""
        permission, ruling = found.permission, found.ruling
        why_not = grant.outside
        if wants_trial(permission, ruling, self.trial) and grant.trial is None and grant.may_try and not why_not:
            planned = self._plan_trial(ctx, str(found.target))
            why_not = planned if isinstance(planned, str) else ""
            grant.trial = None if isinstance(planned, str) else planned
        if grant.may_try:
            ruling = judge_with_trial(permission, ruling, self.trial, None if grant.trial is not None else why_not)
        return _make_need(ctx, found._replace(ruling=ruling)) if ruling.decision is Decision.ASK else None

    def _plan_trial(self, ctx: ToolContext, line: str) -> Trial | str:
        """Plans a trial run; returns why none is possible, or "" if that needs no words."""
        if self.trial == "off":
            return ""
        from forge.permissions.trial import plan_trial  # it loads what only calls of programs need

        def judge(permission: Permission | None, target: str) -> Ruling:
            return next(self._judge(ctx, (permission, target))).ruling if permission else Ruling(Decision.ASK, "")

        return plan_trial(ctx, CallJudge(self._policy, judge), line, self.labels)

    def _judge(self, ctx: ToolContext, wanted: tuple[Permission, str] | None) -> Iterator[JudgedRequest]:
        return judge_call(self._policy, ctx, wanted, current_provenance.get())

    def _is_granted(self, ctx: ToolContext, grant: Grant, need: PermissionNeed) -> bool:
        """Returns whether a person already approved it."""
        if need.grant_key in grant.approved:
            return True
        if ctx.tool.needs_person or need.ruling.traces:
            return False
        if grant.outside and self.trial == "always":
            return False  # an earlier "always" was about trials
        session = ctx.scope.session_id
        return self._remembered.has(session) and self._remembered.covers(session, _memory(ctx, need))

    async def _ask_about(
        self, ctx: ToolContext, grant: Grant, needs: list[PermissionNeed], *, editable: bool
    ) -> ToolContext:
        """Asks one question about all open needs. Returns the context with the very arguments that were shown."""
        first, *more = sorted(needs, key=lambda need: not need.ruling.traces)  # the one with a trace explains best
        shown, seal = copy_arguments(ctx.arguments), fingerprint(ctx.arguments)
        if not seal:
            raise ToolError("the arguments cannot be shown to a person", ErrorKind.PERMISSION, "Nest them less deeply.")
        others = tuple((need.permission, need.target) for need in more)
        preview = await preview_changes(ctx) if editable else ""
        request = PermissionRequest(
            ctx.spec,
            ctx.call,
            copy_arguments(shown),
            first.permission,
            first.target,
            ctx.scope,
            first.ruling,
            others,
            preview=preview,
            introduction=introduce_tool(ctx),
            editable=editable,
            personal=ctx.tool.needs_person or any(need.ruling.traces for need in needs),
        )
        answer = await self._ask(ctx, request)
        if answer.kind == "no":
            raise _explain_no(request, answer)
        if fingerprint(ctx.arguments) != seal:
            raise ToolError("the arguments changed while the person was asked", ErrorKind.SECURITY, "Call it again.")
        grant.review |= answer.review
        if answer.feedback:
            grant.feedback.append(f"The person approved this and said: {answer.feedback}")
        ctx = ctx.replace(arguments=dict(shown))
        if answer.arguments is not None:
            return self._edit(ctx, grant, answer, answer.arguments, editable=editable)
        if answer.kind == "always" and not request.remember:  # no rule was shown, so none is stored
            answer = replace(answer, kind="once")
        self._accept(ctx, grant, needs, answer)
        return ctx

    def _edit(
        self, ctx: ToolContext, grant: Grant, answer: Answer, written: Mapping[str, Any], *, editable: bool
    ) -> ToolContext:
        """Takes the person's own arguments: approved if exactly these run, to be shown again if not."""
        if not editable:
            raise ToolError(
                "the person changed arguments that are already in use", ErrorKind.PERMISSION, "Call it again."
            )
        edited = ctx.replace(arguments=_parse_edited(ctx, written))
        runs = fingerprint(edited.arguments)
        if runs != fingerprint(ctx.arguments):
            grant.edited = edited.arguments
            grant.approved.clear()  # it was about other arguments
            grant.trial = None
        left = {key: value for key, value in ctx.arguments.items() if key in edited.arguments}
        if runs in (fingerprint(ctx.arguments), fingerprint({**left, **written})):
            self._accept(edited, grant, self._find_needs(edited, grant), answer)
        return edited

    def _accept(self, ctx: ToolContext, grant: Grant, needs: list[PermissionNeed], answer: Answer) -> None:
        grant.approved.update(need.grant_key for need in needs)
        if answer.kind == "always" and not ctx.tool.needs_person:
            kept = (need for need in needs if not need.ruling.traces)
            self._remembered.add(ctx.scope.session_id, (_memory(ctx, need) for need in kept))

    async def _ask(self, ctx: ToolContext, request: PermissionRequest) -> Answer:
        if ctx.activity.listening:
            rule = request.ruling.rule if request.ruling else ""
            origins = tuple(map(str, request.ruling.traces)) if request.ruling else ()
            (permission, target), *others = [(str(part.permission or ""), str(part.target)) for part in request.parts]
            ctx.emit(PermissionAsked(ctx.call, permission, target, rule, tuple(others), origins))
        answer: Answer | None = Answer.no(by="cancelled")
        inside = entered.set((*entered.get(), self._key(ctx)))
        try:
            answer = await answer_of(self.approve, request, ctx.activity.secrets)
        except Waiting:
            answer = None
            raise
        finally:
            entered.reset(inside)
            if answer is not None and ctx.activity.listening:
                kind = "edited" if answer.arguments is not None and answer.kind != "no" else answer.kind
                ctx.emit(PermissionAnswered(ctx.call, kind, answer.by))
        return answer

    def _lock(self, ctx: ToolContext) -> asyncio.Lock:
        """Serialises a session's questions, so that an "always" answers those that wait."""
        key = self._key(ctx)
        if key in entered.get():
            raise ToolError(
                "it needs an approval itself, but it was called by the approver",
                ErrorKind.PERMISSION,
                "An approver that calls tools needs its own session.",
            )
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        return lock

    def _key(self, ctx: ToolContext) -> Hashable:
        return "approver", id(self), id(asyncio.get_running_loop()), ctx.scope.session_id

    def __repr__(self) -> str:
        return f"<PolicyGate {self.policy!r:.80}>"


class JoinedGate(PolicyGate):
    """Two gates that both must let a call pass: that of an agent, then that of the agent it works for."""

    def __init__(self, own: PolicyGate, outer: PolicyGate) -> None:
        super().__init__(own.policy, own.approve, False, own.trial)
        self.own, self.outer = own, outer
        self.labels = outer.labels if outer.labels is not None else own.labels

    def concerns(self, spec: ToolSpec) -> bool:
        return self.own.concerns(spec) or self.outer.concerns(spec)

    async def require(self, ctx: ToolContext, permission: Permission, target: str) -> None:
        await self.own.require(ctx, permission, target)
        await self.outer.require(ctx, permission, target)

    async def authorize(self, ctx: ToolContext, *, may_try: bool = False) -> ToolContext:
        """Asks both. What a person of the outer one changed, the own one judges again."""
        for _ in range(ROUNDS):
            own = await self.own.authorize(ctx, may_try=may_try)
            both = await self.outer.authorize(own, may_try=may_try)
            if gate_of(both).edited is None:
                return both.replace(gate=join_grants(self, gate_of(own), gate_of(both)))
            edited = both
            again = await self.own.authorize(edited, may_try=may_try)
            if gate_of(again).edited is None:
                return again.replace(gate=join_grants(self, gate_of(again), gate_of(edited)))
            ctx = again
        raise ToolError(f"two people changed its arguments {ROUNDS} times", ErrorKind.PERMISSION, "Ask what they want.")

    def judge(self, ctx: ToolContext, permission: Permission | None = None, target: str = "") -> Ruling:
        rulings = [gate.judge(ctx, permission, target) for gate in (self.own, self.outer)]
        return strictest(rulings) or rulings[0]

    async def confirm(self, ctx: ToolContext, question: str) -> bool:
        return await self.own.confirm(ctx, question) and await self.outer.confirm(ctx, question)

    async def ask(self, ctx: ToolContext, request: PermissionRequest) -> Answer:
        answer = await self.own.ask(ctx, request)
        if answer.kind == "no":
            return answer
        other = await self.outer.ask(ctx, request)
        if answer.paths is None or other.kind == "no":
            return other
        both = answer.paths if other.paths is None else [path for path in answer.paths if path in other.paths]
        return replace(other, paths=tuple(both))

    async def fill_form(self, ctx: ToolContext, message: str, form: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """A form decides nothing: the person of the outer run fills it in."""
        return await self.outer.fill_form(ctx, message, form)

    def forget(self, session_id: str = "") -> None:
        self.own.forget(session_id)

    def remembered(self, session_id: str) -> list[str]:
        return [*self.own.remembered(session_id), *self.outer.remembered(session_id)]


@dataclass(slots=True, eq=False, repr=False)
class JoinedGrant(_AsksThroughGate):
    """The permissions that both gates granted to one call. Everything more needs both of them, too."""

    gate: JoinedGate
    own: CallGate
    outer: CallGate
    trial: Trial | None = None  # of both

    judges = True

    @property
    def review(self) -> bool:  # type: ignore[override]
        return self.own.review or self.outer.review

    @property
    def edited(self) -> Mapping[str, Any] | None:  # type: ignore[override]
        return self.outer.edited if self.own.edited is None else self.own.edited

    @property
    def feedback(self) -> Sequence[str]:  # type: ignore[override]
        return [*self.own.feedback, *self.outer.feedback]

    @property
    def policy(self) -> Policy | None:  # type: ignore[override]
        return self.own.policy

    @property
    def policies(self) -> Sequence[Policy]:  # type: ignore[override]
        return (*self.own.policies, *self.outer.policies)

    async def require(self, ctx: ToolContext, permission: Permission, target: str) -> None:
        await self.own.require(ctx, permission, target)
        await self.outer.require(ctx, permission, target)

    def judge(self, ctx: ToolContext, permission: Permission | None = None, target: str = "") -> Ruling:
        rulings = [grant.judge(ctx, permission, target) for grant in (self.own, self.outer)]
        by_rule_first = sorted(rulings, key=lambda ruling: ruling.is_default)
        return strictest(by_rule_first) or rulings[0]

    def rule_allows(self, ctx: ToolContext, permission: Permission) -> bool:
        return self.own.rule_allows(ctx, permission) and self.outer.rule_allows(ctx, permission)

    async def ask_outside(self, ctx: ToolContext, reason: str) -> ToolContext:
        self.trial = None
        for grant in (self.own, self.outer):
            if grant.trial is not None:
                ctx = await grant.ask_outside(ctx, reason)
        return ctx.replace(gate=self)

    async def show_result(self, ctx: ToolContext, result: ToolResult) -> ToolResult:
        return await self.outer.show_result(ctx, await self.own.show_result(ctx, result))

    async def authorize(self, inner: ToolContext) -> ToolContext:
        return await self.gate.authorize(inner)

    def adopt(self, inner: CallGate, edited: Mapping[str, Any]) -> None:
        own, outer = (inner.own, inner.outer) if isinstance(inner, JoinedGrant) else (inner, inner)
        self.own.adopt(own, edited)
        self.outer.adopt(outer, edited)


def join_grants(gate: JoinedGate, own: CallGate, outer: CallGate) -> JoinedGrant:
    """Joins what two gates granted. A trial that one of them wants is judged by the rules of both."""
    trial = own.trial or outer.trial
    other = outer if trial is own.trial else own
    if trial is not None:
        trial = trial.join(other.trial, other.policy)
    return JoinedGrant(gate, own, outer, trial)


async def confine_as_trial(ctx: ToolContext, confinement: Confinement) -> Confinement:
    """Returns the confinement of a call's program: that of the trial, if the call runs as one."""
    trial = gate_of(ctx).trial
    return confinement if trial is None else await trial.confine(confinement)


def check_trial_mode(mode: object) -> TrialMode:
    """Returns the mode of trial runs. Raises `ValueError` for any other value."""
    if mode not in ("off", "auto", "always"):
        raise ValueError(f'trial={mode!r}: write "off", "auto" or "always"')
    return mode


def _make_need(ctx: ToolContext, found: JudgedRequest) -> PermissionNeed:
    permission, target, ruling = found
    return PermissionNeed(permission, target, ruling, (permission, target, identity(permission, target, ctx.scope)))


def _memory(ctx: ToolContext, need: PermissionNeed) -> RememberedAnswer:
    return make_memory(ctx.spec, need.permission, need.target, ctx.arguments, ctx.scope)


def _parse_edited(ctx: ToolContext, written: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return ctx.tool.parse(written)
    except ToolError as error:
        raise ToolError(
            f"the person changed the arguments, and they are not valid: {error.message}", error.kind, error.suggestion
        ) from error


def _explain_no(request: PermissionRequest, answer: Answer) -> ToolError:
    if answer.by in ("nobody", "--yes"):
        return no_one_to_ask(request)
    if answer.by == "error":
        return no_answer(request, answer.feedback)
    return refusal(request, answer.feedback)


# Previews a call for the person who is asked: its changes, and the introduction of a new tool.


PREVIEW_SECONDS = 30.0  # that a preview may take

log = logging.getLogger(__name__)


def introduce_tool(ctx: ToolContext) -> str:
    """Returns the introduction of a tool that no person has approved yet, secrets masked; empty for others."""
    return ctx.activity.secrets.mask(str(type(ctx.tool).introduce(ctx.tool)))


async def preview_changes(ctx: ToolContext) -> str:
    """Returns the tool's own preview, registered secrets masked; empty for tools that have none.

    Raises `ToolError` where it fails: then the call is refused.
    """
    try:
        change = str(await asyncio.wait_for(type(ctx.tool).preview_call(ctx.tool, ctx.arguments, ctx), PREVIEW_SECONDS))
    except ToolError:
        raise
    except Exception as error:
        log.error("the preview of %s failed: %s", ctx.spec.name, ctx.activity.secrets.mask_all(describe_failure(error)))
        raise ToolError(
            f"the preview of its changes failed: {type(error).__name__}",
            ErrorKind.SYSTEM,
            "Change less at once, or try again.",
        ) from error
    return ctx.activity.secrets.mask(change)  # the person may read it through a channel
