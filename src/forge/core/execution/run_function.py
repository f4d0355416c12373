"""Runs the function of a tool: coroutines on the event loop, plain functions and generators in threads."""

from __future__ import annotations

import asyncio
import copy
import inspect
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from forge.core.arguments.call_style import CallStyle, check_tool_deps
from forge.core.context import ToolContext
from forge.core.execution.threads import in_thread
from forge.core.result import Reconcile, Reconciled, ToolResult

SLICE = 0.01  # seconds that an async generator may run before other tasks do


async def initialise_once(running: list[asyncio.Task[Any]], initialise: Callable[[], Any]) -> Any:
    """Runs an initialiser once for all callers that come meanwhile, and returns its value.

    `running` holds its task while it runs, and is empty otherwise. The task is its own, so that a caller who is
    cancelled stops only itself.
    """
    if not running or running[0].get_loop() is not asyncio.get_running_loop():
        running[:] = [asyncio.create_task(_initialise(initialise))]
        running[0].add_done_callback(lambda task: _forget_initialised(running, task))
    return await asyncio.shield(running[0])


async def _initialise(initialise: Callable[[], Any]) -> Any:
    value = await in_thread(initialise)
    return await value if inspect.isawaitable(value) else value


def _forget_initialised(running: list[asyncio.Task[Any]], task: asyncio.Task[Any]) -> None:
    if task in running:
        running.clear()
    if not task.cancelled():
        task.exception()  # asyncio logs errors that no code has read


def kind_of(function: Callable[..., Any]) -> str:
    """Returns `coroutine`, `async generator`, `generator` or `plain`, also for callable objects."""
    called = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    if inspect.iscoroutinefunction(called):
        return "coroutine"
    if inspect.isasyncgenfunction(called):
        return "async generator"
    return "generator" if inspect.isgeneratorfunction(called) else "plain"


def runner_of(made: Any, style: CallStyle) -> Callable[[Mapping[str, Any], ToolContext], Awaitable[ToolResult]]:
    """Returns the function that calls a tool's `run`. It is chosen once per tool."""
    hooked = hasattr(made, "set_context") or hasattr(made, "set_callback")
    context, whole, model, deps = style
    kind = kind_of(made.run)
    make_result = ToolResult.of

    async def run(arguments: Mapping[str, Any], ctx: ToolContext) -> ToolResult:
        if deps is not None:
            check_tool_deps(ctx.spec.name, deps, ctx.deps, is_isolated=ctx.spec.isolate)
        if whole:
            arguments = {whole: dict(arguments) if model is None else model.model_construct(**arguments)}
        if context:
            arguments = {**arguments, context: ctx}
        function = (await _copy_for_call(made, ctx)).run if hooked else made.run
        if kind == "coroutine":
            return make_result(await function(**arguments))
        if kind == "plain":
            return await run_plain(function, arguments, ctx)
        return await run_generator(function, arguments, ctx, is_async=kind == "async generator")

    async def run_coroutine(arguments: Mapping[str, Any], _: ToolContext) -> ToolResult:
        return make_result(await made.run(**arguments))

    return run_coroutine if kind == "coroutine" and not (whole or context or hooked) else run


async def ask_reconcile(
    function: Reconcile | None, key: str, arguments: Mapping[str, Any], ctx: ToolContext
) -> Reconciled:
    """Calls the function that a spec declares. One with a third parameter also gets the context."""
    if function is None:
        return Reconciled.unknown("the tool cannot find out")
    given = (key, arguments, ctx) if _takes_three(function) else (key, arguments)
    if kind_of(function) == "coroutine":
        answer = function(*given)
    else:
        answer = await in_thread(lambda: function(*given))
    return await answer if inspect.isawaitable(answer) else answer


def _takes_three(function: Reconcile) -> bool:
    kinds = [one.kind for one in inspect.signature(function).parameters.values()]
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(kind in places for kind in kinds) >= 3 or inspect.Parameter.VAR_POSITIONAL in kinds


async def _copy_for_call(made: Any, ctx: ToolContext) -> Any:
    own = copy.copy(made)
    scope = ctx.scope
    if hasattr(own, "set_context") and (scope.channel or scope.chat_id):  # a run without a conversation has none to set
        await _await_hook(own.set_context(scope.channel, scope.chat_id))
    if hasattr(own, "set_callback"):
        await _await_hook(own.set_callback(ctx.completion()))
    return own


async def _await_hook(value: Any) -> None:
    if inspect.isawaitable(value):
        await value


async def run_plain(function: Callable[..., Any], arguments: Mapping[str, Any], ctx: ToolContext) -> ToolResult:
    """Runs on a daemon thread; the result is made there too, so that a large one does not block the loop."""
    try:
        value = await in_thread(lambda: _result_of(function(**arguments)))
    except asyncio.CancelledError:
        ctx.cancelled = True  # nothing stops a thread from outside, but its function can look at this
        raise
    return ToolResult.of(await value) if asyncio.iscoroutine(value) else value


async def run_generator(
    function: Callable[..., Any], arguments: Mapping[str, Any], ctx: ToolContext, *, is_async: bool
) -> ToolResult:
    """Shows every piece as it arrives; together they are the result, unless one of them is a `ToolResult`."""
    pieces = _Pieces(ctx)
    if not is_async:
        return await run_plain(lambda: pieces.take_all(function(**arguments)), {}, ctx)
    stream = function(**arguments)
    shown = time.monotonic()
    try:
        async for piece in stream:
            pieces.take(piece)
            if time.monotonic() - shown > SLICE:  # a generator that never awaits would block the loop
                await asyncio.sleep(0)
                shown = time.monotonic()
    finally:
        await stream.aclose()
    return pieces.result()


class _Pieces:
    """The pieces that a generator yields, as they arrive."""

    def __init__(self, ctx: ToolContext) -> None:
        self.ctx = ctx
        self.texts: list[str] = []
        self.final: ToolResult | None = None

    def take(self, piece: Any) -> None:
        if isinstance(piece, ToolResult):
            self.final = piece
            return
        text = piece if isinstance(piece, str) else ToolResult.of(piece).for_llm
        self.texts.append(text)
        self.ctx.output(text)

    def take_all(self, generator: Any) -> ToolResult:
        try:
            while not self.ctx.cancelled:
                self.take(next(generator))
        except StopIteration as stop:
            if isinstance(stop.value, ToolResult):
                self.final = stop.value
        finally:
            generator.close()
        return self.result()

    def result(self) -> ToolResult:
        return self.final or ToolResult.of("".join(self.texts) or None)


def _result_of(value: Any) -> Any:
    return value if asyncio.iscoroutine(value) else ToolResult.of(value)
