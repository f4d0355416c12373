"""What a provider reads from its cache: found tools leave it whole, and each break has its cause."""

from __future__ import annotations

from typing import Any

import pytest
from anthropic.types.message_create_params import MessageCreateParamsStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming

from forge import Agent, Message, RunResult, Tool, ToolCall, ToolRegistry, messages_from_json, messages_to_json, rules
from forge.models import Anthropic, OpenAIResponses
from forge.tools.tool_search import ToolSearch
from tests.models.caching import CachingAnthropic, CachingOpenAI
from tests.models.oracle import problems
from tests.models.serving import Server, refusal, serving

THINGS = ("weather", "invoice", "customer", "ticket")
TYPES = {"anthropic": MessageCreateParamsStreaming, "openai": ResponseCreateParamsStreaming}


def registry() -> ToolRegistry:
    """A search and a few tools, which are hidden."""
    made = ToolRegistry(
        Tool.from_schema(
            f"{thing}_tell",
            f"Tell all about the {thing}.",
            {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]},
            lambda **_: "It is fine.",
            hidden=True,
        )
        for thing in THINGS
    )
    made.add(ToolSearch(made))
    return made


def turns(*names: str) -> list[str | ToolCall]:
    """A search for each thing and a call of the tool that it finds, then an answer."""
    found: list[str | ToolCall] = []
    for number, name in enumerate(names):
        found += [
            ToolCall("tool_search", {"query": name}, f"search_{number}"),
            ToolCall(f"{name}_tell", {"id": "7"}, f"call_{number}"),
        ]
    return [*found, "Done."]


def played(api: str, said: list[str | ToolCall]) -> CachingAnthropic | CachingOpenAI:
    return CachingAnthropic(said) if api == "anthropic" else CachingOpenAI(said)


def model(api: str, server: Server, loads: bool | None = True) -> Anthropic | OpenAIResponses:
    if api == "anthropic":
        return Anthropic("claude-sonnet-5", base_url=server.url, api_key="key", loads_found_tools=loads)
    return OpenAIResponses("gpt-5.4", base_url=f"{server.url}/v1", api_key="key", loads_found_tools=loads)


async def run(api: str, server: Server, loads: bool | None = True, **more: Any) -> RunResult[Any]:
    agent = Agent(model(api, server, loads), tools=registry(), policy=rules("allow read"), instructions="Be brief.")
    result = await agent.run(more.pop("prompt", "How is it?"), **more)
    for body in server.bodies:
        assert problems(body, TYPES[api]) == []
    return result


def beside(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The definitions that are part of the prompt's beginning."""
    return [one for one in body["tools"] if not one.get("defer_loading")]


@pytest.mark.parametrize("api", ["anthropic", "openai"])
async def test_a_found_tool_is_loaded_where_it_was_found(api):
    async with serving(played(api, turns("weather", "invoice"))) as server:
        result = await run(api, server)
    assert result.text == "Done."
    assert [message.text for message in result.messages if message.call_id == "call_1"] == ["It is fine."]
    first, *_, last = server.bodies
    marked = [{**one, "cache_control": None} for one in beside(first)]
    assert [{**one, "cache_control": None} for one in beside(last)] == marked
    if api == "anthropic":
        later = [one["name"] for one in last["tools"] if one.get("defer_loading")]
        assert later == ["weather_tell", "invoice_tell"]
        assert last["messages"][2]["content"][0]["content"] == [{"type": "tool_reference", "tool_name": "weather_tell"}]
    else:
        search, output = last["input"][1:3]
        assert (search["type"], search["arguments"]) == ("tool_search_call", {"query": "weather"})
        assert (output["type"], output["call_id"]) == ("tool_search_output", search["call_id"])
        assert [(one["name"], one["defer_loading"]) for one in output["tools"]] == [("weather_tell", True)]
    for before, after in zip(server.bodies, server.bodies[1:], strict=False):  # the history only grows
        key = "messages" if api == "anthropic" else "input"
        unmarked = [unmark(one) for one in before[key]]
        assert [unmark(one) for one in after[key]][: len(unmarked)] == unmarked


def unmark(value: Any) -> Any:
    if isinstance(value, list):
        return [unmark(one) for one in value]
    return (
        {key: unmark(one) for key, one in value.items() if key != "cache_control"} if isinstance(value, dict) else value
    )


@pytest.mark.parametrize("api", ["anthropic", "openai"])
async def test_elsewhere_a_found_tool_comes_beside_the_others(api):
    async with serving(played(api, turns("weather"))) as server:
        result = await run(api, server, loads=None)  # not the provider's own address
    assert result.text == "Done."
    assert len(beside(server.bodies[0])) + 1 == len(beside(server.bodies[-1])) == len(server.bodies[-1]["tools"])
    assert all("tool_reference" not in str(body) and "tool_search_call" not in str(body) for body in server.bodies)


@pytest.mark.parametrize("api", ["anthropic", "openai"])
async def test_a_stored_conversation_finds_its_tools_again(api):
    async with serving(played(api, turns("weather"))) as server:
        first = await run(api, server)
    stored = messages_from_json(messages_to_json(first.messages))
    said: list[str | ToolCall] = [ToolCall("weather_tell", {"id": "8"}, "again"), "Still done."]
    async with serving(played(api, said)) as server:  # another process, where no search was made
        second = await run(api, server, prompt="Again?", history=stored)
    assert second.text == "Still done."
    assert len(beside(server.bodies[0])) == 4  # three that hand over to the person, and the search
    assert "weather_tell" in str(server.bodies[0])


@pytest.mark.parametrize("api", ["anthropic", "openai"])
async def test_a_tool_that_is_gone_is_told_in_words(api):
    found = Message("tool", "- `lost_tell` - Gone.", call_id="s", extra={"found_tools": ["lost_tell"]})
    history = [Message("user", "Hi"), Message("assistant", "", (ToolCall("tool_search", {"query": "x"}, "s"),)), found]
    async with serving(played(api, ["Done."])) as server:
        result = await run(api, server, prompt="And?", history=[*history, Message("assistant", "I see.")])
    assert result.text == "Done."
    assert "- `lost_tell` - Gone." in str(server.bodies[0])
    assert "tool_reference" not in str(server.bodies[0])


@pytest.mark.parametrize("api", ["anthropic", "openai"])
async def test_a_search_without_a_result_is_told_in_words(api):
    said: list[str | ToolCall] = [ToolCall("tool_search", {"query": "zzzz"}, "s"), "Nothing."]
    async with serving(played(api, said)) as server:
        assert (await run(api, server)).text == "Nothing."
    assert "No tool matches" in str(server.bodies[-1])


@pytest.mark.parametrize(
    ("api", "says"),
    [
        ("anthropic", "messages.2.content.0: Input tag 'tool_reference' does not match any of the expected tags"),
        ("openai", "Unknown tool type: 'tool_search'"),
    ],
)
async def test_a_server_that_refuses_it_gets_the_definitions_beside_the_others(api, says):
    said = turns("weather")
    refused = refusal(400, {"error": {"type": "invalid_request_error", "message": says}})
    playing = played(api, said)
    replies: list[Any] = [playing, refused, playing] if api == "anthropic" else [refused, playing]
    async with serving(*replies) as server:
        result = await run(api, server)
    assert result.text == "Done."
    assert "tool_reference" not in str(server.bodies[-1])
    assert len(beside(server.bodies[-1])) == len(server.bodies[-1]["tools"]) == 5
    assert len(server.bodies) == 4  # it is asked for once


def test_only_known_models_at_the_providers_own_address_load_tools():
    assert Anthropic("claude-sonnet-5", api_key="k").loads_found_tools
    assert not Anthropic("claude-3-7-sonnet-latest", api_key="k").loads_found_tools
    assert not Anthropic("claude-sonnet-5", api_key="k", base_url="https://gateway.example.org").loads_found_tools
    assert OpenAIResponses("gpt-5.4", api_key="k").loads_found_tools
    assert OpenAIResponses("gpt-6-astra", api_key="k").loads_found_tools
    assert not OpenAIResponses("gpt-5.2", api_key="k").loads_found_tools
    assert not OpenAIResponses("gpt-5.4", api_key="k", base_url="https://gateway.example.org/v1").loads_found_tools


@pytest.mark.parametrize("api", ["anthropic", "openai"])
async def test_after_a_summary_a_found_tool_comes_beside_the_others(api):
    async with serving(played(api, [*turns("weather"), "Go on."])) as server:
        agent = Agent(model(api, server), tools=registry(), policy=rules("allow read"))
        await agent.run("How is it?", session="ada")
        summary = Message("user", "[Summary of the conversation so far, in place of its older messages]\nAll is fine.")
        await agent.run("And now?", session="ada", history=[summary])
    assert "weather_tell" not in str(beside(server.bodies[-2]))
    assert "weather_tell" in str(beside(server.bodies[-1]))
    assert problems(server.bodies[-1], TYPES[api]) == []
