"""Tools as LangChain's: `model.bind_tools(to_langchain(registry))`."""

from __future__ import annotations

from base64 import b64encode
from typing import Any, Unpack

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
from forge.exports._waiting import running_loop, wait_for

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
