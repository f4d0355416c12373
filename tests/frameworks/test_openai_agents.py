"""Exported tools in the hands of the OpenAI Agents SDK: its runner, with a model that answers from a list."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

pytest.importorskip("agents")

from agents import Agent, FunctionTool, Model, ModelResponse, RunConfig, Runner, Usage
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from forge import Answer, Scope, ToolCall, ToolRegistry, ToolResult, rules
from forge.frameworks.openai_agents import to_openai_agents
from tests.frameworks.tools_for_export import TAKEN, all_tools

QUIET = RunConfig(tracing_disabled=True)


@pytest.fixture
def loop_that_is_closed():
    """Runs that are not awaited use the thread's loop, make one if there is none, and leave it open."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()


class FakeModel(Model):
    """Says what it was told to say, and remembers what it was shown."""

    def __init__(self, *turns: list[ToolCall] | str) -> None:
        self.turns = list(turns)
        self.inputs: list[Any] = []
        self.tools: list[list[str]] = []

    async def get_response(self, system_instructions, input, model_settings, tools, *rest, **options):
        self.inputs.append(input)
        self.tools.append([one.name for one in tools])
        turn = self.turns.pop(0)
        items: list[Any] = [_said(turn)] if isinstance(turn, str) else [_called(call) for call in turn]
        return ModelResponse(output=items, usage=Usage(requests=1), response_id=None)

    def stream_response(self, *rest, **options):
        raise NotImplementedError

    @property
    def outputs(self) -> list[Any]:
        """What the calls answered, as the model was shown it last."""
        return [item["output"] for item in self.inputs[-1] if item.get("type") == "function_call_output"]


def _said(text: str) -> ResponseOutputMessage:
    content = ResponseOutputText(text=text, type="output_text", annotations=[])
    return ResponseOutputMessage(id="1", type="message", role="assistant", content=[content], status="completed")


def _called(call: ToolCall) -> ResponseFunctionToolCall:
    text = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)
    return ResponseFunctionToolCall(call_id=call.id, name=call.name, arguments=text, type="function_call")


async def outputs(tools, *calls: ToolCall, context: Any = None) -> list[Any]:
    model = FakeModel(list(calls), "done")
    result = await Runner.run(Agent("tester", model=model, tools=tools), "go", run_config=QUIET, context=context)
    assert result.final_output == "done"
    return model.outputs


async def test_an_agent_calls_them_through_our_gate():
    tools = to_openai_agents(all_tools())
    calls = [ToolCall("add", {"a": 2, "b": 3}), ToolCall("deploy", {"service": "web"})]
    added, refused = await outputs(tools, *calls)
    assert added == "5"
    assert "no one to ask" in refused.lower()
    assert tools.last_results["deploy"].is_error


async def test_the_person_is_asked():
    async def ask(request):
        return Answer.ONCE

    tools = to_openai_agents(all_tools(), policy=rules("ask execute"), approve=ask)
    assert await outputs(tools, ToolCall("deploy", {"service": "web"})) == ["web is live"]


async def test_arguments_reach_us_as_they_were_sent():
    tools = to_openai_agents(all_tools())
    wrong, cut, whole = await outputs(
        tools, ToolCall("add", {"a": True}), ToolCall("add", '{"a": 1'), ToolCall("describe", TAKEN)
    )
    assert "expected integer" in wrong
    assert cut == "2"  # it reads, and the end of its arguments was plain
    assert json.loads(whole) == TAKEN


async def test_no_arguments_at_all_are_none():
    assert await outputs(to_openai_agents(all_tools()), ToolCall("secret_door", "")) == ["open"]


async def test_images_are_shown_to_the_model():
    (output,) = await outputs(to_openai_agents(all_tools()), ToolCall("draw"))
    assert output[0] == {"type": "input_text", "text": "a pixel"}
    assert output[1]["image_url"].startswith("data:image/png;base64,")


async def test_every_result_is_told_with_its_call():
    told: list[tuple[ToolCall, ToolResult]] = []
    tools = to_openai_agents(all_tools(), on_tool_result=lambda call, result: told.append((call, result)))
    await outputs(tools, ToolCall("broken", {"reason": "no ink"}, "call_7"))
    ((call, result),) = told
    assert call.id == "call_7"
    assert result.failure is not None


async def test_a_scope_may_come_from_the_context_of_the_run():
    tools = to_openai_agents(all_tools(), scope=lambda context: Scope(session_id=context.context["user"]))
    (said,) = await outputs(tools, ToolCall("where"), context={"user": "ada"})
    assert json.loads(said)["session"] == "ada"


async def test_runs_without_a_named_session_are_apart():
    tools = to_openai_agents(all_tools())
    runs = [await outputs(tools, ToolCall("where"), ToolCall("where")) for _ in range(2)]
    sessions = [[json.loads(said)["session"] for said in run] for run in runs]
    assert [len(set(one)) for one in sessions] == [1, 1]
    assert sessions[0] != sessions[1]


async def test_a_tool_that_was_removed_is_not_offered_any_more():
    registry = ToolRegistry(all_tools())
    model = FakeModel([ToolCall("add", {"a": 1})], "done")
    agent = Agent("tester", model=model, tools=to_openai_agents(registry, on_tool_result=lambda *_: remove(registry)))

    def remove(registry: ToolRegistry) -> None:
        registry.remove("deploy")

    await Runner.run(agent, "go", run_config=QUIET)
    assert "deploy" in model.tools[0]
    assert "deploy" not in model.tools[1]
    assert "secret_door" not in model.tools[0]


@pytest.mark.usefixtures("loop_that_is_closed")
def test_runs_that_are_not_awaited_work_too():
    model = FakeModel([ToolCall("add", {"a": 1})], "done")
    Runner.run_sync(Agent("tester", model=model, tools=to_openai_agents(all_tools())), "go", run_config=QUIET)
    assert model.outputs == ["2"]


async def test_strict_schemas_where_they_fit():
    tools = functions(strict=True)
    assert tools["add"].strict_json_schema
    assert tools["add"].params_json_schema["required"] == ["a", "b"]
    assert not tools["describe"].strict_json_schema
    assert await outputs(list(tools.values()), ToolCall("add", {"a": 1, "b": None})) == ["2"]


def test_schemas_are_copies():
    first = functions()["add"]
    assert first.params_json_schema["required"] == ["a"]
    first.params_json_schema["properties"].clear()
    assert functions()["add"].params_json_schema["properties"]


def functions(**options: Any) -> dict[str, FunctionTool]:
    tools = to_openai_agents(all_tools(), **options)
    return {one.name: one for one in tools if isinstance(one, FunctionTool)}
