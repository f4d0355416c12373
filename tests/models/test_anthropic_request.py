"""What the Messages API is sent: every history in the form it takes, and nothing it refuses."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forge.core.messages import Message, ToolCall
from forge.core.provider import ModelRequest
from forge.core.registry import ToolRegistry
from forge.core.result import Attachment
from forge.models.anthropic import Anthropic, request_body
from tests.models.serving import Server, named_sse, serving, stream

PNG = b"\x89PNG\r\n\x1a\nrest"
MARK = {"type": "ephemeral"}
USER = Message("user", "Hello")
SIGNED = {"type": "thinking", "thinking": "hm", "signature": "sig=="}

DONE = named_sse(
    (
        "content_block_start",
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "."}},
    ),
    ("message_delta", {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}}),
    ("message_stop", {"type": "message_stop"}),
)


def weather(city: str) -> str:
    """Say the weather."""
    return city


def now() -> str:
    """Say the time."""
    return ""


async def sent(*messages: Message, tools: bool = False, thinking: Any = None, **options: Any) -> Any:
    """The body that reached the server."""
    async with serving(stream(DONE)) as server:
        await ask(server, *messages, tools=tools, thinking=thinking, **options)
        body = server.bodies[-1]
    check(body)
    return body


async def ask(server: Server, *messages: Message, tools: bool = False, thinking: Any = None, **options: Any) -> Message:
    registry = ToolRegistry([weather, now] if tools else [])
    request = ModelRequest(messages=messages, options=options, definitions_for=registry.definitions)
    provider = Anthropic("claude-x", base_url=server.url, api_key="secret-key", thinking=thinking)
    *_, last = [one async for one in provider.stream(request)]
    assert isinstance(last, Message)
    return last


def check(body: Any) -> None:
    """The rules whose breach the API answers with 400."""
    turns = body["messages"]
    assert [turn["role"] for turn in turns] == ["user", "assistant"] * (len(turns) // 2) + ["user"]
    assert json.dumps(body).count('"cache_control"') <= 4
    ids: list[str] = []
    owed: list[str] = []
    for turn in turns:
        assert turn["content"]
        kinds = [block["type"] for block in turn["content"]]
        results = [block["tool_use_id"] for block in turn["content"] if block["type"] == "tool_result"]
        assert kinds[: len(results)] == ["tool_result"] * len(results)
        assert sorted(results) == sorted(owed)
        owed = [block["id"] for block in turn["content"] if block["type"] == "tool_use"]
        ids += owed
        assert turn["role"] == "user" or kinds[-1] not in ("thinking", "redacted_thinking")
        for block in texts(turn["content"]):
            assert block["text"].strip()
        for block in turn["content"]:
            if block["type"] == "tool_use":
                assert re.fullmatch(r"[a-zA-Z0-9_-]+", block["id"])
                assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", block["name"])
                assert isinstance(block["input"], dict)
    assert len(set(ids)) == len(ids)
    assert all(block["text"].strip() for block in body.get("system", []))


def texts(blocks: Any) -> Iterator[Any]:
    for block in blocks:
        if block["type"] == "text":
            yield block
        elif isinstance(block.get("content"), list):
            yield from texts(block["content"])


def plain(content: Any) -> list[Any]:
    return [{key: value for key, value in block.items() if key != "cache_control"} for block in content]


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def called(*ids: str, words: str = "", arguments: Any = "{}", extra: Any = None) -> Message:
    return Message("assistant", words, tuple(ToolCall("now", arguments, id) for id in ids), extra=extra or {})


def result(id: str, words: str = "ok", *attachments: Attachment) -> Message:
    return Message("tool", words, call_id=id, attachments=attachments)


async def test_a_first_question() -> None:
    body = await sent(Message("system", "Be brief."), Message("system", " "), Message("system", "Be kind."), USER)
    assert body == {
        "model": "claude-x",
        "max_tokens": 8192,
        "system": [text("Be brief."), {**text("Be kind."), "cache_control": MARK}],
        "messages": [{"role": "user", "content": [{**text("Hello"), "cache_control": MARK}]}],
        "stream": True,
    }


async def test_headers_and_address(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(stream(DONE)) as server:
        for base in (server.url, f"{server.url}/v1/", f"{server.url}/proxy"):
            [_ async for _ in Anthropic("m", base_url=base, api_key=" k-12345678\n").stream(ModelRequest(messages=[]))]
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "token-123")
        monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
        other = Anthropic("m", headers={"Anthropic-Beta": "new", "Anthropic-Version": "2099"})
        [_ async for _ in other.stream(ModelRequest(messages=[]))]
    assert [one.path for one in server.asked] == [
        *("/v1/messages", "/v1/messages", "/proxy/v1/messages", "/v1/messages")
    ]
    first, *_, last = (one.headers for one in server.asked)
    assert (first["x-api-key"], first["anthropic-version"]) == ("k-12345678", "2023-06-01")
    assert (last["authorization"], last["anthropic-beta"]) == ("Bearer token-123", "new")
    assert last["anthropic-version"] == "2099"
    assert "x-api-key" not in last


async def test_a_key_of_the_environment_goes_only_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key-of-the-environment")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "token-of-the-environment")
    async with serving(stream(DONE)) as server:
        [_ async for _ in Anthropic("m", base_url=server.url).stream(ModelRequest(messages=[]))]
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        [_ async for _ in Anthropic("m").stream(ModelRequest(messages=[]))]
    elsewhere, meant = (one.headers for one in server.asked)
    assert "environment" not in str(elsewhere)
    assert meant["x-api-key"] == "key-of-the-environment"


async def test_tools_and_the_stable_prefix_are_marked() -> None:
    body = await sent(
        Message("system", "Be brief."), USER, called("a"), result("a"), called("b"), result("b"), tools=True
    )
    assert [tool["name"] for tool in body["tools"]] == ["weather", "now"]
    assert body["tools"][0]["input_schema"]["properties"]["city"]
    assert "tool_choice" not in body
    marked = [block.get("cache_control") for turn in body["messages"] for block in turn["content"]]
    assert marked == [None, None, MARK, None, MARK]
    assert [tool.get("cache_control") for tool in body["tools"]] == [None, MARK]
    assert body["system"][-1]["cache_control"] == MARK


async def test_what_is_spelled_once_and_shared_stays_as_it_is() -> None:
    registry = ToolRegistry([now])
    request = ModelRequest(messages=[USER], definitions_for=registry.definitions)
    first = request_body(request, model="m", max_tokens=1)
    assert "cache_control" in first["tools"][0]
    assert "cache_control" not in registry.definitions("anthropic")[0]
    assert request_body(request, model="m", max_tokens=1) == first


@pytest.mark.parametrize(
    ("options", "choice"),
    [
        ({"tool_choice": "auto"}, {"type": "auto"}),
        ({"tool_choice": "none", "parallel_tool_calls": False}, {"type": "none"}),
        ({"tool_choice": "required"}, {"type": "any"}),
        ({"tool_choice": "now"}, {"type": "tool", "name": "now"}),
        ({"parallel_tool_calls": False}, {"type": "auto", "disable_parallel_tool_use": True}),
        (
            {"tool_choice": "required", "parallel_tool_calls": False},
            {"type": "any", "disable_parallel_tool_use": True},
        ),
        ({"parallel_tool_calls": True}, None),
        ({"tool_choice": None}, None),
    ],
)
async def test_tool_choice(options: dict[str, Any], choice: Any) -> None:
    assert (await sent(USER, tools=True, **options)).get("tool_choice") == choice
    assert "tool_choice" not in await sent(USER, **options)


async def test_options_are_spelled_or_passed_on() -> None:
    body = await sent(
        USER, max_tokens=5, temperature=0.5, top_p=None, stop="END", seed=1, timeout=9, metadata={"user_id": "u"}
    )
    kept = {key: body[key] for key in ("max_tokens", "temperature", "stop_sequences", "metadata")}
    assert kept == {"max_tokens": 5, "temperature": 0.5, "stop_sequences": ["END"], "metadata": {"user_id": "u"}}
    assert not {"top_p", "seed", "timeout", "stop"} & body.keys()
    assert (await sent(USER, stop=["a", "\n"]))["stop_sequences"] == ["a"]
    more = await sent(USER, tools=True)
    async with serving(stream(DONE)) as server:
        request = ModelRequest(messages=[USER], options={"tools": [{"type": "web_search", "name": "web"}], "stream": 0})
        [_ async for _ in Anthropic("m", base_url=server.url).stream(request)]
    assert [tool["name"] for tool in server.bodies[0]["tools"]] == ["web"]
    assert server.bodies[0]["stream"] is more["stream"] is True


async def test_thinking() -> None:
    assert "thinking" not in await sent(USER)
    assert (await sent(USER, thinking="adaptive"))["thinking"] == {"type": "adaptive"}
    assert (await sent(USER, thinking=True))["thinking"] == {"type": "adaptive"}
    assert "thinking" not in await sent(USER, thinking=False)
    body = await sent(USER, thinking=10_000)
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 10_000}
    assert body["max_tokens"] == 18_192
    assert (await sent(USER, thinking={"type": "enabled", "budget_tokens": 2000}))["max_tokens"] == 8192
    assert "thinking" not in await sent(USER, thinking=2000, tools=True, tool_choice="required")
    assert "thinking" in await sent(USER, thinking=2000, tools=True, tool_choice="auto")


def kept(*blocks: Any, origin: str = "", thinking: bool = True) -> dict[str, Any]:
    return {"anthropic": {"from": origin, "thinking": thinking, "blocks": list(blocks)}}


def spelled(*messages: Message, **settings: Any) -> Any:
    body = request_body(ModelRequest(messages=messages), model="m", max_tokens=9000, **settings)
    check(body)
    return body


def test_thoughts_go_back_where_they_were() -> None:
    redacted = {"type": "redacted_thinking", "data": "x"}
    second = {**SIGNED, "thinking": "again"}
    cited = {"type": "text", "length": 3, "citations": [{"url": "u"}]}
    layout = kept(
        SIGNED, redacted, cited, {"type": "tool_use"}, second, {"type": "text", "length": 2}, {"type": "tool_use"}
    )
    turn = called("a", "b", words="one22", extra=layout)
    body = spelled(USER, turn, result("a"), result("b"), thinking=2000)
    assert body["messages"][1]["content"] == [
        SIGNED,
        redacted,
        {**text("one"), "citations": [{"url": "u"}]},
        {"type": "tool_use", "id": "a", "name": "now", "input": {}},
        second,
        text("22"),
        {"type": "tool_use", "id": "b", "name": "now", "input": {}},
    ]
    assert body["thinking"]["budget_tokens"] == 2000


async def test_what_came_goes_back_as_it_came() -> None:
    def event(kind: str, **fields: Any) -> tuple[str, Any]:
        return kind, {"type": kind, **fields}

    answer = named_sse(
        event("content_block_start", index=0, content_block={"type": "thinking", "thinking": "", "signature": ""}),
        event("content_block_delta", index=0, delta={"type": "thinking_delta", "thinking": "hm"}),
        event("content_block_delta", index=0, delta={"type": "signature_delta", "signature": "sig=="}),
        event("content_block_start", index=1, content_block={"type": "text", "text": "Look"}),
        event(
            "content_block_start", index=2, content_block={"type": "tool_use", "id": "t", "name": "now", "input": {}}
        ),
        event("message_delta", delta={"stop_reason": "tool_use"}),
    )
    async with serving(stream(answer), stream(DONE)) as server:
        message = await ask(server, USER, tools=True, thinking=2000)
        await ask(server, USER, message, result("t"), tools=True, thinking=2000)
    check(server.bodies[1])
    assert server.bodies[1]["messages"][1]["content"] == [
        SIGNED,
        text("Look"),
        {"type": "tool_use", "id": "t", "name": "now", "input": {}},
    ]


def test_thoughts_of_others_or_unwanted_ones_stay_here() -> None:
    layout = [SIGNED, {"type": "tool_use"}]
    for extra, settings_ in (
        (kept(*layout, origin="https://elsewhere"), {"thinking": "adaptive"}),
        (kept(*layout), {"thinking": None}),
        (kept(*layout), {"thinking": {"type": "disabled"}}),
    ):
        body = spelled(USER, called("a", extra=extra), result("a"), **settings_)
        assert [block["type"] for block in body["messages"][1]["content"]] == ["tool_use"]
    by_itself = kept(*layout, thinking=False)
    body = spelled(USER, called("a", extra=by_itself), result("a"))
    assert body["messages"][1]["content"][0] == SIGNED


def test_a_turn_that_began_without_a_thought_goes_on_without() -> None:
    assert "thinking" not in spelled(USER, called("a"), result("a"), thinking=2000)
    assert "thinking" in spelled(USER, called("a"), result("a"), thinking="adaptive")
    assert "thinking" in spelled(USER, called("a"), result("a"), USER, Message("assistant", "x"), USER, thinking=2000)
    began = called("a", extra=kept(SIGNED, {"type": "tool_use"}))
    assert "thinking" in spelled(USER, began, result("a"), called("b"), result("b"), thinking=2000)


def test_a_text_that_was_changed_since_comes_after_the_thoughts() -> None:
    extra = kept(SIGNED, {"type": "text", "length": 100}, {"type": "tool_use"})
    body = spelled(USER, called("a", words="short", extra=extra), result("a"), thinking="adaptive")
    assert [block["type"] for block in body["messages"][1]["content"]] == ["thinking", "text", "tool_use"]


def test_nothing_but_a_thought_is_not_sent() -> None:
    body = spelled(USER, Message("assistant", extra=kept(SIGNED)), USER, thinking=2000)
    assert [turn["role"] for turn in body["messages"]] == ["user"]


def test_results_are_one_turn_before_what_else_was_said() -> None:
    body = spelled(USER, called("a", "b", words=" "), result("b", "2"), Message("user", "by the way"), result("a", ""))
    results, said = plain(body["messages"][2]["content"])[:2], body["messages"][2]["content"][2]
    assert results == [
        {"type": "tool_result", "tool_use_id": "b", "content": [text("2")]},
        {"type": "tool_result", "tool_use_id": "a"},
    ]
    assert said["text"] == "by the way"
    assert [block["type"] for block in body["messages"][1]["content"]] == ["tool_use", "tool_use"]


def test_a_failed_result_is_marked_as_an_error_and_another_is_not() -> None:
    failed = Message("tool", "a: no such file", call_id="a", is_error=True)
    body = spelled(USER, called("a", "b"), failed, result("b", "2"))
    assert plain(body["messages"][2]["content"])[:2] == [
        {"type": "tool_result", "tool_use_id": "a", "content": [text("a: no such file")], "is_error": True},
        {"type": "tool_result", "tool_use_id": "b", "content": [text("2")]},
    ]


def test_calls_without_result_and_results_without_call() -> None:
    body = spelled(result("x", "lost"), called("a"), USER, called("b"), result("b"), result("b", "again"))
    assert "lost" in body["messages"][0]["content"][0]["text"]
    answered = body["messages"][2]["content"]
    assert (answered[0]["tool_use_id"], answered[0]["is_error"]) == ("a", True)
    assert answered[1]["text"] == "Hello"
    assert "again" in body["messages"][4]["content"][1]["text"]


@pytest.mark.parametrize(
    "history",
    [
        (),
        (Message("system", "s"),),
        (Message("assistant", "I begin"),),
        (USER, Message("assistant", "first"), Message("assistant", "second")),
        (USER, USER, Message("user", ""), Message("assistant", " \n"), USER),
        (USER, called("a")),
        (called("a"), called("b"), result("b")),
    ],
)
def test_turns_alternate_whatever_the_history(history: tuple[Message, ...]) -> None:
    spelled(*history)


@pytest.mark.parametrize(
    ("arguments", "input"),
    [
        ('{"a": 1}', {"a": 1}),
        ("", {}),
        (" \n", {}),
        ({"a": (1, 2)}, {"a": [1, 2]}),
        ('{"city": "Zü', {"_raw": '{"city": "Zü'}),
        ("[1]", {"_raw": "[1]"}),
        ('{"a": NaN}', {"_raw": '{"a": NaN}'}),
        ("{" * 5000, {"_raw": "{" * 5000}),
        ('{"a": 1e999}', {"a": "Infinity"}),
        ("{\ud800", {"_raw": "{?"}),
    ],
)
async def test_arguments_go_back_as_an_object(arguments: Any, input: Any) -> None:
    body = await sent(USER, called("a", arguments=arguments), result("a"))
    assert body["messages"][1]["content"][0]["input"] == input


def test_ids_and_names_the_api_refuses_are_mapped_the_same_way_every_time() -> None:
    odd = ["", "call|1", "übel", "x" * 100, "call_0"]
    history = [USER]
    for _ in range(2):
        for id in odd:
            history += [Message("assistant", tool_calls=(ToolCall("a.b/c", "{}", id),)), result(id)]
    body = spelled(*history)
    assert body["messages"][1]["content"][0]["name"] == "a_b_c"
    assert body["messages"][9]["content"][0]["id"] == "call_0"
    shorter = spelled(*history[:-2])
    assert [turn["content"][0] for turn in shorter["messages"][:16]] == [
        turn["content"][0] for turn in body["messages"][:16]
    ]
    spelled(USER, called("a", "a"), result("a", "1"), result("a", "2"))
    spelled(USER, called("a"), result("a"), called("a-1", "a"), result("a-1"), result("a"))


async def test_images_and_documents_in_results_and_messages() -> None:
    image = Attachment("image/png", PNG)
    wrong = Attachment("image/png", b"\xff\xd8\xff\xe0")
    pdf = Attachment("application/pdf", b"%PDF")
    other = Attachment("audio/mpeg", b"123", "song.mp3")
    body = await sent(
        Message("user", "", attachments=(image, wrong)),
        called("a"),
        result("a", "", image, pdf, other, Attachment("", b"")),
    )
    shown = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgpyZXN0"}}
    first, last = plain(body["messages"][0]["content"]), body["messages"][2]["content"][0]["content"]
    assert first[0] == last[0] == shown
    assert first[1]["source"]["media_type"] == "image/jpeg"
    assert (last[1]["type"], last[1]["source"]["media_type"]) == ("document", "application/pdf")
    assert "song.mp3" in last[2]["text"]


_ids = st.sampled_from(["a", "b", "call|1", ""])
_words = st.sampled_from(["", " ", "hi", "\ud800"])
_entry = st.sampled_from([SIGNED, {"type": "text", "length": 2}, {"type": "tool_use"}])
_messages = st.builds(
    Message,
    st.sampled_from(["system", "user", "assistant", "tool"]),
    _words,
    call_id=_ids,
    extra=st.just({}) | st.lists(_entry, max_size=4).map(lambda entries: kept(*entries)),
) | st.builds(
    called, _ids, _ids, words=_words, arguments=st.sampled_from(["{}", "{", {"a": 1}]), extra=st.just(kept(SIGNED))
)


@settings(max_examples=200, deadline=None)
@given(st.lists(_messages, max_size=10), st.sampled_from([None, 2000, "adaptive"]))
def test_no_history_breaks_the_rules_of_the_api(history: list[Message], thinking: Any) -> None:
    spelled(*history, thinking=thinking)
