"""What comes of an answer of the Messages API: whole, in pieces, broken, hostile."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forge.core.events import ReasoningDelta, TextDelta, ToolArgumentsDelta
from forge.core.messages import Message, ToolCall, Usage
from forge.core.provider import ModelRequest, ProviderError
from forge.models.anthropic import Anthropic, MessagesReader
from forge.models.http import post
from forge.models.http.events import EventReader, SentEvent
from tests.models.serving import CUT, RESET, Part, Reply, Server, named_sse, refusal, serving, stream

KEY = "key-that-nobody-may-see-0123456789"
EVENTS = {"Content-Type": "text/event-stream"}
ASK = ModelRequest(messages=[Message("user", "What is the weather?")])


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    async def pause(seconds: float) -> None:
        pass

    monkeypatch.setattr(post, "pause", pause)


def start(**usage: int) -> tuple[str, Any]:
    return typed("message_start", message={"id": "msg_1", "content": [], "usage": {"input_tokens": 10, **usage}})


def block(index: int, kind: str, *deltas: dict[str, Any], **fields: Any) -> list[tuple[str, Any]]:
    return [
        typed("content_block_start", index=index, content_block={"type": kind, **fields}),
        *(typed("content_block_delta", index=index, delta=delta) for delta in deltas),
        typed("content_block_stop", index=index),
    ]


def text(index: int, *pieces: str) -> list[tuple[str, Any]]:
    return block(index, "text", *({"type": "text_delta", "text": piece} for piece in pieces), text="")


def use(index: int, *pieces: str, id: str = "toolu_1", name: str = "weather", **fields: Any) -> list[tuple[str, Any]]:
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    return block(index, "tool_use", *deltas, **{"id": id, "name": name, "input": {}, **fields})


def thought(index: int, *pieces: str, signature: str = "sig==") -> list[tuple[str, Any]]:
    deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces]
    return block(index, "thinking", *deltas, {"type": "signature_delta", "signature": signature}, thinking="")


def end(reason: str | None = "end_turn", **delta: Any) -> list[tuple[str, Any]]:
    usage = {"output_tokens": 7}
    return [typed("message_delta", delta={"stop_reason": reason, **delta}, usage=usage), typed("message_stop")]


def typed(kind: str, **fields: Any) -> tuple[str, Any]:
    return kind, {"type": kind, **fields}


RICH = [
    start(cache_read_input_tokens=100, cache_creation_input_tokens=5, output_tokens=1),
    typed("ping"),
    *thought(0, "Which ", "city? 🌍"),
    *block(1, "redacted_thinking", data="b64"),
    *text(2, "Let me ", "look: ", "Zürich 🏔"),
    *use(3, "", '{"city": "Zü', 'rich", "n"', ": 1}"),
    *use(4, id="toolu_2", name="now"),
    *end("tool_use"),
]


async def asked(
    *replies: Reply, request: ModelRequest = ASK, **options: Any
) -> tuple[list[str], Message, Sequence[Any]]:
    """The texts that were streamed, the message, and the bodies the server got."""
    async with serving(*replies) as server:
        texts, message = await read(server, request, **options)
        return texts, message, server.bodies


async def read(server: Server, request: ModelRequest = ASK, **options: Any) -> tuple[list[str], Message]:
    *deltas, last = [one async for one in model(server, **options).stream(request)]
    assert isinstance(last, Message)
    return [delta.text for delta in deltas if isinstance(delta, TextDelta)], last


async def answer(*events: tuple[str, Any]) -> Message:
    texts, message, _ = await asked(stream(named_sse(*events)))
    assert "".join(texts) == message.text
    return message


async def failure(*parts: Part, reply: Reply | None = None, **options: Any) -> ProviderError:
    reply = reply or Reply(parts, headers=EVENTS)
    with pytest.raises(ProviderError) as caught:
        await asked(reply, **options)
    assert KEY not in f"{caught.value.message} {caught.value.suggestion} {caught.value!r}"
    assert caught.value.suggestion
    return caught.value


def model(server: Server, **options: Any) -> Anthropic:
    return Anthropic("claude-x", base_url=server.url, api_key=KEY, **options)


async def test_a_turn_with_thoughts_text_and_two_calls() -> None:
    texts, message, _ = await asked(stream(named_sse(*RICH)))
    assert texts == ["Let me ", "look: ", "Zürich 🏔"]
    assert message.text == "Let me look: Zürich 🏔"
    assert message.tool_calls == (
        ToolCall("weather", '{"city": "Zürich", "n": 1}', "toolu_1"),
        ToolCall("now", "{}", "toolu_2"),
    )
    assert message.finish == "calls"
    assert message.usage == Usage(input=115, output=7, cached=100, cache_writes=5)
    kept = message.extra["anthropic"]["blocks"]
    assert kept[0] == {"type": "thinking", "thinking": "Which city? 🌍", "signature": "sig=="}
    assert kept[1] == {"type": "redacted_thinking", "data": "b64"}
    assert [entry["type"] for entry in kept[2:]] == ["text", "tool_use", "tool_use"]
    assert json.loads(json.dumps(message.extra)) == message.extra


async def test_reasoning_and_arguments_are_seen_while_they_are_written() -> None:
    async with serving(stream(named_sse(*RICH))) as server:
        parts = [part async for part in model(server).stream(ASK)]
    thoughts = "".join(part.text for part in parts if isinstance(part, ReasoningDelta))
    written: dict[str, str] = {}
    for part in parts:
        if isinstance(part, ToolArgumentsDelta):
            written[part.call.id] = written.get(part.call.id, "") + part.text
    last = parts[-1]
    assert isinstance(last, Message)
    assert thoughts == last.extra["anthropic"]["blocks"][0]["thinking"] != ""
    assert written == {call.id: call.arguments for call in last.tool_calls if call.arguments != "{}"}


async def test_every_split_of_the_bytes_gives_the_same_answer() -> None:
    lines = [f"event: {name}\r\ndata: {json.dumps(data, ensure_ascii=False)}\r\n\r\n" for name, data in RICH]
    body = "".join(lines).encode()
    sizes = [stream(body, every=size) for size in (1, 2, 3, 5, 64)]
    async with serving(stream(body), *sizes) as server:
        texts, whole = await read(server)
        assert whole.text == "Let me look: Zürich 🏔"
        for _ in sizes:
            assert await read(server) == (texts, whole)
        for at in range(1, len(body)):  # without the wire, which may join what was sent apart
            reader, reading = EventReader(), MessagesReader(server.url, set(), ProviderError)
            events = [*reader.feed(body[:at]), *reader.feed(body[at:]), *reader.finish()]
            parts = [part for event in events for part in reading.take(event)]
            assert [part.text for part in parts if isinstance(part, TextDelta)] == texts
            assert reading.message() == whole


async def test_a_connection_is_used_again() -> None:
    async with serving(stream(named_sse(start(), *text(0, "a"), *end()))) as server:
        for _ in range(3):
            assert (await read(server))[1].text == "a"
            assert len(server.connections) == 1


async def test_a_server_that_stays_on_the_line_after_the_end_delays_nobody() -> None:
    body = named_sse(start(), *text(0, "a"), *end())
    _, message, _ = await asked(Reply([body, asyncio.Event().wait], headers=EVENTS))
    assert (message.text, message.finish) == ("a", "stop")


async def test_a_reset_after_the_end_is_no_failure() -> None:
    body = named_sse(start(), *text(0, "a"), *end())
    assert (await asked(Reply([body, RESET], headers=EVENTS)))[1].text == "a"


async def test_closing_early_hangs_up() -> None:
    hold = asyncio.Event()
    body = named_sse(start(), *text(0, "a")[:2])
    async with serving(Reply([body, hold.wait], headers=EVENTS)) as server:
        async with aclosing(model(server).stream(ASK)) as events:
            assert isinstance(await anext(events), TextDelta)
        await asyncio.wait_for(server.left.wait(), 60)


async def test_a_missing_message_stop_is_forgiven_once_the_reason_is_known() -> None:
    message = await answer(start(), *text(0, "done"), end()[0])
    assert (message.text, message.finish) == ("done", "stop")


@pytest.mark.parametrize("size", range(1, len(RICH) - 1))
async def test_a_stream_that_ends_too_early_is_a_failure_that_may_pass(size: int) -> None:
    error = await failure(named_sse(*RICH[:size]))
    assert error.passing
    assert "ended before it was complete" in error.message


@pytest.mark.parametrize("how", [RESET, CUT])
async def test_a_connection_that_breaks_in_the_middle_may_pass(how: str) -> None:
    error = await failure(named_sse(*RICH[:8]), how)
    assert error.passing


@pytest.mark.parametrize("data", ["{", '"text"', "[1]", "null", "", '{"type":"content_block_delta","delta":'])
async def test_a_garbled_part_of_the_answer_is_a_failure_that_may_pass(data: str) -> None:
    good = named_sse(start(), *text(0, "a")[:2])
    bad = f"event: content_block_delta\ndata: {data}\n\n".encode()
    error = await failure(good, bad, named_sse(*end()))
    assert error.passing
    assert "JSON" in error.message


async def test_unknown_events_blocks_and_pieces_are_passed_over() -> None:
    body = b"".join(
        [
            named_sse(start(), typed("ping"), typed("novelty", index=3), typed("content_block_stop", index=9)),
            b"event: novelty\ndata: {not json\n\nevent: ping\ndata: x\n\n: comment\n\ndata: {}\n\n",
            named_sse(*block(0, "hologram", {"type": "hologram_delta", "light": 1}, beam=1)),
            named_sse(*block(1, "server_tool_use", {"type": "input_json_delta", "partial_json": '{"q":1}'}, id="s")),
            named_sse(*block(2, "text", {"type": "sparkle_delta"}, {"type": "text_delta", "text": "hi"})),
            named_sse(typed("content_block_delta", index=7, delta={"type": "novel_delta"}), *end()),
            b"data: [DONE]\n\n",
        ]
    )
    _, message, _ = await asked(stream(body))
    assert (message.text, message.finish) == ("hi", "stop")
    kept = message.extra["anthropic"]["blocks"]
    assert kept == [{"type": "server_tool_use", "id": "s", "input": {"q": 1}}, {"type": "text", "length": 2}]


async def test_blocks_of_the_same_index_stay_apart() -> None:
    message = await answer(
        start(), *text(0, "a"), *use(0, '{"x":1}'), *use(0, '{"x":2}', id="toolu_2"), *text(0, "b"), *end("tool_use")
    )
    assert message.text == "ab"
    assert [call.arguments for call in message.tool_calls] == ['{"x":1}', '{"x":2}']


async def test_blocks_that_interleave_stay_apart() -> None:
    one, two = use(0, '{"x"', ":1}"), use(1, '{"y"', ":2}", id="toolu_2")
    mixed = [event for pair in zip(one, two, strict=True) for event in pair]
    message = await answer(start(), *mixed, *end("tool_use"))
    assert [call.arguments for call in message.tool_calls] == ['{"x":1}', '{"y":2}']


async def test_ids_are_there_and_unique() -> None:
    calls = [*use(0, id=""), *use(1, id="a"), *use(2, id="a"), *use(3, id=None)]  # type: ignore[arg-type]
    message = await answer(start(), *calls, *end("tool_use"))
    ids = [call.id for call in message.tool_calls]
    assert len(set(ids)) == 4
    assert all(ids)
    assert ids[1] == "a"


async def test_text_without_a_start_is_text_but_a_call_without_one_is_a_failure() -> None:
    message = await answer(start(), *text(0, "a")[1:], *end())
    assert message.text == "a"
    error = await failure(named_sse(start(), *use(0, '{"x":1}')[1:], *end("tool_use")))
    assert error.passing
    assert "never began" in error.message


async def test_input_may_come_whole_at_the_start() -> None:
    message = await answer(start(), *use(0, input={"city": "Bern"}), *end("tool_use"))
    assert message.tool_calls[0].arguments == '{"city": "Bern"}'


async def test_cut_in_the_middle_of_a_call_keeps_what_came() -> None:
    message = await answer(start(), *text(0, "Now"), *use(1, '{"city": "Zü')[:2], *end("max_tokens"))
    assert message.finish == "length"
    assert message.tool_calls == (ToolCall("weather", '{"city": "Zü', "toolu_1"),)
    before = await answer(start(), *use(0, '{"a":1}'), *use(1, id="b"), *end("max_tokens"))
    assert [call.arguments for call in before.tool_calls] == ['{"a":1}', ""]  # never mistaken for a whole {}


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        *(("end_turn", "stop"), ("stop_sequence", "stop"), ("tool_use", "stop"), ("something_new", "stop")),
        *(("max_tokens", "length"), ("model_context_window_exceeded", "length"), ("refusal", "refused")),
    ],
)
async def test_why_it_stopped(reason: str, finish: str) -> None:
    assert (await answer(start(), *text(0, "a"), *end(reason))).finish == finish


async def test_a_refusal_runs_nothing_and_says_why() -> None:
    why = {"type": "refusal", "category": "cyber"}
    message = await answer(start(), *text(0, "I"), *use(1, '{"x":1}'), *end("refusal", stop_details=why))
    assert (message.finish, message.tool_calls, message.text) == ("refused", (), "I")
    assert message.extra["anthropic"]["refusal"] == why


async def test_a_paused_turn_goes_on_by_itself() -> None:
    search = block(0, "server_tool_use", {"type": "input_json_delta", "partial_json": '{"q": 1}'}, id="srv", name="s")
    first = named_sse(start(), *search, *text(1, "Searching. "), *end("pause_turn"))
    second = named_sse(start(), *text(0, "Found."), *use(1, "{}"), *end("tool_use"))
    texts, message, bodies = await asked(stream(first), stream(second))
    assert texts == ["Searching. ", "Found."]
    assert (message.text, message.finish) == ("Searching. Found.", "calls")
    assert message.usage == Usage(20, 14)
    last = bodies[1]["messages"][-1]
    assert last["role"] == "assistant"
    assert [one["type"] for one in last["content"]] == ["server_tool_use", "text"]
    assert [one["type"] for one in message.extra["anthropic"]["blocks"]] == [
        *("server_tool_use", "text", "text", "tool_use")
    ]


async def test_pauses_have_an_end() -> None:
    _, message, bodies = await asked(stream(named_sse(start(), *text(0, "."), *end("pause_turn"))))
    assert (message.finish, len(bodies)) == ("length", 11)


async def test_a_server_that_does_not_stream_is_understood() -> None:
    content = [{"type": "text", "text": "Hi"}, {"type": "tool_use", "id": "t", "name": "n", "input": {"a": 1}}]
    whole = {"type": "message", "content": content, "stop_reason": "tool_use", "usage": {"input_tokens": 3}}
    reply = Reply([json.dumps(whole).encode()], headers={"Content-Type": "application/json"})
    texts, message, _ = await asked(reply)
    assert (texts, message.tool_calls) == (["Hi"], (ToolCall("n", '{"a": 1}', "t"),))


@pytest.mark.parametrize(
    ("kind", "passing", "status"),
    [
        *(("overloaded_error", True, 529), ("api_error", True, 500), ("rate_limit_error", True, 429)),
        *(("invalid_request_error", False, 400), ("authentication_error", False, 401)),
    ],
)
async def test_an_error_inside_the_stream(kind: str, passing: bool, status: int) -> None:
    said = typed("error", error={"type": kind, "message": f"Sorry, {KEY}"})
    error = await failure(named_sse(start(), *text(0, "a"), said))
    assert (error.passing, error.status) == (passing, status)
    assert "Sorry" in error.message


async def test_an_error_event_without_json_is_an_error() -> None:
    error = await failure(named_sse(start()), b"event: error\ndata: upstream died\n\n")
    assert "upstream died" in error.message


@pytest.mark.parametrize("status", [429, 500, 502, 529])
async def test_a_status_that_passes_is_tried_again_and_then_told(status: int) -> None:
    page = refusal(status, b"<html><head><title>Bad gateway</title></head><body>nginx</body></html>")
    _, message, bodies = await asked(page, page, stream(named_sse(start(), *text(0, "a"), *end())))
    assert (message.text, len(bodies)) == ("a", 3)
    error = await failure(reply=page)
    assert (error.status, error.passing) == (status, True)
    assert "Bad gateway" in error.message
    assert "nginx" not in error.message


async def test_a_status_that_stays_is_told_at_once() -> None:
    said = {"type": "error", "error": {"type": "authentication_error", "message": f"invalid x-api-key {KEY}"}}
    async with serving(refusal(401, said)) as server:
        with pytest.raises(ProviderError, match="invalid x-api-key") as caught:
            await read(server)
        assert len(server.asked) == 1
    assert KEY not in caught.value.message


@pytest.mark.parametrize("variable", ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"])
async def test_a_refused_key_names_the_variable_that_holds_it(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, KEY)
    said = {"type": "error", "error": {"type": "authentication_error", "message": "invalid x-api-key"}}
    async with serving(refusal(401, said)) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        with pytest.raises(ProviderError, match="invalid x-api-key") as caught:
            [one async for one in Anthropic("m").stream(ASK)]
        with pytest.raises(ProviderError) as given:
            [one async for one in Anthropic("m", api_key=KEY).stream(ASK)]
    assert variable in caught.value.suggestion
    assert "ANTHROPIC" not in given.value.suggestion, "this key did not come from there"


async def test_without_a_key_it_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ProviderError, match="no API key") as caught:
        await anext(Anthropic("claude-x").stream(ASK))
    assert "ANTHROPIC_API_KEY" in caught.value.suggestion


_value: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, -1, 0, 1, 2.5, "", "x", "\ud800", [], ["x"], [{}], {}, {"type": "text"}]
)
_kinds = st.sampled_from(
    [
        "text",
        "thinking",
        "tool_use",
        "image",
        "text_delta",
        "thinking_delta",
        "input_json_delta",
        "citations_delta",
        "end_turn",
        "refusal",
    ]
)
_fields = st.sampled_from(
    [
        "type",
        "index",
        "delta",
        "content_block",
        "message",
        "usage",
        "content",
        "stop_reason",
        "text",
        "thinking",
        "partial_json",
        "input",
        "id",
        "name",
        "citations",
        "citation",
        "input_tokens",
        "error",
    ]
)
_inner = st.dictionaries(_fields, _value | _kinds, max_size=4)
_hostile = st.dictionaries(_fields, _inner | _value | _kinds, max_size=4)
_named = st.sampled_from([*(name for name, _ in RICH), "message"])


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(_named, _hostile), max_size=8))
def test_no_shape_of_event_does_worse_than_a_provider_error(events: list[tuple[str, Any]]) -> None:
    reading = MessagesReader("", set(), lambda said: ProviderError(str(said)))
    shown = ""
    try:
        for name, data in events:
            for one in (data, {"type": name, **data}):
                parts = reading.take(SentEvent(name, json.dumps(one)))
                shown += "".join(part.text for part in parts if isinstance(part, TextDelta))
    except ProviderError:
        pass
    reading.take(SentEvent("message_delta", json.dumps({"delta": {"stop_reason": "end_turn"}})))
    message = reading.message()
    assert message.text == shown
    assert all(isinstance(call.name, str) and isinstance(call.arguments, str) for call in message.tool_calls)
    json.dumps(message.extra)
