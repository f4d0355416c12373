"""Steps that guard: guardrails refuse calls and hide output, and registered secrets stay out of results."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any, Protocol, cast

from forge.core.activity import ActivityStream
from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, add_until_then, find_until_then
from forge.core.events import Event, ToolOutput, ToolProgress
from forge.core.execution.chain import Next, StepObject
from forge.core.execution.threads import in_thread
from forge.core.plain_values import number, plain
from forge.core.result import Failure, ToolResult
from forge.core.secrets import Secrets
from forge.core.spec import ToolSpec
from forge.permissions.gate import gate_of

MARK = "[BLOCKED BY POLICY]"
LARGE = 50_000  # characters from which on a result is looked at beside the loop
LONGEST_LINE = 64 * 1024  # characters of a line that does not end, while a tool runs
DEEPEST_DATA = 100  # levels of data


class Denial(Protocol):
    @property
    def message(self) -> str: ...


class CallRules(Protocol):
    """The guardrails of a session."""

    @property
    def output(self) -> tuple[Denial, ...]:
        """The rules about output; () if there are none."""

    @property
    def streams(self) -> str:
        """`all`, `lines` or `nothing`: the output that may be shown while a tool runs."""

    def check_call(self, spec: ToolSpec, arguments: Mapping[str, Any]) -> None:
        """Raises `ToolError` for a call that is denied."""

    def find_block(self, text: str) -> Denial | None:
        """Returns the rule that hides all of an output with this text, if there is one."""

    def redact(self, text: str) -> str:
        """Removes text that must not be seen."""


class Guard(Protocol):
    """Knows the guardrails, which may change during a session."""

    def rules(self, session_id: str) -> CallRules | None:
        """Returns the rules of a session; None if nothing is denied."""

    def forget(self, session_id: str) -> None:
        """Forgets a session that begins again."""


class GuardCalls(StepObject):
    """The step. It goes outside the gate, so that no one is asked about denied calls.

    It goes inside the step that stores results in files.
    """

    name = "guard"

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    async def __call__(self, ctx: ToolContext, proceed: Next) -> ToolResult:
        rules = self._guard.rules(ctx.scope.session_id)
        return await (proceed(ctx) if rules is None else _run_guarded(ctx, proceed, rules, self._guard))

    def after(self, ctx: ToolContext, result: ToolResult) -> ToolResult | Coroutine[Any, Any, ToolResult]:
        rules = self._guard.rules(ctx.scope.session_id)
        return result if rules is None else _screen_result(result, rules)

    def forget(self, session_id: str) -> None:
        self._guard.forget(session_id)


class GuardEdited(StepObject):
    """The step that goes inside the gate: arguments that a person wrote are judged like the model's."""

    name = "guard"  # a part of it: left out together

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    async def __call__(self, ctx: ToolContext, proceed: Next) -> ToolResult:
        if gate_of(ctx).edited is not None:
            rules = self._guard.rules(ctx.scope.session_id)
            if rules is not None:
                rules.check_call(ctx.spec, ctx.arguments)
        return await proceed(ctx)


async def _run_guarded(ctx: ToolContext, proceed: Next, rules: CallRules, source: Guard) -> ToolResult:
    rules.check_call(ctx.spec, ctx.arguments)
    stream = _Stream(ctx, rules) if rules.streams != "all" and ctx.activity.listening else None
    inner = ctx if stream is None else ctx.replace(activity=cast(ActivityStream, stream))
    try:
        result = await proceed(inner)
    except CancelledError as error:
        if (until_then := find_until_then(error, ToolResult)) is not None:  # no step sees it any more
            raise add_until_then(error, await _screen_result(until_then, rules)) from None
        raise
    finally:
        if stream is not None:
            stream.end()
    now = source.rules(ctx.scope.session_id)  # a skill that was just read denies more than before
    return await _screen_result(result, now if now is not None else rules)


async def _screen_result(result: ToolResult, rules: CallRules) -> ToolResult:
    if not rules.output:
        return result
    if len(result.for_llm) + len(result.for_user) < LARGE and len(result.data) < 100:
        return _screen_now(result, rules)

    screened: ToolResult = await in_thread(lambda: _screen_now(result, rules))
    return screened


def _screen_now(result: ToolResult, rules: CallRules) -> ToolResult:
    """Looks for blocked text in the whole result before any of it is redacted."""
    found: list[Denial] = []

    def look(text: str) -> str:
        if not found and (denial := rules.find_block(text)) is not None:
            found.append(denial)
        return text

    _mask_result(result, look)
    return _withhold_result(result, found[0]) if found else _mask_result(result, rules.redact)


def _mask_result(result: ToolResult, mask: Callable[[str], str]) -> ToolResult:
    return result.masked(lambda value: _mask_data(value, mask))


def _mask_data(value: Any, mask: Callable[[str], str], depth: int = 0) -> Any:
    """Passes every text in plain data through `mask`."""
    if isinstance(value, str):
        return mask(value) if value else value
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        shown = number(value) if isinstance(value, int) else repr(value)
        return value if (hidden := mask(shown)) == shown else hidden
    if depth > DEEPEST_DATA:
        return "[nested too deeply to be shown]"
    if isinstance(value, Mapping):
        return {_mask_data(str(key), mask): _mask_data(item, mask, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_mask_data(item, mask, depth + 1) for item in value]
    return _mask_data(plain(value), mask, depth + 1)


def _withhold_result(result: ToolResult, denial: Denial) -> ToolResult:
    """Withholds the output and gives the reason. The call has run, so the model learns that too."""
    message = f"{MARK} skill guardrail: {denial.message}"
    kind = result.failure.kind if result.failure is not None else ErrorKind.SECURITY
    return replace(
        result,
        for_llm=f"{message}\nThe call was made; its output is withheld. Do not try to get it another way.",
        for_user="",
        title=MARK,
        data={"blocked": True},
        attachments=(),
        failure=Failure(message, kind, "Continue without its output."),
    )


class _Stream:
    """Replaces the activity stream of one call: output shown while the tool runs is checked first."""

    def __init__(self, ctx: ToolContext, rules: CallRules) -> None:
        self._to = ctx.activity
        self._rules = rules
        self._waiting = ""  # the beginning of a line
        self._last: ToolOutput | None = None
        self._has_noted = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._to, name)

    def emit(self, event: Event) -> None:
        if isinstance(event, ToolOutput):
            self._output(event)
        elif isinstance(event, ToolProgress):
            self._progress(event)
        else:
            self._to.emit(event)

    def end(self) -> None:
        """Emits the last line, even if it is incomplete."""
        if self._last is not None and self._waiting:
            self._to.emit(replace(self._last, text=self._rules.redact(self._waiting)))
            self._waiting = ""

    def _output(self, event: ToolOutput) -> None:
        if self._rules.streams == "nothing":
            if not self._has_noted:
                self._has_noted = True
                self._to.emit(replace(event, text="[Its output is shown after all of it is checked.]\n"))
            return
        self._last = event
        whole, found, self._waiting = (self._waiting + event.text).rpartition("\n")
        if len(self._waiting) > LONGEST_LINE:  # no one writes such lines to be read
            whole, found, self._waiting = whole + found + MARK, "\n", ""
        if found:
            lines = [self._rules.redact(line) if line else line for line in whole.split("\n")]
            self._to.emit(replace(event, text="\n".join(lines) + "\n"))

    def _progress(self, event: ToolProgress) -> None:
        texts = [event.title, *_strings(event.data)]
        if any(self._rules.find_block(text) is not None for text in texts):
            self._to.emit(replace(event, title=MARK, data={}))
            return
        mask = self._rules.redact
        self._to.emit(replace(event, title=_mask_data(event.title, mask), data=_mask_data(event.data, mask)))


def _strings(value: Any) -> list[str]:
    found: list[str] = []

    def keep(text: str) -> str:
        found.append(text)
        return text

    _mask_data(value, keep)
    return found


# Registered secrets stay out of results.


class Redact(StepObject):
    """Masks registered secrets only, so that a file that was read can be edited; events mask look-alikes too."""

    name = "redact"

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets

    def after(self, ctx: ToolContext, result: ToolResult) -> ToolResult:
        return result if self._secrets.pattern is None else result.masked(self._secrets.mask_value)
