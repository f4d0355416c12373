"""Strands Agents: `ToolExecutor`, and `Agent` with a streaming `Model`."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from importlib import import_module
from typing import Any

from benchmarks.peer_systems import Script, System


class It(System):
    def __init__(self) -> None:
        self.peer: Any = import_module("strands")
        self.model: Any = import_module("strands.models.model").Model

    def define(self, function: Callable[..., Any]) -> Any:
        made = self.peer.tool(function)
        assert made.tool_spec["name"] == function.__name__
        return made

    def agent(self, tools: list[Any], script: Script) -> Any:
        async def stream(model: Any, messages: Any, *_: Any, **__: Any) -> AsyncIterator[Any]:
            calls = script.next(messages)
            yield {"messageStart": {"role": "assistant"}}
            for call in calls:
                yield {"contentBlockStart": {"start": {"toolUse": {"name": call.name, "toolUseId": call.id}}}}
                yield {"contentBlockDelta": {"delta": {"toolUse": {"input": call.text}}}}
                yield {"contentBlockStop": {}}
            if not calls:
                yield {"contentBlockStart": {"start": {}}}
                yield {"contentBlockDelta": {"delta": {"text": "done"}}}
                yield {"contentBlockStop": {}}
            yield {"messageStop": {"stopReason": "tool_use" if calls else "end_turn"}}

        unused = {"structured_output": None, "update_config": None}
        parts: dict[str, Any] = {"stream": stream, "get_config": lambda model: {}, **unused}
        model = type("Model", (self.model,), parts)()
        return self.peer.Agent(model=model, tools=tools, callback_handler=None)

    async def serve(self, tools: list[Any]) -> Any:
        self.executor: Any = import_module("strands.tools.executors._executor").ToolExecutor
        return self.agent(tools, Script([]))

    async def send(self, server: Any, name: str, text: str) -> str:
        results: list[Any] = []
        call = {"name": name, "toolUseId": "c1", "input": json.loads(text)}
        async for _ in self.executor._stream(server, call, results, {}):
            pass
        return str(results[0]["content"][0]["text"])

    async def definitions(self, server: Any) -> list[Any]:
        return list(server.tool_registry.get_all_tool_specs())

    async def run(self, tools: list[Any], script: Script, turns: int = 0) -> None:
        assert "done" in str(await self.agent(tools, script).invoke_async("go"))

    def results(self, messages: Any) -> list[str]:
        blocks = [block for message in messages for block in message["content"] if "toolResult" in block]
        return [part.get("text", str(part)) for block in blocks for part in block["toolResult"]["content"]]
