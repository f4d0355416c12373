"""pydantic-ai, both ways: `Agent(model, toolsets=[to_pydantic_ai(tools)])`, `registry.add(from_pydantic_ai(tool))`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack, cast

from pydantic import ValidationError

from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.extras import missing_module
from forge.core.messages import ToolCall
from forge.core.plain_values import plain
from forge.core.result import Attachment, ToolResult
from forge.core.spec import ToolSpec, ToolTraits
from forge.core.tool import Tool
from forge.frameworks.shared import (
    ExportedCalls,
    ExportOptions,
    Tools,
    call_of,
    framework_error,
    images_of,
    make_borrowed_tool,
    metadata_of,
    parameters_of,
    validation_error,
)

try:
    from pydantic_ai import BinaryContent, RunContext, ToolDefinition, ToolReturn
    from pydantic_ai.exceptions import ToolFailed
    from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
except ModuleNotFoundError as missing:
    raise missing_module("pydantic-ai", "forge.frameworks.pydantic_ai cannot be imported", missing.name) from missing

_RAW = "_raw"  # the key of arguments that are no JSON object


def to_pydantic_ai(tools: Tools, *, id: str | None = None, **options: Unpack[ExportOptions]) -> ForgeToolset:
    """Returns the tools of a registry, an executor or a list for any pydantic-ai agent; a new toolset every time.

    A call passes Forge's validation, gate, limits and events; a failed call returns a message that helps the model and
    does not use up the agent's retries. The toolset follows tools that are mounted, removed or found by `tool_search`
    while the agent runs. `scope` may be a function of the run's `RunContext`; if it names no session, each conversation
    has its own. `id`: for durable runs.
    """
    return ForgeToolset(ExportedCalls(tools, options, lambda ctx: ctx.conversation_id or ctx.run_id or ""), id)


class ForgeToolset(AbstractToolset[Any]):
    """A toolset that lists a registry's tools before each step."""

    def __init__(self, calls: ExportedCalls, id: str | None) -> None:
        self._calls = calls
        self._id = id
        self._definitions: dict[str, tuple[ToolSpec, ToolDefinition]] = {}
        self.executor = calls.executor
        self.last_results: Mapping[str, ToolResult] = calls.last_results  # the latest of each tool

    @property
    def id(self) -> str | None:
        return self._id

    async def for_run_step(self, ctx: RunContext[Any]) -> ForgeToolset:
        self._calls.registry.next_turn(self._calls.session(ctx))
        return self

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        specs = self._calls.specs(fixed=False, context=ctx)
        definitions = [self._definition(spec) for spec in specs]
        retries = ctx.max_retries
        return {
            one.name: ToolsetTool(toolset=self, tool_def=one, max_retries=retries, args_validator=_ACCEPT_ALL)
            for one in definitions
        }

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> ToolReturn:
        sent: Any = tool_args[_RAW] if tool_args.keys() == {_RAW} else tool_args
        call = call_of(name, sent, ctx.tool_call_id)
        result = await self._calls.run(call, ctx, f"{ctx.run_id}.{ctx.run_step}")
        if result.is_error:
            raise ToolFailed(result.for_llm)
        return _make_return(call, result)

    def _definition(self, spec: ToolSpec) -> ToolDefinition:
        """Returns a tool's definition, built once per spec."""
        cached = self._definitions.get(spec.name)
        if cached is None or cached[0] is not spec:
            definition = ToolDefinition(
                name=spec.name,
                description=spec.description,
                parameters_json_schema=parameters_of(spec),
                strict=False,
                sequential=not spec.parallel,
                metadata=metadata_of(spec),
            )
            cached = self._definitions[spec.name] = (spec, definition)
        return cached[1]


class _AcceptAll:
    """Accepts any arguments, even invalid JSON: Forge validates them and explains mistakes."""

    def validate_json(self, input: str | bytes | bytearray, **options: Any) -> dict[str, Any]:
        try:
            data = json.loads(input)
        except (ValueError, RecursionError):
            data = None
        if isinstance(data, dict):
            return data
        return {_RAW: input if isinstance(input, str) else input.decode("utf-8", "replace")}

    def validate_python(self, input: Any, **options: Any) -> dict[str, Any]:
        return input if isinstance(input, dict) else {_RAW: json.dumps(input, default=str)}


_ACCEPT_ALL = _AcceptAll()


def _make_return(call: ToolCall, result: ToolResult) -> ToolReturn:
    """Returns text and images for the model, and metadata for the program that fits into a stored history."""
    wire = result.to_dict(id=call.id, name=call.name)
    metadata = {key: wire[key] for key in ("title", "for_user", "data") if wire.get(key)}
    images = [BinaryContent(one.data, media_type=one.media_type) for one in images_of(result)]
    return ToolReturn([result.for_llm, *images] if images else result.for_llm, metadata=metadata)


# --- Mounts a pydantic-ai tool: `registry.add(from_pydantic_ai(function))`.


try:
    from pydantic_ai import BinaryContent, FunctionToolset, RunContext, ToolReturn
    from pydantic_ai import Tool as TheirTool
    from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, ToolFailed
    from pydantic_ai.messages import FileUrl, UploadedFile
    from pydantic_ai.models import Model
    from pydantic_ai.toolsets import ToolsetTool
    from pydantic_ai.usage import RunUsage
except ModuleNotFoundError as missing:
    raise missing_module("pydantic-ai", "forge.frameworks.pydantic_ai cannot be imported", missing.name) from missing


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
