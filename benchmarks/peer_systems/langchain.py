"""LangChain: langgraph's `ToolNode`, and `create_agent` with a chat model."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from typing import Any

from benchmarks.peer_systems import Call, Script, System


class It(System):
    def __init__(self) -> None:
        self.tool: Any = import_module("langchain_core.tools").tool
        self.message: Any = import_module("langchain_core.messages").AIMessage
        self.create_agent: Any = import_module("langchain.agents").create_agent
        self.described: Any = import_module("langchain_core.utils.function_calling").convert_to_openai_tool

    def define(self, function: Callable[..., Any]) -> Any:
        made = self.tool(function.__name__, parse_docstring=True)(function)
        self.described(made)
        return made

    async def serve(self, tools: list[Any]) -> Any:
        runtime = import_module("langgraph.runtime").Runtime()
        self.settings = {"configurable": {"__pregel_runtime": runtime}}
        return import_module("langgraph.prebuilt").ToolNode(tools)

    async def send(self, server: Any, name: str, text: str) -> str:
        message = self.spoken([Call("c1", name, text)])
        answer = await server.ainvoke({"messages": [message]}, self.settings)
        return str(answer["messages"][0].content)

    async def definitions(self, server: Any) -> list[Any]:
        return [self.described(made) for made in server.tools_by_name.values()]

    async def run(self, tools: list[Any], script: Script, turns: int = 0) -> None:
        limits = {"recursion_limit": 10 * turns + 100} if turns else {}
        await self.create_agent(self.model(script), tools).ainvoke({"messages": [("user", "go")]}, limits)

    def model(self, script: Script) -> Any:
        chat: Any = import_module("langchain_core.language_models.chat_models").BaseChatModel
        outputs: Any = import_module("langchain_core.outputs")

        def generate(model: Any, messages: Any, *_: Any, **__: Any) -> Any:
            message = self.spoken(script.next(messages))
            return outputs.ChatResult(generations=[outputs.ChatGeneration(message=message)])

        async def agenerate(model: Any, messages: Any, *_: Any, **__: Any) -> Any:
            return generate(model, messages)

        parts = {
            "_generate": generate,
            "_agenerate": agenerate,
            "_llm_type": property(lambda model: "scripted"),
            "bind_tools": lambda model, tools, **_: model,
            "__module__": __name__,
        }
        return type("Model", (chat,), parts)()

    def spoken(self, calls: Any) -> Any:
        """Its model adapters put calls they cannot read aside, as `invalid_tool_calls`."""
        read, unread = [], []
        for call in calls:
            try:
                read.append({"name": call.name, "id": call.id, "type": "tool_call", "args": json.loads(call.text)})
            except ValueError as error:
                unread.append({"name": call.name, "id": call.id, "args": call.text, "error": str(error)})
        return self.message(content="" if calls else "done", tool_calls=read, invalid_tool_calls=unread)

    def results(self, messages: Any) -> list[str]:
        return [str(message.content) for message in messages if message.type == "tool"]
