"""openai-agents: `FunctionTool.on_invoke_tool`, and `Runner` with a `Model`."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from benchmarks.peer_systems import RunEndedError, Script, System


class It(System):
    def __init__(self) -> None:
        self.peer: Any = import_module("agents")
        self.responses: Any = import_module("openai.types.responses")

    def define(self, function: Callable[..., Any]) -> Any:
        try:
            made = self.peer.function_tool(function)
        except self.peer.UserError:  # its strict schemas have no open objects
            made = self.peer.function_tool(function, strict_mode=False)
        import_module("agents.models.openai_responses").Converter.convert_tools([made], [])
        return made

    def define_guarded(self, function: Callable[..., Any]) -> Any:
        return self.peer.function_tool(function, needs_approval=True)

    async def serve(self, tools: list[Any]) -> Any:
        self.context: Any = import_module("agents.tool_context").ToolContext
        return self.peer.Agent(name="agent", tools=tools)

    async def send(self, server: Any, name: str, text: str) -> str:
        context = self.context(None, tool_name=name, tool_call_id="c1", tool_arguments=text)
        return str(await server.tools[0].on_invoke_tool(context, text))

    async def definitions(self, server: Any) -> list[Any]:
        converter = import_module("agents.models.openai_responses").Converter
        tools = await server.get_all_tools(self.peer.RunContextWrapper(None))
        return list(converter.convert_tools(tools, []).tools)

    async def run(self, tools: list[Any], script: Script, turns: int = 0) -> None:
        call_type: Any = self.responses.ResponseFunctionToolCall

        async def get_response(model: Any, system_instructions: Any, input: Any, *_: Any, **__: Any) -> Any:
            calls = script.next(input)
            output = [
                call_type(type="function_call", name=call.name, call_id=call.id, arguments=call.text) for call in calls
            ]
            output = output or [self.said("done")]
            return self.peer.ModelResponse(output=output, usage=self.peer.Usage(), response_id=None)

        model = type("Model", (self.peer.Model,), {"get_response": get_response, "stream_response": None})()
        agent = self.peer.Agent(name="agent", model=model, tools=tools)
        limits = {"max_turns": turns + 1} if turns else {}
        result = await self.peer.Runner.run(agent, "go", **limits)
        if result.interruptions:
            raise RunEndedError("interruption")
        assert result.final_output == "done"

    def said(self, text: str) -> Any:
        content = self.responses.ResponseOutputText(type="output_text", text=text, annotations=[])
        message = self.responses.ResponseOutputMessage
        return message(id="m", type="message", role="assistant", status="completed", content=[content])

    def results(self, messages: Any) -> list[str]:
        items = [item for item in messages if isinstance(item, dict)]
        return [str(item["output"]) for item in items if item.get("type") == "function_call_output"]
