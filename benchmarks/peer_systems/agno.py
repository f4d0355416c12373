"""Agno: `FunctionCall.aexecute`, and `Agent` with a `Model`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from benchmarks.peer_systems import RunEndedError, Script, System


class It(System):
    def __init__(self) -> None:
        self.agent: Any = import_module("agno.agent").Agent
        self.function: Any = import_module("agno.tools.function").Function
        self.model: Any = import_module("agno.models.base").Model
        self.response: Any = import_module("agno.models.response").ModelResponse

    def define(self, function: Callable[..., Any]) -> Any:
        made = self.function.from_callable(function)
        made.process_entrypoint()
        made.to_dict()
        return made

    def define_guarded(self, function: Callable[..., Any]) -> Any:
        made = self.define(function)
        made.requires_confirmation = True
        return made

    async def serve(self, tools: list[Any]) -> Any:
        self.find: Any = import_module("agno.utils.functions").get_function_call
        return {made.name: made for made in tools}

    async def send(self, server: Any, name: str, text: str) -> str:
        call = self.find(name=name, arguments=text, call_id="c1", functions=server)
        if call.error:
            return str(call.error)
        ended = await call.aexecute()
        return str(ended.result if ended.status == "success" else ended.error)

    async def definitions(self, server: Any) -> list[Any]:
        return list(self.scripted(Script([]))._format_tools(list(server.values())))

    def scripted(self, script: Script) -> Any:
        def invoke(model: Any, messages: Any, *_: Any, **__: Any) -> Any:
            calls = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.text}}
                for call in script.next(messages)
            ]
            return self.response(role="assistant", tool_calls=calls, content=None if calls else "done")

        async def ainvoke(model: Any, messages: Any, *_: Any, **__: Any) -> Any:
            return invoke(model, messages)

        unused = ["invoke_stream", "ainvoke_stream", "_parse_provider_response", "_parse_provider_response_delta"]
        parts = {"invoke": invoke, "ainvoke": ainvoke, **dict.fromkeys(unused)}
        made: Any = dataclass(type("Model", (self.model,), parts))
        return made(id="scripted")

    async def run(self, tools: list[Any], script: Script, turns: int = 0) -> None:
        agent = self.agent(model=self.scripted(script), tools=tools, telemetry=False)
        answer = await agent.arun("go")
        if answer.is_paused:
            raise RunEndedError("paused")
        assert answer.content == "done"

    def results(self, messages: Any) -> list[str]:
        return [str(message.content) for message in messages if message.role == "tool"]
