"""What a provider leaves out of its prompt: asked for, told, and counted; the history stays whole."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

import pytest
from anthropic.types.beta.message_create_params import MessageCreateParamsStreaming as BetaParams
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming

from forge import (
    Agent,
    ContextRules,
    Limits,
    Price,
    Tool,
    ToolCall,
    ToolRegistry,
    messages_from_json,
    messages_to_json,
    rules,
)
from forge.events import ContextShortened
from forge.models import Anthropic, OpenAIResponses, explain_cache
from forge.tools.tool_search import ToolSearch
from tests.models.oracle import problems
from tests.models.serving import Reply, Server, named_sse, serving, stream

SMALL, LARGE = 2_000, 90_000  # tokens of a prompt
BLOCK = {"type": "compaction", "content": "All was fine.", "encrypted_content": "ENC=="}


def model(api: str, server: Server) -> Anthropic | OpenAIResponses:
    if api == "anthropic":
        return Anthropic("claude-sonnet-5", base_url=server.url, api_key="key", loads_found_tools=True)
    return OpenAIResponses("gpt-5.4", base_url=f"{server.url}/v1", api_key="key", loads_found_tools=True)


def said(api: str, turn: str | ToolCall, tokens: int, *, compacted: bool = False, cleared: int = 0) -> Reply:
    """An answer, before which the provider may have left something out."""
    if api == "openai":
        item: dict[str, Any] = {"type": "message", "id": "m", "role": "assistant", "content": []}
        if isinstance(turn, ToolCall):
            arguments = json.dumps(turn.arguments)
            item = {"type": "function_call", "id": "f", "name": turn.name, "call_id": turn.id, "arguments": arguments}
        else:
            item["content"] = [{"type": "output_text", "text": turn, "annotations": []}]
        first = [{"type": "compaction", "id": "cmp_1", "encrypted_content": "ENC=="}] if compacted else []
        usage = {"input_tokens": tokens, "output_tokens": 9, "total_tokens": tokens + 9}
        done = {"object": "response", "status": "completed", "output": [*first, item], "usage": usage}
        return stream(named_sse(("response.completed", {"type": "response.completed", "response": done})))
    usage = {"input_tokens": tokens, "output_tokens": 9}
    found: list[dict[str, Any]] = [{"type": "message_start", "message": {"role": "assistant", "usage": usage}}]
    if compacted:
        summary = {**usage, "input_tokens": LARGE, "output_tokens": 500, "type": "compaction"}
        usage = {**usage, "iterations": [summary, {**usage, "type": "message"}]}  # type: ignore[dict-item]
        found += [
            {"type": "content_block_start", "index": 0, "content_block": {"type": "compaction", "content": None}},
            {"type": "content_block_delta", "index": 0, "delta": {**BLOCK, "type": "compaction_delta"}},
        ]
    if isinstance(turn, ToolCall):
        block: dict[str, Any] = {"type": "tool_use", "id": turn.id, "name": turn.name, "input": turn.arguments}
    else:
        block = {"type": "text", "text": turn}
    found.append({"type": "content_block_start", "index": 1, "content_block": block})
    edits = [{"type": "clear_tool_uses_20250919", "cleared_tool_uses": cleared, "cleared_input_tokens": 700}]
    stop = {"stop_reason": "tool_use" if isinstance(turn, ToolCall) else "end_turn"}
    managed = {"context_management": {"applied_edits": edits}} if cleared else {}
    found.append({"type": "message_delta", "delta": stop, "usage": usage, **managed})
    return stream(named_sse(*((event["type"], event) for event in [*found, {"type": "message_stop"}])))


PROMPT = "word " * 50_000  # long enough for a summary of ours


def talk() -> Tool:
    """A tool with a long result, another one for each call."""
    told, schema = count(), {"type": "object", "properties": {}}
    return Tool.from_schema("talk", "Talk.", schema, lambda **_: f"It is story {next(told)}. " * 150)


def calls(number: int) -> list[ToolCall]:
    return [ToolCall("talk", {}, f"call_{at}") for at in range(number)]


@pytest.mark.parametrize(
    ("given", "edits", "betas"),
    [
        (
            {"compact": 150_000},
            [{"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": 150_000}}],
            "context-management-2025-06-27,compact-2026-01-12",
        ),
        (
            {"clear_results": 80_000, "clear_thinking": 2},
            [
                {"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 2}},
                {"type": "clear_tool_uses_20250919", "trigger": {"type": "input_tokens", "value": 80_000}},
            ],
            "context-management-2025-06-27",
        ),
        (
            {"edits": [{"type": "clear_tool_uses_20250919", "keep": {"type": "tool_uses", "value": 1}}]},
            [{"type": "clear_tool_uses_20250919", "keep": {"type": "tool_uses", "value": 1}}],
            "context-management-2025-06-27",
        ),
        (None, None, None),
    ],
)
async def test_anthropic_is_asked_in_its_own_words(given, edits, betas):
    async with serving(said("anthropic", "Hi.", SMALL)) as server:
        await Agent(model("anthropic", server), options={"context_management": given}).run("Hello")
    (asked,) = server.asked
    assert problems(asked.body, BetaParams) == []
    assert asked.body.get("context_management") == ({"edits": edits} if edits else None)
    assert asked.headers.get("anthropic-beta") == betas


async def test_openai_is_asked_in_its_own_words():
    async with serving(said("openai", "Hi.", SMALL)) as server:
        await Agent(model("openai", server), options={"context_management": {"compact": 90_000}}).run("Hello")
        await Agent(model("openai", server)).run("Hello")
    with_edits, without = server.bodies
    assert problems(with_edits, ResponseCreateParamsStreaming) == []
    assert with_edits["context_management"] == [{"type": "compaction", "compact_threshold": 90_000}]
    assert "context_management" not in without


@pytest.mark.parametrize(
    ("api", "given", "says"),
    [
        ("openai", {"clear_results": 9}, "cannot have clear_results: '9'"),
        ("anthropic", {"compact": 0}, "cannot have compact: '0'"),
        ("anthropic", {"shorten": 9}, "cannot have shorten: '9'"),
        ("anthropic", "much", "cannot have much"),
    ],
)
async def test_other_wishes_are_refused(api, given, says):
    async with serving(said(api, "Hi.", SMALL)) as server:
        result = await Agent(model(api, server), options={"context_management": given}).run("Hello")
    assert result.error is not None
    assert says in result.error.message
    assert server.asked == []


@pytest.mark.parametrize("api", ["anthropic", "openai"])
async def test_a_summary_of_the_provider_replaces_ours(api):
    """The provider counts a small prompt from then on, so ours is not needed; the history keeps every message."""
    events: list[Any] = []
    first, second, third = calls(3)
    replies = [
        *(said(api, first, SMALL), said(api, second, 71_000)),
        *(said(api, third, SMALL, compacted=True), said(api, "Done.", SMALL + 500), said(api, "Yes.", SMALL)),
    ]
    async with serving(*replies) as server:
        provider = explain_cache(model(api, server))
        agent = Agent(
            provider,
            tools=[talk()],
            policy=rules("allow read"),
            options={"context_management": {"compact": 60_000}},
            context=ContextRules(window=LARGE),
            limits=Limits(price=Price(input=1, output=0)),
        )
        agent.activity.subscribe(events.append)
        result = await agent.run(PROMPT)
        assert len(server.bodies) == 4  # none of them for a summary of ours
        again = await agent.run("And?", history=messages_from_json(messages_to_json(result.messages)))
    assert (result.text, again.text) == ("Done.", "Yes.")
    assert [message.call_id for message in result.messages if message.role == "tool"] == ["call_0", "call_1", "call_2"]
    (shortened,) = [event for event in events if isinstance(event, ContextShortened) and event.by]
    assert (shortened.by, shortened.summaries) == ("provider", 1)
    assert "context edited by the provider" in {turn.cause for turn in provider.turns}
    paid = sum(message.usage.input for message in result.messages) + (LARGE if api == "anthropic" else 0)
    assert result.usage.input == paid
    assert result.cost == pytest.approx(paid / 1e6)
    last = server.bodies[-1]
    if api == "anthropic":
        assert [block for turn in last["messages"] for block in turn["content"] if block["type"] == "compaction"] == [
            BLOCK
        ]
        assert problems(last, BetaParams) == []
    else:
        assert last["input"][0] == {"type": "compaction", "id": "cmp_1", "encrypted_content": "ENC=="}
        assert "call_0" not in json.dumps(last)
        assert problems(last, ResponseCreateParamsStreaming) == []


async def test_without_it_the_summary_is_ours():
    first, second = calls(2)
    replies = [said("anthropic", first, 60_000), said("anthropic", second, 80_000), said("anthropic", "A summary.", 9)]
    async with serving(*replies, said("anthropic", "Done.", SMALL)) as server:
        agent = Agent(
            model("anthropic", server), tools=[talk()], policy=rules("allow read"), context=ContextRules(window=LARGE)
        )
        assert (await agent.run(PROMPT)).text == "Done."
    assert "Summary of the conversation" in json.dumps(server.bodies[-1])


async def test_what_is_cleared_is_told_once_and_kept():
    events: list[Any] = []
    first, second, third = calls(3)
    replies = [said("anthropic", first, SMALL), said("anthropic", second, SMALL, cleared=1)]
    replies += [said("anthropic", third, SMALL, cleared=1), said("anthropic", "Done.", SMALL, cleared=2)]
    async with serving(*replies) as server:
        options = {"context_management": {"clear_results": 1_000}}
        agent = Agent(model("anthropic", server), tools=[talk()], policy=rules("allow read"), options=options)
        agent.activity.subscribe(events.append)
        result = await agent.run("Go.")
    told = [event for event in events if isinstance(event, ContextShortened) and event.by]
    assert [(event.by, event.outputs, event.tokens) for event in told] == [("provider", 1, 700), ("provider", 2, 700)]
    assert sum("It is story" in message.text for message in result.messages) == 3
    assert len([block for turn in server.bodies[-1]["messages"] for block in turn["content"]]) == 7  # all are sent


@pytest.mark.parametrize("api", ["anthropic", "openai"])
@pytest.mark.parametrize("compacted", [True, False])
async def test_a_tool_that_was_found_before_a_summary_comes_beside_the_others(api, compacted):
    schema = {"type": "object", "properties": {}}
    registry = ToolRegistry([Tool.from_schema("weather_tell", "The weather.", schema, lambda **_: "Sun.", hidden=True)])
    registry.add(ToolSearch(registry))
    replies = [said(api, ToolCall("tool_search", {"query": "weather"}, "s"), SMALL)]
    replies += [said(api, ToolCall("weather_tell", {}, "w"), SMALL, compacted=compacted), said(api, "Done.", SMALL)]
    async with serving(*replies) as server:
        result = await Agent(model(api, server), tools=registry, policy=rules("allow read")).run("How is it?")
    assert result.text == "Done."
    last = server.bodies[-1]
    beside = [one.get("name") for one in last["tools"] if not one.get("defer_loading")]
    assert ("weather_tell" in beside) is compacted
    assert problems(last, BetaParams if api == "anthropic" else ResponseCreateParamsStreaming) == []
