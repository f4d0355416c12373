"""Every system behind the same doors; peers are imported by name, as the usual environment has none of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from typing import Any, Protocol, runtime_checkable

from benchmarks.calls import add, total
from benchmarks.loop import Counting
from forge import Limits, Message, Scope, ToolCall, rules, run_loop, tool
from forge.pipeline import standard_executor


class System(Protocol):
    def define(self, function: Callable[..., Any], name: str) -> Any: ...  # a tool, with what a model reads of it built
    async def serve(self, tools: list[Any]) -> Any: ...  # what holds the tools while an agent runs
    async def send(self, server: Any, name: str, text: str) -> str: ...  # from JSON text to what the model sees
    async def definitions(self, server: Any) -> list[Any]: ...  # of all tools, as every turn asks for them


@runtime_checkable
class Looping(Protocol):
    most_turns: int  # where every turn costs more than the one before, a long run takes minutes

    async def loop(self, made: Any, turns: int) -> int: ...  # an agent built and run; how many results its model got


def scripted(turns: int) -> Iterator[tuple[str, str]]:
    """The calls of `add` a model makes, one a turn: their ids and arguments."""
    return ((f"c{left}", f'{{"a": {left}, "b": 3}}') for left in reversed(range(turns)))


class Forge:
    most_turns = 1_000

    def __init__(self) -> None:
        self.scope = Scope()

    def define(self, function: Callable[..., Any], name: str) -> Any:
        made = tool(name=name)(function)
        made.spec.to_function()  # the schema comes from the validator: both are built now
        return made

    async def serve(self, tools: list[Any]) -> Any:
        return standard_executor(tools, policy=rules("allow read"))

    async def send(self, server: Any, name: str, text: str) -> str:
        return str((await server.execute(ToolCall(name, text, "c1"), self.scope)).for_llm)

    async def definitions(self, server: Any) -> list[Any]:
        definitions: list[Any] = server.registry.definitions()
        return definitions

    async def loop(self, made: Any, turns: int) -> int:
        limits = Limits(turns=turns + 1, calls=0)
        executor = await self.serve([made])
        return (await run_loop(Counting(turns), executor, [Message("user", "go")], Scope(), limits)).calls


class PydanticAI:
    most_turns = 1_000

    def __init__(self) -> None:
        self.peer: Any = import_module("pydantic_ai")
        self.manager: Any = import_module("pydantic_ai.tool_manager").ToolManager
        self.refused: Any = import_module("pydantic_ai.exceptions").ToolRetryError
        self.function_model: Any = import_module("pydantic_ai.models.function").FunctionModel
        model = import_module("pydantic_ai.models.test").TestModel()
        self.run = self.peer.RunContext(deps=None, model=model, usage=self.peer.RunUsage(), run_step=1)

    def define(self, function: Callable[..., Any], name: str) -> Any:
        made = self.peer.Tool(function, name=name, max_retries=10**9)
        assert made.tool_def.name == name
        return made

    async def serve(self, tools: list[Any]) -> Any:
        return await self.manager(self.peer.FunctionToolset(tools)).for_run_step(self.run)

    async def send(self, server: Any, name: str, text: str) -> str:
        try:
            return str(await server.handle_call(self.peer.ToolCallPart(name, text, "c1")))
        except self.refused as error:
            return str(error.tool_retry.model_response_str())

    async def definitions(self, server: Any) -> list[Any]:
        return list((await server.for_run_step(replace(self.run, run_step=2))).tool_defs)

    async def loop(self, made: Any, turns: int) -> int:
        calls = scripted(turns)

        async def answer(messages: list[Any], info: Any) -> Any:
            call = next(calls, None)
            part = self.peer.ToolCallPart("add", call[1], call[0]) if call else self.peer.TextPart("done")
            return self.peer.ModelResponse(parts=[part])

        agent = self.peer.Agent(self.function_model(answer), tools=[made])
        result = await agent.run("go", usage_limits=self.peer.UsageLimits(request_limit=None))
        return int(result.usage.tool_calls)


class LangChain:
    def __init__(self) -> None:
        self.tool: Any = import_module("langchain_core.tools").tool
        self.described: Any = import_module("langchain_core.utils.function_calling").convert_to_openai_tool

    def define(self, function: Callable[..., Any], name: str) -> Any:
        made = self.tool(name, parse_docstring=True)(function)
        made.handle_validation_error = str
        self.described(made)
        return made

    async def serve(self, tools: list[Any]) -> Any:
        return {made.name: made for made in tools}

    async def send(self, server: Any, name: str, text: str) -> str:
        call = {"type": "tool_call", "id": "c1", "name": name, "args": json.loads(text)}
        return str((await server[name].ainvoke(call)).content)

    async def definitions(self, server: Any) -> list[Any]:
        return [self.described(made) for made in server.values()]


class OpenAIAgents:
    most_turns = 300

    def __init__(self) -> None:
        self.peer: Any = import_module("agents")
        self.context: Any = import_module("agents.tool_context").ToolContext
        self.responses: Any = import_module("openai.types.responses")
        self.converter: Any = import_module("agents.models.openai_responses").Converter

    def define(self, function: Callable[..., Any], name: str) -> Any:
        made = self.peer.function_tool(function, name_override=name)
        self.converter.convert_tools([made], [])
        return made

    async def serve(self, tools: list[Any]) -> Any:
        return self.peer.Agent(name="agent", tools=tools)

    async def send(self, server: Any, name: str, text: str) -> str:
        context = self.context(None, tool_name=name, tool_call_id="c1", tool_arguments=text)
        return str(await server.tools[0].on_invoke_tool(context, text))

    async def definitions(self, server: Any) -> list[Any]:
        tools = await server.get_all_tools(self.peer.RunContextWrapper(None))
        return list(self.converter.convert_tools(tools, []).tools)

    async def loop(self, made: Any, turns: int) -> int:
        calls = scripted(turns)

        async def get_response(*_: Any, **__: Any) -> Any:
            call = next(calls, None)
            output = self.called(*call) if call else self.said("done")
            return self.peer.ModelResponse(output=[output], usage=self.peer.Usage(), response_id=None)

        model = type("Model", (self.peer.Model,), {"get_response": get_response, "stream_response": None})()
        agent = self.peer.Agent(name="agent", model=model, tools=[made])
        result = await self.peer.Runner.run(agent, "go", max_turns=turns + 1)
        return sum(item.type == "tool_call_output_item" for item in result.new_items)

    def called(self, id: str, text: str) -> Any:
        return self.responses.ResponseFunctionToolCall(type="function_call", name="add", call_id=id, arguments=text)

    def said(self, text: str) -> Any:
        content = self.responses.ResponseOutputText(type="output_text", text=text, annotations=[])
        message = self.responses.ResponseOutputMessage
        return message(id="m", type="message", role="assistant", status="completed", content=[content])


class SmolAgents:
    most_turns = 300

    def __init__(self) -> None:
        self.peer: Any = import_module("smolagents")
        self.models: Any = import_module("smolagents.models")
        self.described: Any = self.models.get_tool_json_schema

    def define(self, function: Callable[..., Any], name: str) -> Any:
        made = self.peer.tool({add.run: plain_add, total.run: plain_total}.get(function, function))
        made.name = name
        self.described(made)
        return made

    async def serve(self, tools: list[Any]) -> Any:
        return self.peer.ToolCallingAgent(tools=tools, model=self.peer.Model(), verbosity_level=-1)

    async def send(self, server: Any, name: str, text: str) -> str:
        try:
            return str(server.execute_tool_call(name, json.loads(text)))
        except self.peer.AgentError as error:
            return str(error)

    async def definitions(self, server: Any) -> list[Any]:
        return [self.described(made) for made in server.tools.values()]

    async def loop(self, made: Any, turns: int) -> int:
        calls = scripted(turns)
        model = self.peer.Model()

        def generate(*_: Any, **__: Any) -> Any:
            id, text = next(calls, ("", ""))
            return self.called(id, "add", text) if id else self.called("c", "final_answer", {"answer": "done"})

        model.generate = generate
        agent = self.peer.ToolCallingAgent(tools=[made], model=model, max_steps=turns + 1, verbosity_level=-1)
        assert agent.run("go") == "done"
        return sum(step.observations is not None for step in agent.memory.steps[1:-1])  # the task, …, the answer

    def called(self, id: str, name: str, arguments: Any) -> Any:
        function = self.models.ChatMessageToolCallFunction(name=name, arguments=arguments)
        call = self.models.ChatMessageToolCall(id=id, type="function", function=function)
        return self.models.ChatMessage(role=self.models.MessageRole.ASSISTANT, content="", tool_calls=[call])


def plain_add(a: int, b: int) -> int:  # smolagents takes no async functions
    """Add two numbers.

    Args:
        a: the first number
        b: the second number
    """
    return a + b


def plain_total(items: list[dict[str, Any]], discount: float) -> float:  # nor models
    """Total price of the items.

    Args:
        items: the items to add up
        discount: taken from the sum
    """
    return sum(float(item["price"]) for item in items) - discount


class FastMCP:
    def __init__(self) -> None:
        self.server: Any = import_module("fastmcp").FastMCP
        self.tool: Any = import_module("fastmcp.tools").Tool
        self.refused: Any = import_module("fastmcp.exceptions").ValidationError

    def define(self, function: Callable[..., Any], name: str) -> Any:
        made = self.tool.from_function(function, name=name)
        made.to_mcp_tool()
        return made

    async def serve(self, tools: list[Any]) -> Any:
        server = self.server("server")
        for made in tools:
            server.add_tool(made)
        return server

    async def send(self, server: Any, name: str, text: str) -> str:
        try:
            return str((await server.call_tool(name, json.loads(text))).content[0].text)
        except self.refused as error:  # what the protocol around the server makes an error result of
            return str(error)

    async def definitions(self, server: Any) -> list[Any]:
        return [made.to_mcp_tool() for made in await server.list_tools()]


SYSTEMS: dict[str, Callable[[], System]] = {
    "forge-tools": Forge,
    "pydantic-ai-slim": PydanticAI,
    "langchain-core": LangChain,
    "openai-agents": OpenAIAgents,
    "smolagents": SmolAgents,
    "fastmcp": FastMCP,
}
