"""Google ADK: `FunctionTool.run_async`, and `LlmAgent` in an `InMemoryRunner`."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from importlib import import_module
from typing import Any

from benchmarks.peer_systems import RunEndedError, Script, System


class It(System):
    takes_text = False

    def __init__(self) -> None:
        self.agents: Any = import_module("google.adk.agents")
        self.models: Any = import_module("google.adk.models")
        self.types: Any = import_module("google.genai.types")
        self.runner: Any = import_module("google.adk.runners").InMemoryRunner
        self.function_tool: Any = import_module("google.adk.tools").FunctionTool
        self.run_config: Any = import_module("google.adk.agents.run_config").RunConfig

    def define(self, function: Callable[..., Any]) -> Any:
        made = self.function_tool(function)
        made._get_declaration()
        return made

    def define_guarded(self, function: Callable[..., Any]) -> Any:
        return self.function_tool(function, require_confirmation=True)

    async def serve(self, tools: list[Any]) -> Any:
        sessions = import_module("google.adk.sessions.in_memory_session_service").InMemorySessionService()
        session = await sessions.create_session(app_name="app", user_id="user")
        invocation = import_module("google.adk.agents.invocation_context").InvocationContext(
            invocation_id="i", agent=self.agent([], Script([])), session=session, session_service=sessions
        )
        self.context = import_module("google.adk.tools.tool_context").ToolContext(invocation, function_call_id="c1")
        return {made.name: made for made in tools}

    async def send(self, server: Any, name: str, text: str) -> str:
        return str(await server[name].run_async(args=json.loads(text), tool_context=self.context))

    async def definitions(self, server: Any) -> list[Any]:
        request = self.models.LlmRequest()
        for made in server.values():
            await made.process_llm_request(tool_context=self.context, llm_request=request)
        return list(request.config.tools[0].function_declarations)

    def agent(self, tools: list[Any], script: Script) -> Any:
        types = self.types

        async def generate(model: Any, request: Any, stream: bool = False) -> AsyncIterator[Any]:
            parts = [
                types.Part(function_call=types.FunctionCall(id=call.id, name=call.name, args=json.loads(call.text)))
                for call in script.next(request.contents)
            ]
            content = types.Content(role="model", parts=parts or [types.Part(text="done")])
            yield self.models.LlmResponse(content=content)

        model = type("Model", (self.models.BaseLlm,), {"generate_content_async": generate, "__module__": __name__})
        return self.agents.LlmAgent(name="agent", model=model(model="scripted"), tools=tools)

    async def run(self, tools: list[Any], script: Script, turns: int = 0) -> None:
        runner = self.runner(agent=self.agent(tools, script), app_name="app")
        session = await runner.session_service.create_session(app_name="app", user_id="user")
        message = self.types.Content(role="user", parts=[self.types.Part(text="go")])
        limits = {"run_config": self.run_config(max_llm_calls=0)} if turns else {}
        last = None
        async for event in runner.run_async(user_id="user", session_id=session.id, new_message=message, **limits):
            last = event
        assert last is not None
        if last.get_function_responses() or last.get_function_calls():
            raise RunEndedError("confirmation")
        assert last.content.parts[0].text == "done"

    def results(self, messages: Any) -> list[str]:
        parts = [part for content in messages for part in content.parts if part.function_response]
        answers = [part.function_response.response for part in parts]
        return [str(answer.get("result", answer)) for answer in answers]
