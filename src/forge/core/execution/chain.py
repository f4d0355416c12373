"""The steps around a tool: what a step is, and how the steps of one tool become its chain.

A call passes the steps from the first to the last, and its result passes them back. With the steps `measure`, `redact`
and `authorize`, of which `redact` only looks at results:

    call   -> measure -> authorize -> tool
    result <- measure <- redact.after <- authorize <- tool
    wrong arguments, refusals, background results: <- redact.after <- authorize.after
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from traceback import format_exception
from typing import Any

from forge.core.context import Gate, Runnable, ToolContext
from forge.core.errors import ErrorKind, ToolError, is_interrupt
from forge.core.execution.deadline import is_cancelled_itself
from forge.core.messages import render_call
from forge.core.plain_values import text_of
from forge.core.result import ToolResult
from forge.core.spec import ToolSpec

log = logging.getLogger("forge.tools")
logging.getLogger("forge").addHandler(logging.NullHandler())  # silent unless an application sets up logging
_LONGEST_NAME = 80  # characters of a tool's name in the log

Next = Callable[[ToolContext], Coroutine[Any, Any, ToolResult]]
"""The rest of the chain that a step calls: `await proceed(ctx)` returns the result.

Example:
    >>> async def quiet(ctx: ToolContext, proceed: Next) -> ToolResult:
    ...     return await proceed(ctx)
"""
After = Callable[[ToolContext, ToolResult], ToolResult | Awaitable[ToolResult]]


class StepObject:
    """A step that is more than a function. Subclass it, and define `__call__`, `after` or both.

    `async def __call__(self, ctx, proceed)` runs around the calls, as a function does. `def after(self, ctx, result)`
    returns the result, a changed one, or a coroutine that returns one. A step without `__call__` only looks: its
    `after` sees every result. The `after` of a step with `__call__` sees only results that did not pass `__call__`.

    Example:
        >>> class CountCalls(StepObject):
        ...     name = "count_calls"
        ...     calls = 0
        ...
        ...     def after(self, ctx: ToolContext, result: ToolResult) -> ToolResult:
        ...         self.calls += 1
        ...         return result
        >>> step: Step = CountCalls()
    """

    name: str = ""  # for `without` and for people; by default the name of the class
    after: After | None = None
    gate: Gate | None = None  # of a step that decides about calls: tools without permissions ask the person through it

    def applies(self, spec: ToolSpec) -> bool:
        """Returns whether the step concerns a tool; asked once per tool."""
        return True

    def forget(self, session_id: str) -> None:
        """Forgets what the step remembers of a session; "" means all sessions."""

    async def before_inner(self, ctx: ToolContext) -> list[str]:
        """Judges a tool that is called through another one, such as `mcp_call`. Returns notes for the model.

        Raises `ToolError` to refuse the call.
        """
        return []


Step = Callable[[ToolContext, Next], Awaitable[ToolResult]] | StepObject
"""One concern of every call: a function around it, or an object.

Example:
    >>> async def shout(ctx: ToolContext, proceed: Next) -> ToolResult:
    ...     result = await proceed(ctx)
    ...     return ToolResult.text(result.for_llm.upper())
    >>> step: Step = shout
"""


def step_name(step: Step) -> str:
    """Returns the name of a step: its `name`, or that of the function."""
    return str(getattr(step, "name", "") or getattr(step, "__name__", type(step).__name__))


def check_step(step: Step) -> None:
    """Raises `TypeError` for an object that is no step, or that would be called without its `after` or `applies`."""
    if isinstance(step, StepObject):
        if callable(step) or step.after is not None:
            return
        raise TypeError(f"{step!r} is no step: define `async def __call__(self, ctx, proceed)`, or `after`")
    has_parts = any(hasattr(step, part) for part in ("after", "applies", "before_inner", "forget"))
    if not callable(step) or has_parts:
        raise TypeError(
            f"{step!r} is no step: pass a function `async (ctx, proceed)`, or an object of a subclass of StepObject"
        )


def compose(steps: Sequence[Step], tool: Runnable) -> tuple[Next, tuple[After, ...]]:
    """Composes the chain of one tool: the steps that apply to its spec, around the call of the tool itself.

    Also returns every `after`, innermost first, for results that did not come from the chain. So an `after` may see
    two results of one call: the first, which says that the work continues, and that of the background work. It also
    sees two where a step further out raises after `proceed`: the result that passed, and the error that replaces it.

    Example:
        >>> class Shout(StepObject):
        ...     def after(self, ctx: ToolContext, result: ToolResult) -> ToolResult:
        ...         return ToolResult.text(result.for_llm.upper())
        >>> run, afters = compose([Shout()], today)
        >>> asyncio.run(run(ToolContext(ToolCall("today"), today))).for_llm, len(afters)
        ('MONDAY', 1)
    """
    run, afters, looking = _call_tool(tool), list[After](), list[After]()
    for step in reversed(steps):
        if isinstance(step, StepObject):
            if not step.applies(tool.spec):
                continue
            if step.after is not None:
                afters.append(step.after)
            if not callable(step):
                looking.append(afters[-1])  # neighbours that only look share one link: a link each costs 2 µs a call
                continue
        run, looking = _go_around(step, _show_result(run, looking), tuple(afters)), []
    return _show_result(run, looking), tuple(afters)


def _call_tool(tool: Runnable) -> Next:
    """Returns the call of the tool. Any exception becomes a result: `SystemExit` ends the call, not the program."""

    async def run(ctx: ToolContext) -> ToolResult:
        try:
            result = await tool.invoke(ctx.arguments, ctx)
            if isinstance(result, ToolResult):
                return result
            raise TypeError(f"its invoke returned {type(result).__name__} instead of a ToolResult")
        except BaseException as error:
            if comes_from_outside(error):
                ctx.cancelled = True
                raise
            return result_of_error(ctx, error)

    return run


def _go_around(step: Any, proceed: Next, afters: tuple[After, ...]) -> Next:
    """Returns the call of a step. What it raises becomes a result at its place: `afters` see it."""

    async def run(ctx: ToolContext) -> ToolResult:
        try:
            result = await step(ctx, proceed)
            if isinstance(result, ToolResult):
                return result
            raise TypeError(f"the step {step_name(step)} returned {type(result).__name__} instead of a ToolResult")
        except BaseException as error:
            if comes_from_outside(error):
                raise
            return await pass_result(ctx, result_of_error(ctx, error), afters)

    return run


def _show_result(proceed: Next, afters: Sequence[After]) -> Next:
    if not afters:
        return proceed

    async def run(ctx: ToolContext) -> ToolResult:
        return await pass_result(ctx, await proceed(ctx), afters)

    return run


async def pass_result(ctx: ToolContext, result: ToolResult, afters: Iterable[After]) -> ToolResult:
    """Shows a result to steps that only look. It is withheld where one of them fails: it may hold a secret."""
    for after in afters:
        try:
            looked = after(ctx, result)
            result = looked if isinstance(looked, ToolResult) else await looked
            if not isinstance(result, ToolResult):
                raise TypeError(f"a step returned {type(result).__name__} instead of a ToolResult")
        except BaseException as broken:
            if comes_from_outside(broken):
                raise
            owner: Any = getattr(after, "__self__", after)  # the step whose `after` it is
            step, trace = step_name(owner), ctx.activity.secrets.mask_all("".join(format_exception(broken)))
            log_call(ctx, logging.ERROR, "a result of %s is withheld, because the step %s failed:\n%s", step, trace)
            kind = result.failure.kind if isinstance(result, ToolResult) and result.failure else ErrorKind.SYSTEM
            result = ToolResult.error(
                f"{ctx.call.name}: its result is withheld, because the step {step} failed: {text_of(broken)}", kind
            )
    return result


def comes_from_outside(error: BaseException) -> bool:
    """Returns whether the error came from outside: a cancelled task, Ctrl-C, or a closed coroutine.

    An exception that a tool or a step raises is a failed call, `SystemExit` and its like included.
    """
    if isinstance(error, Exception):
        return False
    if isinstance(error, asyncio.CancelledError):
        return is_cancelled_itself()
    return is_interrupt(error)


def result_of_error(ctx: ToolContext, error: BaseException) -> ToolResult:
    if isinstance(error, asyncio.CancelledError):
        error = ToolError("it cancelled itself", ErrorKind.CANCELLED)
    if isinstance(error, ToolError) or ctx.spec.expose_errors:
        return ToolResult.failed(error, during=render_call(ctx.call))
    log_id = os.urandom(4).hex()
    trace = "".join(format_exception(error))
    log_call(ctx, logging.ERROR, f"error {log_id} in %s:\n%s", ctx.activity.secrets.mask_all(trace))
    return ToolResult.failed(error, during=render_call(ctx.call), log_id=log_id)


def _name_for_log(ctx: ToolContext) -> str:
    return ctx.activity.secrets.mask_all(ctx.call.name[:_LONGEST_NAME])


def log_call(ctx: ToolContext, level: int, words: str, *values: object) -> None:
    """Logs something about a call. The record has its tool and its session, for logs that machines read."""
    if log.isEnabledFor(level):
        name = _name_for_log(ctx)
        log.log(level, words, name, *values, extra={"tool": name, "session": ctx.scope.session_id})
