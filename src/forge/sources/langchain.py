"""Mounts a LangChain tool: `registry.add(from_langchain(tool))`."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from typing import Any, Unpack, cast

from pydantic import BaseModel, ValidationError

from forge.core.context import ToolContext
from forge.core.errors import DefinitionError, ErrorKind, ToolError
from forge.core.execution.threads import in_thread
from forge.core.extras import missing_module
from forge.core.plain_values import plain
from forge.core.result import Attachment, Failure, ToolResult
from forge.core.spec import ToolTraits
from forge.core.tool import Tool
from forge.sources.borrowed_tools import framework_error, make_borrowed_tool, validation_error

try:
    from langchain_core.messages import ToolMessage
    from langchain_core.messages.tool import ToolOutputMixin
    from langchain_core.tools import BaseTool, InjectedToolCallId, ToolException
    from langchain_core.tools import Tool as TextTool
except ModuleNotFoundError as missing:
    raise missing_module("langchain", "forge.sources.langchain cannot be imported", missing.name) from missing


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
    texts, attachments = _parts(message)
    text = "\n".join(texts) or ("Done." if not attachments else f"{len(attachments)} attachments.")
    return ToolResult(
        for_llm=text,
        data={} if message.artifact is None else {"artifact": plain(message.artifact)},
        attachments=tuple(attachments),
        failure=Failure(text, ErrorKind.USER) if message.status == "error" else None,
    )


def _parts(message: ToolMessage) -> tuple[list[str], list[Attachment]]:
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
