"""Exports tools to LangChain: `model.bind_tools(to_langchain(registry))`."""

from __future__ import annotations

import asyncio
import atexit
import threading
from base64 import b64encode
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar, Unpack

from forge.core.extras import missing_module
from forge.core.messages import ToolCall
from forge.core.result import ToolResult
from forge.core.spec import ToolSpec
from forge.exports._calls import (
    ExportedCalls,
    ExportedTools,
    ExportOptions,
    Tools,
    call_of,
    images_of,
    metadata_of,
    parameters_of,
    without_cause,
)

try:
    from langchain_core.messages import ToolMessage
    from langchain_core.runnables import RunnableConfig
    from langchain_core.tools import StructuredTool
except ModuleNotFoundError as missing:
    raise missing_module("langchain", "forge.exports.langchain cannot be imported", missing.name) from missing


class ForgeTool(StructuredTool):
    """A LangChain tool that passes its arguments to Forge as the model sent them, whatever their names."""

    def _to_args_and_kwargs(
        self, tool_input: str | dict[str, Any], tool_call_id: str | None
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        # LangChain would pass them as keywords next to its own `config` and `run_manager`, and names could collide
        return (), {"sent": tool_input, "call_id": tool_call_id}


def to_langchain(tools: Tools, *, images: bool = True, **options: Unpack[ExportOptions]) -> ExportedTools[ForgeTool]:
    """Returns the tools of a registry, an executor or a list for any LangChain model or agent; new ones every time.

    A call passes Forge's validation, gate, limits and events. Its message holds the text for the model, the full
    `ToolResult` as its artifact, and `status="error"` if it failed. `images`: also send images as parts of the message,
    for models that accept them in a tool's result. `scope` may be a function of the call's `RunnableConfig`; if it
    names no session, each `thread_id` has its own.
    """
    calls = ExportedCalls(tools, options, _thread_id)
    return ExportedTools([_make_tool(calls, spec, images=images) for spec in calls.specs(fixed=True)], calls)


def _thread_id(config: RunnableConfig) -> str:
    return str(config.get("configurable", {}).get("thread_id") or "")


def _make_tool(calls: ExportedCalls, spec: ToolSpec, *, images: bool) -> ForgeTool:
    tools_loop = running_loop()

    async def run(sent: Any, call_id: str | None, config: RunnableConfig) -> tuple[Any, ToolResult]:
        call = call_of(spec.name, sent, call_id)
        result = without_cause(await calls.run(call, config))
        return _content(result, call, images=images, answers=bool(call_id)), result

    def run_now(sent: Any, call_id: str | None, config: RunnableConfig) -> tuple[Any, ToolResult]:
        return wait_for(lambda: run(sent, call_id, config), tools_loop)

    return ForgeTool(
        name=spec.name,
        description=spec.description,
        args_schema=parameters_of(spec),
        func=run_now,
        coroutine=run,
        response_format="content_and_artifact",
        return_direct=spec.ends_turn,
        metadata=metadata_of(spec),
    )


def _content(result: ToolResult, call: ToolCall, *, images: bool, answers: bool) -> Any:
    content = _parts(result) if images and images_of(result) else result.for_llm
    if result.is_error and answers:  # raising ToolException would lose the artifact
        return ToolMessage(content, artifact=result, tool_call_id=call.id, name=call.name, status="error")
    return content


def _parts(result: ToolResult) -> list[str | dict[Any, Any]]:
    text = [{"type": "text", "text": result.for_llm}] if result.for_llm else []
    return [
        *text,
        *(
            {"type": "image", "base64": b64encode(one.data).decode(), "mime_type": one.media_type}
            for one in images_of(result)
        ),
    ]


LAST_SECONDS = 2.0  # for calls that still run when the program ends

T = TypeVar("T")

_lock = threading.Lock()
_own: tuple[asyncio.AbstractEventLoop, threading.Thread] | None = None


def running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def wait_for(work: Callable[[], Coroutine[Any, Any, T]], tools_loop: asyncio.AbstractEventLoop | None) -> T:
    """Runs the coroutine on `tools_loop` if this thread can wait for it, else on a loop in a thread of ours.

    A connection is thus used on the loop that opened it, and background work of a call continues after it.
    """
    here = running_loop()
    loop = tools_loop if tools_loop is not None and tools_loop is not here and tools_loop.is_running() else _own_loop()
    if loop is here:
        raise RuntimeError(
            "a tool on the event loop cannot wait for another tool without blocking the loop; use `await ainvoke`"
        )
    future = asyncio.run_coroutine_threadsafe(work(), loop)
    try:
        return future.result()
    except BaseException:
        future.cancel()  # Ctrl-C ends the wait: the call must not continue unnoticed
        raise


def _own_loop() -> asyncio.AbstractEventLoop:
    global _own
    with _lock:
        if _own is None or not _own[1].is_alive():  # a forked child does not have its parent's thread
            ready: Future[asyncio.AbstractEventLoop] = Future()
            thread = threading.Thread(
                target=lambda: asyncio.run(_run_until_exit(ready)), name="forge-export", daemon=True
            )
            thread.start()
            _own = (ready.result(), thread)
        return _own[0]


async def _run_until_exit(ready: Future[asyncio.AbstractEventLoop]) -> None:
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    thread = threading.current_thread()

    def end() -> None:
        loop.call_soon_threadsafe(over.set)
        thread.join(LAST_SECONDS)

    atexit.register(end)
    ready.set_result(loop)
    await over.wait()
