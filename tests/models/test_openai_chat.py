"""Chat Completions, as good and bad servers speak it."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from contextlib import aclosing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forge.core.errors import ErrorKind
from forge.core.events import ReasoningDelta, Retrying, TextDelta, ToolArgumentsDelta
from forge.core.messages import Message, ToolCall, Usage
from forge.core.provider import ModelRequest, ProviderError
from forge.core.result import Attachment
from forge.core.spec import ToolSpec
from forge.models.http import post
from forge.models.http.events import EventReader
from forge.models.http.outgoing import BrokeOff, PromptTooLong
from forge.models.http.post import SentEvent
from forge.models.openai_chat import ChatReader, OpenAI
from tests.models.serving import CUT, RESET, Reply, Server, refusal, serving, sse, stream

KEY = "sk-test-0123456789abcdef"
WEATHER = ToolSpec(
    name="weather",
    description="The weather in a city.",
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
        "additionalProperties": False,
    },
)
HELLO = Message("user", "Hello")


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch):
    async def pause(seconds):
        pass

    monkeypatch.setattr(post, "pause", pause)


def chunk(delta=None, finish=None, **more):
    return {"id": "c", "choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish}], **more}


def said(*texts, finish="stop"):
    return [*(chunk({"content": text}) for text in texts), chunk(finish=finish)]


def called(*pieces, finish="tool_calls"):
    return [
        *(chunk({"tool_calls": piece if isinstance(piece, list) else [piece]}) for piece in pieces),
        chunk(finish=finish),
    ]


def piece(index=None, id=None, name=None, arguments=None, **more):
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    found = {"index": index, "id": id, "function": function or None, **more}
    return {key: value for key, value in found.items() if value is not None}


async def answer(provider: OpenAI, *messages: Message, tools=(), **options) -> tuple[list[str], Message]:
    request = ModelRequest(messages=list(messages or [HELLO]), tools=tools, options=options)
    found = [one async for one in provider.stream(request)]
    texts = [one.text for one in found[:-1] if isinstance(one, TextDelta)]
    message = found[-1]
    assert isinstance(message, Message)
    assert all(isinstance(one, TextDelta | ReasoningDelta | ToolArgumentsDelta | Retrying) for one in found[:-1])
    assert "".join(texts) == message.text
    assert all(texts)
    ids = [call.id for call in message.tool_calls]
    assert all(ids)
    assert len(set(ids)) == len(ids)
    return texts, message


def at(server: Server, model="m", **changes) -> OpenAI:
    return OpenAI(model, base_url=f"{server.url}/v1", api_key=KEY, **changes)


async def heard(*chunks, done=True, messages=(), **changes) -> Message:
    """The message made of these chunks."""
    async with serving(stream(sse(*chunks, done=done), **changes)) as server:
        return (await answer(at(server), *messages))[1]


async def failure(*replies: Reply, messages=(), **options) -> ProviderError:
    async with serving(*replies) as server:
        with pytest.raises(ProviderError) as caught:
            await answer(at(server), *messages, **options)
    assert KEY not in caught.value.message + caught.value.suggestion
    assert caught.value.suggestion
    return caught.value


async def sent(*messages: Message, tools=(), provider=None, **options):
    """The body that is posted for these messages."""
    async with serving(stream(sse(*said("ok")))) as server:
        await answer(at(server, **(provider or {})), *messages, tools=tools, **options)
    (asked,) = server.asked
    assert asked.path == "/v1/chat/completions"
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    return asked.body


# What comes back


async def test_text_comes_as_it_is_sent():
    async with serving(stream(sse(chunk({"role": "assistant", "content": ""}), *said("Hel", "lo 😀", "")))) as server:
        texts, message = await answer(at(server))
    assert texts == ["Hel", "lo 😀"]
    assert message == Message("assistant", "Hello 😀", finish="stop")


async def test_parallel_calls_are_put_together_by_index():
    message = await heard(
        chunk({"content": "Let me see."}),
        *called(
            piece(0, "call_a", "weather", "", type="function"),
            piece(1, "call_b", "time", ""),
            piece(0, arguments='{"city": '),
            piece(1, arguments="{"),
            piece(0, arguments='"Köln"}'),
            piece(1, arguments="}"),
        ),
    )
    assert message.text == "Let me see."
    assert message.tool_calls == (ToolCall("weather", '{"city": "Köln"}', "call_a"), ToolCall("time", "{}", "call_b"))
    assert message.finish == "calls"


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([piece(0, "a", "f", '{"x":1}'), piece(0, "b", "g", '{"y":2}')], id="all calls have index 0"),
        pytest.param([[piece(0, "a", "f", '{"x":1}'), piece(0, "b", "g", '{"y":2}')]], id="index 0 in one chunk"),
        pytest.param([piece(0, "", "f", '{"x":1}'), piece(0, "", "g", '{"y":2}')], id="index 0, empty ids"),
        pytest.param([piece(0, None, "f", '{"x":1}'), piece(0, None, "g", '{"y":2}')], id="index 0, no ids"),
        pytest.param([piece(None, "a", "f", '{"x":1}'), piece(None, "b", "g", '{"y":2}')], id="no index"),
        pytest.param([[piece(None, "a", "f", '{"x":1}'), piece(None, "b", "g", '{"y":2}')]], id="no index, one chunk"),
        pytest.param([piece(None, None, "f", '{"x":1}'), piece(None, None, "g", '{"y":2}')], id="no index, no id"),
        pytest.param(
            [
                piece(None, "a", "f", ""),
                piece(arguments='{"x"'),
                piece(arguments=":1}"),
                piece(None, "b", "g", '{"y":2}'),
            ],
            id="no index, pieces",
        ),
        pytest.param(
            [
                piece(None, "a", "f", '{"x"'),
                piece(None, "b", "g", "{"),
                piece(None, "a", None, ":1}"),
                piece(None, "b", None, '"y":2}'),
            ],
            id="no index, pieces by id",
        ),
        pytest.param(
            [
                piece(0, "a", "f", '{"x"'),
                piece(0, "z", None, ":"),
                piece(0, "y", None, "1}"),
                piece(1, "b", "g", '{"y":2}'),
            ],
            id="a new id for every piece",
        ),
        pytest.param(
            [
                piece(0, "a", "f", '{"x"'),
                piece(1, None, None, ":"),
                piece(2, None, None, "1}"),
                piece(3, "b", "g", '{"y":2}'),
            ],
            id="an index that counts pieces",
        ),
        pytest.param(
            [
                piece(0, "a", "f", '{"x"'),
                piece(0, "a", "f", ":"),
                piece(0, "a", "f", "1}"),
                piece(1, "b", "g", '{"y":2}'),
            ],
            id="id and name in every piece",
        ),
        pytest.param(
            [
                piece(0, None, "f", '{"x"'),
                piece(0, None, "f", ":1}"),
                piece(0, None, "f", ""),
                piece(1, None, "g", '{"y":2}'),
            ],
            id="name in every piece",
        ),
        pytest.param(
            [piece(0, "a", None, '{"x":1}'), piece(0, None, "f"), piece(1, "b", "g", '{"y":2}')], id="name last"
        ),
        pytest.param([piece(0, "same", "f", '{"x":1}'), piece(1, "same", "g", '{"y":2}')], id="one id twice"),
        pytest.param([piece(0, " ", "f", '{"x":1}'), piece(1, "", "g", '{"y":2}')], id="empty ids"),
        pytest.param([piece(0, 7, "f", '{"x":1}'), piece(1, ["b"], "g", '{"y":2}')], id="ids that are no text"),
        pytest.param([piece(0, "a", "f", {"x": 1}), piece(1, "b", "g", {"y": 2})], id="arguments as objects"),
        pytest.param([piece("0", "a", "f", '{"x":1}'), piece("1", "b", "g", '{"y":2}')], id="index as text"),
    ],
)
async def test_calls_are_told_apart_however_they_are_numbered(pieces):
    message = await heard(*called(*pieces))
    found = [(call.name, json.loads(call.arguments)) for call in message.tool_calls]  # type: ignore[arg-type]
    assert found == [("f", {"x": 1}), ("g", {"y": 2})]
    assert message.finish == "calls"


async def test_calls_without_arguments_in_one_chunk_stay_two():
    message = await heard(*called([piece(None, None, "f", ""), piece(None, None, "f", "")]))
    assert [call.name for call in message.tool_calls] == ["f", "f"]


async def test_a_name_may_come_in_pieces():
    message = await heard(*called(piece(0, "a", "wea"), piece(0, None, "ther"), piece(0, None, None, "{}")))
    assert [call.name for call in message.tool_calls] == ["weather"]


async def test_good_ids_are_kept_and_ids_of_earlier_turns_are_not_used_again():
    earlier = [
        HELLO,
        Message("assistant", tool_calls=(ToolCall("f", "{}", "call_0"),)),
        Message("tool", "1", call_id="call_0"),
    ]
    message = await heard(*called(piece(0, "call_0", "f", "{}"), piece(1, "call_1", "f", "{}")), messages=earlier)
    assert message.tool_calls[0].id != "call_0"
    assert message.tool_calls[1].id == "call_1"


@pytest.mark.parametrize("arguments", ['{"a": 1', "not json", "[1, 2]", '{"a": NaN}', "", " ", '{"a":1}{"b":2}', "nul"])
async def test_arguments_are_kept_as_the_model_wrote_them(arguments):
    message = await heard(*called(piece(0, "a", "f", arguments)))
    assert message.tool_calls == (ToolCall("f", arguments, "a"),)


@pytest.mark.parametrize(
    ("given", "kept"), [([1], "[1]"), (5, "5"), (True, "true"), ({}, "{}"), ({"é": "ü"}, '{"é": "ü"}')]
)
async def test_arguments_that_are_no_text_become_json(given, kept):
    message = await heard(*called(piece(0, "a", "f", given)))
    assert message.tool_calls == (ToolCall("f", kept, "a"),)


@pytest.mark.parametrize("reason", ["length", "max_tokens"])
async def test_a_call_that_was_cut_is_kept_and_marked(reason):
    message = await heard(*called(piece(0, "a", "f", "{}"), piece(1, "b", "g", '{"text": "so l'), finish=reason))
    assert message.finish == "length"
    assert message.tool_calls == (ToolCall("f", "{}", "a"), ToolCall("g", '{"text": "so l', "b"))


async def test_text_that_was_cut_is_marked():
    message = await heard(*said("and then", finish="length"))
    assert (message.text, message.finish) == ("and then", "length")


@pytest.mark.parametrize("reason", ["stop", "tool_calls", "function_call", "eos", "", None])
async def test_calls_count_whatever_the_server_calls_the_end(reason):
    message = await heard(*called(piece(0, "a", "f", "{}"), finish=reason))
    assert message.finish == "calls"


async def test_an_end_by_tool_calls_without_any_is_a_stop():
    assert (await heard(*said("hm", finish="tool_calls"))).finish == "stop"


async def test_a_refusal_is_text_and_marked():
    message = await heard(chunk({"refusal": "I can"}), chunk({"refusal": "not."}), chunk(finish="stop"))
    assert (message.text, message.finish) == ("I cannot.", "refused")


async def test_a_filtered_answer_is_refused():
    assert (await heard(*said("par", finish="content_filter"))).finish == "refused"


async def test_calls_of_a_filtered_answer_are_dropped():
    message = await heard(*called(piece(0, "a", "f", "{}"), finish="content_filter"))
    assert (message.finish, message.tool_calls) == ("refused", ())


async def test_usage_comes_at_the_end_without_choices():
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 60}}
    message = await heard(*said("ok"), {"choices": [], "usage": usage})
    assert message.usage == Usage(100, 20, 60)


@pytest.mark.parametrize(
    ("chunks", "usage"),
    [
        (
            [
                chunk(usage={"prompt_tokens": 1, "completion_tokens": 1}),
                chunk(usage={"prompt_tokens": 9, "completion_tokens": 3}),
            ],
            Usage(9, 3),
        ),
        ([chunk(usage={"prompt_tokens": 9, "completion_tokens": 3}), chunk(usage={"prompt_tokens": 0})], Usage(9, 3)),
        ([chunk(x_groq={"usage": {"prompt_tokens": 5, "completion_tokens": 2}})], Usage(5, 2)),
        ([chunk(usage={"prompt_tokens": 5, "completion_tokens": 2, "prompt_cache_hit_tokens": 4})], Usage(5, 2, 4)),
        ([chunk(usage={"prompt_tokens": "many", "completion_tokens": -4, "prompt_tokens_details": 3})], Usage()),
        ([chunk(usage=None)], Usage()),
        ([chunk(usage=[1])], Usage()),
        ([], Usage()),
    ],
)
async def test_usage_is_taken_as_it_comes(chunks, usage):
    assert (await heard(*said("ok"), *chunks)).usage == usage


async def test_reasoning_is_no_text_but_kept():
    message = await heard(chunk({"reasoning_content": "Hmm, "}), chunk({"reasoning_content": "yes."}), *said("Yes."))
    assert message.text == "Yes."
    assert message.extra["openai"]["fields"] == {"reasoning_content": "Hmm, yes."}


async def test_reasoning_and_arguments_are_seen_while_they_are_written():
    chunks = [
        chunk({"reasoning_content": "Hmm."}),
        chunk({"tool_calls": [piece(0, "c1", "write", "")]}),
        chunk({"tool_calls": [piece(0, arguments='{"text": ')]}),
        chunk({"tool_calls": [piece(0, arguments='"hello"}')]}),
        chunk(finish="tool_calls"),
    ]
    async with serving(stream(sse(*chunks))) as server:
        parts = [one async for one in at(server).stream(ModelRequest(messages=[HELLO]))]
    assert [part.text for part in parts if isinstance(part, ReasoningDelta)] == ["Hmm."]
    written = [part for part in parts if isinstance(part, ToolArgumentsDelta)]
    assert {(part.call.id, part.call.name) for part in written} == {("c1", "write")}
    last = parts[-1]
    assert isinstance(last, Message)
    assert "".join(part.text for part in written) == '{"text": "hello"}' == last.tool_calls[0].arguments


async def test_content_may_come_in_parts():
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "Yes"}]
    assert (await heard(chunk({"content": parts}), *said("."))).text == "Yes."


async def test_a_character_may_come_in_two_halves():
    halves = [chunk({"content": text}) for text in ("a\ud83d", "\ude00b", "c\ud83d")]
    assert (await heard(*halves, chunk(finish="stop"))).text == "a😀bc"


async def test_other_choices_are_left_out():
    other = {"choices": [{"index": 1, "delta": {"content": "B"}}, {"index": 0, "delta": {"content": "A"}}]}
    assert (await heard(other, chunk(finish="stop"))).text == "A"


@pytest.mark.parametrize(
    "nonsense",
    [
        {"choices": None},
        {"choices": [None, 3, "x", []]},
        {"choices": [{"delta": None}]},
        {"choices": [{"delta": []}]},
        {"choices": [{}]},
        {"choices": {}},
        {},
        chunk({"content": 5}),
        chunk({"content": None, "tool_calls": None, "refusal": None}),
        chunk({"content": [None, 3, {"text": None}]}),
        chunk({"tool_calls": {"index": 0}}),
        chunk({"tool_calls": [None, 3, "x"]}),
        chunk({"reasoning_content": 5, "reasoning_details": [3]}),
        "null",
        "3",
        '"ping"',
        "[]",
        "",
        "   ",
    ],
)
async def test_chunks_that_say_nothing_are_left_out(nonsense):
    message = await heard(chunk({"content": "a"}), nonsense, *said("b"))
    assert (message.text, message.tool_calls, message.finish) == ("ab", (), "stop")


async def test_old_function_calls_are_calls():
    message = await heard(
        chunk({"function_call": {"name": "f", "arguments": ""}}),
        chunk({"function_call": {"arguments": '{"x":1}'}}),
        chunk(finish="function_call"),
    )
    assert [(call.name, call.arguments) for call in message.tool_calls] == [("f", '{"x":1}')]


async def test_a_server_that_does_not_stream_is_understood():
    calls = [{"id": "a", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}]
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": "Hi", "tool_calls": calls},
        "finish_reason": "tool_calls",
    }
    body = {"choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": 1}}
    whole = Reply([json.dumps(body).encode()], headers={"Content-Type": "application/json"}, framing="length")
    async with serving(whole) as server:
        texts, message = await answer(at(server))
    assert texts == ["Hi"]
    assert message.tool_calls == (ToolCall("f", '{"x": 1}', "a"),)
    assert message.usage == Usage(3, 1)


# Ends, and what is none


@pytest.mark.parametrize("framing", ["chunked", "close"])
async def test_the_word_done_may_be_missing(framing):
    assert (await heard(*said("ok"), done=False, framing=framing)).text == "ok"


async def test_the_reason_may_be_missing():
    assert (await heard(chunk({"content": "ok"}))).finish == "stop"


async def test_nothing_counts_after_done():
    assert (await heard(*said("ok"), "[DONE]", *said("more"))).text == "ok"


@pytest.mark.parametrize("cut", [1, 2, 3])
async def test_an_answer_that_just_ends_is_no_answer(cut):
    whole = called(piece(0, "a", "remove", '{"path": '), piece(0, None, None, '"/tmp/x"'), piece(0, None, None, "}"))
    error = await failure(stream(sse(*whole[:cut], done=False), framing="close"))
    assert isinstance(error, BrokeOff)
    assert error.passing
    assert "ended before it was complete" in error.message


@pytest.mark.parametrize("end", [RESET, CUT])
async def test_a_connection_that_breaks_in_the_middle_is_an_error(end):
    async with serving(Reply([sse(chunk({"content": "Hel"}), done=False), end])) as server:
        events = at(server).stream(ModelRequest(messages=[HELLO]))
        first = await anext(events)
        assert isinstance(first, TextDelta)
        with pytest.raises(ProviderError) as caught:
            await anext(events)
    assert isinstance(caught.value, BrokeOff)


async def test_an_answer_cut_inside_a_line_is_an_error():
    raw = sse(*said("ok"), done=False)
    assert (await failure(stream(raw[:20], framing="close"))).passing


@pytest.mark.parametrize("broken", ['{"choices": [{"delta": {"content": "x"', "{'a': 1}", "nonsense", "[" * 100_000])
async def test_a_chunk_that_cannot_be_read_is_an_error_since_something_is_missing(broken):
    error = await failure(stream(sse(chunk({"content": "a"}), broken, *said("b"))))
    assert error.passing
    assert "cannot be read" in error.message


@pytest.mark.parametrize(
    ("inside", "kind", "passing"),
    [
        ({"error": {"message": "Overloaded", "type": "overloaded_error"}}, ErrorKind.SYSTEM, True),
        ({"error": {"message": "Slow down", "code": "rate_limit_exceeded"}}, ErrorKind.RATE_LIMITED, True),
        ({"error": {"message": "Upstream", "code": 502}, **chunk(finish="error")}, ErrorKind.SYSTEM, True),
        ({"error": {"message": "Bad", "code": 400}}, ErrorKind.VALIDATION, False),
        ({"error": "plain words"}, ErrorKind.SYSTEM, True),
        ({"object": "error", "message": "old style", "code": 400}, ErrorKind.VALIDATION, False),
    ],
)
@pytest.mark.parametrize("after", [0, 1])
async def test_an_error_inside_the_stream_is_raised(inside, kind, passing, after):
    error = await failure(stream(sse(*[chunk({"content": "a"})] * after, inside, *said("b"))))
    assert (error.kind, error.passing) == (kind, passing)
    assert isinstance(error, BrokeOff) == (passing and after > 0)


async def test_an_error_event_is_raised_whatever_its_data():
    raw = sse(chunk({"content": "a"}), done=False) + b"event: error\ndata: out of memory\n\n"
    assert "out of memory" in (await failure(stream(raw))).message


async def test_closing_early_closes_the_connection():
    async with serving(Reply([sse(chunk({"content": "Hel"}), done=False), asyncio.Event().wait])) as server:
        async with aclosing(at(server).stream(ModelRequest(messages=[HELLO]))) as events:
            assert isinstance(await anext(events), TextDelta)
        await server.left.wait()


async def test_a_server_that_does_not_close_after_done_does_not_hold_us():
    async with serving(Reply([sse(*said("ok")), asyncio.Event().wait])) as server:
        assert (await answer(at(server)))[1].text == "ok"


async def test_one_connection_serves_a_whole_conversation():
    async with serving(stream(sse(*said("ok")), every=7)) as server:
        provider = at(server)
        for _ in range(5):
            await answer(provider)
    assert server.opened == 1


async def test_a_busy_server_is_asked_again():
    async with serving(refusal(503), refusal(429, Retry_After="1"), Reply([RESET]), stream(sse(*said("ok")))) as server:
        assert (await answer(at(server)))[1].text == "ok"
    assert len(server.asked) == 4


async def test_a_history_that_does_not_fit_has_its_own_error():
    error = await failure(refusal(400, {"error": {"message": "too big", "code": "context_length_exceeded"}}))
    assert isinstance(error, PromptTooLong)


# Every split is the same


RECORDED = b": comment\r\n\r\n" + sse(
    chunk({"role": "assistant", "content": ""}),
    chunk({"content": "Grüße 😀, "}),
    chunk({"content": "let me\nsee."}),
    *called(
        piece(0, "a", "weather", '{"city":"K'),
        piece(1, "b", "time", ""),
        piece(0, None, None, 'öln"}'),
        piece(1, None, None, "{}"),
    ),
    {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 3}},
    end="\r\n",
).replace(b"\\u00f6", "ö".encode()).replace(b"\\ud83d\\ude00", "😀".encode())
MADE = Message(
    "assistant",
    "Grüße 😀, let me\nsee.",
    (ToolCall("weather", '{"city":"Köln"}', "a"), ToolCall("time", "{}", "b")),
    finish="calls",
    usage=Usage(9, 3),
)


@pytest.mark.slow
async def test_every_cut_of_a_stream_gives_the_same_message():
    async with serving(Reply()) as server:
        provider = at(server)
        for place in range(len(RECORDED) + 1):
            server.replies = [
                Reply([RECORDED[:place], RECORDED[place:]], headers={"Content-Type": "text/event-stream"})
            ]
            assert (await answer(provider))[1] == MADE


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13, 64])
async def test_every_size_of_piece_gives_the_same_message(size):
    async with serving(stream(RECORDED, every=size)) as server:
        assert (await answer(at(server)))[1] == MADE


def texts_of(parts) -> list[str]:
    return [part.text for part in parts if isinstance(part, TextDelta)]


@given(st.lists(st.integers(0, len(RECORDED)), max_size=40))
@settings(max_examples=200, deadline=None)
def test_any_split_gives_the_same_message(cuts):
    reader, found = EventReader(), ChatReader("x", set(), lambda error: ProviderError(str(error)))
    ends = [*sorted(cuts), len(RECORDED)]
    texts: list[str] = []
    for start, end in zip([0, *ends], ends, strict=False):
        texts += [text for event in reader.feed(RECORDED[start:end]) for text in texts_of(found.take(event))]
    texts += [text for event in reader.finish() for text in texts_of(found.take(event))]
    assert "".join(texts) == MADE.text
    assert found.message() == MADE


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "choices",
                    "delta",
                    "message",
                    "index",
                    "id",
                    "tool_calls",
                    "function",
                    "name",
                    "arguments",
                    "content",
                    "refusal",
                    "finish_reason",
                    "usage",
                    "prompt_tokens",
                    "reasoning_details",
                    "type",
                    "text",
                    "x_groq",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@given(st.lists(JSON | st.lists(JSON, max_size=3).map(lambda calls: chunk({"tool_calls": calls})), max_size=6))
@settings(max_examples=300, deadline=None)
def test_no_json_at_all_breaks_the_reader(chunks):
    found = ChatReader("x", set(), lambda error: ProviderError(str(error)))
    texts = [text for one in chunks for text in texts_of(found.take(SentEvent("message", json.dumps(one))))]
    texts += texts_of(found.take(SentEvent("message", "[DONE]")))
    message = found.message()
    assert message.text == "".join(texts)
    ids = [call.id for call in message.tool_calls]
    assert all(ids)
    assert len(set(ids)) == len(ids)
    assert all(isinstance(call.arguments, str) for call in message.tool_calls)
    json.dumps(dict(message.extra))


# What is sent


async def test_a_request_is_spelled_as_the_api_wants_it():
    body = await sent(Message("system", "Be brief."), HELLO)
    assert body == {
        "model": "m",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


async def test_tools_are_strict_where_they_fit():
    (tool,) = (await sent(tools=[WEATHER]))["tools"]
    assert tool["function"]["strict"] is True
    assert tool["function"]["parameters"]["required"] == ["city", "days"]


async def test_tools_are_plain_where_strict_is_off():
    (tool,) = (await sent(tools=[WEATHER], provider={"strict": False}))["tools"]
    assert "strict" not in tool["function"]
    assert tool["function"]["parameters"]["required"] == ["city"]


@pytest.mark.parametrize(
    ("choice", "spelled"),
    [
        ("auto", "auto"),
        ("none", "none"),
        ("required", "required"),
        ("weather", {"type": "function", "function": {"name": "weather"}}),
        ({"type": "allowed_tools"}, {"type": "allowed_tools"}),
    ],
)
async def test_a_tool_can_be_chosen(choice, spelled):
    body = await sent(tools=[WEATHER], tool_choice=choice, parallel_tool_calls=False)
    assert body["tool_choice"] == spelled
    assert body["parallel_tool_calls"] is False


async def test_without_tools_nothing_is_said_about_them():
    body = await sent(tool_choice="required", parallel_tool_calls=True)
    assert not body.keys() & {"tools", "tool_choice", "parallel_tool_calls"}


async def test_options_are_passed_on():
    body = await sent(
        max_tokens=50,
        temperature=0.5,
        top_p=None,
        stop=["END"],
        seed=7,
        timeout=30,
        logit_bias={"1": 2},
        model="other",
        stream=False,
    )
    assert body["max_tokens"] == 50
    assert {key: body[key] for key in ("temperature", "stop", "seed", "logit_bias")} == {
        "temperature": 0.5,
        "stop": ["END"],
        "seed": 7,
        "logit_bias": {"1": 2},
    }
    assert not body.keys() & {"top_p", "timeout"}
    assert (body["model"], body["stream"]) == ("m", True)


async def test_the_time_allowed_is_an_option():
    assert (await failure(Reply(before=asyncio.Event().wait), timeout=0.05)).kind == ErrorKind.TIMEOUT


@pytest.mark.parametrize("timeout", ["soon", 0, -1, True])
async def test_a_time_that_is_none_is_said_so(timeout):
    assert (await failure(Reply(), timeout=timeout)).kind == ErrorKind.VALIDATION


async def test_calls_and_results_are_sent_back():
    messages = [
        HELLO,
        Message(
            "assistant",
            tool_calls=(ToolCall("weather", '{"city": "Köln"}', "a"), ToolCall("time", {"zone": "CET"}, "b")),
        ),
        Message("tool", "Rain", call_id="a"),
        Message("tool", "", call_id="b"),
    ]
    _, assistant, first, second = (await sent(*messages))["messages"]
    assert assistant == {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Köln"}'}},
            {"id": "b", "type": "function", "function": {"name": "time", "arguments": '{"zone": "CET"}'}},
        ],
    }
    assert first == {"role": "tool", "tool_call_id": "a", "content": "Rain"}
    assert second == {"role": "tool", "tool_call_id": "b", "content": ""}


@pytest.mark.parametrize(
    ("arguments", "wire"),
    [
        ('{"a": 1}', {"a": 1}),
        ("", {}),
        ("  ", {}),
        ('{"a": ', {"_raw": '{"a": '}),
        ("[1]", {"_raw": "[1]"}),
        ('{"a": NaN}', {"_raw": '{"a": NaN}'}),
        ('"text"', {"_raw": '"text"'}),
        ("[" * 100_000, {"_raw": "[" * 100_000}),
        ('{"a": "\ud800"', {"_raw": '{"a": "?"'}),
    ],
)
async def test_broken_arguments_are_sent_back_as_an_object(arguments, wire):
    messages = [
        HELLO,
        Message("assistant", tool_calls=(ToolCall("f", arguments, "a"),)),
        Message("tool", "no", call_id="a"),
    ]
    call = (await sent(*messages))["messages"][1]["tool_calls"][0]
    assert json.loads(call["function"]["arguments"]) == wire


def pairs(body):
    """Ids of calls and of results, in order."""
    calls = [call["id"] for message in body["messages"] for call in message.get("tool_calls", ())]
    return calls, [message["tool_call_id"] for message in body["messages"] if message["role"] == "tool"]


@pytest.mark.parametrize("id", ["x" * 41, "with space", "ümlaut", "a/b", "a\ud800"])
@pytest.mark.parametrize("short", [False, True])
async def test_ids_a_server_would_refuse_are_mapped_the_same_way_every_time(id, short):
    turn = [Message("assistant", tool_calls=(ToolCall("f", "{}", id),)), Message("tool", "1", call_id=id)]
    one = pairs(await sent(HELLO, *turn, provider={"short_ids": short}))
    two = pairs(await sent(HELLO, *turn, HELLO, provider={"short_ids": short}))
    assert one == two
    assert one[0] == one[1]
    assert one[0][0].replace("_", "").isalnum()
    assert len(one[0][0]) == 9 if short else len(one[0][0]) <= 40


async def test_an_id_twice_in_a_message_is_sent_as_two():
    call = ToolCall("f", "{}", "same")
    body = await sent(HELLO, Message("assistant", tool_calls=(call, call)), *[Message("tool", "1", call_id="same")] * 2)
    calls, results = pairs(body)
    assert len(set(calls)) == 2
    assert calls == results


async def test_a_name_a_server_would_refuse_is_changed():
    calls = (ToolCall("my tool!", "{}", "a"), ToolCall("", "{}", "b"), ToolCall("x" * 100, "{}", "c"))
    body = await sent(
        HELLO, Message("assistant", tool_calls=calls), *[Message("tool", "1", call_id=id) for id in "abc"]
    )
    names = [call["function"]["name"] for call in body["messages"][1]["tool_calls"]]
    assert names == ["my_tool_", "unknown", "x" * 64]


async def test_every_call_has_its_result_right_after_it():
    calls = (ToolCall("f", "{}", "a"), ToolCall("f", "{}", "b"))
    body = await sent(
        HELLO,
        Message("assistant", tool_calls=calls),
        Message("tool", "1", call_id="b"),
        HELLO,
        Message("tool", "late", call_id="a"),
    )
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "tool", "tool", "user", "user"]
    assert "No result" in body["messages"][3]["content"]
    assert "late" in body["messages"][5]["content"]


async def test_an_empty_answer_is_not_sent_back():
    assert [message["role"] for message in (await sent(HELLO, Message("assistant"), HELLO))["messages"]] == [
        "user",
        "user",
    ]


PNG = Attachment("image/png", b"\x89PNG", "chart.png")
PNG_URL = f"data:image/png;base64,{b64encode(PNG.data).decode()}"


async def test_images_in_results_follow_all_results():
    calls = (ToolCall("f", "{}", "a"), ToolCall("f", "{}", "b"))
    body = await sent(
        HELLO,
        Message("assistant", tool_calls=calls),
        Message("tool", "see", call_id="a", attachments=(PNG,)),
        Message("tool", "zip", call_id="b", attachments=(Attachment("application/zip", b"PK", "x.zip"),)),
    )
    first, second, images = body["messages"][2:]
    assert first == {"role": "tool", "tool_call_id": "a", "content": "see"}
    assert second["content"] == "zip\n[x.zip: application/zip, 2 bytes, cannot be shown here]"
    assert images["role"] == "user"
    assert images["content"] == [
        {"type": "text", "text": "The images in the result of call a:"},
        {"type": "image_url", "image_url": {"url": PNG_URL}},
    ]


async def test_a_person_may_attach_images_and_documents():
    attached = (
        PNG,
        Attachment("application/pdf", b"%PDF", "a.pdf"),
        Attachment("image/bmp", b"BM"),
        Attachment("image/png", b""),
    )
    earlier = (
        Message("user", "Look", attachments=attached),
        Message("assistant", "Nice."),
        Message("user", "And now?"),
    )
    message = (await sent(*earlier))["messages"][0]
    kinds = [part["type"] for part in message["content"]]
    assert kinds == ["text", "image_url", "file", "text", "text"]
    assert message["content"][2]["file"]["filename"] == "a.pdf"


async def test_what_came_with_a_call_goes_back_with_it_to_the_same_model_only():
    signed = {"google": {"thought_signature": "SIG"}}
    chunks = [chunk({"reasoning_content": "Hmm"}), *called(piece(0, "a", "f", "{}", extra_content=signed))]
    async with serving(stream(sse(*chunks)), stream(sse(*said("ok")))) as server:
        _, message = await answer(at(server))
        history = [HELLO, message, Message("tool", "1", call_id="a")]
        await answer(at(server), *history)
        await answer(at(server, model="other"), *history)
    same, other = (body["messages"][1] for body in server.bodies[1:])
    assert same["reasoning_content"] == "Hmm"
    assert same["tool_calls"][0]["extra_content"] == signed
    assert "reasoning_content" not in other
    assert "extra_content" not in other["tool_calls"][0]


async def test_reasoning_details_are_joined():
    details = [
        {"type": "reasoning.text", "text": "a", "index": 0},
        {"type": "reasoning.text", "text": "b", "signature": "s", "index": 0},
        {"type": "reasoning.encrypted", "data": "x", "index": 1},
    ]
    message = await heard(*(chunk({"reasoning_details": [one]}) for one in details), *called(piece(0, "a", "f", "{}")))
    assert message.extra["openai"]["fields"]["reasoning_details"] == [
        {"type": "reasoning.text", "text": "ab", "signature": "s", "index": 0},
        details[2],
    ]


# Servers that know less


@pytest.mark.parametrize(
    ("refused", "key"),
    [
        ({"error": {"message": "Unrecognized request argument supplied: stream_options"}}, "stream_options"),
        ({"detail": [{"loc": ["body", "stream_options"], "msg": "Extra inputs are not permitted"}]}, "stream_options"),
        ({"error": {"message": "parallel_tool_calls is not supported"}}, "parallel_tool_calls"),
    ],
)
@pytest.mark.parametrize("status", [400, 422])
async def test_what_a_server_refuses_is_left_out_from_then_on(refused, key, status):
    async with serving(refusal(status, refused), stream(sse(*said("ok")))) as server:
        provider = at(server)
        await answer(provider, tools=[WEATHER], parallel_tool_calls=True)
        await answer(provider, tools=[WEATHER], parallel_tool_calls=True)
    assert [key in body for body in server.bodies] == [True, False, False]


async def test_strict_schemas_are_left_out_where_they_are_refused():
    no = refusal(400, {"error": {"message": "Invalid schema for function 'weather': …"}})
    async with serving(no, stream(sse(*said("ok")))) as server:
        await answer(at(server), tools=[WEATHER])
    assert ["strict" in body["tools"][0]["function"] for body in server.bodies] == [True, False]


async def test_the_other_name_for_max_tokens_is_tried():
    no = refusal(
        400, {"error": {"message": "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."}}
    )
    async with serving(no, stream(sse(*said("ok")))) as server:
        await answer(at(server), max_tokens=5)
    assert ["max_tokens" in body for body in server.bodies] == [True, False]
    assert server.bodies[1]["max_completion_tokens"] == 5


async def test_a_limit_that_is_too_high_is_an_error():
    error = await failure(refusal(400, {"error": {"message": "max_tokens is too large: 5. At most 4."}}), max_tokens=5)
    assert "too large" in error.message


NO_REASONING = refusal(400, {"error": {"message": "Function tools with reasoning_effort are not supported for m."}})


@pytest.mark.parametrize("options", [{}, {"reasoning_effort": "high"}])
async def test_reasoning_is_never_switched_off_silently(options):
    async with serving(NO_REASONING) as server:
        with pytest.raises(ProviderError) as caught:
            await answer(at(server), tools=[WEATHER], **options)
    assert len(server.asked) == 1
    assert "openai-responses:m" in caught.value.suggestion
    assert "reasoning_effort: none" in caught.value.suggestion


async def test_reasoning_is_switched_off_where_a_person_says_so():
    async with serving(stream(sse(*said("ok")))) as server:
        await answer(at(server), tools=[WEATHER], reasoning_effort="none")
    assert server.bodies[0]["reasoning_effort"] == "none"


async def test_the_same_refusal_twice_is_an_error():
    async with serving(refusal(400, {"error": {"message": "stream_options"}})) as server:
        with pytest.raises(ProviderError):
            await answer(at(server))
    assert len(server.asked) == 2


# Keys and addresses


async def test_without_a_key_none_is_sent(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    async with serving(stream(sse(*said("ok")))) as server:
        await answer(OpenAI("m", base_url=server.url, headers={"X-Title": "Forge"}))
    assert "authorization" not in server.asked[0].headers
    assert server.asked[0].headers["x-title"] == "Forge"


async def test_the_environment_says_where_and_with_which_key(monkeypatch):
    async with serving(stream(sse(*said("ok")))) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/deep/v1/?api-version=3")
        monkeypatch.setenv("OPENAI_API_KEY", f" {KEY}\n")
        await answer(OpenAI("m"))
    assert server.asked[0].path == "/deep/v1/chat/completions?api-version=3"
    assert server.asked[0].headers["authorization"] == f"Bearer {KEY}"


def test_no_key_is_said_before_anything_is_sent(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(ProviderError) as caught:
        OpenAI("m")
    assert caught.value.kind == ErrorKind.CONFIG
    assert "OPENAI_API_KEY" in caught.value.suggestion


def test_no_key_is_shown():
    assert KEY not in repr(OpenAI("m", api_key=KEY))


def test_a_base_url_that_is_none_is_said_so():
    with pytest.raises(ProviderError) as caught:
        OpenAI("m", base_url="http://[::1", api_key=KEY)
    assert caught.value.kind == ErrorKind.CONFIG


@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500])
async def test_a_key_the_server_repeats_is_not_told(status):
    error = await failure(refusal(status, {"error": {"message": f"Incorrect API key provided: {KEY}"}}))
    assert "[secret]" in error.message
