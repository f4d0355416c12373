"""Gemini: what we send is what Google's own package takes, and we read what it reads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import aclosing
from itertools import pairwise
from typing import Any

import pytest
from google import genai
from google.genai import types

from forge import Agent, Attachment, Limits, tool
from forge.core.events import ReasoningDelta, Retrying, TextDelta, ToolArgumentsDelta
from forge.core.messages import Message, ToolCall, Usage
from forge.core.provider import ModelRequest, ProviderError
from forge.core.registry import ToolRegistry
from forge.models.gemini import Gemini, GeminiModel, GeminiReader, request_body
from forge.models.http import post
from forge.models.http.events import EventReader
from forge.models.http.outgoing import BrokeOff, PromptTooLong
from forge.models.vendors import provider_for
from forge.tools import built_ins
from tests.models.serving import Reply, Server, refusal, serving, sse, stream

KEY = "key-that-nobody-may-see-0123456789"
ASK = ModelRequest(messages=[Message("user", "What is the weather?")])
PNG = Attachment("image/png", b"\x89PNG\r\n", "chart.png")
PDF = Attachment("application/pdf", b"%PDF-1.7", "paper.pdf")


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []

    async def pause(seconds: float) -> None:
        found.append(seconds)

    monkeypatch.setattr(post, "pause", pause)
    return found


def response(*parts: dict[str, Any], finish: str = "", **more: Any) -> dict[str, Any]:
    candidate = {"index": 0, "content": {"role": "model", "parts": list(parts)}}
    return {"candidates": [{**candidate, **({"finishReason": finish} if finish else {})}], **more}


USAGE = {
    "promptTokenCount": 100,
    "cachedContentTokenCount": 60,
    "candidatesTokenCount": 20,
    "thoughtsTokenCount": 7,
    "totalTokenCount": 127,
}
RICH = [
    response({"text": "Which city? 🌍", "thought": True}, usageMetadata={"promptTokenCount": 100}),
    response({"text": "Let me "}),
    response({"text": "look: Zürich 🏔"}),
    response(
        {"functionCall": {"name": "weather", "args": {"city": "Zürich"}, "id": "c1"}, "thoughtSignature": "c2ln"},
        {"functionCall": {"name": "now", "id": "c2"}},
    ),
    response({"text": "", "thoughtSignature": "ZW5k"}, finish="STOP", usageMetadata=USAGE),
]


async def ask(server: Server, request: ModelRequest = ASK, model: str = "gemini-3-pro", **options: Any) -> list[Any]:
    provider = Gemini(model, base_url=f"{server.url}/v1", api_key=KEY, **options)
    async with aclosing(provider.stream(request)) as parts:
        return [part async for part in parts]


def body(*messages: Message, model: str = "gemini-3-pro", **options: Any) -> dict[str, Any]:
    made = request_body(ModelRequest(messages=messages, options=options), model=GeminiModel(model), origin="here")
    check(made)
    return made


def check(sent: dict[str, Any]) -> None:
    """Google's types refuse keys that they do not know."""
    for content in sent["contents"]:
        types.Content.model_validate(content)
        assert content["parts"]
    for one in sent.get("tools", ()):
        types.Tool.model_validate(one)
    if "systemInstruction" in sent:
        types.Content.model_validate(sent["systemInstruction"])
    types.GenerationConfig.model_validate(sent.get("generationConfig", {}))
    types.ToolConfig.model_validate(sent.get("toolConfig", {}))
    roles = [content["role"] for content in sent["contents"]]
    assert all(one != other for one, other in pairwise(roles))
    assert roles[0] == roles[-1] == "user"


async def test_an_answer_in_pieces_of_any_size():
    for every in (0, 1, 7, 64):
        async with serving(stream(sse(*RICH, done=False), every=every)) as server:
            *deltas, message = await ask(server)
        assert [one.text for one in deltas if isinstance(one, TextDelta)] == ["Let me ", "look: Zürich 🏔"]
        assert [one.text for one in deltas if isinstance(one, ReasoningDelta)] == ["Which city? 🌍"]
        written = [(one.call.name, one.text) for one in deltas if isinstance(one, ToolArgumentsDelta)]
        assert written == [("weather", '{"city": "Zürich"}'), ("now", "{}")]
        assert message.text == "Let me look: Zürich 🏔"
        assert message.tool_calls == (ToolCall("weather", '{"city": "Zürich"}', "c1"), ToolCall("now", "{}", "c2"))
        assert message.finish == "calls"
        assert message.usage == Usage(100, 27, 60, reasoning=7)
    assert server.asked[0].path == "/v1/models/gemini-3-pro:streamGenerateContent?alt=sse"
    assert server.asked[0].headers["x-goog-api-key"] == KEY


async def test_googles_own_client_reads_the_same_from_our_server():
    async with serving(stream(sse(*RICH, done=False))) as server:
        client = genai.Client(api_key=KEY, http_options=types.HttpOptions(base_url=server.url))
        chunks = [
            chunk
            async for chunk in await client.aio.models.generate_content_stream(
                model="gemini-3-pro",
                contents="What is the weather?",
                config=types.GenerateContentConfig(thinking_config=types.ThinkingConfig(include_thoughts=True)),
            )
        ]
        await client.aio.aclose()
        await ask(server)
        theirs, ours = server.asked
    parts = [part for chunk in chunks for part in chunk.candidates[0].content.parts]
    assert [part.function_call.name for part in parts if part.function_call] == ["weather", "now"]
    assert "".join(part.text for part in parts if part.text and not part.thought) == "Let me look: Zürich 🏔"
    assert theirs.path == ours.path
    spelled = theirs.raw.replace(b"include_thoughts", b"includeThoughts")  # the API takes both
    assert json.loads(spelled) == ours.body
    assert theirs.headers["x-goog-api-key"] == ours.headers["x-goog-api-key"]


async def test_an_answer_goes_back_as_it_came_with_its_signatures():
    async with serving(stream(sse(*RICH, done=False))) as server:
        *_, message = await ask(server)
        results = [Message("tool", "sunny", call_id="c1"), Message("tool", "noon", call_id="c2")]
        await ask(server, ModelRequest(messages=[*ASK.messages, message, *results]))
    check(server.bodies[1])
    _, model, user = server.bodies[1]["contents"]
    assert model == {
        "role": "model",
        "parts": [
            {"text": "Let me look: Zürich 🏔"},
            {"functionCall": {"name": "weather", "args": {"city": "Zürich"}, "id": "c1"}, "thoughtSignature": "c2ln"},
            {"functionCall": {"name": "now", "args": {}, "id": "c2"}},
            {"text": "", "thoughtSignature": "ZW5k"},
        ],
    }
    assert user["parts"] == [
        {"functionResponse": {"name": "weather", "response": {"output": "sunny"}, "id": "c1"}},
        {"functionResponse": {"name": "now", "response": {"output": "noon"}, "id": "c2"}},
    ]


def test_a_call_of_another_model_says_that_it_has_no_signature():
    other = Message("assistant", "", (ToolCall("now", {}, "x"),), extra={"openai": {"from": "there"}})
    made = body(Message("user", "Hi"), other, Message("tool", "noon", call_id="x"))
    assert made["contents"][1]["parts"] == [
        {"functionCall": {"name": "now", "args": {}}, "thoughtSignature": "skip_thought_signature_validator"}
    ]
    assert "id" not in made["contents"][2]["parts"][0]["functionResponse"]
    older = body(Message("user", "Hi"), other, Message("tool", "noon", call_id="x"), model="gemini-2.5-flash")
    assert older["contents"][1]["parts"] == [{"functionCall": {"name": "now", "args": {}}}]


def test_files_in_results_are_part_of_the_result_or_follow_it():
    call = Message("assistant", "", (ToolCall("draw", {}, "x"), ToolCall("now", {}, "y")))
    result = Message("tool", "drawn", call_id="x", attachments=(PNG, PDF, Attachment("application/zip", b"z", "a.zip")))
    new = body(Message("user", "Hi"), call, result, Message("tool", "noon", call_id="y"))["contents"][2]["parts"]
    assert [part["inlineData"]["mimeType"] for part in new[0]["functionResponse"]["parts"]] == [
        "image/png",
        "application/pdf",
    ]
    assert "a.zip: application/zip, 1 bytes, cannot be shown here" in new[0]["functionResponse"]["response"]["output"]
    old = body(Message("user", "Hi"), call, result, Message("tool", "noon", call_id="y"), model="gemini-2.5-pro")[
        "contents"
    ][2]["parts"]
    kinds = [next(iter(part)) for part in old]
    assert kinds == ["functionResponse", "functionResponse", "text", "inlineData", "inlineData"]


def test_a_failed_call_is_an_error_and_a_lost_one_gets_an_answer():
    call = Message("assistant", "", (ToolCall("one", {}, "x"), ToolCall("two", "not json", "y")))
    made = body(call, Message("tool", "broken", call_id="x", is_error=True))
    assert made["contents"][0] == {"role": "user", "parts": [{"text": "Continue."}]}
    assert made["contents"][1]["parts"][1]["functionCall"]["args"] == {"_raw": "not json"}
    assert [part["functionResponse"]["response"] for part in made["contents"][2]["parts"]] == [
        {"error": "broken"},
        {"error": "No result of this call was recorded."},
    ]


def test_options_are_spelled_as_the_api_spells_them():
    made = body(
        Message("system", "Be brief."),
        Message("user", "Hi", attachments=(PNG,)),
        max_tokens=10,
        temperature=0,
        top_p=0.5,
        stop="END",
        seed=1,
        timeout=5,
        safety_settings=[{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}],
        cached_content="cachedContents/1",
        response_format={"type": "json_schema", "json_schema": {"schema": {"type": "object"}}},
    )
    assert made["systemInstruction"] == {"parts": [{"text": "Be brief."}]}
    assert made["cachedContent"] == "cachedContents/1"
    assert made["generationConfig"] == {
        "maxOutputTokens": 10,
        "temperature": 0,
        "topP": 0.5,
        "stopSequences": ["END"],
        "seed": 1,
        "responseMimeType": "application/json",
        "responseJsonSchema": {"type": "object"},
        "thinkingConfig": {"includeThoughts": True},
    }


@pytest.mark.parametrize(
    ("model", "wish", "sent"),
    [
        ("gemini-3-pro", "low", {"includeThoughts": True, "thinkingLevel": "low"}),
        ("gemini-3-pro", 500, {"includeThoughts": True, "thinkingBudget": 500}),
        ("gemini-2.5-flash", "low", {"includeThoughts": True, "thinkingBudget": 1024}),
        ("gemini-2.5-flash", "none", {"thinkingBudget": 0}),
        ("gemini-2.5-flash", False, {"thinkingBudget": 0}),
        ("gemini-2.5-flash", True, {"includeThoughts": True, "thinkingBudget": -1}),
        ("gemini-2.5-pro", {"thinking_budget": 128}, {"thinkingBudget": 128}),
        ("gemini-2.0-flash", "none", None),
        ("gemini-2.0-flash", None, None),
        ("gemma-3-27b-it", None, None),
        ("gemini-2.5-flash-image", None, None),
    ],
)
def test_thinking_is_asked_for_as_the_model_understands_it(model, wish, sent):
    for name in ("thinking", "reasoning_effort"):
        made = body(Message("user", "Hi"), model=model, **{name: wish})
        assert made.get("generationConfig", {}).get("thinkingConfig") == sent


@pytest.mark.parametrize(
    ("model", "wish", "says"),
    [
        ("gemini-2.0-flash", "high", "it does not think"),
        ("gemini-2.5-pro", "none", "cannot be switched off"),
        ("gemini-3-pro", 0, "cannot be switched off"),
        ("gemini-3-pro", "hardest", "is no level of thinking"),
    ],
)
def test_what_a_model_cannot_do_is_said_before_the_request(model, wish, says):
    with pytest.raises(ProviderError, match=says) as refused:
        body(Message("user", "Hi"), model=model, thinking=wish)
    assert refused.value.suggestion


@pytest.mark.parametrize(
    ("choice", "config"),
    [
        ("required", {"mode": "ANY"}),
        ("none", {"mode": "NONE"}),
        ("now", {"mode": "ANY", "allowedFunctionNames": ["now"]}),
    ],
)
def test_every_built_in_tool_can_be_declared_and_one_can_be_demanded(choice, config):
    specs = [tool.spec for tool in built_ins(ToolRegistry())]
    request = ModelRequest(messages=ASK.messages, tools=specs, options={"tool_choice": choice})
    made = request_body(request, model=GeminiModel("gemini-3-pro"))
    check(made)
    assert len(made["tools"][0]["functionDeclarations"]) == len(specs) > 30
    assert made["toolConfig"] == {"functionCallingConfig": config}


@pytest.mark.parametrize("reason", ["SAFETY", "RECITATION", "PROHIBITED_CONTENT", "SPII", "BLOCKLIST"])
async def test_a_blocked_answer_is_refused_and_its_calls_do_not_run(reason):
    blocked = response({"functionCall": {"name": "now", "args": {}}}, finish=reason)
    async with serving(stream(sse(blocked, done=False))) as server:
        *_, message = await ask(server)
    assert (message.finish, message.tool_calls) == ("refused", ())
    assert message.extra["gemini"]["refusal"]["reason"] == reason


async def test_a_blocked_prompt_is_refused():
    async with serving(stream(sse({"promptFeedback": {"blockReason": "SAFETY"}}, done=False))) as server:
        *_, message = await ask(server)
    assert message.finish == "refused"


async def test_a_cut_answer_and_a_garbled_call():
    async with serving(
        stream(sse(response({"text": "Half"}, finish="MAX_TOKENS"), done=False)),
        stream(sse(response(finish="MALFORMED_FUNCTION_CALL"), done=False)),
    ) as server:
        *_, message = await ask(server)
        assert (message.text, message.finish) == ("Half", "length")
        with pytest.raises(BrokeOff, match="MALFORMED_FUNCTION_CALL"):
            await ask(server)


def test_a_stream_that_is_cut_anywhere_never_looks_complete():
    raw = sse(*RICH, done=False)
    whole = read(raw)
    assert whole is not None
    last = raw.index(b'"finishReason"')
    for end in range(len(raw)):
        found = read(raw[:end])
        assert (found is None) if end < last else (found in (None, whole))


def read(raw: bytes) -> Message | None:
    reader = GeminiReader("here", set(), lambda error: ProviderError(str(error)))
    events = EventReader()
    try:
        for event in [*events.feed(raw), *events.finish()]:
            for _ in reader.take(event):
                pass
        return reader.message()
    except ProviderError:
        return None


async def test_unknown_parts_events_and_comments_do_no_harm():
    odd: Sequence[Any] = [
        {"candidates": "none"},
        {"candidates": [{"index": 1, "content": {"parts": [{"text": "another"}]}}]},
        {"candidates": [7, {"content": {"parts": [None, {"weird": 1}, {"text": 5}, {"text": "Hi"}]}}]},
        {"usageMetadata": {"promptTokenCount": "many"}},
        {"somethingNew": True},
        response(finish="STOP"),
    ]
    raw = b": keep-alive\n\n" + sse(*odd, done=False).replace(b"\n\n", b"\n\n: ping\n\n")
    async with serving(stream(raw)) as server:
        *_, message = await ask(server)
    assert message.text == "Hi"
    assert message.finish == "stop"
    again = body(
        Message("user", "Hi"),
        Message(
            "assistant",
            message.text,
            extra={"gemini": {"from": "here", "entries": message.extra["gemini"]["entries"][1:]}},
        ),
    )
    assert again["contents"][1]["parts"][-1] == {"text": "Hi"}


async def test_arguments_of_ten_megabytes():
    long = "x" * 10_000_000
    call = response({"functionCall": {"name": "write", "args": {"text": long}}}, finish="STOP")
    async with serving(stream(sse(call, done=False), every=65_536)) as server:
        *_, message = await ask(server)
    assert json.loads(message.tool_calls[0].arguments) == {"text": long}


QUOTA = {
    "error": {
        "code": 429,
        "message": "Quota exceeded.",
        "status": "RESOURCE_EXHAUSTED",
        "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34s"}],
    }
}


@pytest.mark.parametrize(
    ("reply", "at_least"),
    [
        (refusal(429, QUOTA), 34),
        (refusal(429, QUOTA, Retry_After="7"), 7),
        (refusal(429, {"error": {"code": 429, "message": "slow down"}}), 0),
        (refusal(503, {"error": {"code": 503, "message": "overloaded"}}), 0),
    ],
)
async def test_a_server_that_is_busy_is_asked_again_when_it_says(waits, reply, at_least):
    async with serving(reply, stream(sse(*RICH, done=False))) as server:
        retrying, *_, message = await ask(server)
    assert isinstance(retrying, Retrying)
    assert message.finish == "calls"
    assert len(waits) == 1
    assert at_least <= waits[0] <= at_least * 1.1 + 1


async def test_an_error_in_the_middle_is_not_an_answer():
    broken = sse(RICH[1], {"error": {"code": 500, "message": "lost"}}, done=False)
    async with serving(stream(broken)) as server:
        with pytest.raises(BrokeOff, match="lost"):
            await ask(server)
    assert len(server.asked) == 1


async def test_a_wrong_key_is_named_and_not_shown(monkeypatch):
    wrong = {"error": {"code": 400, "message": f"API key not valid: {KEY}", "status": "INVALID_ARGUMENT"}}
    async with serving(refusal(400, wrong)) as server:
        monkeypatch.setenv("GEMINI_BASE_URL", server.url)
        monkeypatch.delenv("GEMINI_API_KEY", raising=False)
        monkeypatch.setenv("GOOGLE_API_KEY", KEY)
        provider = provider_for("gemini:gemini-3-pro")
        with pytest.raises(ProviderError) as refused:
            [part async for part in provider.stream(ASK)]
    assert "GOOGLE_API_KEY" in refused.value.suggestion
    assert KEY not in str(refused.value)
    assert server.asked[0].headers["x-goog-api-key"] == KEY


async def test_an_unknown_model_gets_the_nearest():
    missing = refusal(404, {"error": {"code": 404, "message": "models/gemini-3-por is not found"}})
    listed = {"models": [{"name": "models/gemini-3-pro"}, {"name": "models/embedding-001"}]}
    async with serving(missing, Reply([json.dumps(listed).encode()], framing="length")) as server:
        with pytest.raises(ProviderError) as refused:
            await ask(server, model="gemini-3-por")
    assert refused.value.suggestion == "Did you mean gemini-3-pro?"
    async with serving(missing, refusal(500)) as server:
        with pytest.raises(ProviderError) as refused:
            await ask(server, model="gemini-3-por")
    assert "Check the model's name" in refused.value.suggestion


async def test_a_prompt_that_is_too_long_can_be_shortened():
    said = {"error": {"code": 400, "message": "The input token count (2000000) exceeds the maximum context length."}}
    async with serving(refusal(400, said)) as server:
        with pytest.raises(PromptTooLong):
            await ask(server)


def test_without_a_key_the_variable_is_named(monkeypatch):
    for name in ("GEMINI_API_KEY", "GOOGLE_API_KEY", "GEMINI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ProviderError, match="GEMINI_API_KEY is not set"):
        provider_for("gemini:gemini-3-pro")
    monkeypatch.setenv("GOOGLE_API_KEY", KEY)
    assert repr(provider_for("gemini:gemini-3-pro")) == "<Gemini gemini:gemini-3-pro>"


async def test_a_whole_run_through_the_agent():
    @tool
    def weather(city: str) -> str:
        """Tell the weather."""
        return f"sunny in {city}"

    final = response({"text": "It is sunny."}, finish="STOP", usageMetadata=USAGE)
    call = {"functionCall": {"name": "weather", "args": {"city": "Bern"}}, "thoughtSignature": "c2ln"}
    async with serving(
        stream(sse(response(call, finish="STOP"), done=False)), stream(sse(final, done=False))
    ) as server:
        model = Gemini("gemini-3-pro", base_url=server.url, api_key=KEY)
        result = await Agent(model, tools=[weather], limits=Limits(turns=3)).run("Weather?")
    assert result.text == "It is sunny."
    for sent in server.bodies:
        check(sent)
    assert server.bodies[1]["contents"][1]["parts"] == [call]
    assert server.bodies[1]["contents"][2]["parts"][0]["functionResponse"]["response"] == {"output": "sunny in Bern"}
