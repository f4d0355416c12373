"""What a provider reads from its cache: found tools leave it whole, and each break has its cause."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from anthropic.types.message_create_params import MessageCreateParamsStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming

from forge import (
    Agent,
    ContextRules,
    Message,
    RunResult,
    Scripted,
    Tool,
    ToolCall,
    ToolRegistry,
    messages_from_json,
    messages_to_json,
    rules,
)
from forge.agent import TurnContext
from forge.agent.summary import summarise
from forge.core.messages import SUMMARY_HEADING
from forge.models import Anthropic, ExplainedModel, OpenAIResponses, explain_cache
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


# Each break of the cache has its cause.

LONG = "This is a long answer of a tool. " * 200


def wordy(name: str, hidden: bool = False) -> Tool:
    """A tool with a long result, another one for each call."""
    told, schema = count(), {"type": "object", "properties": {}}
    return Tool.from_schema(name, "Tell a lot.", schema, lambda **_: f"{next(told)}. {LONG}", hidden=hidden)


def calls(number: int, name: str = "talk") -> list[str | ToolCall]:
    return [*(ToolCall(name, {}, f"call_{at}") for at in range(number)), "Done."]


@pytest.mark.parametrize(("api", "loads"), [("anthropic", True), ("openai", True), ("anthropic", False)])
async def test_what_is_paid_again_is_what_the_provider_did_not_read(api, loads):
    made = ToolRegistry([wordy("talk"), wordy("rare_talk", hidden=True)])
    made.add(ToolSearch(made))
    said: list[str | ToolCall] = [
        *calls(3)[:-1],
        ToolCall("tool_search", {"query": "rare_talk"}, "b"),
        *(ToolCall("rare_talk", {}, "c"), ToolCall("talk", {}, "d"), "Done."),
    ]
    async with serving(played(api, said)) as server:
        explained = explain_cache(model(api, server, loads))
        await Agent(explained, tools=made, policy=rules("allow read")).run("Talk.")
    causes = [turn.cause for turn in explained.turns]
    assert causes == [*[""] * 4, "" if loads else "tools changed: added rare_talk", "", ""]
    assert all(turn.cached > 1_024 for turn in explained.turns[3:] if not turn.cause)
    broken = explained.turns[4].again
    assert broken < 128 if loads else broken > explained.turns[3].sent * 0.8
    assert len(explained.table().splitlines()) == 10
    assert ("0 breaks" if loads else "1 break") in explained.table()


async def test_a_change_of_the_instructions_is_named():
    async with serving(CachingAnthropic([*calls(2), "Yes."])) as server:
        explained = explain_cache(model("anthropic", server))
        agent = Agent(explained, tools=[wordy("talk")], instructions="Be brief.", policy=rules("allow read"))
        first = await agent.run("Talk.", session="ada")
        again = agent.replace(instructions="Be long.")
        await again.run("And?", session="ada", history=[one for one in first.messages if one.role != "system"])
    assert [turn.cause for turn in explained.turns] == ["", "", "", "system prompt changed"]


async def test_a_summary_is_named():
    async with serving(CachingAnthropic([*calls(2), "Yes."])) as server:
        explained = explain_cache(model("anthropic", server))
        agent = Agent(explained, tools=[wordy("talk")], policy=rules("allow read"))
        await agent.run("Talk.", session="ada")
        await agent.run("And?", session="ada", history=[Message("user", f"{SUMMARY_HEADING}\nIt talked.")])
    assert explained.turns[-1].cause == "history rewritten: a summary stands for older messages"


async def test_an_output_that_was_left_out_is_named():
    async with serving(CachingAnthropic(calls(6))) as server:
        explained = explain_cache(model("anthropic", server))
        context = ContextRules(clear_outputs=500, keep_turns=1, refer_to_repeats=False)
        await Agent(explained, tools=[wordy("talk")], policy=rules("allow read"), context=context).run("Talk.")
    causes = {turn.cause for turn in explained.turns}
    assert causes == {"", "history rewritten: an old output was left out"}


async def test_another_model_is_named():
    async with serving(CachingAnthropic([*calls(2), "Yes."])) as server:
        two = [Anthropic(name, base_url=server.url, api_key="key") for name in ("claude-sonnet-5", "claude-opus-5")]
        explained = explain_cache(two[0])
        agent = Agent(explained, tools=[wordy("talk")], policy=rules("allow read"))
        first = await agent.run("Talk.", session="ada")
        explained.provider = two[1]
        await agent.run("And?", session="ada", history=first.messages)
    assert explained.turns[-1].cause == "model changed: from claude-sonnet-5 to claude-opus-5"


@pytest.mark.parametrize(
    ("minutes", "cause"),
    [
        (7, "expired: the request before was 7 minutes ago"),
        (1, "no longer in the provider's cache, though the prompt only grew"),
    ],
)
async def test_a_prompt_that_expired_is_told_from_one_that_changed(minutes, cause):
    times = iter([0.0, 1.0, 2.0, 60.0 * minutes + 2, 60.0 * minutes + 3])
    async with serving(CachingAnthropic(calls(4), expire_before=4)) as server:
        explained = ExplainedModel(model("anthropic", server), clock=lambda: next(times))
        await Agent(explained, tools=[wordy("talk")], policy=rules("allow read")).run("Talk.")
    assert [turn.cause for turn in explained.turns] == ["", "", "", cause, ""]


async def test_a_summary_beside_the_turns_is_no_turn():
    async with serving(CachingAnthropic([*calls(3), "A summary.", "Yes."])) as server:
        explained = explain_cache(model("anthropic", server))
        agent = Agent(explained, tools=[wordy("talk")], policy=rules("allow read"))
        result = await agent.run("Talk.", session="ada")
        assert (await summarise(explained, result.messages)).text
    assert len(explained.turns) == len(server.bodies) - 1 == 4


def test_no_request_is_told():
    assert explain_cache(Scripted("Hi")).table() == "prompt cache: no request was sent"


@pytest.mark.parametrize("api", ["anthropic", "openai"])
async def test_tools_that_are_chosen_for_a_turn_are_all_sent_beside_each_other(api):
    def choose(ctx: TurnContext) -> list[str]:
        return ["tool_search"] if ctx.turn == 2 else ["tool_search", "weather_tell"]

    said: list[str | ToolCall] = [ToolCall("tool_search", {"query": "weather"}, "s"), "I wait.", "Done."]
    async with serving(played(api, said)) as server:
        provider = model(api, server)
        agent = Agent(provider, tools=registry(), policy=rules("allow read"), choose_tools=choose)
        first = await agent.run("How is it?")
        await agent.run("And now?", history=first.messages)
    assert provider.loads_found_tools  # nothing was refused
    names = [[one.get("name") for one in beside(body)] for body in server.bodies]
    assert ["weather_tell" in one for one in names] == [True, False, True]
    assert all("tool_reference" not in str(body) and "tool_search_call" not in str(body) for body in server.bodies)
    assert [problems(body, TYPES[api]) for body in server.bodies] == [[], [], []]
