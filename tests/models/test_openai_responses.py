"""The Responses API: what we send and what we read, judged by the types of OpenAI's own package."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai import AsyncOpenAI
from openai.types.responses import Response, ResponseStreamEvent
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
from pydantic import BaseModel, TypeAdapter

from forge import Agent, Attachment, Message, ToolCall, Usage, tool
from forge.core.errors import ErrorKind
from forge.core.events import ReasoningDelta, TextDelta, ToolArgumentsDelta
from forge.core.messages import export_message, import_message
from forge.core.spec import ToolSpec
from forge.events import Retrying
from forge.models import ModelRequest, OpenAIResponses, ProviderError
from forge.models.http import post
from forge.models.http.events import EventReader, SentEvent
from forge.models.http.outgoing import BrokeOff
from forge.models.openai_chat import OpenAI
from forge.models.openai_responses import ResponsesReader
from forge.models.vendors import provider_for
from tests.models.oracle import problems
from tests.models.serving import CUT, Reply, Server, named_sse, refusal, serving, stream

KEY = "sk-test-0123456789abcdef"
HELLO = Message("user", "Hello")
WEATHER = ToolSpec(
    name="weather",
    description="Tell the weather.",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
PNG = b"\x89PNG\r\n\x1a\n" + bytes(8)
STREAM_EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)

THOUGHT = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "Which city?"}, {"type": "summary_text", "text": "Zürich."}],
    "encrypted_content": "gAAAA=",
}
SPOKEN = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "status": "completed",
    "phase": "commentary",
    "content": [{"type": "output_text", "text": "Let me look: Zürich 🏔", "annotations": []}],
}
CALLS = [
    {
        "id": f"fc_{number}",
        "type": "function_call",
        "call_id": f"call_{number}",
        "name": "weather",
        "arguments": arguments,
        "status": "completed",
    }
    for number, arguments in enumerate(('{"city": "Zürich"}', '{"city": "Bern"}'), 1)
]
USAGE = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30},
    "output_tokens": 20,
    "output_tokens_details": {"reasoning_tokens": 12},
    "total_tokens": 120,
}


def response(output: list[Any], status: str = "completed", **more: Any) -> dict[str, Any]:
    """A response object that OpenAI's own types accept."""
    made = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "m",
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "status": status,
        "error": None,
        "incomplete_details": None,
        "usage": USAGE,
        **more,
    }
    Response.model_validate(made, strict=False)
    return made


def events(*items: dict[str, Any], status: str = "completed", **more: Any) -> list[dict[str, Any]]:
    """The events of a streamed answer with these items, numbered and checked with OpenAI's own types."""
    found: list[dict[str, Any]] = [{"type": "response.created", "response": response([], "in_progress", usage=None)}]
    for index, item in enumerate(items):
        found += [{"output_index": index, **event} for event in _item_events(item)]
    found.append({"type": f"response.{status}", "response": response(list(items), status, **more)})
    for number, event in enumerate(found):
        event["sequence_number"] = number
        STREAM_EVENT.validate_python(event)
    return found


def _item_events(item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    empty: dict[str, Any] = {"reasoning": {"summary": [], "encrypted_content": None}, "message": {"content": []}}
    added = {**item, **empty.get(item["type"], {"arguments": ""}), "status": "in_progress"}
    yield {"type": "response.output_item.added", "item": added}
    if item["type"] == "reasoning":
        for number, part in enumerate(item["summary"]):
            place = {"item_id": item["id"], "summary_index": number}
            yield {"type": "response.reasoning_summary_part.added", "part": {**part, "text": ""}, **place}
            for piece in _pieces(part["text"]):
                yield {"type": "response.reasoning_summary_text.delta", "delta": piece, **place}
    for number, part in enumerate(item.get("content", ())):
        kind = "output_text" if part["type"] == "output_text" else "refusal"
        for piece in _pieces(part.get("text") or part.get("refusal")):
            more: dict[str, Any] = {"logprobs": []} if kind == "output_text" else {}
            place = {"item_id": item["id"], "content_index": number}
            yield {"type": f"response.{kind}.delta", "delta": piece, **place, **more}
    if item["type"] == "function_call":
        for piece in _pieces(item["arguments"]):
            yield {"type": "response.function_call_arguments.delta", "delta": piece, "item_id": item["id"]}
        done = {"arguments": item["arguments"], "item_id": item["id"], "name": item["name"]}
        yield {"type": "response.function_call_arguments.done", **done}
    yield {"type": "response.output_item.done", "item": item}


def _pieces(text: str) -> list[str]:
    return [text[at : at + 7] for at in range(0, len(text), 7)]


def body(found: list[dict[str, Any]]) -> bytes:
    return named_sse(*((event["type"], event) for event in found))


RICH = events(THOUGHT, SPOKEN, *CALLS)


def at(server: Server, model: str = "gpt-5.4", **changes: Any) -> OpenAIResponses:
    return OpenAIResponses(model, base_url=f"{server.url}/v1", api_key=KEY, **changes)


async def ask(server: Server, *messages: Message, tools: Any = (), model: str = "gpt-5.4", **options: Any):
    """The pieces and the message."""
    request = ModelRequest(messages=list(messages or [HELLO]), tools=tools, options=options)
    *parts, last = [one async for one in at(server, model).stream(request)]
    assert isinstance(last, Message)
    assert "".join(part.text for part in parts if isinstance(part, TextDelta)) == last.text
    return parts, last


async def answer_with(server: Server, options: dict[str, Any]) -> Message:
    return (await ask(server, **options))[1]


async def answer(found: list[dict[str, Any]] | Reply, **options: Any) -> Message:
    reply = found if isinstance(found, Reply) else stream(body(found))
    async with serving(reply) as server:
        return (await ask(server, **options))[1]


async def sent(*messages: Message, tools: Any = (WEATHER,), model: str = "gpt-5.4", **options: Any) -> dict[str, Any]:
    """The body of the request, after OpenAI's own types have accepted it."""
    async with serving(stream(body(events(SPOKEN)))) as server:
        await ask(server, *messages, tools=tools, model=model, **options)
    found = server.bodies[0]
    assert problems(found, ResponseCreateParamsStreaming) == []
    return found


async def test_reasoning_text_and_parallel_calls_are_read():
    async with serving(stream(body(RICH))) as server:
        parts, message = await ask(server)
    assert message.text == "Let me look: Zürich 🏔"
    assert message.tool_calls == (
        ToolCall("weather", '{"city": "Zürich"}', "call_1"),
        ToolCall("weather", '{"city": "Bern"}', "call_2"),
    )
    assert message.finish == "calls"
    assert message.usage == Usage(100, 20, cached=60, cache_writes=30, reasoning=12)
    assert "".join(part.text for part in parts if isinstance(part, ReasoningDelta)) == "Which city?\n\nZürich."
    written = [part for part in parts if isinstance(part, ToolArgumentsDelta)]
    assert "".join(part.text for part in written if part.call.id == "call_2") == '{"city": "Bern"}'


async def test_openais_own_client_reads_the_same():
    async with serving(stream(body(RICH))) as server:
        client = AsyncOpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0)
        texts, last = [], None
        async with await client.responses.create(model="m", input="x", stream=True) as found:
            async for event in found:
                if event.type == "response.output_text.delta":
                    texts.append(event.delta)
                if event.type == "response.completed":
                    last = event.response
        await client.close()
    message = await answer(RICH)
    assert last is not None
    assert "".join(texts) == last.output_text == message.text
    theirs = [(one.call_id, one.arguments) for one in last.output if one.type == "function_call"]
    assert theirs == [(call.id, call.arguments) for call in message.tool_calls]


async def test_reasoning_goes_back_encrypted_in_its_place_and_survives_a_session():
    message = import_message(json.loads(json.dumps(export_message(await answer(RICH)))))
    results = [Message("tool", "sun", call_id="call_1"), Message("tool", "rain", call_id="call_2")]
    async with serving(stream(body(events(SPOKEN)))) as server:
        # the origin is the host and the model: the same for every port of this machine
        await ask(server, HELLO, message, *results, tools=[WEATHER])
    found = server.bodies[0]
    assert problems(found, ResponseCreateParamsStreaming) == []
    assert found["store"] is False
    assert found["include"] == ["reasoning.encrypted_content"]
    assert found["input"][1:] == [
        THOUGHT,
        {"type": "message", "role": "assistant", "content": "Let me look: Zürich 🏔", "phase": "commentary"},
        *({key: one[key] for key in ("type", "call_id", "name", "arguments")} for one in CALLS),
        {"type": "function_call_output", "call_id": "call_1", "output": "sun"},
        {"type": "function_call_output", "call_id": "call_2", "output": "rain"},
    ]


async def test_reasoning_does_not_go_to_another_model():
    message = await answer(RICH)
    found = await sent(HELLO, message, model="gpt-5.9")
    kinds = [item["type"] for item in found["input"]]
    assert kinds == ["message", "message", *["function_call"] * 2, *["function_call_output"] * 2]
    assert "gAAAA=" not in json.dumps(found)


async def test_reasoning_that_only_the_server_knows_is_not_sent():
    bare = {key: value for key, value in THOUGHT.items() if key != "encrypted_content"}
    message = await answer(events(bare, SPOKEN))
    assert all(item["type"] != "reasoning" for item in message.extra.get("openai-responses", {}).get("items", ()))


async def test_reasoning_without_anything_after_it_is_left_out():
    message = await answer(events(THOUGHT, status="incomplete", incomplete_details={"reason": "max_output_tokens"}))
    assert message.finish == "length"
    found = await sent(HELLO, message, HELLO)
    assert [item["type"] for item in found["input"]] == ["message", "message"]


async def test_a_changed_answer_goes_back_without_its_order():
    from dataclasses import replace

    message = replace(await answer(RICH), text="[removed]", tool_calls=())
    found = await sent(HELLO, message, HELLO)
    assert [item["type"] for item in found["input"]] == ["message", "reasoning", "message", "message"]
    assert found["input"][2]["content"] == "[removed]"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"max_tokens": 9}, {"max_output_tokens": 9}),
        ({"temperature": 0}, {"temperature": 0}),
        ({"reasoning_effort": "low"}, {"reasoning": {"effort": "low", "summary": "auto"}}),
        ({"reasoning_effort": "none"}, {"reasoning": {"effort": "none"}}),
        (
            {"reasoning": {"effort": "high", "summary": "concise"}},
            {"reasoning": {"effort": "high", "summary": "concise"}},
        ),
        ({"verbosity": "low"}, {"text": {"verbosity": "low"}}),
        ({"tool_choice": "weather"}, {"tool_choice": {"type": "function", "name": "weather"}}),
        ({"tool_choice": "required"}, {"tool_choice": "required"}),
        ({"parallel_tool_calls": False}, {"parallel_tool_calls": False}),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}},
            {"text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}}},
        ),
    ],
)
async def test_options_are_written_as_the_api_spells_them(options, expected):
    found = await sent(**options)
    assert {key: found[key] for key in expected} == expected


async def test_tools_are_strict_where_their_schema_fits():
    found = await sent()
    assert found["tools"][0]["strict"] is True
    assert found["tools"][0]["parameters"]["additionalProperties"] is False


@pytest.mark.parametrize("option", ["stop", "seed", "logit_bias"])
async def test_an_option_that_the_api_does_not_have_is_refused_before_the_request(option: Any):
    async with serving(stream(body(RICH))) as server:
        with pytest.raises(ProviderError, match=option) as caught:
            await answer_with(server, {option: 1})
    assert "openai-chat:gpt-5.4" in caught.value.suggestion
    assert not server.asked


async def test_images_and_files_go_into_messages_and_results():
    files = (Attachment("image/png", PNG), Attachment("application/pdf", b"%PDF-", "a.pdf"), Attachment("a/b", b"x"))
    called = Message("assistant", tool_calls=(ToolCall("weather", {"city": "x"}, "c1"),))
    found = await sent(
        Message("user", "see", attachments=files), called, Message("tool", "seen", call_id="c1", attachments=files)
    )
    for parts in (found["input"][0]["content"], found["input"][2]["output"]):
        assert [part["type"] for part in parts] == ["input_text", "input_image", "input_file", "input_text"]
        assert parts[1]["image_url"].startswith("data:image/png;base64,")
        assert parts[2]["filename"] == "a.pdf"


async def test_system_messages_are_instructions_and_open_calls_are_answered():
    calls = Message("assistant", tool_calls=(ToolCall("weather", "{broken", "bad id!"), ToolCall("weather", {}, "c2")))
    late = Message("tool", "late", call_id="gone")
    found = await sent(Message("system", "Be kind."), HELLO, calls, Message("tool", "r", call_id="c2"), late)
    assert found["instructions"] == "Be kind."
    ids = [item["call_id"] for item in found["input"] if item["type"] == "function_call"]
    answered = [item["call_id"] for item in found["input"] if item["type"] == "function_call_output"]
    assert sorted(ids) == sorted(answered)
    assert json.loads(found["input"][1]["arguments"]) == {"_raw": "{broken"}


@pytest.mark.parametrize(
    ("reason", "finish", "calls"), [("max_output_tokens", "length", 2), ("content_filter", "refused", 0)]
)
async def test_an_incomplete_answer_says_why(reason, finish, calls):
    message = await answer(events(*CALLS, status="incomplete", incomplete_details={"reason": reason}))
    assert (message.finish, len(message.tool_calls)) == (finish, calls)


async def test_a_refusal_is_text_and_no_answer():
    refused = {**SPOKEN, "content": [{"type": "refusal", "refusal": "I cannot help with that."}]}
    message = await answer(events(refused, CALLS[0]))
    assert (message.text, message.finish, message.tool_calls) == ("I cannot help with that.", "refused", ())


async def test_a_failed_response_is_an_error_that_says_why():
    failed = response([], "failed", error={"code": "server_error", "message": "The server had an error."})
    with pytest.raises(BrokeOff, match="The server had an error"):
        await answer([RICH[0], {"type": "response.failed", "response": failed}])
    invalid = response([], "failed", error={"code": "invalid_prompt", "message": "No."})
    with pytest.raises(ProviderError, match=r"No\.") as caught:
        await answer([RICH[0], {"type": "response.failed", "response": invalid}])
    assert not caught.value.passing


async def test_an_error_event_is_an_error():
    event = {"type": "error", "code": "rate_limit_exceeded", "message": "Slow down.", "param": None}
    with pytest.raises(BrokeOff, match="Slow down"):
        await answer([RICH[0], event])


async def test_an_answer_without_a_stream_is_read():
    reply = Reply(
        [json.dumps(response([THOUGHT, SPOKEN, *CALLS])).encode()], headers={"Content-Type": "application/json"}
    )
    assert await answer(reply) == await answer(RICH)


async def test_unknown_events_and_keep_alives_change_nothing():
    noise = b': keep-alive\n\nevent: keepalive\ndata: {}\n\nevent: response.sparkle\ndata: {"output_index": 0}\n\n'
    pieces = [named_sse((event["type"], event)) + noise for event in RICH]
    assert await answer(stream(b"".join(pieces))) == await answer(RICH)


async def test_deltas_in_any_order_between_items_give_the_same_calls():
    first, *middle, last = RICH
    message = await answer([first, *sorted(middle, key=lambda event: -event["output_index"]), last])
    assert message.tool_calls == (await answer(RICH)).tool_calls
    assert message.text == "Let me look: Zürich 🏔"


async def test_an_answer_of_pieces_alone_is_complete():
    """A server that never repeats an item at its end."""
    lean = [event for event in RICH if not event["type"].endswith(".done")]
    lean[-1] = {**lean[-1], "response": {**lean[-1]["response"], "output": []}}
    message = await answer(lean)
    assert [call.arguments for call in message.tool_calls] == [one["arguments"] for one in CALLS]
    assert message.text == "Let me look: Zürich 🏔"


async def test_a_stream_cut_anywhere_is_an_error_and_never_half_an_answer():
    raw = body(RICH)
    end = raw.index(b"event: response.completed")
    for cut in range(0, end, 211):
        async with serving(Reply([raw[:cut] or b" ", CUT], headers={"Content-Type": "text/event-stream"})) as server:
            provider = at(server)
            with pytest.raises(ProviderError):
                [one async for one in provider.stream(ModelRequest(messages=[HELLO], options={"timeout": 5}))]


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch):
    async def pause(seconds):
        pass

    monkeypatch.setattr(post, "pause", pause)


def test_every_split_of_the_bytes_gives_the_same_message():
    raw = body(events(SPOKEN, CALLS[0]))
    whole = _read_all(raw, ())
    assert whole.text == "Let me look: Zürich 🏔"
    for place in range(1, len(raw)):
        assert _read_all(raw, (place,)) == whole, place


def _read_all(raw: bytes, cuts: Any) -> Message:
    reader, found = EventReader(), ResponsesReader("x", set(), lambda error: ProviderError(str(error)))
    ends = [*sorted(cuts), len(raw)]
    for start, end in zip([0, *ends], ends, strict=False):
        for event in reader.feed(raw[start:end]):
            found.take(event)
    for event in reader.finish():
        found.take(event)
    return found.message()


_value = st.none() | st.booleans() | st.integers(-2, 5) | st.text(max_size=3)
_keys = st.sampled_from(
    [
        "type",
        "output_index",
        "item",
        "delta",
        "response",
        "output",
        "status",
        "error",
        "content",
        "text",
        "arguments",
        "call_id",
        "name",
        "usage",
        "id",
    ]
)
_hostile = st.recursive(
    _value, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=5), max_leaves=15
)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([event["type"] for event in RICH]), st.dictionaries(_keys, _hostile)), max_size=6
    )
)
def test_no_shape_of_event_does_worse_than_a_provider_error(found):
    reader = ResponsesReader("x", set(), lambda error: ProviderError(str(error)))
    shown = ""
    try:
        for name, data in found:
            for part in reader.take(SentEvent(name, json.dumps({**data, "type": name}))):
                shown += part.text if isinstance(part, TextDelta) else ""
        message = reader.message()
    except ProviderError:
        return
    assert message.text == shown
    json.dumps(message.extra)
    assert all(isinstance(call.arguments, str) for call in message.tool_calls)


@pytest.mark.slow
async def test_arguments_of_ten_megabytes_arrive_whole():
    text = json.dumps({"city": 'x"\n' * 3_400_000})
    long = {**CALLS[0], "arguments": text}
    pieces = [text[start : start + 500_000] for start in range(0, len(text), 500_000)]
    place = {"output_index": 0, "item_id": "fc_1"}
    found: list[dict[str, Any]] = [
        {"type": "response.output_item.added", "output_index": 0, "item": {**long, "arguments": ""}},
        *({"type": "response.function_call_arguments.delta", "delta": piece, **place} for piece in pieces),
        {"type": "response.output_item.done", "output_index": 0, "item": long},
        {"type": "response.completed", "response": response([long])},
    ]
    message = await answer(stream(body(found), every=1 << 20))
    assert len(text) > 10**7
    assert message.tool_calls[0].arguments == text


@pytest.mark.parametrize(("status", "headers"), [(429, {}), (429, {"Retry_After": "3"}), (529, {}), (503, {})])
async def test_a_busy_server_is_asked_again_and_said(status, headers):
    async with serving(refusal(status, {"error": {"message": "busy"}}, **headers), stream(body(RICH))) as server:
        parts, message = await ask(server)
    (retry,) = [part for part in parts if isinstance(part, Retrying)]
    assert (retry.status, retry.attempt) == (status, 1)
    assert retry.seconds >= 3 if headers else retry.seconds < 1
    assert len(message.tool_calls) == 2


@pytest.mark.parametrize(
    ("said", "gone"),
    [
        ("Unsupported parameter: 'reasoning.summary' is not supported with this model.", ("reasoning", "summary")),
        ("Your organization must be verified to generate reasoning summaries.", ("reasoning", "summary")),
        ("Encrypted content is not supported with this model.", ("include",)),
        ("Unknown parameter: 'parallel_tool_calls'.", ("parallel_tool_calls",)),
        ("Invalid schema for function 'weather'", ("tools", 0, "strict")),
    ],
)
async def test_an_optional_feature_that_is_refused_is_left_out(said, gone):
    async with serving(refusal(400, {"error": {"message": said}}), stream(body(events(SPOKEN)))) as server:
        await ask(server, tools=[WEATHER], parallel_tool_calls=True)
    before, after = server.bodies
    assert _value_at(before, gone)
    assert not _value_at(after, gone)


def _value_at(found: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        found = found.get(key) if isinstance(found, dict) else found[key]
        if found is None:
            return None
    return found


@pytest.mark.parametrize(
    ("said", "options"),
    [
        ("Unsupported value: reasoning.effort 'high' with tools", {"reasoning_effort": "high"}),
        ("'reasoning.summary' is not supported", {"reasoning": {"summary": "detailed"}}),
    ],
)
async def test_what_was_asked_for_is_never_given_up_silently(said, options):
    async with serving(refusal(400, {"error": {"message": said}})) as server:
        with pytest.raises(ProviderError, match=r"reasoning\."):
            await ask(server, tools=[WEATHER], **options)
    assert len(server.asked) == 1


async def test_an_agent_reasons_calls_and_answers():
    @tool
    def weather(city: str) -> str:
        """Tell the weather."""
        return f"sun in {city}"

    final = {**SPOKEN, "phase": "final_answer", "content": [{"type": "output_text", "text": "Sun.", "annotations": []}]}
    async with serving(stream(body(RICH)), stream(body(events(final)))) as server:
        result = await Agent(at(server), tools=[weather]).run("Weather?")
    assert (result.text, result.reason, result.usage.reasoning) == ("Sun.", "answer", 24)
    second = server.bodies[1]
    assert problems(second, ResponseCreateParamsStreaming) == []
    assert [item["type"] for item in second["input"]][1:] == [
        *("reasoning", "message", "function_call", "function_call", "function_call_output", "function_call_output")
    ]
    assert second["input"][-1]["output"] == "sun in Bern"


def test_a_model_that_reasons_is_asked_for_its_reasoning_and_others_are_not(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    for name, reasons in [("gpt-5.4", True), ("o3-mini", True), ("openai/gpt-oss-20b", True), ("gpt-4.1", False)]:
        provider = OpenAIResponses(name, base_url="https://example.com/v1")
        assert provider._spelling.reasons is reasons


def test_names_choose_the_api(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    assert isinstance(provider_for("openai:m"), OpenAIResponses)
    assert isinstance(provider_for("openai-responses:m"), OpenAIResponses)
    assert isinstance(provider_for("openai-chat:m"), OpenAI)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    assert isinstance(provider_for("openai:m"), OpenAI)
    assert isinstance(provider_for("openai-responses:m"), OpenAIResponses)


@pytest.mark.parametrize("prefix", ["openai", "openai-responses", "openai-chat"])
def test_a_missing_key_is_named(prefix, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(ProviderError) as caught:
        provider_for(f"{prefix}:m")
    assert caught.value.kind == ErrorKind.CONFIG
    assert "OPENAI_API_KEY" in caught.value.suggestion


async def test_the_same_conversation_has_the_same_cache_key():
    from forge.models.openai_responses import ResponsesFormat, request_body

    spelling = ResponsesFormat("m", "x", has_cache_key=True)
    history = [Message("system", "Be kind."), HELLO]
    first = request_body(ModelRequest(messages=history), spelling)
    later = request_body(ModelRequest(messages=[*history, Message("assistant", "Hi"), HELLO]), spelling)
    other = request_body(ModelRequest(messages=[*history[:1], Message("user", "Bye")]), spelling)
    assert first["prompt_cache_key"] == later["prompt_cache_key"] != other["prompt_cache_key"]
    assert json.dumps(later["input"]).startswith(json.dumps(first["input"])[:-1])


async def test_an_unknown_model_gets_the_nearest_name():
    lost = refusal(404, {"error": {"message": "The model does not exist", "code": "model_not_found"}})
    async with serving(lost) as server:
        for model, hint in [("gpt-5.4-mni", "gpt-5.4-mini"), ("zzzz", "")]:
            with pytest.raises(ProviderError) as caught:
                await ask(server, model=model)
            assert caught.value.suggestion.startswith(f"Did you mean openai-responses:{hint}?" if hint else "Check")


class City(BaseModel):
    name: str
    inhabitants: int | None = None


@pytest.mark.parametrize(
    ("output", "text", "expected"),
    [
        (City, '{"name": "Bern", "inhabitants": null}', City(name="Bern")),
        (list[City], '{"value": [{"name": "Bern", "inhabitants": 3}]}', [City(name="Bern", inhabitants=3)]),
        (City | int, '{"value": 7}', 7),
        (City | int, '{"value": {"name": "Bern", "inhabitants": 3}}', City(name="Bern", inhabitants=3)),
        (bool, '{"value": true}', True),
        (Literal["yes", "no"], '{"value": "no"}', "no"),
    ],
    ids=str,
)
async def test_a_structured_answer_is_asked_for_natively(output, text, expected):
    spoken = {**SPOKEN, "content": [{"type": "output_text", "text": text, "annotations": []}]}
    async with serving(stream(body(events(spoken)))) as server:
        result = await Agent(at(server), output=output).run("Which?")
    assert result.error is None
    assert result.output == expected
    sent_body = server.bodies[0]
    assert problems(sent_body, ResponseCreateParamsStreaming) == []
    assert sent_body["text"]["format"]["strict"] is True
    assert "final_answer" not in [one["name"] for one in sent_body["tools"]]


async def test_a_schema_that_the_api_cannot_hold_goes_through_a_tool():
    call = {**CALLS[0], "name": "final_answer", "arguments": '{"value": {"a": 1}}'}
    async with serving(stream(body(events(call)))) as server:
        result = await Agent(at(server), output=dict[str, int]).run("Which?")
    assert result.output == {"a": 1}
    assert "text" not in server.bodies[0]
    assert "final_answer" in [one["name"] for one in server.bodies[0]["tools"]]


async def test_an_answer_that_does_not_fit_is_asked_for_again():
    wrong = {**SPOKEN, "content": [{"type": "output_text", "text": '{"name": 5.5}', "annotations": []}]}
    right = {**SPOKEN, "content": [{"type": "output_text", "text": '{"name": "Bern"}', "annotations": []}]}
    async with serving(stream(body(events(wrong))), stream(body(events(right)))) as server:
        result = await Agent(at(server), output=City).run("Which?")
    assert result.output == City(name="Bern")
    assert "Answer with JSON alone" in server.bodies[1]["input"][-1]["content"]
