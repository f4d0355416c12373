"""Exports tools to the OpenAI Agents SDK: `Agent(tools=to_openai_agents(registry))`."""

from __future__ import annotations

from base64 import b64encode
from typing import Any, Unpack
from uuid import uuid4
from weakref import finalize

from forge.core.arguments.tool_formats import DIALECTS
from forge.core.extras import missing_module
from forge.core.result import ToolResult
from forge.core.spec import ToolSpec
from forge.frameworks.shared import (
    ExportedCalls,
    ExportedTools,
    ExportOptions,
    Tools,
    call_of,
    images_of,
    parameters_of,
)

try:
    from agents import FunctionTool, ToolOutputImage, ToolOutputText
    from agents import Tool as AgentTool
    from agents.tool_context import ToolContext
except ModuleNotFoundError as missing:
    raise missing_module(
        "openai-agents", "forge.frameworks.openai_agents cannot be imported", missing.name
    ) from missing


def to_openai_agents(
    tools: Tools, *, strict: bool = False, **options: Unpack[ExportOptions]
) -> ExportedTools[AgentTool]:
    """Returns the tools of a registry, an executor or a list for agents of the OpenAI Agents SDK; new ones every time.

    A call passes Forge's validation, gate, limits and events; a failed call returns a message that helps the model.
    `strict`: use OpenAI's strict mode for schemas that fit its rules. `scope` may be a function of the call's
    `ToolContext`; if it names no session, each run has its own. All are `FunctionTool`s; the declared type is wider, so
    that the list fits `Agent(tools=…)`.
    """
    calls = ExportedCalls(tools, options, _RunNames())
    return ExportedTools([_make_tool(calls, spec, strict=strict) for spec in calls.specs(fixed=True)], calls)


class _RunNames:
    """Names the runs of the SDK, which have no ids: all contexts of a run share one usage object."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}

    def __call__(self, context: ToolContext[Any]) -> str:
        usage = context.usage
        if id(usage) not in self._names:
            self._names[id(usage)] = uuid4().hex[:12]
            finalize(usage, self._names.pop, id(usage), None)
        return self._names[id(usage)]


def _make_tool(calls: ExportedCalls, spec: ToolSpec, *, strict: bool) -> FunctionTool:
    async def run(context: ToolContext[Any], sent: str) -> Any:
        return _output(await calls.run(call_of(spec.name, sent, context.tool_call_id), context))

    function = DIALECTS["openai-strict"](spec)["function"] if strict else {}
    is_strict = "strict" in function
    return FunctionTool(
        name=spec.name,
        description=spec.description,
        params_json_schema=function["parameters"] if is_strict else parameters_of(spec),
        on_invoke_tool=run,
        strict_json_schema=is_strict,
        is_enabled=lambda context, agent: spec.name in calls.registry,  # a server's tool may have been removed
    )


def _output(result: ToolResult) -> Any:
    images = images_of(result)
    if not images:
        return result.for_llm
    urls = [f"data:{one.media_type};base64,{b64encode(one.data).decode()}" for one in images]
    return [ToolOutputText(text=result.for_llm), *(ToolOutputImage(image_url=url) for url in urls)]
