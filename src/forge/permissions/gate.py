"""The gate every call passes: the policy first, then the person, whose answers are remembered."""

from __future__ import annotations

import asyncio
import copy
import logging
from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.events import PermissionAnswered, PermissionAsked
from forge.core.registry import CONVERSATION
from forge.core.result import ToolResult
from forge.core.spec import Permission, ToolSpec
from forge.permissions import refusals
from forge.permissions.answers import Answer, Approver, answer_of, approve_all, nobody
from forge.permissions.policy import Decision, PermissionRequest, Policy, Rules, Ruling, rules
from forge.permissions.remember import Memory, fingerprint, memory
from forge.permissions.targets import identity, targets_of

__all__ = ["Answer", "Approver", "Grant", "PolicyGate", "approve_all", "nobody"]

log = logging.getLogger(__name__)

MOST_TARGETS = 1_000  # of one call
MOST_SESSIONS = 1_000  # whose answers are remembered
MOST_ANSWERS = 1_000  # remembered in each
ROUNDS = 5  # questions about one call: an edit may need another

_asking: ContextVar[tuple[Hashable, ...]] = ContextVar("asking", default=())  # whose approver we are in


class Wish(NamedTuple):
    """Something a call wants to do that needs a yes."""

    permission: Permission | None
    target: str
    ruling: Ruling
    granted: Hashable  # equal for the same permission on the same thing, as it is at this moment


@dataclass(slots=True)
class Grant:
    """What one call was granted, and the gate its tool sees: asking again for what was granted asks nobody."""

    gate: PolicyGate
    approved: set[Hashable] = field(default_factory=set)
    review: bool = False  # somebody wants to see the result first
    edited: Mapping[str, Any] | None = None  # what runs instead of what the model sent
    feedback: list[str] = field(default_factory=list)  # what was said with the yes

    async def require(self, ctx: ToolContext, permission: Permission, target: str) -> None:
        await self.gate.settle(ctx, self, (permission, target))


class PolicyGate:
    """Implements `Gate` with a policy and someone to ask. The policy is fixed: tools it does not concern skip it."""

    def __init__(self, policy: Policy | None = None, approve: Approver = nobody) -> None:
        self._policy = rules() if policy is None else policy
        self.approve = approve
        self._remembered: OrderedDict[str, dict[Hashable, str]] = OrderedDict()  # session -> what "always" covers
        self._locks: WeakValueDictionary[Hashable, asyncio.Lock] = WeakValueDictionary()

    @property
    def policy(self) -> Policy:
        return self._policy

    def concerns(self, spec: ToolSpec) -> bool:
        """Whether calls of this tool must pass: it declares permissions, wants confirmation, or a rule may touch it.

        Optional permissions count, since they are asked for while the tool runs, through this gate.
        """
        if spec.permissions or spec.optional_permissions or spec.confirm:
            return True
        if isinstance(self._policy, Rules):
            return self._policy.concerns(spec)
        return spec.name not in CONVERSATION

    async def require(self, ctx: ToolContext, permission: Permission, target: str) -> None:
        """One permission, on its own. Raises `ToolError` if it is refused."""
        await self.settle(ctx, Grant(self), (permission, target))

    async def authorize(self, ctx: ToolContext) -> ToolContext:
        """Judge all that a call declares. Returns the context to run with, whose gate is the call's `Grant`.

        Any deny refuses it before anyone is asked; all that asks is one question. Raises `ToolError` if it is refused.
        """
        grant = Grant(self)
        return (await self.settle(ctx, grant)).replace(gate=grant)

    async def review(self, ctx: ToolContext, result: ToolResult) -> ToolResult:
        """Show a result to the person before the model sees it."""
        request = PermissionRequest(ctx.spec, ctx.call, _own(ctx.arguments), None, "", ctx.scope, result=result)
        async with self._lock(ctx):
            answer = await self._ask(ctx, request)
        return refusals.withheld(answer.feedback) if answer.kind == "no" else result

    async def confirm(self, ctx: ToolContext, question: str) -> bool:
        """Ask whether to go on with something that no rule decides."""
        request = PermissionRequest(ctx.spec, ctx.call, _own(ctx.arguments), None, "", ctx.scope, question=question)
        async with self._lock(ctx):
            return (await self._ask(ctx, request)).kind != "no"

    def forget(self, session_id: str = "") -> None:
        """What "always" covered in a session, or in all of them, asks again."""
        if session_id:
            self._remembered.pop(session_id, None)
        else:
            self._remembered.clear()

    def remembered(self, session_id: str) -> list[str]:
        """What "always" covers in a session, for people."""
        return list(self._remembered.get(session_id, {}).values())

    async def settle(self, ctx: ToolContext, grant: Grant, wanted: tuple[Permission, str] | None = None) -> ToolContext:
        """Ask about `wanted`, or all the call declares, until nothing is open. Returns the approved context."""
        if not self._open(ctx, grant, wanted):
            return ctx
        async with self._lock(ctx):
            for _ in range(ROUNDS):
                # judged anew each time: an "always" may have come meanwhile, or a link may lead elsewhere now
                wishes = self._open(ctx, grant, wanted)
                if not wishes:
                    return ctx
                ctx = await self._question(ctx, grant, wishes, editable=wanted is None)
        raise ToolError(
            f"what it would do was different in each of {ROUNDS} questions", ErrorKind.PERMISSION, "Try again later."
        )

    def _open(self, ctx: ToolContext, grant: Grant, wanted: tuple[Permission, str] | None = None) -> list[Wish]:
        """What a person must be asked. Raises if anything is denied."""
        wishes = []
        for permission, target in [wanted] if wanted else self._declared(ctx):
            ruling = self._rule(ctx, permission, target)
            if ruling.decision is Decision.ALLOW:
                if wanted or not ctx.spec.confirm:
                    continue
                ruling = Ruling(Decision.ASK, "the tool wants every call confirmed")
            wish = Wish(permission, target, ruling, (permission, target, identity(permission, target, ctx.scope)))
            if wish.granted not in grant.approved and not self._remembers(ctx, wish):
                wishes.append(wish)
        return wishes

    def _declared(self, ctx: ToolContext) -> list[tuple[Permission | None, str]]:
        spec = ctx.spec
        if spec.name in CONVERSATION and not isinstance(self._policy, Rules):
            return []
        targets = targets_of(spec, ctx.arguments)
        if len(targets) > MOST_TARGETS:
            raise ToolError(
                f"it names {len(targets):,} targets, and {MOST_TARGETS:,} are the most one call may touch",
                ErrorKind.PERMISSION,
                "Split it into several calls.",
            )
        permissions: Sequence[Permission | None] = sorted(spec.permissions) or (None,)
        return [(permission, target) for permission in permissions for target in targets]

    def _rule(self, ctx: ToolContext, permission: Permission | None, target: str) -> Ruling:
        """What the policy says, if it is not no. A policy that fails, or says nothing, says no."""
        looks_at_arguments = not isinstance(self._policy, Rules)  # only then they must be copied
        arguments = _own(ctx.arguments) if looks_at_arguments else ctx.arguments
        request = PermissionRequest(ctx.spec, ctx.call, arguments, permission, target, ctx.scope)
        try:
            said = self._policy.explain(request) if isinstance(self._policy, Rules) else self._policy(request)
            ruling = said if isinstance(said, Ruling) else Ruling(Decision(said), "the policy")
        except Exception as error:
            log.exception("the policy failed on %s", ctx.spec.name)
            ruling = Ruling(Decision.DENY, f"the policy, which failed with {type(error).__name__}")
        if ruling.decision is Decision.DENY:
            raise refusals.denied(request, ruling)
        return ruling

    async def _question(self, ctx: ToolContext, grant: Grant, wishes: list[Wish], *, editable: bool) -> ToolContext:
        """One question about everything that is open. Returns the context with the very arguments that were shown."""
        first, *more = wishes
        shown, seal = _own(ctx.arguments), fingerprint(ctx.arguments)
        if not seal:
            raise ToolError("the arguments cannot be shown to a person", ErrorKind.PERMISSION, "Nest them less deeply.")
        others = tuple((wish.permission, wish.target) for wish in more)
        request = PermissionRequest(
            ctx.spec, ctx.call, _own(shown), first.permission, first.target, ctx.scope, first.ruling, others
        )
        answer = await self._ask(ctx, request)
        if answer.kind == "no":
            raise (
                refusals.nobody_there(request) if answer.by == "nobody" else refusals.refused(request, answer.feedback)
            )
        if fingerprint(ctx.arguments) != seal:
            raise ToolError("the arguments changed while the person was asked", ErrorKind.SECURITY, "Call it again.")
        grant.review |= answer.review
        if answer.feedback:
            grant.feedback.append(answer.feedback)
        ctx = ctx.replace(arguments=dict(shown))
        if answer.arguments is not None:
            return self._edit(ctx, grant, answer, answer.arguments, editable=editable)
        self._accept(ctx, grant, wishes, answer)
        return ctx

    def _edit(
        self, ctx: ToolContext, grant: Grant, answer: Answer, written: Mapping[str, Any], *, editable: bool
    ) -> ToolContext:
        """The arguments the person wrote instead: approved if exactly these run, to be shown again if not."""
        if not editable:
            raise ToolError(
                "the person changed arguments that are in use already", ErrorKind.PERMISSION, "Call it again."
            )
        edited = ctx.replace(arguments=_parsed(ctx, written))
        runs = fingerprint(edited.arguments)
        if runs != fingerprint(ctx.arguments):
            grant.edited = edited.arguments
            grant.approved.clear()  # it was about other arguments
        left = {key: value for key, value in ctx.arguments.items() if key in edited.arguments}
        if runs in (fingerprint(ctx.arguments), fingerprint({**left, **written})):
            self._accept(edited, grant, self._open(edited, grant), answer)
        return edited

    def _accept(self, ctx: ToolContext, grant: Grant, wishes: list[Wish], answer: Answer) -> None:
        grant.approved.update(wish.granted for wish in wishes)
        if answer.kind != "always":
            return
        session = self._remembered.setdefault(ctx.scope.session_id, {})
        for found in (_memory(ctx, wish) for wish in wishes):
            if found.key:
                session[found.key] = found.rule
        while len(session) > MOST_ANSWERS:
            del session[next(iter(session))]
        self._remembered.move_to_end(ctx.scope.session_id)
        while len(self._remembered) > MOST_SESSIONS:
            self._remembered.popitem(last=False)

    def _remembers(self, ctx: ToolContext, wish: Wish) -> bool:
        session = self._remembered.get(ctx.scope.session_id)
        return session is not None and _memory(ctx, wish).key in session

    async def _ask(self, ctx: ToolContext, request: PermissionRequest) -> Answer:
        if ctx.activity.listening:
            rule = request.ruling.rule if request.ruling else ""
            for part in request.parts:
                ctx.emit(PermissionAsked(ctx.call, str(part.permission or ""), part.target, rule))
        answer = Answer.no(by="cancelled")
        inside = _asking.set((*_asking.get(), self._key(ctx)))
        try:
            answer = await answer_of(self.approve, request)
        finally:
            _asking.reset(inside)
            if ctx.activity.listening:
                said = "edited" if answer.arguments is not None and answer.kind != "no" else answer.kind
                ctx.emit(PermissionAnswered(ctx.call, said, answer.by))
        return answer

    def _lock(self, ctx: ToolContext) -> asyncio.Lock:
        """A session's questions are asked one after another, so that an "always" answers those that wait."""
        key = self._key(ctx)
        if key in _asking.get():
            raise ToolError(
                "it needs an answer itself, while it was called to find one",
                ErrorKind.PERMISSION,
                "An approver that calls tools needs a session of its own.",
            )
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        return lock

    def _key(self, ctx: ToolContext) -> Hashable:
        return id(self), id(asyncio.get_running_loop()), ctx.scope.session_id


def _own(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """A copy that shares nothing with the original."""
    try:
        return MappingProxyType(copy.deepcopy(dict(arguments)))
    except Exception as error:  # an object that does not let itself be copied
        raise ToolError(
            f"the arguments cannot be judged: {type(error).__name__} while copying them",
            ErrorKind.PERMISSION,
            "Send plain data.",
        ) from error


def _memory(ctx: ToolContext, wish: Wish) -> Memory:
    return memory(ctx.spec, wish.permission, wish.target, ctx.arguments, ctx.scope)


def _parsed(ctx: ToolContext, written: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return ctx.tool.parse(written)
    except ToolError as error:
        raise ToolError(
            f"the person changed the arguments, and they do not fit: {error.message}", error.kind, error.suggestion
        ) from error
