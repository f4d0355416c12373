"""Mounts a pydantic-ai tool: `registry.add(from_pydantic_ai(function))`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Unpack, cast

from pydantic import ValidationError

from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.extras import missing_module
from forge.core.plain_values import plain
from forge.core.result import Attachment, ToolResult
from forge.core.spec import ToolTraits
from forge.core.tool import Tool
from forge.sources.borrowed_tools import framework_error, make_borrowed_tool, validation_error

try:
    from pydantic_ai import BinaryContent, FunctionToolset, RunContext, ToolReturn
    from pydantic_ai import Tool as TheirTool
    from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, ToolFailed
    from pydantic_ai.messages import FileUrl, UploadedFile
    from pydantic_ai.models import Model
    from pydantic_ai.toolsets import ToolsetTool
    from pydantic_ai.usage import RunUsage
except ModuleNotFoundError as missing:
    raise missing_module("pydantic-ai", "forge.sources.pydantic_ai cannot be imported", missing.name) from missing


def from_pydantic_ai(
    tool: TheirTool[Any] | Callable[..., Any],
    *,
    name: str = "",
    deps: Any = None,
    model: Model | None = None,
    **traits: Unpack[ToolTraits],
) -> Tool:
    """Wraps a pydantic-ai tool, or a function for one, with our validation, gate, limits and events.

    Its `RunContext` holds `deps` and `model`. Its code is unknown, so it asks for `execute` and `network`;
    `permissions=` declares less. A tool that requires approval asks every time.
    """
    theirs = tool if isinstance(tool, TheirTool) else TheirTool(tool)
    toolset = FunctionToolset[Any]([theirs])

    async def run(arguments: dict[str, Any], ctx: ToolContext) -> ToolResult:
        context = RunContext[Any](
            deps=deps,
            model=cast(Model, NoModel() if model is None else model),
            usage=RunUsage(),
            tool_name=theirs.name,
            tool_call_id=ctx.call.id,
            tool_call_approved=ctx.spec.confirm,
            conversation_id=ctx.scope.session_id,
        )
        return _convert_result(await _call_tool(toolset, arguments, context))

    definition = theirs.tool_def
    all_traits: Any = {"confirm": theirs.requires_approval, "parallel": not theirs.sequential}
    all_traits |= {"timeout": theirs.timeout} if theirs.timeout else {}
    description = definition.description or f"The tool {theirs.name}."
    traits = cast(ToolTraits, {**all_traits, **traits})
    return make_borrowed_tool(
        "pydantic_ai", name or theirs.name, description, definition.parameters_json_schema, run, traits
    )


class NoModel:
    """A placeholder for the model of a pydantic-ai run."""

    def __getattr__(self, name: str) -> Any:
        raise ToolError(
            "it needs a model, but has none",
            ErrorKind.CONFIG,
            "Mount it with from_pydantic_ai(model=…).",
        )


async def _call_tool(toolset: FunctionToolset[Any], arguments: dict[str, Any], context: RunContext[Any]) -> Any:
    try:
        offered = list((await toolset.get_tools(context)).values())
        if not offered:
            raise ToolError("it is currently unavailable", ErrorKind.USER, "Continue without it.")
        return await toolset.call_tool(
            offered[0].tool_def.name, await _validate(offered[0], arguments, context), context, offered[0]
        )
    except (ModelRetry, ToolFailed) as error:
        raise framework_error(error.message) from error
    except ValidationError as error:
        raise validation_error(error) from error
    except (ApprovalRequired, CallDeferred) as error:
        raise ToolError(
            f"it raised {type(error).__name__}: this call needs a person's approval",
            ErrorKind.PERMISSION,
            "Mount it with confirm=True, so that a person is asked before it runs.",
        ) from error


async def _validate(tool: ToolsetTool[Any], arguments: dict[str, Any], context: RunContext[Any]) -> dict[str, Any]:
    """Validates arguments that fit our schema with pydantic-ai's own types and validator."""
    valid: dict[str, Any] = tool.args_validator.validate_python(arguments, context=context.validation_context)
    if tool.args_validator_func is not None:
        answer = tool.args_validator_func(context, **valid)
        if hasattr(answer, "__await__"):
            await answer
    return valid


def _convert_result(value: Any) -> ToolResult:
    if not isinstance(value, ToolReturn):
        return _convert_content(value)
    result = _convert_content(value.return_value)
    if value.content is not None:
        more = _convert_content(value.content if isinstance(value.content, str) else list(value.content))
        text = f"{result.for_llm}\n{more.for_llm}"
        result = ToolResult(for_llm=text, data=result.data, attachments=result.attachments + more.attachments)
    return result if value.metadata is None else result.with_data(metadata=plain(value.metadata))


def _convert_content(value: Any) -> ToolResult:
    """Converts content: files become attachments, links are named, everything else is text or JSON."""
    if isinstance(value, Sequence) and any(isinstance(one, BinaryContent | FileUrl | UploadedFile) for one in value):
        parts = [_convert_content(one) for one in value]
        attachments = tuple(attachment for part in parts for attachment in part.attachments)
        return ToolResult(for_llm="\n".join(part.for_llm for part in parts), attachments=attachments)
    if isinstance(value, BinaryContent):
        return ToolResult.of(Attachment(value.media_type, value.data, value.identifier))
    if isinstance(value, FileUrl):
        return ToolResult.text(f"[{value.url}]")
    if isinstance(value, UploadedFile):
        return ToolResult.text(f"[{value.kind}: {value.file_id}]")
    return ToolResult.of(value)
