"""What MCP clients are told of a tool's data, and that the data fits: the client of the SDK refuses what does not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import pytest
from mcp import Client
from pydantic import BaseModel, ConfigDict

from forge import Scope, ToolContext, ToolRegistry, ToolResult, approve_all, tool
from forge.core.tool import Tool
from forge.mcp.server import protocol_json
from forge.mcp.server.handlers import make_server
from forge.mcp.server.offer import Offer
from forge.mcp.server.protocol_json import NOTE, OutputShape
from forge.pipeline import standard_executor


class Weather(BaseModel):
    model_config = ConfigDict(extra="forbid")
    place: str
    degrees: float


class Folder(BaseModel):
    name: str
    inside: list[Folder] = []


@tool
def weather(place: str) -> Weather:
    """Tell the weather."""
    return Weather(place=place, degrees=3.5)


@tool
def folders() -> Folder:
    """Tell the folders."""
    return Folder(name="a", inside=[Folder(name="b")])


@tool
def numbers(to: int) -> list[int]:
    """Tell some numbers."""
    return list(range(to))


@tool
def count(text: str) -> int:
    """Count."""
    return len(text)


@tool
def is_long(text: str) -> bool:
    """Tell whether it is long."""
    return len(text) > 3


@tool
def find(text: str) -> int | None:
    """Find it."""
    return None


@tool
def colour() -> Literal["red", "blue"]:
    """Tell the colour."""
    return "red"


@tool
def ages() -> dict[str, int]:
    """Tell the ages."""
    return {"Ada": 36}


@tool
def shout(text: str) -> str | None:
    """Shout."""
    return text.upper()


@tool
def lie() -> Weather:
    """Tell the weather wrongly."""
    return {"place": 3}  # type: ignore[return-value]


@tool
def fail() -> Weather:
    """Fail."""
    raise ValueError("no weather")


@tool
def later(ctx: ToolContext) -> Weather:
    """Tell the weather later."""

    async def work() -> str:
        return "rain"

    return ctx.background(work, "It is looked up.")  # type: ignore[return-value]


@asynccontextmanager
async def client_of(*tools: Tool) -> AsyncIterator[Client]:
    offer = Offer(standard_executor(ToolRegistry(tools), approve=approve_all), Scope())
    async with offer.open(), Client(make_server(offer), cache=None) as client:
        yield client


def text(answer: Any) -> str:
    return "\n".join(block.text for block in answer.content if block.type == "text")


@pytest.mark.parametrize(
    ("made", "arguments", "structured"),
    [
        (weather, {"place": "Oslo"}, {"place": "Oslo", "degrees": 3.5}),
        (folders, {}, {"name": "a", "inside": [{"name": "b", "inside": []}]}),
        (numbers, {"to": 3}, {"result": [0, 1, 2]}),
        (count, {"text": "abc"}, {"result": 3}),
        (is_long, {"text": "abc"}, {"result": False}),
        (find, {"text": "abc"}, {"result": None}),
        (colour, {}, {"result": "red"}),
        (ages, {}, {"Ada": 36}),
    ],
    ids=lambda one: one.spec.name if isinstance(one, Tool) else "",
)
async def test_data_is_offered_with_its_schema_and_fits_it(
    made: Tool, arguments: dict[str, Any], structured: dict[str, Any]
) -> None:
    async with client_of(made) as client:
        (listed,) = (await client.list_tools()).tools
        assert listed.output_schema is not None
        assert listed.output_schema["type"] == "object"
        answer = await client.call_tool(made.spec.name, arguments)
        assert answer.structured_content == structured
        assert not answer.is_error


async def test_text_is_content_and_no_data() -> None:
    async with client_of(shout) as client:
        (listed,) = (await client.list_tools()).tools
        assert listed.output_schema is None
        assert (await client.call_tool("shout", {"text": "a"})).structured_content is None


async def test_a_result_that_is_not_what_the_function_said_is_a_note() -> None:
    async with client_of(lie, later) as client:
        assert list((await client.call_tool("lie", {})).structured_content) == [NOTE]
        answer = await client.call_tool("later", {})
        assert answer.structured_content == {NOTE: "The work continues in the background."}
        assert "looked up" in text(answer)


async def test_an_error_needs_no_data() -> None:
    async with client_of(fail) as client:
        answer = await client.call_tool("fail", {})
        assert answer.is_error
        assert "no weather" in text(answer)


async def test_arguments_that_were_repaired_do_not_keep_the_data_away() -> None:
    @tool
    def doubled(ages: dict[str, int]) -> dict[str, int]:
        """Double the ages."""
        return {name: 2 * age for name, age in ages.items()}

    async with client_of(doubled) as client:
        answer = await client.call_tool("doubled", {"ages": '{"Ada": 36}'})
        assert answer.structured_content == {"Ada": 72}


@pytest.mark.slow
async def test_a_list_that_is_too_long_for_the_text_is_a_note() -> None:
    async with client_of(numbers) as client:
        answer = await client.call_tool("numbers", {"to": 100_000})
        assert list(answer.structured_content) == [NOTE]
        assert not answer.is_error


async def test_a_schema_that_is_wrong_is_left_out_and_the_tool_is_offered(caplog: pytest.LogCaptureFixture) -> None:
    spec = count.spec.changed(name="count_wrongly", returns={"type": "no such type"})
    wrong = tool(name="count_wrongly")(count.run)
    wrong.spec = spec
    async with client_of(wrong, count) as client:
        listed = {one.name: one.output_schema for one in (await client.list_tools()).tools}
        assert listed["count_wrongly"] is None
        assert listed["count"] is not None
        assert not (await client.call_tool("count_wrongly", {"text": "abc"})).is_error
    assert "count_wrongly is offered without an output schema" in caplog.text


def test_words_after_a_value_are_not_part_of_it() -> None:
    shape = OutputShape({"type": "integer"})
    assert shape.fit(ToolResult.text("3\nThe person approved this and said: 4")) == {"result": 3}
    assert NOTE in shape.fit(ToolResult.text("three"))


def test_data_that_is_too_large_to_be_sent_is_a_note() -> None:
    large = ToolResult(for_llm="much", data={"place": "x" * (protocol_json.MAX_STRUCTURED + 1), "degrees": 1.0})
    answer = protocol_json.result(large, "1", weather.spec)
    assert answer["structuredContent"] == {NOTE: "The data is too large to send."}
    assert answer["_meta"]["forge/structured_left_out"] > protocol_json.MAX_STRUCTURED
