"""Hooks: functions that look at each call, each turn and the end of a run, and may block it, change it or add to it.

Hooks of calls are one step of the pipeline, outside everything that judges a call: what a hook changes is checked and
judged like the model's own arguments. Hooks of turns are called by the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from inspect import isawaitable, iscoroutinefunction, signature
from typing import Any, Generic, Literal, TypeVar, overload

from forge.agent.labels import NOT_FROM_PERSON
from forge.core.arguments.names import near
from forge.core.context import DepsT, RunContext, Scope, ToolContext
from forge.core.errors import DefinitionError, ErrorKind, ToolError, Waiting, is_interrupt
from forge.core.execution.chain import Next, Step, StepObject, step_name
from forge.core.execution.deadline import Deadline, DeadlinePassed
from forge.core.execution.threads import in_thread
from forge.core.messages import Message
from forge.core.plain_values import plain, text_of
from forge.core.registry import ToolRegistry
from forge.core.result import Failure, ToolResult
from forge.core.secrets import Secrets
from forge.core.spec import Permission, ToolSpec
from forge.permissions.labels.settings import current_provenance
from forge.permissions.policy import Rules, copy_arguments, judge_call
from forge.permissions.questions import Decision
from forge.permissions.rules import PolicyError, read_rule
from forge.pipeline.guard import GuardCalls

TIMEOUT = 60.0  # seconds that a hook has
MOST_REFUSED_ENDS = 5  # times that a model is sent back by hooks that check its answer
LONGEST_TEXT = 20_000  # characters that a hook may add, or give as a reason

HookKind = Literal["before_call", "after_call", "before_turn", "on_end"]
_MAY: Mapping[HookKind, tuple[str, ...]] = {  # what the decision of each may say
    "before_call": ("block", "arguments", "context"),
    "after_call": ("block", "result", "context"),
    "before_turn": ("block", "prompt", "context"),
    "on_end": ("block",),
}
_OUTSIDE = ("trace", "record", "replay", "label_results", "limit_output", "redact")  # steps around the hooks
_FIX = "Go on without it. The person can fix the hook."


@dataclass(frozen=True, slots=True, kw_only=True)
class HookDecision:
    """The decision of a hook. A hook that returns None changes nothing.

    Args:
        block: the reason for the model why a call, a result, a turn or the end of a run is refused.
        arguments: in `before_call`, all arguments of the call instead. They are checked and judged as the model's.
        result: in `after_call`, the text that the model reads instead.
        prompt: in `before_turn`, the person's message instead.
        context: what the model also reads: with the result of the call, or before the turn.

    Example:
        >>> HookDecision(block="Ask the on-call engineer first.").block
        'Ask the on-call engineer first.'
    """

    block: str | None = None
    arguments: Mapping[str, Any] | None = None
    result: str | None = None
    prompt: str | None = None
    context: str = ""


class TurnContext(RunContext[DepsT]):
    """The context of a turn: `before_turn`, `on_end` and `choose_tools` receive one.

    Args:
        scope: the session, user and directories of the run, and its `deps`.
        conversation: the messages so far.
        turn: the number of the turn; 1 for the first.
        prompt: what the person said since the last turn; "" where the model continues by itself. `before_turn` is
            called for each message.
        answer: in `on_end`, the answer that would end the run.
        tools: the names of the tools that the model sees in this turn, unless `choose_tools` chooses others.

    Example:
        >>> TurnContext(Scope(), [Message("user", "Hi")], turn=1, prompt="Hi").messages[0].text
        'Hi'
    """

    __slots__ = ("_conversation", "answer", "prompt", "tools", "turn")

    def __init__(
        self,
        scope: Scope,
        conversation: Sequence[Message],
        *,
        turn: int,
        prompt: str = "",
        answer: str = "",
        tools: tuple[str, ...] = (),
    ) -> None:
        super().__init__(scope)
        self._conversation = conversation
        self.turn = turn
        self.prompt = prompt
        self.answer = answer
        self.tools = tools

    @property
    def messages(self) -> list[Message]:
        """A copy of the conversation so far."""
        return list(self._conversation)


Decided = HookDecision | None | Awaitable[HookDecision | None]
BeforeCall = Callable[[ToolContext[DepsT]], Decided]
"""A hook that is called before each call, with valid arguments: `ctx.call.name`, `ctx.arguments`. It may be async."""
AfterCall = Callable[[ToolContext[DepsT], ToolResult], Decided]
"""A hook that is called with each result that the model is to read, errors and refusals included. It may be async."""
TurnHook = Callable[[TurnContext[DepsT]], Decided]
"""A hook that is called before each turn, or before a run ends with an answer. It may be async."""
ChooseTools = Callable[[TurnContext[Any]], Iterable[str] | Awaitable[Iterable[str]]]
"""Returns the names of the tools that the model gets in a turn. It may be async."""

HookT = TypeVar("HookT", bound=Callable[..., Any])


class HookDecorator(Generic[HookT]):
    """Adds a hook to an agent: `@agent.before_call`, or with settings `@agent.before_call(match="write src/**")`."""

    def __init__(self, add: Callable[[Hook], None], kind: HookKind) -> None:
        self._add = add
        self._kind: HookKind = kind

    @overload
    def __call__(self, function: HookT, /) -> HookT: ...
    @overload
    def __call__(
        self, /, *, match: str | Iterable[str] = (), timeout: float = TIMEOUT, name: str = ""
    ) -> Callable[[HookT], HookT]: ...
    def __call__(
        self,
        function: HookT | None = None,
        /,
        *,
        match: str | Iterable[str] = (),
        timeout: float = TIMEOUT,
        name: str = "",
    ) -> Any:
        """Adds a function. `match` are tools or rules without an action, `timeout` the seconds that it has."""
        if function is None:
            return lambda given: self._take(given, match, timeout, name)
        return self._take(function, match, timeout, name)

    def _take(self, function: HookT, match: str | Iterable[str], timeout: float, name: str) -> HookT:
        if not callable(function):
            raise DefinitionError(f"@agent.{self._kind}: {function!r:.80} is not a function")
        called = name or str(getattr(function, "__name__", type(function).__name__))
        rules = read_match([match] if isinstance(match, str) else [*match], called)
        if rules is not None and self._kind in ("before_turn", "on_end"):
            raise DefinitionError(f"@agent.{self._kind}(match=…): only hooks of calls have it; a turn has no tool")
        is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
        if not is_number or not 0 < timeout < float("inf"):
            raise DefinitionError(f"@agent.{self._kind}(timeout={timeout!r:.80}): write seconds, a number above 0")
        _check_parameters(self._kind, function, called)
        self._add(Hook(self._kind, function, rules, timeout, called))
        return function


def _check_parameters(kind: HookKind, function: Callable[..., Any], called: str) -> None:
    """Raises `DefinitionError` for a function that cannot be called as a hook of this kind."""
    wanted = ("ctx", "result") if kind == "after_call" else ("ctx",)
    try:
        known = signature(function)
    except (TypeError, ValueError):
        return  # some functions that are written in C do not tell
    try:
        known.bind(*wanted)
    except TypeError as error:
        message = f"@agent.{kind}: {called} is called as {called}({', '.join(wanted)}): {error}"
        raise DefinitionError(message) from None


def read_match(patterns: Sequence[str], hook: str) -> Rules | None:
    """Returns rules that deny what a hook is about; None: it is about every call. Raises `DefinitionError`.

    A pattern is a tool's name or glob, or a rule without its action: `bash`, `git__*`, `write src/**`, `execute rm *`.
    """
    known = {*map(str, Permission), "*"}
    found = []
    for pattern in patterns:
        words = pattern.split(maxsplit=1) if isinstance(pattern, str) else []
        is_rule = bool(words) and (words[0].lower() in known or words[0].startswith("tool:"))
        try:
            if not words or (len(words) > 1 and not is_rule):
                line = words[1].removesuffix(" *") if words and words[0].lower() == "bash" else "rm"
                raise PolicyError(
                    "write a tool, such as `bash` or `git__*`, or a rule without its action, such as "
                    f"`execute {line[:80]} *`"
                )
            found.append(read_rule(f"deny {pattern if is_rule else f'tool:{pattern}'}", f"match of the hook {hook}"))
        except PolicyError as error:
            raise DefinitionError(f"reading the pattern {pattern!r:.80} of the hook {hook}: {error}") from None
    return Rules(tuple(found)) if found else None


@dataclass(frozen=True, slots=True)
class Hook:
    """A function, when it is called, and the calls that it is about."""

    kind: HookKind
    function: Callable[..., Any]
    rules: Rules | None = None  # they deny what it is about; None: every call
    timeout: float = TIMEOUT
    name: str = ""

    def concerns(self, spec: ToolSpec) -> bool:
        """Returns whether the hook can be about a call of the tool."""
        if self.rules is None:
            return True
        wanted = spec.permissions | spec.optional_permissions or {None}
        return any(rule.concerns(spec, one) for rule in self.rules.rules for one in wanted)

    def is_about(self, ctx: ToolContext) -> bool:
        """Returns whether the hook is about this call. A call that cannot be judged counts."""
        if self.rules is None:
            return True
        if not self.concerns(ctx.spec) or not any(rule.target or rule.conditions for rule in self.rules.rules):
            return self.concerns(ctx.spec)
        try:
            judged = list(judge_call(self.rules, ctx, None, current_provenance.get()))
        except ToolError:
            return True
        return any(one.ruling.decision is Decision.DENY and one.ruling.rule for one in judged)

    async def ask(self, *given: Any) -> HookDecision:
        """Returns its decision. Raises `ToolError` where it blocks, fails, hangs or says what it cannot."""
        try:
            said = await _call_in_time(_call(self.function, *given), self.timeout, self._failed)
        except HookFailed:
            raise
        except ToolError as error:
            return HookDecision(block=" ".join(filter(None, (error.message, error.suggestion))) or "no reason is given")
        return self.check(said)

    def check(self, said: Any) -> HookDecision:
        """Returns a decision that this hook may make. Raises `HookFailed` for anything else."""
        if said is None:
            return HookDecision()
        if not isinstance(said, HookDecision):
            raise self._failed(f"returned {type(said).__name__} instead of a HookDecision or None")
        for field in fields(said):
            value = getattr(said, field.name)
            if value == field.default:
                continue
            if field.name not in _MAY[self.kind]:
                raise self._failed(f"set {field.name!r}; {self.kind} may set {', '.join(_MAY[self.kind])}")
            kind = Mapping if field.name == "arguments" else str
            if not isinstance(value, kind):
                raise self._failed(f"set {field.name!r} to {type(value).__name__} instead of {kind.__name__}")
            if field.name != "arguments" and len(value) > LONGEST_TEXT and field.name not in ("result", "prompt"):
                raise self._failed(f"set {field.name!r} to {len(value):,} characters; {LONGEST_TEXT:,} are allowed")
        is_empty = said.block is not None and not said.block.strip()
        return replace(said, block="no reason is given") if is_empty else said

    def _failed(self, problem: str, kind: ErrorKind = ErrorKind.SYSTEM) -> HookFailed:
        return HookFailed(f"asking the {self.kind} hook {self.name!r}: it {problem}", kind, _FIX)


async def _call(function: Callable[..., Any], *given: Any) -> Any:
    if iscoroutinefunction(function) or iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004
        return await function(*given)
    value = await in_thread(lambda: function(*given))  # it may wait for a database or a file
    return await value if isawaitable(value) else value


async def _call_in_time(
    made: Coroutine[Any, Any, Any], timeout: float, failed: Callable[[str, ErrorKind], ToolError]
) -> Any:
    """Returns what a function of the program returns. Raises its `ToolError`, and `failed` for all else."""
    try:
        return await Deadline(made, timeout)
    except DeadlinePassed:
        raise failed(f"gave no answer within {timeout:g} s", ErrorKind.TIMEOUT) from None
    except ToolError:
        raise
    except BaseException as error:  # `SystemExit` and a function that cancels itself included
        task = asyncio.current_task()
        if is_interrupt(error) or (isinstance(error, asyncio.CancelledError) and task and task.cancelling()):
            raise
        raise failed(f"failed: {text_of(error)}", ErrorKind.SYSTEM) from error


class HookFailed(ToolError):
    """A hook did not decide, so what it was asked about is refused."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """The hooks of an agent, in the order in which they were added."""

    all: tuple[Hook, ...] = ()

    def of(self, kind: HookKind) -> tuple[Hook, ...]:
        return tuple(hook for hook in self.all if hook.kind == kind)

    def add(self, hook: Hook) -> Hooks:
        return Hooks((*self.all, hook))

    @property
    def has_turns(self) -> bool:
        """Returns whether there are hooks of turns."""
        return any(hook.kind in ("before_turn", "on_end") for hook in self.all)

    def of_calls(self) -> Hooks:
        """Returns only those that sub-agents have, too."""
        return Hooks((*self.of("before_call"), *self.of("after_call")))

    def keep_in(self, steps: Iterable[Step], secrets: Secrets) -> tuple[Step, ...]:
        """Returns other steps for the same agent: with its hooks, unless they have hooks themselves."""
        given = tuple(steps)
        return given if any(isinstance(step, CallHooks) for step in given) else self.add_to(given, secrets)

    def add_to(self, steps: Iterable[Step], secrets: Secrets) -> tuple[Step, ...]:
        """Returns the steps with the step that calls the hooks: outside all steps that judge a call.

        So changed arguments are judged, and what hooks write is redacted, limited and screened.
        """
        others = [step for step in steps if not isinstance(step, CallHooks | _ScreenHooked)]
        if not self.of("before_call") and not self.of("after_call"):
            return tuple(others)
        names = [step_name(step) for step in others]
        end = names.index("authorize") if "authorize" in names else len(names)
        place = 1 + max((index for index, name in enumerate(names[:end]) if name in _OUTSIDE), default=-1)
        screens = [_ScreenHooked(step) for step in others if isinstance(step, GuardCalls)]
        made = CallHooks(self.of("before_call"), self.of("after_call"), secrets)
        return (*others[:place], *screens, made, *others[place:])


# The hooks of calls: a step.


class CallHooks(StepObject):
    """Calls the hooks of calls. A hook that fails, hangs or answers nonsense refuses the call."""

    name = "hooks"

    def __init__(self, before: Sequence[Hook], after: Sequence[Hook], secrets: Secrets) -> None:
        self._before, self._after, self._secrets = before, after, secrets

    def applies(self, spec: ToolSpec) -> bool:
        return any(hook.concerns(spec) for hook in (*self._before, *self._after))

    async def __call__(self, ctx: ToolContext, proceed: Next) -> ToolResult:
        notes = await self.before_inner(ctx)
        result = await self.after(ctx, await proceed(ctx))
        return _add_notes(result, notes) if notes else result

    async def before_inner(self, ctx: ToolContext) -> list[str]:
        """Asks the hooks about a call, and gives it the arguments that they change. Returns notes for the model.

        Also called for a tool that is called through another one, such as `mcp_call`. Raises `ToolError` if refused.
        """
        notes = []
        for hook in self._before:
            if not hook.is_about(ctx):
                continue
            said = await hook.ask(ctx.replace(arguments=copy_arguments(ctx.arguments)))
            if said.block:
                hint = "Follow the reason; do not try it another way."
                raise ToolError(f"the hook {hook.name!r} refused it: {said.block}", ErrorKind.PERMISSION, hint)
            if said.arguments is not None:
                changed = _parse_changed(hook, ctx, said.arguments)
                names = [name for name in {**ctx.arguments, **changed} if _differs(ctx.arguments, changed, name)]
                ctx.arguments = changed  # in place: steps further out label the result by these
                if names:
                    notes.append(f"The hook {hook.name!r} changed the arguments: {', '.join(map(str, names))}")
            if said.context:
                notes.append(f"The hook {hook.name!r} adds: {said.context}")
        return notes

    async def after(self, ctx: ToolContext, result: ToolResult) -> ToolResult:
        """Shows a result to the hooks, with secrets masked. A call that waits has none yet."""
        if result.failure is not None and isinstance(result.failure.cause, Waiting):
            return result
        for hook in self._after:
            if not hook.is_about(ctx):
                continue
            shown = result if self._secrets.pattern is None else result.masked(self._secrets.mask_value)
            try:
                said = await hook.ask(ctx.replace(arguments=copy_arguments(ctx.arguments)), shown)
            except HookFailed as error:
                return _withhold(ctx, result, error.message, error.kind)
            if said.block:
                return _withhold(ctx, result, f"the hook {hook.name!r} withheld it: {said.block}", ErrorKind.PERMISSION)
            if said.result is not None:  # the whole text, and files, are not what the model is to read
                failed = result.failure and Failure(said.result, result.failure.kind, "", result.failure.passing)
                result = replace(_strip(ctx, result), for_llm=said.result, failure=failed)
            if said.context:
                result = _add_notes(result, [f"The hook {hook.name!r} adds: {said.context}"])
        return result


class _ScreenHooked(StepObject):
    """Screens what hooks write by the guardrails of output, as they screen what tools write."""

    name = "guard"

    def __init__(self, guard: GuardCalls) -> None:
        self.after = guard.after


def _parse_changed(hook: Hook, ctx: ToolContext, changed: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return ctx.tool.parse(plain(dict(changed)))
    except ToolError as error:
        message = f"the hook {hook.name!r} changed the arguments, and they are not valid: {error.message}"
        raise HookFailed(message, error.kind, _FIX) from error


def _differs(one: Mapping[str, Any], other: Mapping[str, Any], name: str) -> bool:
    return (name in one) != (name in other) or bool(one[name] != other[name])


def _add_notes(result: ToolResult, notes: Iterable[str]) -> ToolResult:
    return replace(result, for_llm="\n".join([result.for_llm, *(f"[{note}]" for note in notes)]))


def _withhold(ctx: ToolContext, result: ToolResult, problem: str, kind: ErrorKind) -> ToolResult:
    """Withholds a result and gives the reason. The call has run, so the model learns that, too."""
    made = "The call was made" if result.failure is None else "The call failed"
    return replace(
        _strip(ctx, result),
        for_llm=f"{problem}\n{made}; its result is withheld. Go on without it.",
        failure=Failure(problem, kind, "Go on without it."),
    )


def _strip(ctx: ToolContext, result: ToolResult) -> ToolResult:
    """Returns a result without all that repeats its text: scripts, programs and people read these parts."""
    keys = ["stop", "stop_reason"] if result.data.get("stop") == "loop" else []
    keys += ["usage", "cost"] if getattr(ctx.tool, "reports_usage", False) else []  # the run counts them
    kept = {key: result.data[key] for key in keys if key in result.data}
    return replace(result, for_user="", title="", data=kept, attachments=(), whole=None)


# The hooks of turns, and the choice of tools: called by the loop.


Record = Callable[[str, Callable[[], Awaitable[Mapping[str, Any]]]], Awaitable[Mapping[str, Any]]]
"""Stores what a function returned under a name, so that another attempt at a stored run gets the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BeforeTurn:
    """The decision of all hooks before a turn."""

    prompts: list[str]  # what the person said, as the model is to read it
    blocked: int | None = None  # which of them a hook refused
    context: str = ""
    refusal: ToolError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnHooks:
    """The functions that the loop of one run calls. None of them raises, except to be cancelled."""

    hooks: Hooks
    choose: ChooseTools | None = None
    check_text: Callable[[str], None] | None = None  # raises `ToolError` for text that a guardrail denies
    reject: Callable[[], None] | None = None  # forgets a structured answer that was refused
    record: Record | None = None

    async def before_turn(self, ctx: TurnContext[Any], given: list[str]) -> BeforeTurn:
        """Asks the hooks before a turn about all that the person said: each sees what the one before it made of it."""
        hooks = self.hooks.of("before_turn")
        if not hooks:
            return BeforeTurn(prompts=given)

        async def ask() -> Mapping[str, Any]:
            prompts, notes = [], []
            for at, prompt in enumerate(given or [""]):
                ctx.prompt = prompt
                try:
                    for hook in hooks:
                        said = await hook.ask(ctx)
                        if said.block:
                            message = f"the hook {hook.name!r} refused turn {ctx.turn}: {said.block}"
                            error = ToolError(message, ErrorKind.PERMISSION, "Follow the reason, then run it again.")
                            return {**_to_wire(error), "blocked": at}
                        if said.prompt is not None:
                            ctx.prompt = self._check_prompt(hook, ctx, said.prompt)
                        if said.context:
                            self._check(said.context)
                            notes.append(f"{NOT_FROM_PERSON} the hook {hook.name!r} adds it.]\n{said.context}")
                except ToolError as error:
                    return _to_wire(error)
                prompts.append(ctx.prompt)
            return {"context": "\n".join(dict.fromkeys(notes)), "prompts": prompts if given else []}

        wire = await self._keep("before_turn", ask)
        return BeforeTurn(
            prompts=wire.get("prompts", given),
            blocked=wire.get("blocked"),
            context=wire.get("context", ""),
            refusal=_from_wire(wire),
        )

    async def check_end(self, ctx: TurnContext[Any]) -> tuple[str, ToolError | None]:
        """Returns why the run may not end with this answer, in words for the model; or why that is unknown."""
        hooks = self.hooks.of("on_end")
        if not hooks:
            return "", None

        async def ask() -> Mapping[str, Any]:
            try:
                for hook in hooks:
                    said = await hook.ask(ctx)
                    if said.block:
                        return {"reason": f"{NOT_FROM_PERSON} the hook {hook.name!r} refused the end.]\n{said.block}"}
            except ToolError as error:
                return _to_wire(error)
            return {}

        wire = await self._keep("on_end", ask)
        reason, refusal = wire.get("reason", ""), _from_wire(wire)
        if (reason or refusal) and self.reject is not None:
            self.reject()
        return reason, refusal

    async def choose_tools(
        self, ctx: TurnContext[Any], registry: ToolRegistry, others: Collection[str] = ()
    ) -> tuple[frozenset[str] | None, ToolError | None]:
        """Returns the names of the tools of this turn; None: all that the model sees. Or why they are unknown.

        `others` are names of tools that the provider runs itself.
        """
        choose = self.choose
        if choose is None:
            return None, None

        async def ask() -> Mapping[str, Any]:
            try:
                return {"tools": sorted(await _choose(choose, ctx, registry, others))}
            except ToolError as error:
                return _to_wire(error)

        wire = await self._keep("choose_tools", ask)
        return frozenset(wire.get("tools", ())), _from_wire(wire)

    async def _keep(self, name: str, ask: Callable[[], Awaitable[Mapping[str, Any]]]) -> Mapping[str, Any]:
        return await (ask() if self.record is None else self.record(name, ask))

    def _check_prompt(self, hook: Hook, ctx: TurnContext[Any], prompt: str) -> str:
        if not ctx.prompt:
            message = f"the hook {hook.name!r} changed the prompt of turn {ctx.turn}, which has none"
            raise HookFailed(message, ErrorKind.SYSTEM, "Change it only where ctx.prompt is not empty.")
        self._check(prompt)
        return prompt

    def _check(self, text: str) -> None:
        if self.check_text is not None:
            self.check_text(text)


async def _choose(
    choose: ChooseTools, ctx: TurnContext[Any], registry: ToolRegistry, others: Collection[str]
) -> set[str]:
    """Returns the canonical names of the chosen tools. Raises `ToolError`."""
    doing = f"choosing the tools of turn {ctx.turn}"

    async def call() -> Any:
        names = await _call(choose, ctx)
        return names if isinstance(names, str) else list(names)

    def failed(problem: str, kind: ErrorKind) -> ToolError:
        return ToolError(f"{doing}: choose_tools {problem}", kind, "Fix the function; it returns the names of tools.")

    given = await _call_in_time(call(), TIMEOUT, failed)
    if isinstance(given, str) or not all(isinstance(name, str) for name in given):
        message = f"{doing}: choose_tools returned {given!r:.80}"
        raise ToolError(message, ErrorKind.SYSTEM, 'Return names of tools, such as ["search"].')
    for name in given:
        if name not in registry and name not in others:
            hints = near(name, [*registry.names, *others], 1)
            hint = f"Did you mean {hints[0]!r}?" if hints else "Return names of the agent's tools."
            raise ToolError(f"{doing}: the agent has no tool {name[:80]!r}", ErrorKind.CONFIG, hint)
    return {registry[name].spec.name if name in registry else name for name in given}


def _to_wire(error: ToolError) -> dict[str, Any]:
    return {"refused": [error.message, str(error.kind), error.suggestion]}


def _from_wire(wire: Mapping[str, Any]) -> ToolError | None:
    if "refused" not in wire:
        return None
    message, kind, suggestion = wire["refused"]
    return ToolError(message, kind, suggestion)
