"""LangChain, both ways: `model.bind_tools(to_langchain(registry))`, `registry.add(from_langchain(tool))`."""

from __future__ import annotations

import asyncio
import atexit
import threading
from base64 import b64decode, b64encode
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar, Unpack, cast

from pydantic import BaseModel, ValidationError

from forge.core.context import ToolContext
from forge.core.errors import DefinitionError, ErrorKind, ToolError
from forge.core.execution.threads import in_thread
from forge.core.extras import missing_module
from forge.core.messages import ToolCall
from forge.core.plain_values import plain
from forge.core.result import Attachment, Failure, ToolResult
from forge.core.spec import ToolSpec, ToolTraits
from forge.core.tool import Tool
from forge.frameworks.shared import (
    ExportedCalls,
    ExportedTools,
    ExportOptions,
    Tools,
    call_of,
    framework_error,
    images_of,
    make_borrowed_tool,
    metadata_of,
    parameters_of,
    validation_error,
    without_cause,
)

try:
    from langchain_core.messages import ToolMessage
    from langchain_core.runnables import RunnableConfig
    from langchain_core.tools import StructuredTool
except ModuleNotFoundError as missing:
    raise missing_module("langchain", "forge.frameworks.langchain cannot be imported", missing.name) from missing


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
    content = _content_parts(result) if images and images_of(result) else result.for_llm
    if result.is_error and answers:  # raising ToolException would lose the artifact
        return ToolMessage(content, artifact=result, tool_call_id=call.id, name=call.name, status="error")
    return content


def _content_parts(result: ToolResult) -> list[str | dict[Any, Any]]:
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


# --- Mounts a LangChain tool: `registry.add(from_langchain(tool))`.


try:
    from langchain_core.messages import ToolMessage
    from langchain_core.messages.tool import ToolOutputMixin
    from langchain_core.tools import BaseTool, InjectedToolCallId, ToolException
    from langchain_core.tools import Tool as TextTool
except ModuleNotFoundError as missing:
    raise missing_module("langchain", "forge.frameworks.langchain cannot be imported", missing.name) from missing


def from_langchain(tool: BaseTool, *, name: str = "", **traits: Unpack[ToolTraits]) -> Tool:
    """Wraps a LangChain tool with our validation, gate, limits and events.

    Its code is unknown, so it asks for `execute` and `network`; `permissions=` declares less. LangChain's callbacks and
    tracing work as usual.
    """
    _refuse_injected(tool)

    async def run(arguments: dict[str, Any], ctx: ToolContext) -> ToolResult:
        call = {"name": tool.name, "args": arguments, "id": ctx.call.id, "type": "tool_call"}
        try:
            # sync tools run in a thread of ours: LangChain's threads would keep a program alive while one hangs
            value = await (tool.ainvoke(call) if _is_async(tool) else in_thread(lambda: tool.invoke(call)))
        except ToolException as error:
            raise framework_error(str(error)) from error
        except ValidationError as error:
            raise validation_error(error) from error
        return _convert_result(value)

    all_traits: Any = {"ends_turn": tool.return_direct, **traits}
    description = tool.description or f"The tool {tool.name}."
    return make_borrowed_tool(
        "langchain", name or tool.name, description, _parameters(tool), run, cast(ToolTraits, all_traits)
    )


def _parameters(tool: BaseTool) -> Mapping[str, Any]:
    """Returns the parameters that LangChain shows to a model, without injected ones."""
    if isinstance(tool, TextTool) and tool.args_schema is None:
        return {"type": "object", "properties": tool.args, "required": list(tool.args)}
    schema = tool.tool_call_schema
    if isinstance(schema, dict):
        return schema
    if issubclass(schema, BaseModel):
        return schema.model_json_schema()
    return cast(Mapping[str, Any], schema.schema())  # a model of pydantic 1


def _refuse_injected(tool: BaseTool) -> None:
    """Raises `DefinitionError` for parameters that only LangGraph can fill from its state."""
    full_schema, model_schema = tool.get_input_schema(), tool.tool_call_schema
    if isinstance(tool.args_schema, dict) or isinstance(model_schema, dict) or not issubclass(full_schema, BaseModel):
        return
    for parameter, field in full_schema.model_fields.items():
        is_shown = parameter in getattr(model_schema, "model_fields", ())
        is_call_id = any(one is InjectedToolCallId or isinstance(one, InjectedToolCallId) for one in field.metadata)
        if field.is_required() and not is_shown and not is_call_id:
            raise DefinitionError(
                f"LangChain tool {tool.name!r}: its parameter {parameter!r} is injected by LangGraph, which is not in"
                " use; wrap the tool in a function that sets this parameter"
            )


def _is_async(tool: BaseTool) -> bool:
    if hasattr(tool, "coroutine"):
        return tool.coroutine is not None
    return type(tool)._arun is not BaseTool._arun


def _convert_result(value: Any) -> ToolResult:
    if isinstance(value, ToolMessage):
        return _convert_message(value)
    first = value[0] if isinstance(value, list) and value else value
    if isinstance(first, ToolOutputMixin):
        raise ToolError(
            f"it returned a {type(first).__name__}, which only works inside LangGraph",
            ErrorKind.CONFIG,
            "Use another tool. To fix this one, a person must wrap it in a function that returns text.",
        )
    return ToolResult.of(value)


def _convert_message(message: ToolMessage) -> ToolResult:
    if isinstance(message.artifact, ToolResult):
        return message.artifact  # an exported tool of ours
    texts, attachments = _read_parts(message)
    text = "\n".join(texts) or ("Done." if not attachments else f"{len(attachments)} attachments.")
    return ToolResult(
        for_llm=text,
        data={} if message.artifact is None else {"artifact": plain(message.artifact)},
        attachments=tuple(attachments),
        failure=Failure(text, ErrorKind.USER) if message.status == "error" else None,
    )


def _read_parts(message: ToolMessage) -> tuple[list[str], list[Attachment]]:
    if isinstance(message.content, str):
        return [message.content] if message.content else [], []
    texts: list[str] = []
    attachments: list[Attachment] = []
    for block in cast(list[dict[str, Any]], message.content_blocks):
        if block.get("type") == "text":
            texts.append(str(block.get("text", "")))
        elif isinstance(block.get("base64"), str):
            attachments.append(_attachment(block))
        elif "url" in block:
            texts.append(f"[{block.get('type')}: {block['url']}]")
        else:
            texts.append(ToolResult.of(block.get("value", block)).for_llm)
    return texts, attachments


def _attachment(block: Mapping[str, Any]) -> Attachment:
    try:
        data = b64decode(block["base64"], validate=True)
    except ValueError:
        raise ToolError("it returned content that is declared as base64 but is not", ErrorKind.SYSTEM) from None
    return Attachment(str(block.get("mime_type") or "application/octet-stream"), data)
