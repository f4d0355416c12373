"""pydantic-ai: `ToolManager.handle_call`, and `Agent` with a `FunctionModel`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any

from benchmarks.peer_systems import Script, System


class It(System):
    def __init__(self) -> None:
        self.peer: Any = import_module("pydantic_ai")
        self.function_model: Any = import_module("pydantic_ai.models.function").FunctionModel

    def define(self, function: Callable[..., Any]) -> Any:
        made = self.peer.Tool(function)
        assert made.tool_def.name == function.__name__
        return made

    def define_guarded(self, function: Callable[..., Any]) -> Any:
        return self.peer.Tool(function, requires_approval=True)

    async def serve(self, tools: list[Any]) -> Any:
        self.refused: Any = import_module("pydantic_ai.exceptions").ToolRetryError
        model = import_module("pydantic_ai.models.test").TestModel()
        self.context = self.peer.RunContext(deps=None, model=model, usage=self.peer.RunUsage(), run_step=1)
        for made in tools:
            made.max_retries = 10**9
        manager = import_module("pydantic_ai.tool_manager").ToolManager
        return await manager(self.peer.FunctionToolset(tools)).for_run_step(self.context)

    async def send(self, server: Any, name: str, text: str) -> str:
        try:
            return str(await server.handle_call(self.peer.ToolCallPart(name, text, "c1")))
        except self.refused as error:
            return str(error.tool_retry.model_response_str())

    async def definitions(self, server: Any) -> list[Any]:
        return list((await server.for_run_step(replace(self.context, run_step=2))).tool_defs)

    async def run(self, tools: list[Any], script: Script, turns: int = 0) -> None:
        await self.drive(script, turns, tools=tools)

    async def drive(self, script: Script, turns: int = 0, **settings: Any) -> None:
        """Runs an agent with these settings to its answer."""

        async def answer(messages: list[Any], info: Any) -> Any:
            calls = script.next(messages, info)
            parts = [self.peer.ToolCallPart(call.name, call.text, call.id) for call in calls]
            return self.peer.ModelResponse(parts=parts or [self.peer.TextPart("done")])

        async def stream(messages: list[Any], info: Any) -> Any:
            calls = script.next(messages, info)
            delta = import_module("pydantic_ai.models.function").DeltaToolCall
            yield {
                at: delta(name=call.name, json_args=call.text, tool_call_id=call.id) for at, call in enumerate(calls)
            } or "done"

        agent = self.peer.Agent(self.function_model(answer, stream_function=stream), **settings)
        limits = self.peer.UsageLimits(request_limit=None) if turns else None
        assert (await agent.run("go", usage_limits=limits)).output == "done"

    def results(self, messages: Any) -> list[str]:
        parts = [part for message in messages for part in message.parts]
        return [part.model_response_str() for part in parts if part.part_kind == "tool-return"] + [
            part.model_response() for part in parts if part.part_kind == "retry-prompt"
        ]
