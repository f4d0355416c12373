"""The same three doors into every system: call a function, define a tool, hand definitions to a model."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any, Protocol

from benchmarks.calls import add
from benchmarks.definitions import search_files
from forge import Scope, ToolCall, ToolRegistry, rules, tool
from forge.pipeline import standard_executor

Call = Callable[[str], Awaitable[str]]
Definitions = Callable[[], Awaitable[list[Any]]]


class System(Protocol):
    """Peers are imported by name when one is made: they are not in the usual environment."""

    async def call(self, function: Callable[..., Any]) -> Call:
        """From the JSON text of the arguments to the text the model sees."""

    def define(self, name: str) -> Any:
        """A tool of `search_files`, ready to be called, its definition built."""

    async def definitions(self, tools: list[Any]) -> Definitions:
        """What every turn hands to a model."""


class Forge:
    async def call(self, function: Callable[..., Any]) -> Call:
        executor, scope, name = standard_executor([tool(function)], policy=rules("allow read")), Scope(), function.__name__

        async def call(text: str) -> str:
            return (await executor.execute(ToolCall(name, text), scope)).for_llm

        return call

    def define(self, name: str) -> Any:
        made = tool(name=name)(search_files)
        made.parse('{"pattern": "a", "path": "b"}')
        made.spec.to_function()
        return made

    async def definitions(self, tools: list[Any]) -> Definitions:
        return _now(ToolRegistry(tools).definitions)


class PydanticAI:
    def __init__(self) -> None:
        self.peer: Any = import_module("pydantic_ai")
        self.manager: Any = import_module("pydantic_ai.tool_manager")
        model = import_module("pydantic_ai.models.test").TestModel()
        self.run = self.peer.RunContext(deps=None, model=model, usage=self.peer.RunUsage(), run_step=1)

    async def call(self, function: Callable[..., Any]) -> Call:
        manager = await self._step([self.peer.Tool(function, max_retries=10**9)], 1)
        part, refused = self.peer.ToolCallPart, import_module("pydantic_ai.exceptions").ToolRetryError

        async def call(text: str) -> str:
            try:
                return str(await manager.handle_call(part(function.__name__, text, "c1")))
            except refused as error:
                return str(error.tool_retry.model_response())

        return call

    def define(self, name: str) -> Any:
        made = self.peer.Tool(search_files, name=name)
        assert made.tool_def
        return made

    async def definitions(self, tools: list[Any]) -> Definitions:
        toolset, steps = self.peer.FunctionToolset(tools), iter(range(2, 10**9))

        async def turn() -> list[Any]:
            return list((await self._step(toolset, next(steps))).tool_defs)

        return turn

    async def _step(self, tools: Any, number: int) -> Any:
        toolset = self.peer.FunctionToolset(tools) if isinstance(tools, list) else tools
        run = dataclasses.replace(self.run, run_step=number)
        return await self.manager.ToolManager(toolset, default_max_retries=10**9).for_run_step(run)


class LangChain:
    def __init__(self) -> None:
        self.tool: Any = import_module("langchain_core.tools").tool
        self.convert: Any = import_module("langchain_core.utils.function_calling").convert_to_openai_tool

    async def call(self, function: Callable[..., Any]) -> Call:
        made = self.tool(function, parse_docstring=True)
        made.handle_validation_error = str

        async def call(text: str) -> str:
            sent = {"name": made.name, "args": json.loads(text), "id": "c1", "type": "tool_call"}
            return str((await made.ainvoke(sent)).content)

        return call

    def define(self, name: str) -> Any:
        made = self.tool(name, parse_docstring=True)(search_files)
        self.convert(made)
        return made

    async def definitions(self, tools: list[Any]) -> Definitions:
        return _now(lambda: [self.convert(made) for made in tools])


class OpenAIAgents:
    def __init__(self) -> None:
        self.peer: Any = import_module("agents")
        self.context: Any = import_module("agents.tool_context").ToolContext

    async def call(self, function: Callable[..., Any]) -> Call:
        made = self.peer.function_tool(function)

        async def call(text: str) -> str:
            context = self.context(None, tool_name=made.name, tool_call_id="c1", tool_arguments=text)
            return str(await made.on_invoke_tool(context, text))

        return call

    def define(self, name: str) -> Any:
        return self.peer.function_tool(search_files, name_override=name)

    async def definitions(self, tools: list[Any]) -> Definitions:
        agent, context = self.peer.Agent(name="agent", tools=tools), self.peer.RunContextWrapper(None)
        converter = import_module("agents.models.openai_responses").Converter

        async def turn() -> list[Any]:
            return list(converter.convert_tools(await agent.get_all_tools(context), []).tools)

        return turn


class SmolAgents:
    """Takes plain functions only, and no nested models."""

    def __init__(self) -> None:
        self.peer: Any = import_module("smolagents")

    async def call(self, function: Callable[..., Any]) -> Call:
        made = self.peer.tool(plain_add if function is add.run else plain_total)
        agent = self.peer.ToolCallingAgent(tools=[made], model=self.peer.Model(), verbosity_level=-1)

        async def call(text: str) -> str:
            try:
                return str(agent.execute_tool_call(made.name, json.loads(text)))
            except self.peer.AgentError as error:
                return str(error)

        return call

    def define(self, name: str) -> Any:
        made = self.peer.tool(search_files)
        made.name = name
        self.peer.models.get_tool_json_schema(made)
        return made

    async def definitions(self, tools: list[Any]) -> Definitions:
        return _now(lambda: [self.peer.models.get_tool_json_schema(made) for made in tools])


class FastMCP:
    def __init__(self) -> None:
        self.server: Any = import_module("fastmcp").FastMCP
        self.tool: Any = import_module("fastmcp.tools").Tool

    async def call(self, function: Callable[..., Any]) -> Call:
        server = self.server("server")
        server.add_tool(self.tool.from_function(function))

        async def call(text: str) -> str:
            try:
                return str((await server.call_tool(function.__name__, json.loads(text))).content[0].text)
            except Exception as error:
                return str(error)

        return call

    def define(self, name: str) -> Any:
        made = self.tool.from_function(search_files, name=name)
        made.to_mcp_tool()
        return made

    async def definitions(self, tools: list[Any]) -> Definitions:
        server = self.server("server")
        for made in tools:
            server.add_tool(made)

        async def turn() -> list[Any]:
            return [made.to_mcp_tool() for made in await server.list_tools()]

        return turn


def _now(function: Callable[[], list[Any]]) -> Definitions:
    async def turn() -> list[Any]:
        return function()

    return turn


def plain_add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: the first number
        b: the second number
    """
    return a + b


def plain_total(items: list[dict[str, Any]], discount: float) -> float:
    """Total price of the items.

    Args:
        items: the items to add up
        discount: taken from the sum
    """
    return sum(float(item["price"]) for item in items) - discount


SYSTEMS: dict[str, Callable[[], System]] = {
    "forge-tools": Forge,
    "pydantic-ai-slim": PydanticAI,
    "langchain-core": LangChain,
    "openai-agents": OpenAIAgents,
    "smolagents": SmolAgents,
    "fastmcp": FastMCP,
}
