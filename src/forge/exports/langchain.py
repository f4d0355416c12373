"""Tools as LangChain's: `model.bind_tools(to_langchain(registry))`."""

from __future__ import annotations

import asyncio
import atexit
import threading
from base64 import b64encode
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar, Unpack

from forge.core.messages import ToolCall
from forge.core.result import ToolResult
from forge.core.spec import ToolSpec
from forge.exports._calls import (
    Calls,
    Exported,
    ExportOptions,
    Tools,
    about,
    call_of,
    images_of,
    parameters_of,
    without_cause,
)

try:
    from langchain_core.messages import ToolMessage
    from langchain_core.runnables import RunnableConfig
    from langchain_core.tools import StructuredTool
except ModuleNotFoundError as missing:
    words = "forge.exports.langchain needs LangChain: pip install 'forge-tools[langchain]'"
    raise ModuleNotFoundError(words, name=missing.name) from missing


class ForgeTool(StructuredTool):
    """A tool whose arguments reach Forge as the model sent them, whatever their names."""

    def _to_args_and_kwargs(
        self, tool_input: str | dict[str, Any], tool_call_id: str | None
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        # LangChain would pass them by name beside its own `config` and `run_manager`, which would then be lost
        return (), {"sent": tool_input, "call_id": tool_call_id}


def to_langchain(tools: Tools, *, images: bool = True, **options: Unpack[ExportOptions]) -> Exported[ForgeTool]:
    """The tools of a registry, an executor or a list, for any LangChain model or agent; fresh ones every time.

    A call passes Forge's validation, gate, limits and events. Its message holds the text for the model, the whole
    `ToolResult` as its artifact, and `status="error"` if it failed. `images`: as parts of the message too, for models
    that take them in a tool's result. `scope` may be a function of the call's `RunnableConfig`; where it names no
    session, each `thread_id` has one of its own.
    """
    calls = Calls(tools, options, _thread)
    return Exported([_made(calls, spec, images=images) for spec in calls.specs(fixed=True)], calls)


def _thread(config: RunnableConfig) -> str:
    return str(config.get("configurable", {}).get("thread_id") or "")


def _made(calls: Calls, spec: ToolSpec, *, images: bool) -> ForgeTool:
    home = running_loop()

    async def run(sent: Any, call_id: str | None, config: RunnableConfig) -> tuple[Any, ToolResult]:
        call = call_of(spec.name, sent, call_id)
        result = without_cause(await calls.run(call, config))
        return _content(result, call, images=images, answers=bool(call_id)), result

    def run_now(sent: Any, call_id: str | None, config: RunnableConfig) -> tuple[Any, ToolResult]:
        return wait_for(lambda: run(sent, call_id, config), home)

    return ForgeTool(
        name=spec.name,
        description=spec.description,
        args_schema=parameters_of(spec),
        func=run_now,
        coroutine=run,
        response_format="content_and_artifact",
        return_direct=spec.ends_turn,
        metadata=about(spec),
    )


def _content(result: ToolResult, call: ToolCall, *, images: bool, answers: bool) -> Any:
    content = _parts(result) if images and images_of(result) else result.for_llm
    if result.is_error and answers:  # a raised ToolException would say so too, but lose the artifact
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


LAST_SECONDS = 2.0  # for what still runs when the program ends

T = TypeVar("T")

_lock = threading.Lock()
_own: tuple[asyncio.AbstractEventLoop, threading.Thread] | None = None


def running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def wait_for(work: Callable[[], Coroutine[Any, Any, T]], home: asyncio.AbstractEventLoop | None) -> T:
    """The value of the coroutine, run on the loop `home` if it can be waited for, else on one in a thread.

    What was opened on a loop, such as a server's connection, is used there; and what a call leaves running goes on.
    """
    here = running_loop()
    loop = home if home is not None and home is not here and home.is_running() else _own_loop()
    if loop is here:
        raise RuntimeError("a tool on the event loop cannot wait for another tool without blocking it; await ainvoke")
    future = asyncio.run_coroutine_threadsafe(work(), loop)
    try:
        return future.result()
    except BaseException:
        future.cancel()  # Ctrl-C ends the wait: the call must not go on unseen
        raise


def _own_loop() -> asyncio.AbstractEventLoop:
    global _own
    with _lock:
        if _own is None or not _own[1].is_alive():  # a forked child has no thread of its parent's
            ready: Future[asyncio.AbstractEventLoop] = Future()
            thread = threading.Thread(
                target=lambda: asyncio.run(_until_the_end(ready)), name="forge-export", daemon=True
            )
            thread.start()
            _own = (ready.result(), thread)
        return _own[0]


async def _until_the_end(ready: Future[asyncio.AbstractEventLoop]) -> None:
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    thread = threading.current_thread()

    def end() -> None:
        loop.call_soon_threadsafe(over.set)
        thread.join(LAST_SECONDS)

    atexit.register(end)
    ready.set_result(loop)
    await over.wait()
