"""Tools as the OpenAI Agents SDK's: `Agent(tools=to_openai_agents(registry))`."""

from __future__ import annotations

from base64 import b64encode
from typing import Any, Unpack
from uuid import uuid4
from weakref import finalize

from forge.core.arguments.dialects import DIALECTS
from forge.core.result import ToolResult
from forge.core.spec import ToolSpec
from forge.exports._calls import Calls, Exported, ExportOptions, Tools, call_of, images_of, parameters_of

try:
    from agents import FunctionTool, ToolOutputImage, ToolOutputText
    from agents import Tool as AgentTool
    from agents.tool_context import ToolContext
except ModuleNotFoundError as missing:
    words = "forge.exports.openai_agents needs the OpenAI Agents SDK: pip install 'forge-tools[openai-agents]'"
    raise ModuleNotFoundError(words, name=missing.name) from missing


def to_openai_agents(tools: Tools, *, strict: bool = False, **options: Unpack[ExportOptions]) -> Exported[AgentTool]:
    """The tools of a registry, an executor or a list, for any agent of the OpenAI Agents SDK; fresh ones every time.

    A call passes Forge's validation, gate, limits and events; a failed one answers with words the model can act on.
    `strict`: in OpenAI's strict mode where a schema fits its rules. `scope` may be a function of the call's
    `ToolContext`; where it names no session, each run has one of its own. All are `FunctionTool`s; the type says less,
    so that the list fits `Agent(tools=…)`.
    """
    calls = Calls(tools, options, _Runs())
    return Exported([_made(calls, spec, strict=strict) for spec in calls.specs(fixed=True)], calls)


class _Runs:
    """A name for each run of the SDK, which has none: all contexts of a run share one object that counts its usage."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}

    def __call__(self, context: ToolContext[Any]) -> str:
        usage = context.usage
        if id(usage) not in self._names:
            self._names[id(usage)] = uuid4().hex[:12]
            finalize(usage, self._names.pop, id(usage), None)
        return self._names[id(usage)]


def _made(calls: Calls, spec: ToolSpec, *, strict: bool) -> FunctionTool:
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
        is_enabled=lambda context, agent: spec.name in calls.registry,  # a server's tool may have gone meanwhile
    )


def _output(result: ToolResult) -> Any:
    shown = images_of(result)
    if not shown:
        return result.for_llm
    urls = [f"data:{one.media_type};base64,{b64encode(one.data).decode()}" for one in shown]
    return [ToolOutputText(text=result.for_llm), *(ToolOutputImage(image_url=url) for url in urls)]
