"""The Messages API, judged by the types of Anthropic's own package: what we send, and what we read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from anthropic import AsyncAnthropic
from anthropic.types import RawMessageStreamEvent
from anthropic.types.message_create_params import MessageCreateParamsStreaming
from pydantic import TypeAdapter

from forge import Agent, Attachment, Message, ToolCall, Usage, tool
from forge.core.messages import export_message, import_message
from forge.core.spec import ToolSpec
from forge.events import Retrying
from forge.models import Anthropic, ModelRequest
from forge.models.http import post
from tests.models.oracle import problems
from tests.models.serving import Server, named_sse, refusal, serving, stream

KEY = "sk-ant-0123456789abcdef"
HELLO = Message("user", "Hello")
PNG = b"\x89PNG\r\n\x1a\n" + bytes(8)
WEATHER = ToolSpec(
    name="weather",
    description="Tell the weather.",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
USAGE = {"input_tokens": 10, "output_tokens": 1, "cache_read_input_tokens": 80, "cache_creation_input_tokens": 10}


def events(*blocks: tuple[dict[str, Any], list[dict[str, Any]]], stop: str = "tool_use") -> bytes:
    """A stream that Anthropic's own types accept: each block with its deltas."""
    start = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": USAGE}
    found: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**start, "stop_reason": None, "stop_sequence": None}},
        {"type": "ping"},
    ]
    for index, (block, deltas) in enumerate(blocks):
        found.append({"type": "content_block_start", "index": index, "content_block": block})
        found += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        found.append({"type": "content_block_stop", "index": index})
    end = {"stop_reason": stop, "stop_sequence": None}
    found += [
        {"type": "message_delta", "delta": end, "usage": {**USAGE, "output_tokens": 25}},
        {"type": "message_stop"},
    ]
    for event in found:
        if event["type"] != "ping":
            EVENT.validate_python(event)
    return named_sse(*((event["type"], event) for event in found))


THINKS = (
    {"type": "thinking", "thinking": "", "signature": ""},
    [
        {"type": "thinking_delta", "thinking": "Which "},
        {"type": "thinking_delta", "thinking": "city?"},
        {"type": "signature_delta", "signature": "sig=="},
    ],
)
HIDDEN: tuple[dict[str, Any], list[dict[str, Any]]] = ({"type": "redacted_thinking", "data": "secret=="}, [])
SPEAKS = ({"type": "text", "text": "", "citations": None}, [{"type": "text_delta", "text": "I look."}])
CALLS = (
    {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}},
    [
        {"type": "input_json_delta", "partial_json": '{"city": '},
        {"type": "input_json_delta", "partial_json": '"Zürich"}'},
    ],
)
ANSWERS = ({"type": "text", "text": "", "citations": None}, [{"type": "text_delta", "text": "Sun."}])


def at(server: Server, **changes: Any) -> Anthropic:
    return Anthropic("claude-sonnet-5", base_url=server.url, api_key=KEY, **changes)


async def sent(*messages: Message, tools: Any = (WEATHER,), thinking: Any = None, **options: Any) -> dict[str, Any]:
    """The body of the request, after Anthropic's own types have accepted it."""
    async with serving(stream(events(ANSWERS, stop="end_turn"))) as server:
        request = ModelRequest(messages=list(messages or [HELLO]), tools=tools, options=options)
        [_ async for _ in at(server, thinking=thinking).stream(request)]
    found = server.bodies[0]
    assert problems(found, MessageCreateParamsStreaming) == []
    return found


async def test_their_client_reads_the_same_as_ours():
    body = events(THINKS, SPEAKS, CALLS)
    async with serving(stream(body)) as server:
        *_, ours = [one async for one in at(server).stream(ModelRequest(messages=[HELLO]))]
        client = AsyncAnthropic(base_url=server.url, api_key=KEY, max_retries=0)
        asked: Any = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}
        async with client.messages.stream(**asked) as theirs:
            final = await theirs.get_final_message()
        await client.close()
    assert isinstance(ours, Message)
    thought, text, use = final.content
    assert (thought.type, text.type, use.type) == ("thinking", "text", "tool_use")
    assert text.text == ours.text
    assert (use.id, use.input) == (ours.tool_calls[0].id, json.loads(str(ours.tool_calls[0].arguments)))
    saved = ours.extra["anthropic"]["blocks"][0]
    assert (thought.thinking, thought.signature) == (saved["thinking"], saved["signature"]) == ("Which city?", "sig==")
    assert ours.usage == Usage(100, 25, cached=80, cache_writes=10)


async def test_thinking_goes_back_with_its_signature_after_a_session():
    async with serving(
        stream(events(THINKS, HIDDEN, SPEAKS, CALLS)), stream(events(ANSWERS, stop="end_turn"))
    ) as server:
        provider = at(server, thinking=2000)
        *_, message = [one async for one in provider.stream(ModelRequest(messages=[HELLO], tools=[WEATHER]))]
        assert isinstance(message, Message)
        stored = import_message(json.loads(json.dumps(export_message(message))))
        history = [HELLO, stored, Message("tool", "sun", call_id="toolu_1")]
        [_ async for _ in provider.stream(ModelRequest(messages=history, tools=[WEATHER]))]
    again = server.bodies[1]
    assert problems(again, MessageCreateParamsStreaming) == []
    assert [block["type"] for block in again["messages"][1]["content"]] == [
        *("thinking", "redacted_thinking", "text", "tool_use")
    ]
    assert again["messages"][1]["content"][0] == {"type": "thinking", "thinking": "Which city?", "signature": "sig=="}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_tokens": 99, "stop": ["END"]},
        {"reasoning_effort": "high"},
        {"reasoning_effort": "none"},
        {"thinking": 1024},
        {"thinking": "adaptive"},
        {"tool_choice": "required"},
        {"tool_choice": "weather", "parallel_tool_calls": False},
        {"tool_choice": "none"},
    ],
    ids=str,
)
async def test_their_types_accept_every_request(options):
    files = (Attachment("image/png", PNG), Attachment("application/pdf", b"%PDF-", "a.pdf"), Attachment("a/b", b"x"))
    called = Message(
        "assistant", "I look.", (ToolCall("weather", {"city": "x"}, "c1"), ToolCall("weather", "{no", "c2"))
    )
    await sent(
        Message("system", "Be kind."),
        Message("user", "see", attachments=files),
        called,
        Message("tool", "seen", call_id="c1", attachments=files),
        Message("tool", "wrong", call_id="c2", is_error=True),
        **options,
    )


async def test_the_effort_of_reasoning_is_spelled_as_the_api_does():
    assert (await sent(reasoning_effort="high"))["output_config"] == {"effort": "high"}
    assert (await sent(reasoning_effort="minimal"))["output_config"] == {"effort": "low"}
    silent = await sent(reasoning_effort="none", thinking=2000)
    assert (silent["thinking"], "output_config" in silent) == ({"type": "disabled"}, False)


async def test_at_most_four_parts_are_marked_for_the_cache():
    history = [Message("system", "Be kind."), HELLO]
    for number in range(6):
        call = ToolCall("weather", {"city": "x"}, f"c{number}")
        history += [Message("assistant", tool_calls=(call,)), Message("tool", "sun", call_id=call.id)]
    found = await sent(*history)
    assert json.dumps(found).count("cache_control") == 4
    assert "cache_control" in found["tools"][-1]
    assert "cache_control" in found["system"][-1]
    marked = ["cache_control" in turn["content"][-1] for turn in found["messages"] if turn["role"] == "user"]
    assert marked == [False] * 5 + [True] * 2


@pytest.mark.parametrize("status", [429, 529])
async def test_a_busy_server_is_asked_again_and_said(status, monkeypatch):
    async def pause(seconds):
        pass

    monkeypatch.setattr(post, "pause", pause)
    busy = refusal(status, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})
    async with serving(busy, stream(events(ANSWERS, stop="end_turn"))) as server:
        parts = [one async for one in at(server).stream(ModelRequest(messages=[HELLO]))]
    (retry,) = [part for part in parts if isinstance(part, Retrying)]
    assert (retry.status, retry.attempt) == (status, 1)


async def test_an_agent_thinks_calls_and_answers():
    @tool
    def weather(city: str) -> str:
        """Tell the weather."""
        return f"sun in {city}"

    async with serving(stream(events(THINKS, CALLS)), stream(events(ANSWERS, stop="end_turn"))) as server:
        result = await Agent(at(server, thinking="adaptive"), tools=[weather]).run("Weather?")
    assert (result.text, result.usage.cached, result.usage.cache_writes) == ("Sun.", 160, 20)
    assert problems(server.bodies[1], MessageCreateParamsStreaming) == []
    assert server.bodies[1]["messages"][-1]["content"][0]["content"] == [{"type": "text", "text": "sun in Zürich"}]
