"""smolagents: `ToolCallingAgent`, plain functions only."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from typing import Any

from benchmarks.peer_systems import Call, Script, System


class It(System):
    takes_async = False
    takes_models = False

    def __init__(self) -> None:
        self.peer: Any = import_module("smolagents")
        self.models: Any = import_module("smolagents.models")

    def define(self, function: Callable[..., Any]) -> Any:
        made = self.peer.tool(function)
        made.name = function.__name__
        self.models.get_tool_json_schema(made)
        return made

    async def serve(self, tools: list[Any]) -> Any:
        return self.peer.ToolCallingAgent(tools=tools, model=self.peer.Model(), verbosity_level=-1)

    async def send(self, server: Any, name: str, text: str) -> str:
        try:
            return str(server.execute_tool_call(name, json.loads(text)))
        except self.peer.AgentError as error:
            return str(error)

    async def definitions(self, server: Any) -> list[Any]:
        return [self.models.get_tool_json_schema(made) for made in server.tools.values()]

    async def run(self, tools: list[Any], script: Script, turns: int = 0) -> None:
        def generate(messages: Any, **_: Any) -> Any:
            calls = script.next(messages) or [Call("c", "final_answer", '{"answer": "done"}')]
            made = [self.called(call) for call in calls]
            return self.models.ChatMessage(role=self.models.MessageRole.ASSISTANT, content="", tool_calls=made)

        model = self.peer.Model()
        model.generate = generate
        limits = {"max_steps": turns + 1} if turns else {}
        self.peer.ToolCallingAgent(tools=tools, model=model, verbosity_level=-1, **limits).run("go")

    def called(self, call: Call) -> Any:
        function = self.models.ChatMessageToolCallFunction(name=call.name, arguments=call.text)
        return self.models.ChatMessageToolCall(id=call.id, type="function", function=function)

    def results(self, messages: Any) -> list[str]:
        """The results of a turn are one text."""
        answers = [message for message in messages if message.role == self.models.MessageRole.TOOL_RESPONSE]
        return [str(message.content[0]["text"]) for message in answers]
