"""Runs a call: through the steps, into the tool, out as a result."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from forge.core.activity import ActivityStream
from forge.core.arguments.parse import Repaired
from forge.core.context import Scope, ToolContext
from forge.core.errors import ErrorKind, ToolError, Waiting, find_until_then
from forge.core.events import ToolCompleted, ToolFailed, ToolFinished, ToolStarted
from forge.core.execution.background import BackgroundWork
from forge.core.execution.chain import (
    After,
    Next,
    Step,
    StepObject,
    check_step,
    comes_from_outside,
    compose,
    log,
    log_call,
    pass_result,
    result_of_error,
)
from forge.core.execution.deadline import Deadline, DeadlinePassed
from forge.core.execution.session_programs import end_started
from forge.core.messages import InnerCall, ToolCall, render_call
from forge.core.registry import ToolRegistry
from forge.core.result import ToolResult
from forge.core.secrets import Secrets
from forge.core.tool import Tool

_NOT_YET: Mapping[str, Any] = {}  # the arguments before they are parsed


@dataclass(slots=True, eq=False)
class _ToolChain:
    """A tool with its steps."""

    tool: Tool
    run: Next
    afters: tuple[After, ...]  # for results that did not come from `run`
    late: bool  # `ready` is awaited before each call


class ToolExecutor:
    """Runs every call through the steps. Never raises, except to be cancelled.

    Args:
        registry: the tools.
        steps: the steps. They have no default: leaving out `authorize` is a decision.
        activity: receives the events.
        secrets: values that are masked in the log.
        background: runs background work; by default the executor's own.

    Example:
        >>> @tool
        ... def today() -> str:
        ...     "Return the day of the week."
        ...     return "Monday"
        >>> executor = ToolExecutor(ToolRegistry([today]), steps=[])
        >>> asyncio.run(executor.execute(ToolCall("today"), Scope())).for_llm
        'Monday'
    """

    def __init__(
        self,
        registry: ToolRegistry,
        steps: Iterable[Step],
        activity: ActivityStream | None = None,
        secrets: Secrets | None = None,
        background: BackgroundWork | None = None,
    ) -> None:
        self.registry = registry
        self.steps = tuple(steps)
        for step in self.steps:
            check_step(step)
        self.secrets = secrets if secrets is not None else Secrets()
        self.activity = activity if activity is not None else ActivityStream(self.secrets)
        self.activity.secrets.include(self.secrets)  # a custom stream shows no secret of these tools
        self.background = background if background is not None else BackgroundWork(self._complete, result_of_error)
        self._objects = tuple(step for step in self.steps if isinstance(step, StepObject))
        self.gate = next((step.gate for step in self._objects if step.gate is not None), None)
        self.cleared_turns = 0
        self._entries: dict[str, _ToolChain] = {}
        self._version = registry.version
        self._loop: asyncio.AbstractEventLoop | None = None

    async def execute(self, call: ToolCall, scope: Scope) -> ToolResult:
        """Runs one call to its result. Exactly one end event follows every start event."""
        try:
            entry = self._entries.get(call.name)
        except TypeError:  # a name that is no text at all
            call = ToolCall(repr(call.name)[:80], call.arguments, call.id, call.server)
            entry = None
        if entry is None or self._version != self.registry.version:
            entry = self._find_chain(call.name)
        ctx = ToolContext(call, entry.tool, _NOT_YET, scope, self.activity, self.background, self)
        watched = self.activity.listening or log.isEnabledFor(logging.INFO)
        started = self._begin_call(ctx) if watched else 0.0
        try:
            if entry.late:
                entry = await self._initialise(ctx)
            arguments = ctx.arguments = entry.tool.parse(call.arguments)
            result = await entry.run(ctx)
            if self.background.offered:
                self.background.end_call(ctx, pending=result.pending)
            if type(arguments) is Repaired:
                result = _note_repairs(result, arguments)
        except BaseException as error:
            if self.background.offered:
                self.background.end_call(ctx, pending=False)
            if comes_from_outside(error):
                if watched:
                    self._end_call(ctx, _result_of_cancel(ctx, error), started)
                raise
            result = await pass_result(ctx, result_of_error(ctx, error), entry.afters)
        if watched:
            self._end_call(ctx, result, started)
        return result

    async def execute_all(
        self, calls: Sequence[ToolCall], scope: Scope, done: Callable[[ToolCall, ToolResult], None] | None = None
    ) -> list[ToolResult]:
        """Runs one turn's calls in parallel where allowed. Returns one result per call, in order.

        A tool with `parallel=False` runs alone, after the calls before it and before those after it. A tool that ends
        the turn runs last. `done` receives every result as it comes, so that none is lost when the rest is cancelled.
        """
        if len(calls) == 1:
            result = await self.execute(calls[0], scope)
            if done is not None:
                done(calls[0], result)
            return [result]
        results: dict[int, ToolResult] = {}

        async def run(index: int) -> None:
            results[index] = await self.execute(calls[index], scope)
            if done is not None:
                done(calls[index], results[index])

        for batch in self.list_batches(calls):
            if len(batch) == 1:
                await run(batch[0])
            else:
                await asyncio.gather(*map(run, batch))
        return [results[index] for index in range(len(calls))]

    async def execute_inner(self, call: InnerCall, scope: Scope) -> ToolResult:
        """Runs a call that a tool makes while it runs, as any other call."""
        return self.refuse_beyond_budget(call, scope) or await self.execute(call, scope)

    def refuse_beyond_budget(self, call: InnerCall, scope: Scope) -> ToolResult | None:
        """Counts a call that a tool makes; returns the refusal where the turn has no more."""
        if scope.budget is None or scope.budget.take():
            return None
        message = "the run has made all the calls that its limit allows"
        result = ToolResult.failed(ToolError(message, ErrorKind.USER, "Go on without it."), during=render_call(call))
        self.emit_not_run(call, scope, result)
        return result

    def emit_not_run(self, call: ToolCall, scope: Scope, result: ToolResult) -> None:
        """Emits the events of a call that is not run here, such as a refused one: a start, maybe an error, an end."""
        if self.activity.listening or log.isEnabledFor(logging.INFO):
            ctx = ToolContext(call, self.registry.find(call.name), _NOT_YET, scope, self.activity, self.background)
            self._end_call(ctx, result, self._begin_call(ctx))

    def end_work(self, session_id: str) -> None:
        """Ends work that calls of a session left running: jobs, programs, background work. Steps keep their state."""
        self.background.cancel(session_id)
        end_started(session_id)

    def end_session(self, session_id: str, begun_again: Callable[[], bool] | None = None) -> None:
        """Ends a session: its programs end, and nothing of it is remembered.

        Background work is not a program: it continues to its end, which is still an event. `end_work` cancels it. What
        it leaves is forgotten at its end, unless another session has the name: `begun_again` says so.
        """

        def forget_again() -> None:
            if begun_again is None or not begun_again():
                self._forget(session_id)

        self._forget(session_id)
        self.background.forget(session_id, forget_again)

    def _forget(self, session_id: str) -> None:
        end_started(session_id)
        self.clear_state(session_id)
        self.registry.forget(session_id)
        for one in self.registry.values():
            one.forget_session(session_id)

    def clear_turn(self) -> None:
        """Begins a new turn: earlier calls may be made again."""
        self.cleared_turns += 1

    def clear_state(self, session_id: str = "") -> None:
        """Forgets everything that steps remember of a session: repeats, loops, files, limits."""
        for step in self._objects:
            step.forget(session_id)

    async def before_inner(self, ctx: ToolContext) -> list[str]:
        """Lets the steps judge a tool that is called through another one. Returns their notes for the model."""
        return [note for step in self._objects for note in await step.before_inner(ctx)]

    async def _initialise(self, ctx: ToolContext) -> _ToolChain:
        """Makes a tool ready and composes its chain again: its spec is known only now, or is another than before."""
        tool = self.registry.find(ctx.call.name)
        tool.take_scope(ctx.scope)
        try:
            await Deadline(tool.ready(), tool.spec.timeout)
        except DeadlinePassed:
            message = f"it was not initialised within {tool.spec.timeout:g} s"
            raise ToolError(message, ErrorKind.TIMEOUT, "Try again later.") from None
        self._entries.pop(ctx.call.name, None)
        entry = self._find_chain(ctx.call.name)
        ctx.tool, ctx.spec = entry.tool, entry.tool.spec
        return entry

    def _begin_call(self, ctx: ToolContext) -> float:
        if self._loop is not asyncio.get_running_loop():
            self.activity.attach()
            self._loop = asyncio.get_running_loop()
        ctx.emit(ToolStarted(ctx.call))
        log_call(ctx, logging.DEBUG, "%s started")
        return time.perf_counter()

    def _end_call(self, ctx: ToolContext, result: ToolResult, started: float) -> None:
        seconds = time.perf_counter() - started
        if result.failure is not None and isinstance(result.failure.cause, Waiting):
            log_call(ctx, logging.INFO, "%s waits: %s", result.failure.message)
        elif result.failure is not None:
            ctx.emit(ToolFailed(ctx.call, result.failure.message, str(result.failure.kind)))
            words = self.secrets.mask_all(result.failure.message)
            log_call(ctx, logging.WARNING, "%s failed after %.3f s: %s (%s)", seconds, words, result.failure.kind)
        else:
            log_call(ctx, logging.INFO, "%s finished in %.3f s", seconds)
        ctx.emit(ToolFinished(ctx.call, result.success, result, seconds))

    async def pass_after(self, ctx: ToolContext, result: ToolResult) -> ToolResult:
        """Passes a result that did not come from running the tool through the steps that look at results."""
        return await pass_result(ctx, result, self._find_chain(ctx.call.name).afters)

    async def _complete(self, ctx: ToolContext, result: ToolResult) -> None:
        """Passes the result of completed background work through the steps, then emits it."""
        result = await self.pass_after(ctx.replace(completes=True), result)
        log_call(ctx, logging.INFO, "%s completed in the background")
        self.background.keep_completed(ctx, result)
        ctx.emit(ToolCompleted(ctx.call, result))

    def _find_chain(self, name: str) -> _ToolChain:
        """Returns the chain of a tool, composed once from the steps that apply to its spec."""
        if self._version != self.registry.version:
            self._entries, self._version = {}, self.registry.version
        tool = self.registry.find(name)
        run, afters = compose(self.steps, tool)
        entry = _ToolChain(tool, run, afters, not tool.is_ready or tool.follows_source)
        if name in self.registry or tool.spec.name in self.registry:
            self._entries[name] = entry
        return entry

    def list_batches(self, calls: Sequence[ToolCall]) -> list[list[int]]:
        """Lists the calls of a turn that run at the same time, batch after batch, by their places."""
        batches: list[list[int]] = []
        last: list[list[int]] = []
        open_batch = False
        for index, call in enumerate(calls):
            spec = self.registry.find(call.name).spec
            if spec.ends_turn:
                last.append([index])
            elif spec.parallel and open_batch:
                batches[-1].append(index)
            else:
                batches.append([index])
                open_batch = spec.parallel
        return batches + last

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self.registry)} tools, {len(self.steps)} steps>"


def _note_repairs(result: ToolResult, arguments: Repaired) -> ToolResult:
    return result.with_data(repaired=arguments.repaired)


def _result_of_cancel(ctx: ToolContext, error: BaseException) -> ToolResult:
    """Builds the result of a cancelled call, with the tool's output so far where the error carries it."""
    cancelled = ToolError("it was cancelled before it ended", ErrorKind.CANCELLED)
    failed = ToolResult.failed(cancelled, during=render_call(ctx.call)).with_error(error)
    until_then = find_until_then(error, ToolResult)
    if until_then is None:
        return failed
    return replace(failed, for_llm=f"{failed.for_llm}\n{until_then.for_llm}", data=until_then.data)
