"""llm: `AsyncResponse.execute_tool_calls`, and the chain of an `AsyncModel`."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from importlib import import_module
from typing import Any

from benchmarks.peer_systems import Script, System


class It(System):
    takes_text = False

    def __init__(self) -> None:
        self.peer: Any = import_module("llm")

    def define(self, function: Callable[..., Any]) -> Any:
        return self.peer.Tool.function(function)

    async def serve(self, tools: list[Any]) -> Any:
        response = self.model(Script([])).prompt("go", tools=tools)
        await response.text()
        return (response, tools)

    async def send(self, server: Any, name: str, text: str) -> str:
        call = self.peer.ToolCall(name=name, arguments=json.loads(text), tool_call_id="c1")
        return str((await server[0].execute_tool_calls(tool_calls_list=[call]))[0].output)

    async def definitions(self, server: Any) -> list[Any]:
        """As its OpenAI plugin does for each request."""
        return [
            {"type": "function", "function": {"name": made.name, "description": made.description or None}}
            | {"parameters": made.input_schema}
            for made in server[1]
        ]

    def model(self, script: Script) -> Any:
        async def execute(
            model: Any, prompt: Any, stream: Any, response: Any, *_: Any, **__: Any
        ) -> AsyncIterator[str]:
            calls = script.next(prompt.tool_results)
            for call in calls:
                arguments = json.loads(call.text)
                response.add_tool_call(self.peer.ToolCall(name=call.name, tool_call_id=call.id, arguments=arguments))
            yield "" if calls else "done"

        parts = {"model_id": "scripted", "supports_tools": True, "execute": execute, "__module__": __name__}
        return type("Model", (self.peer.AsyncModel,), parts)()

    async def run(self, tools: list[Any], script: Script, turns: int = 0) -> None:
        limits = {"chain_limit": 10**9} if turns else {}
        conversation = self.model(script).conversation(tools=tools, **limits)
        assert "done" in await conversation.chain("go").text()

    def results(self, messages: Any) -> list[str]:
        return [str(result.output) for result in messages]
