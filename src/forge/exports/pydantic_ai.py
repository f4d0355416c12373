"""Exports tools as a toolset of pydantic-ai: `Agent(model, toolsets=[to_pydantic_ai(registry)])`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Unpack

from forge.core.extras import missing_module
from forge.core.messages import ToolCall
from forge.core.result import ToolResult
from forge.core.spec import ToolSpec
from forge.exports._calls import ExportedCalls, ExportOptions, Tools, call_of, images_of, metadata_of, parameters_of

try:
    from pydantic_ai import BinaryContent, RunContext, ToolDefinition, ToolReturn
    from pydantic_ai.exceptions import ToolFailed
    from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
except ModuleNotFoundError as missing:
    raise missing_module("pydantic-ai", "forge.exports.pydantic_ai cannot be imported", missing.name) from missing

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
