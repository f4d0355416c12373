"""Tools as a toolset of pydantic-ai: `Agent(model, toolsets=[to_pydantic_ai(registry)])`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Unpack

from forge.core.messages import ToolCall
from forge.core.result import ToolResult
from forge.core.spec import ToolSpec
from forge.exports._calls import Calls, ExportOptions, Tools, about, call_of, images_of, parameters_of

try:
    from pydantic_ai import BinaryContent, RunContext, ToolDefinition, ToolReturn
    from pydantic_ai.exceptions import ToolFailed
    from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
except ModuleNotFoundError as missing:
    words = "forge.exports.pydantic_ai needs pydantic-ai: pip install 'forge-tools[pydantic-ai]'"
    raise ModuleNotFoundError(words, name=missing.name) from missing

_RAW = "_raw"  # arguments that are no JSON object, as they were sent


def to_pydantic_ai(tools: Tools, *, id: str | None = None, **options: Unpack[ExportOptions]) -> ForgeToolset:
    """The tools of a registry, an executor or a list, for any pydantic-ai agent; a fresh toolset every time.

    A call passes Forge's validation, gate, limits and events; a failed one answers with words the model can act on and
    does not use up the agent's retries. Tools that are mounted, removed or found by `tool_search` while the agent runs
    are followed. `scope` may be a function of the run's `RunContext`; where it names no session, each conversation has
    one of its own. `id`: for durable runs.
    """
    return ForgeToolset(Calls(tools, options, lambda ctx: ctx.conversation_id or ctx.run_id or ""), id)


class ForgeToolset(AbstractToolset[Any]):
    """What a registry shows, step by step."""

    def __init__(self, calls: Calls, id: str | None) -> None:
        self._calls = calls
        self._id = id
        self._made: dict[str, tuple[ToolSpec, ToolDefinition]] = {}
        self.executor = calls.executor
        self.last_results: Mapping[str, ToolResult] = calls.last_results  # the newest of each tool

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
            one.name: ToolsetTool(toolset=self, tool_def=one, max_retries=retries, args_validator=_AS_SENT)
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
        return _returned(call, result)

    def _definition(self, spec: ToolSpec) -> ToolDefinition:
        """Built once a spec, not once a step."""
        made = self._made.get(spec.name)
        if made is None or made[0] is not spec:
            definition = ToolDefinition(
                name=spec.name,
                description=spec.description,
                parameters_json_schema=parameters_of(spec),
                strict=False,
                sequential=not spec.parallel,
                metadata=about(spec),
            )
            made = self._made[spec.name] = (spec, definition)
        return made[1]


class _AsSent:
    """Leaves the arguments to Forge, which explains what is wrong with them; even what is no JSON at all."""

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


_AS_SENT = _AsSent()


def _returned(call: ToolCall, result: ToolResult) -> ToolReturn:
    """The text and the images for the model; for the program what fits into a stored history."""
    wire = result.to_dict(id=call.id, name=call.name)
    kept = {key: wire[key] for key in ("title", "for_user", "data") if wire.get(key)}
    shown = [BinaryContent(one.data, media_type=one.media_type) for one in images_of(result)]
    return ToolReturn([result.for_llm, *shown] if shown else result.for_llm, metadata=kept)
