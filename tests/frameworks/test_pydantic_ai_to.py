"""Exported tools in pydantic-ai's hands: its agents, with its own function model."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("pydantic_ai")

from pydantic_ai import Agent, BinaryContent, ModelMessagesTypeAdapter
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from forge import Answer, Scope, ToolCall, ToolRegistry, ToolResult, register_all, rules, tool
from forge.frameworks.pydantic_ai import to_pydantic_ai
from tests.frameworks.tools_for_export import PIXEL, TAKEN, all_tools


@pytest.fixture
def loop_that_is_closed():
    """Runs that are not awaited use the thread's loop, make one if there is none, and leave it open."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()


class FakeModel:
    """Says what it was told to say, and remembers what it was shown."""

    def __init__(self, *turns: list[ToolCall] | str) -> None:
        self.turns = list(turns)
        self.tools: list[list[str]] = []

    def __call__(self, messages: list[Any], info: AgentInfo) -> ModelResponse:
        self.tools.append([one.name for one in info.function_tools])
        turn = self.turns.pop(0)
        if isinstance(turn, str):
            return ModelResponse([TextPart(turn)])
        return ModelResponse([ToolCallPart(call.name, call.arguments, call.id) for call in turn])  # type: ignore[arg-type]


async def returns(toolset, *calls: ToolCall, **options: Any) -> list[ToolReturnPart]:
    agent = Agent(FunctionModel(FakeModel(list(calls), "done")), toolsets=[toolset], deps_type=object)
    result = await agent.run("go", **options)
    assert result.output == "done"
    ModelMessagesTypeAdapter.validate_json(result.all_messages_json())  # the history can be stored
    return [part for message in result.all_messages() for part in message.parts if isinstance(part, ToolReturnPart)]


async def test_an_agent_calls_them_through_our_gate():
    toolset = to_pydantic_ai(all_tools())
    calls = [ToolCall("add", {"a": 2, "b": 3}), ToolCall("deploy", {"service": "web"})]
    added, refused = await returns(toolset, *calls)
    assert (added.content, added.outcome) == ("5", "success")
    assert refused.outcome == "failed"
    assert "no one to ask" in str(refused.content).lower()
    assert toolset.last_results["deploy"].is_error


async def test_the_person_is_asked():
    async def ask(request):
        return Answer.ONCE

    toolset = to_pydantic_ai(all_tools(), policy=rules("ask execute"), approve=ask)
    assert [one.content for one in await returns(toolset, ToolCall("deploy", {"service": "web"}))] == ["web is live"]


async def test_pydantic_ais_own_test_model_calls_every_tool():
    @tool
    def double(number: int) -> int:
        """Double a number."""
        return number * 2

    result = await Agent(TestModel(), toolsets=[to_pydantic_ai([double])]).run("go")
    assert json.loads(result.output) == {"double": "0"}


async def test_arguments_reach_us_as_they_were_sent():
    wrong, cut, text, whole, kept = await returns(
        to_pydantic_ai(all_tools()),
        ToolCall("add", {"a": True}),
        ToolCall("add", '{"a": 1'),
        ToolCall("add", '"a"'),
        ToolCall("add", '{"a": "2"}'),
        ToolCall("describe", TAKEN),
    )
    assert "expected integer" in str(wrong.content)
    assert str(cut.content) == "2"  # it reads, and the end of its arguments was plain
    assert "not an object" in str(text.content)
    assert whole.content == "3"
    assert json.loads(str(kept.content)) == TAKEN


async def test_mistakes_do_not_use_up_the_retries():
    mistakes = [ToolCall("add", {"a": "many"}, f"call_{number}") for number in range(4)]
    assert {part.outcome for part in await returns(to_pydantic_ai(all_tools()), *mistakes)} == {"failed"}


async def test_images_are_shown_to_the_model_and_data_is_for_the_program():
    (drawn,) = await returns(to_pydantic_ai(all_tools()), ToolCall("draw"))
    assert isinstance(drawn.content, list)
    text, image = drawn.content
    assert text == "a pixel"
    assert isinstance(image, BinaryContent)
    assert image.data == PIXEL
    assert drawn.metadata == {"title": "Pixel"}


async def test_every_result_is_told_with_its_call():
    told: list[tuple[ToolCall, ToolResult]] = []
    toolset = to_pydantic_ai(all_tools(), on_tool_result=lambda call, result: told.append((call, result)))
    await returns(toolset, ToolCall("broken", {"reason": "no ink"}, "call_7"))
    ((call, result),) = told
    assert call.id == "call_7"
    assert result.failure is not None


async def test_a_scope_may_come_from_the_dependencies_of_the_run():
    @dataclass
    class User:
        name: str

    toolset = to_pydantic_ai(all_tools(), scope=lambda ctx: Scope(session_id=ctx.deps.name))
    (said,) = await returns(toolset, ToolCall("where"), deps=User("ada"))
    assert json.loads(str(said.content))["session"] == "ada"


async def test_conversations_without_a_named_session_are_apart():
    toolset = to_pydantic_ai(all_tools())
    runs = [await returns(toolset, ToolCall("where"), ToolCall("where")) for _ in range(2)]
    sessions = [[json.loads(str(said.content))["session"] for said in run] for run in runs]
    assert [len(set(one)) for one in sessions] == [1, 1]
    assert sessions[0] != sessions[1]


async def test_calls_of_one_answer_are_one_turn():
    toolset = to_pydantic_ai(all_tools())
    agent = Agent(
        FunctionModel(FakeModel([ToolCall("where"), ToolCall("where")], [ToolCall("where")], "done")),
        toolsets=[toolset],
    )
    result = await agent.run("go")
    parts = [part for message in result.all_messages() for part in message.parts if isinstance(part, ToolReturnPart)]
    turns = [json.loads(str(part.content))["turn"] for part in parts]
    assert turns[0] == turns[1] != turns[2]


async def test_tools_that_come_go_or_are_found_are_followed():
    registry = ToolRegistry(all_tools())
    register_all(registry)
    model = FakeModel([ToolCall("tool_search", {"query": "secret door"})], [ToolCall("secret_door")], "done")
    toolset = to_pydantic_ai(registry, on_tool_result=lambda call, result: registry.remove(gone.pop()))
    gone = ["broken", "describe"]
    await Agent(FunctionModel(model), toolsets=[toolset]).run("go")
    assert "secret_door" not in model.tools[0]
    assert "secret_door" in model.tools[1]
    assert "describe" in model.tools[0]
    assert "describe" not in model.tools[1]
    assert "task_completion" not in model.tools[0]
    assert toolset.last_results["secret_door"].for_llm == "open"


async def test_a_tool_that_must_run_alone_is_sequential_there_too():
    @tool(parallel=False, permissions={"read"})
    def alone() -> str:
        """Run alone."""
        return "alone"

    def model(messages: list[Any], info: AgentInfo) -> ModelResponse:
        (definition,) = info.function_tools
        assert definition.sequential
        assert definition.metadata is not None
        assert definition.metadata["permissions"] == ["read"]
        return ModelResponse([TextPart("done")])

    await Agent(FunctionModel(model), toolsets=[to_pydantic_ai([alone])]).run("go")


async def test_their_wrappers_fit_around_it():
    toolset = to_pydantic_ai(all_tools()).prefixed("forge").filtered(lambda ctx, one: one.name.endswith("add"))
    (added,) = await returns(toolset, ToolCall("forge_add", {"a": 1}))
    assert added.content == "2"


@pytest.mark.usefixtures("loop_that_is_closed")
def test_runs_that_are_not_awaited_work_too():
    model = FakeModel([ToolCall("add", {"a": 1})], "done")
    toolset = to_pydantic_ai(all_tools(), id="forge")
    assert Agent(FunctionModel(model), toolsets=[toolset]).run_sync("go").output == "done"
    assert toolset.last_results["add"].for_llm == "2"
    assert toolset.id == "forge"
