"""Structured answers: each API gets the schema in its own words, and values are read while they are written."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from anthropic.types import MessageCreateParams
from google.genai import types as google
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from forge import Agent, Scripted, ToolCall, ToolError, fallback, tool
from forge.agent.output import MISSING, build_partial
from forge.core.events import ToolArgumentsDelta
from forge.core.provider import Provider
from forge.models.anthropic import Anthropic
from forge.models.bedrock import Bedrock
from forge.models.gemini import Gemini
from forge.models.openai_chat import OpenAI
from tests.models.oracle import problems
from tests.models.serving import Server, named_sse, refusal, serving, sse, stream


class City(BaseModel):
    name: str
    people: int = Field(gt=0)
    rivers: list[str] = []


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    tricks: list[str]


class Node(BaseModel):
    name: str
    inner: list[Node]


OSLO = '{"name": "Oslo", "people": 717710, "rivers": ["Akerselva"]}'
CITY = City(name="Oslo", people=717710, rivers=["Akerselva"])


@tool
def look(place: str) -> str:
    """Look at a place."""
    return f"{place} is a city."


def pieces(text: str) -> list[str]:
    return [text[at : at + 7] for at in range(0, len(text), 7)]


def chat(text: str) -> bytes:
    chunks = [{"choices": [{"index": 0, "delta": {"content": one}, "finish_reason": None}]} for one in pieces(text)]
    return sse(*chunks, {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})


def claude(text: str) -> bytes:
    deltas = [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": one}}
        for one in pieces(text)
    ]
    events: list[Any] = [
        {"type": "message_start", "message": {"usage": {"input_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *deltas,
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]
    return named_sse(*((event["type"], event) for event in events))


def gemini(text: str) -> bytes:
    parts = [
        {"candidates": [{"index": 0, "content": {"role": "model", "parts": [{"text": one}]}}]} for one in pieces(text)
    ]
    return sse(*parts, {"candidates": [{"index": 0, "finishReason": "STOP"}]}, done=False)


def at(server: Server, name: str) -> Provider:
    label, _, model = name.partition(":")
    if label == "anthropic":
        return Anthropic(model, base_url=server.url, api_key="k")
    if label == "gemini":
        return Gemini(model, base_url=f"{server.url}/v1", api_key="k")
    return OpenAI(model, base_url=f"{server.url}/v1", api_key="k", label=label)


ANSWERS = {"anthropic": claude, "gemini": gemini}


def schema_in(body: dict[str, Any]) -> Any:
    """Returns the schema that a request holds the answer to."""
    format = body.get("output_config", {}).get("format") or body.get("response_format", {}).get("json_schema")
    return (format or {}).get("schema") or body.get("generationConfig", {}).get("responseJsonSchema")


def tools_in(body: dict[str, Any]) -> list[str]:
    sent = body.get("tools", [])
    sent = [one for group in sent for one in group.get("functionDeclarations", [group])]
    return [one.get("function", one)["name"] for one in sent]


@pytest.mark.parametrize("name", ["xai:grok-4", "azure:gpt-5", "anthropic:claude-sonnet-5", "gemini:gemini-3-pro"])
@pytest.mark.parametrize(
    ("output", "text", "value"),
    [
        (City, OSLO, CITY),
        (list[City], f'{{"value": [{OSLO}]}}', [CITY]),
        (Cat | Dog, '{"value": {"kind": "dog", "tricks": ["sit"]}}', Dog(tricks=["sit"])),
        (int, '{"value": 7}', 7),
    ],
    ids=["model", "list", "union", "number"],
)
async def test_a_schema_is_sent_natively_beside_tools(name, output, text, value):
    answer = ANSWERS.get(name.partition(":")[0], chat)
    async with serving(stream(answer(text))) as server:
        result = await Agent(at(server, name), tools=[look], output=output).run("?")
    assert result.error is None
    assert result.output == value
    (body,) = server.bodies
    assert schema_in(body)["additionalProperties"] is False
    assert "look" in tools_in(body)
    assert "final_answer" not in tools_in(body)
    if answer is claude:
        assert problems(body, MessageCreateParams) == []
        assert "exclusiveMinimum" not in json.dumps(schema_in(body))  # Forge checks it
    elif answer is gemini:
        google.GenerationConfig.model_validate(body["generationConfig"])
    else:
        assert problems(body, CompletionCreateParamsStreaming) == []


@pytest.mark.parametrize("name", ["mistral:mistral-large", "ollama:qwen3", "gemini:gemini-2.5-flash"])
async def test_some_servers_take_a_schema_only_without_tools(name):
    answer = ANSWERS.get(name.partition(":")[0], chat)
    async with serving(stream(answer(OSLO))) as server:
        assert (await Agent(at(server, name), output=City).run("?")).output == CITY
        assert (await Agent(at(server, name), tools=[look], output=City).run("?")).output == CITY  # as text
    alone, beside = server.bodies
    assert schema_in(alone)
    assert tools_in(alone) == []
    assert schema_in(beside) is None
    assert {"look", "final_answer"} <= {*tools_in(beside)}


@pytest.mark.parametrize(
    ("name", "output"),
    [
        ("deepseek:deepseek-chat", City),
        ("openai:some-model", City),  # at another address than OpenAI's
        ("anthropic:claude-3-5-haiku-latest", City),
        ("anthropic:claude-opus-4-20250514", City),
        ("anthropic:claude-sonnet-5", Node),  # a schema that contains itself
        ("anthropic:claude-sonnet-5", dict[str, int]),
    ],
)
async def test_without_support_the_answer_comes_by_a_tool(name, output):
    async with serving(stream(ANSWERS.get(name.partition(":")[0], chat)("{}"))) as server:
        await Agent(at(server, name), output=output, limits=None).run("?")
    assert schema_in(server.bodies[0]) is None
    assert "final_answer" in tools_in(server.bodies[0])


async def test_a_server_that_refuses_the_schema_is_told_it_in_words():
    no = refusal(400, {"error": {"message": "This model does not support response_format json_schema"}})
    async with serving(no, stream(chat(OSLO))) as server:
        agent = Agent(at(server, "azure:old"), tools=[look], instructions="Be brief.", output=City)
        assert (await agent.run("?")).output == CITY
        assert (await agent.run("?")).output == CITY
    first, second, third = server.bodies
    assert schema_in(first)
    assert "response_format" not in second
    assert second["messages"][0]["content"].startswith("Be brief.")
    assert '"people"' in second["messages"][0]["content"]
    assert "final_answer" in tools_in(third)  # from then on by the tool


async def test_several_models_share_the_schema_only_if_each_takes_it(monkeypatch):
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "t")
    async with serving(stream(chat(OSLO))) as server:
        able, other = at(server, "xai:grok-4"), Bedrock("m", region="us-east-1", base_url=server.url)
        await Agent(fallback(able, at(server, "azure:gpt-5")), output=City).run("?")
        await Agent(fallback(able, other), output=City).run("?")
    assert schema_in(server.bodies[0])
    assert schema_in(server.bodies[1]) is None


@pytest.mark.parametrize("name", ["xai:grok-4", "anthropic:claude-sonnet-5", "gemini:gemini-3-pro"])
async def test_values_are_seen_while_they_are_written(name):
    answer = ANSWERS.get(name.partition(":")[0], chat)
    async with serving(stream(answer(OSLO))) as server:
        values = [one async for one in Agent(at(server, name), output=City).stream_output("?")]
    assert values[-1] == CITY
    assert len(values) > 4
    first = next(one for one in values if one.name)
    assert "Oslo".startswith(first.name)
    assert first.people is None
    assert first.rivers == []
    assert all(isinstance(one, City) for one in values)


async def test_values_in_the_arguments_of_the_tool_are_seen_too():
    whole = ToolCall("final_answer", {"value": [1, 20, 3]}, "c1")
    deltas = [ToolArgumentsDelta(ToolCall("final_answer", {}, "c1"), one) for one in ('{"value": [1', ", 20, 3", "]}")]
    model = Scripted([*deltas, whole])
    values = [one async for one in Agent(model, output=list[int]).stream_output("?")]
    assert values[-1] == [1, 20, 3]
    assert values[0] in ([], [1])


async def test_a_run_without_an_answer_raises_and_so_does_an_agent_without_a_type():
    with pytest.raises(ToolError, match="ended without one"):
        [one async for one in Agent(Scripted(*["no"] * 10), output=City).stream_output("?")]
    with pytest.raises(ToolError, match="no output type"):
        [one async for one in Agent(Scripted("Hi")).stream_output("?")]


async def test_a_json_schema_is_a_type_of_answers_too():
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 2}}, "required": ["n"]}
    model = Scripted(ToolCall("final_answer", {"n": 1}), ToolCall("final_answer", {"n": 2}))
    result = await Agent(model, output=schema).run("?")
    assert result.output == {"n": 2}
    assert result.turns == 2
    assert (await Agent(Scripted("[1, 2]"), output={"type": "array"}).run("?")).output == [1, 2]


@dataclass
class Point:
    x: int
    y: int = 5


class Sky(TypedDict):
    clouds: int
    birds: list[str]


@pytest.mark.parametrize(
    ("wanted", "data", "value"),
    [
        (Point, {"x": 1}, Point(1)),
        (Sky, {"birds": ["tit"]}, {"birds": ["tit"]}),
        (tuple[int, str], [1], (1,)),
        (dict[str, City], {"a": {"name": "Os"}}, {"a": City.model_construct(name="Os", people=None, rivers=[])}),
        (Cat | Dog, {"kind": "dog"}, Dog.model_construct(kind="dog", tricks=None)),
        (list[int] | None, [1, "x"], [1]),
        (int, "x", MISSING),
        (Literal["yes", "no"], "ye", MISSING),
    ],
    ids=["dataclass", "dictionary", "tuple", "mapping", "union", "optional", "number", "word"],
)
def test_unfinished_data_becomes_a_value_of_the_type(wanted, data, value):
    assert build_partial(wanted, data) == value


def test_an_unfinished_dataclass_has_every_field():
    point = build_partial(Point, {"y": 2})
    assert (point.x, point.y) == (None, 2)
