"""Bedrock: AWS's own package accepts our requests and signatures, and reads from our server what we read."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from contextlib import aclosing
from itertools import pairwise
from typing import Any

import botocore.session
import pytest
from botocore.config import Config
from botocore.eventstream import EventStreamBuffer
from botocore.validate import ParamValidator

from forge import Agent, Attachment, Limits, tool
from forge.core.events import ReasoningDelta, Retrying, TextDelta, ToolArgumentsDelta
from forge.core.messages import Message, ToolCall, Usage
from forge.core.provider import ModelRequest, ProviderError
from forge.core.registry import ToolRegistry
from forge.models.bedrock import Bedrock, BedrockModel, ConverseReader, request_body
from forge.models.http import post
from forge.models.http.events import LONGEST_EVENT, AwsEventReader, EventTooLong
from forge.models.http.outgoing import BrokeOff, PromptTooLong
from forge.models.vendors import provider_for
from forge.tools import built_ins
from tests.models.aws import aws_stream, event, exception, frame
from tests.models.serving import Reply, Server, refusal, serving

ASK = ModelRequest(messages=[Message("user", "What is the weather?")])
CLAUDE = "us.anthropic.claude-sonnet-5-20260101-v1:0"
PNG = Attachment("image/png", b"\x89PNG\r\n", "chart.png")
PDF = Attachment("application/pdf", b"%PDF-1.7", "my_paper.v2.pdf")
POINT = {"cachePoint": {"type": "default"}}

RICH = b"".join(
    [
        event("messageStart", role="assistant"),
        event("contentBlockDelta", contentBlockIndex=0, delta={"reasoningContent": {"text": "Which city? 🌍"}}),
        event("contentBlockDelta", contentBlockIndex=0, delta={"reasoningContent": {"signature": "c2ln"}}),
        event("contentBlockStop", contentBlockIndex=0),
        event("contentBlockDelta", contentBlockIndex=1, delta={"text": "Let me "}),
        event("contentBlockDelta", contentBlockIndex=1, delta={"text": "look: Zürich 🏔"}),
        event("contentBlockStop", contentBlockIndex=1),
        event("contentBlockStart", contentBlockIndex=2, start={"toolUse": {"toolUseId": "t1", "name": "weather"}}),
        event("contentBlockDelta", contentBlockIndex=2, delta={"toolUse": {"input": '{"city": "Zü'}}),
        event("contentBlockDelta", contentBlockIndex=2, delta={"toolUse": {"input": 'rich"}'}}),
        event("contentBlockStop", contentBlockIndex=2),
        event("contentBlockStart", contentBlockIndex=3, start={"toolUse": {"toolUseId": "t2", "name": "now"}}),
        event("contentBlockStop", contentBlockIndex=3),
        event("messageStop", stopReason="tool_use"),
        event(
            "metadata",
            usage={
                "inputTokens": 10,
                "outputTokens": 7,
                "totalTokens": 122,
                "cacheReadInputTokens": 100,
                "cacheWriteInputTokens": 5,
            },
            metrics={"latencyMs": 1},
        ),
    ]
)


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []

    async def pause(seconds: float) -> None:
        found.append(seconds)

    monkeypatch.setattr(post, "pause", pause)
    return found


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_BEARER_TOKEN_BEDROCK", raising=False)
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")


@pytest.fixture(scope="module")
def client() -> Any:
    session = botocore.session.Session()
    return lambda url: session.create_client(
        "bedrock-runtime",
        region_name="us-east-1",
        endpoint_url=url,
        aws_access_key_id="AKIDEXAMPLE",
        aws_secret_access_key="wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
        config=Config(retries={"max_attempts": 0}),
    )


async def ask(server: Server, request: ModelRequest = ASK, model: str = CLAUDE, **options: Any) -> list[Any]:
    provider = Bedrock(model, region="us-east-1", base_url=server.url, **options)
    async with aclosing(provider.stream(request)) as parts:
        return [part async for part in parts]


def body(*messages: Message, model: str = CLAUDE, tools: Any = (), **options: Any) -> dict[str, Any]:
    request = ModelRequest(messages=messages, tools=tools, options=options)
    made = request_body(request, model=BedrockModel(model), origin=model)
    check(made)
    return made


SHAPE = botocore.session.Session().get_service_model("bedrock-runtime").operation_model("ConverseStream").input_shape


def check(sent: dict[str, Any]) -> None:
    """AWS's validator refuses keys that it does not know; files are bytes to it."""
    report = ParamValidator().validate({"modelId": "m", **decode(sent)}, SHAPE)
    assert not report.has_errors(), report.generate_report()
    roles = [message["role"] for message in sent["messages"]]
    assert all(one != other for one, other in pairwise(roles))
    assert roles[0] == roles[-1] == "user"


def decode(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: b64decode(one) if name in ("bytes", "redactedContent") else decode(one) for name, one in value.items()
        }
    return [decode(one) for one in value] if isinstance(value, list) else value


async def test_an_answer_in_pieces_of_any_size():
    for every in (0, 1, 7, 64):
        async with serving(aws_stream(RICH, every=every)) as server:
            *deltas, message = await ask(server)
        assert [one.text for one in deltas if isinstance(one, TextDelta)] == ["Let me ", "look: Zürich 🏔"]
        assert [one.text for one in deltas if isinstance(one, ReasoningDelta)] == ["Which city? 🌍"]
        written = [(one.call.id, one.text) for one in deltas if isinstance(one, ToolArgumentsDelta)]
        assert written == [("t1", '{"city": "Zü'), ("t1", 'rich"}')]
        assert message.text == "Let me look: Zürich 🏔"
        assert message.tool_calls == (ToolCall("weather", '{"city": "Zürich"}', "t1"), ToolCall("now", "{}", "t2"))
        assert message.finish == "calls"
        assert message.usage == Usage(115, 7, 100, 5)
    assert server.asked[0].path == "/model/us.anthropic.claude-sonnet-5-20260101-v1%3A0/converse-stream"


async def test_aws_own_client_sends_the_same_and_reads_the_same(client):
    request = ModelRequest(messages=[Message("system", "Be brief."), *ASK.messages], options={"max_tokens": 9})
    async with serving(aws_stream(RICH)) as server:
        sent = body(*request.messages, **request.options)

        def theirs() -> list[Any]:
            answer = client(server.url).converse_stream(modelId=CLAUDE, **decode(sent))
            return list(answer["stream"])

        events = await asyncio.to_thread(theirs)
        await ask(server, request)
    texts = [one["contentBlockDelta"]["delta"].get("text", "") for one in events if "contentBlockDelta" in one]
    assert "".join(texts) == "Let me look: Zürich 🏔"
    first, second = server.asked
    assert first.path == second.path
    assert first.body == second.body
    assert second.headers["authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/")
    assert second.headers["content-type"] == "application/json"


def test_the_streams_of_these_tests_are_what_aws_reads():
    buffer = EventStreamBuffer()
    buffer.add_data(RICH)
    theirs = [(one.headers[":event-type"], one.payload.decode()) for one in buffer]
    ours = [(one.name, one.data) for one in AwsEventReader().feed(RICH)]
    assert ours == theirs
    assert len(ours) == 15


async def test_signed_reasoning_goes_back_while_the_model_thinks():
    results = [Message("tool", "sunny", call_id="t1"), Message("tool", "noon", call_id="t2")]
    async with serving(aws_stream(RICH)) as server:
        *_, message = await ask(server)
    history = [*ASK.messages, message, *results]
    thought = {"reasoningContent": {"reasoningText": {"text": "Which city? 🌍", "signature": "c2ln"}}}
    made = body(*history, thinking=2_000)
    assert made["messages"][1]["content"][0] == thought
    assert made["additionalModelRequestFields"] == {"thinking": {"type": "enabled", "budget_tokens": 2_000}}
    assert [next(iter(block)) for block in made["messages"][2]["content"]] == ["toolResult", "toolResult", "cachePoint"]
    assert thought not in body(*history)["messages"][1]["content"]
    forced = body(*history, thinking=2_000, tool_choice="required", tools=[find_weather.spec])
    assert "additionalModelRequestFields" not in forced
    assert thought not in forced["messages"][1]["content"]


@tool
def find_weather(city: str) -> str:
    """Tell the weather."""
    return f"sunny in {city}"


def test_a_turn_that_began_without_a_thought_goes_on_without_one():
    call = Message("assistant", "", (ToolCall("now", {}, "x"),))
    made = body(Message("user", "Hi"), call, Message("tool", "noon", call_id="x"), thinking=2_000)
    assert "additionalModelRequestFields" not in made
    later = body(
        Message("user", "Hi"),
        call,
        Message("tool", "noon", call_id="x"),
        Message("assistant", "It is noon."),
        Message("user", "Thanks"),
        thinking=2_000,
    )
    assert "thinking" in later["additionalModelRequestFields"]


def test_cache_points_are_set_where_the_next_request_begins_the_same():
    tools = [one.spec for one in built_ins(ToolRegistry())]
    messages = [Message("system", "Be brief."), Message("user", "One"), Message("assistant", "1"), Message("user", "2")]
    made = body(*messages, tools=tools)
    assert made["system"] == [{"text": "Be brief."}, POINT]
    assert made["toolConfig"]["tools"][-1] == POINT
    assert [turn["content"][-1] == POINT for turn in made["messages"]] == [True, False, True]
    nova = body(*messages, tools=tools, model="us.amazon.nova-pro-v1:0")
    assert POINT not in nova["toolConfig"]["tools"]
    assert nova["system"][-1] == POINT
    for model in ("meta.llama4-scout-17b-instruct-v1:0", "anthropic.claude-3-haiku-20240307-v1:0"):
        assert "cachePoint" not in json.dumps(body(*messages, tools=tools, model=model))


def test_files_are_blocks_in_messages_and_results():
    call = Message("assistant", "", (ToolCall("draw", {}, "x"),))
    zipped = Attachment("application/zip", b"z", "a.zip")
    result = Message("tool", "", call_id="x", attachments=(PNG, PDF, zipped), is_error=True)
    made = body(Message("user", "", attachments=(PDF,)), call, result)
    assert made["messages"][0]["content"][0] == {"text": "Read this document."}
    document = made["messages"][0]["content"][1]["document"]
    assert (document["format"], document["name"]) == ("pdf", "my-paper-v2 1")
    sent = made["messages"][2]["content"][0]["toolResult"]
    assert sent["status"] == "error"
    assert [next(iter(block)) for block in sent["content"]] == ["text", "image", "document", "text"]
    assert sent["content"][2]["document"]["name"] == "my-paper-v2 2"
    assert sent["content"][0] == {"text": "(no output)"}
    assert "a.zip" in sent["content"][3]["text"]


def test_a_history_with_calls_needs_definitions_even_without_tools():
    call = Message("assistant", "", (ToolCall("now", "not json", "x"), ToolCall("now", {}, "x")))
    made = body(Message("user", "Hi"), call, Message("tool", "noon", call_id="x"))
    assert [one["toolSpec"]["name"] for one in made["toolConfig"]["tools"] if "toolSpec" in one] == ["now"]
    uses = [block["toolUse"] for block in made["messages"][1]["content"]]
    assert uses[0]["input"] == {"_raw": "not json"}
    assert uses[0]["toolUseId"] != uses[1]["toolUseId"]
    assert len([block for block in made["messages"][2]["content"] if "toolResult" in block]) == 2
    assert "toolConfig" not in body(Message("user", "Hi"))


@pytest.mark.parametrize(
    ("choice", "sent"),
    [("required", {"any": {}}), ("auto", {"auto": {}}), ("find_weather", {"tool": {"name": "find_weather"}})],
)
def test_a_call_can_be_demanded(choice, sent):
    made = body(Message("user", "Hi"), tools=[find_weather.spec], tool_choice=choice)
    assert made["toolConfig"]["toolChoice"] == sent


def test_options_are_spelled_as_the_api_spells_them():
    made = body(
        Message("user", "Hi"),
        max_tokens=10,
        temperature=0.5,
        top_p=0.5,
        stop="END",
        timeout=5,
        seed=1,
        top_k=3,
        guardrailConfig={"guardrailIdentifier": "g", "guardrailVersion": "1"},
        response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}},
    )
    assert made["inferenceConfig"] == {"maxTokens": 10, "temperature": 0.5, "topP": 0.5, "stopSequences": ["END"]}
    assert made["additionalModelRequestFields"] == {"top_k": 3}
    assert made["guardrailConfig"]["guardrailVersion"] == "1"
    assert json.loads(made["outputConfig"]["textFormat"]["structure"]["jsonSchema"]["schema"]) == {"type": "object"}
    assert body(Message("user", "Hi"), max_tokens=100, thinking=2_000)["inferenceConfig"] == {"maxTokens": 2_100}


@pytest.mark.parametrize(
    ("model", "wish", "fields"),
    [
        (CLAUDE, "low", {"thinking": {"type": "enabled", "budget_tokens": 2_048}}),
        (CLAUDE, "adaptive", {"thinking": {"type": "adaptive"}}),
        ("amazon.nova-2-lite-v1:0", "high", {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "high"}}),
        ("openai.gpt-oss-120b-1:0", "low", {"reasoning_effort": "low"}),
        ("meta.llama4-scout-17b-instruct-v1:0", "none", None),
    ],
)
def test_thinking_is_asked_for_as_the_model_understands_it(model, wish, fields):
    for name in ("thinking", "reasoning_effort"):
        assert body(Message("user", "Hi"), model=model, **{name: wish}).get("additionalModelRequestFields") == fields


def test_what_a_model_cannot_do_is_said_before_the_request():
    with pytest.raises(ProviderError, match="does not think as requested"):
        body(Message("user", "Hi"), model="meta.llama4-scout-17b-instruct-v1:0", thinking="low")
    with pytest.raises(ProviderError, match="cannot call tools") as refused:
        body(Message("user", "Hi"), model="deepseek.r1-v1:0", tools=[find_weather.spec])
    assert "text:bedrock:deepseek.r1-v1:0" in refused.value.suggestion
    body(Message("user", "Hi"), model="deepseek.r1-v1:0")
    with pytest.raises(ProviderError, match="cannot see images"):
        body(Message("user", "Hi", attachments=(PNG,)), model="openai.gpt-oss-120b-1:0")
    call = Message("assistant", "", (ToolCall("draw", {}, "x"),))
    drawn = Message("tool", "drawn", call_id="x", attachments=(PNG,))
    made = body(Message("user", "Hi"), call, drawn, model="openai.gpt-oss-120b-1:0")
    assert "cannot be shown here" in made["messages"][2]["content"][0]["toolResult"]["content"][1]["text"]
    assert "image" in body(Message("user", "Hi", attachments=(PNG,)))["messages"][0]["content"][1]


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "calls"),
        ("max_tokens", "length"),
        ("content_filtered", "refused"),
        ("guardrail_intervened", "refused"),
        ("something_new", "calls"),
    ],
)
async def test_reasons(reason, finish):
    raw = RICH.replace(event("messageStop", stopReason="tool_use"), event("messageStop", stopReason=reason))
    async with serving(aws_stream(raw)) as server:
        *_, message = await ask(server)
    assert message.finish == finish
    assert bool(message.tool_calls) == (finish != "refused")


async def test_a_garbled_call_is_asked_for_again():
    raw = event("messageStart", role="assistant") + event("messageStop", stopReason="malformed_tool_use")
    async with serving(aws_stream(raw)) as server:
        with pytest.raises(BrokeOff, match="malformed_tool_use"):
            await ask(server)


def read(raw: bytes) -> Message | None:
    reader = ConverseReader("here", set(), lambda error: ProviderError(str(error)))
    events = AwsEventReader()
    try:
        for one in [*events.feed(raw), *events.finish()]:
            for _ in reader.take(one):
                pass
        return reader.message()
    except ProviderError:
        return None


def test_a_stream_that_is_cut_anywhere_never_looks_complete():
    whole = read(RICH)
    assert whole is not None
    complete = len(RICH) - len(RICH.partition(b"metadata")[2]) - 40
    for end in range(len(RICH)):
        found = read(RICH[:end])
        assert found is None or (end >= complete and found.tool_calls == whole.tool_calls)
    assert read(RICH[: RICH.index(b"messageStop")]) is None


def test_a_damaged_byte_is_noticed_wherever_it_is():
    for at in range(0, len(RICH), 3):
        damaged = bytearray(RICH)
        damaged[at] ^= 0x40
        try:
            found = read(bytes(damaged))
        except EventTooLong:
            continue
        assert found is None or found.usage == Usage()  # the last event is not needed


def test_odd_headers_and_unknown_events_do_no_harm():
    odd = frame(b"{}", event_type="somethingNew", message_type="event") + event("contentBlockDelta", delta={"text": 1})
    odd += event("contentBlockDelta", contentBlockIndex=0, delta={"image": {}}) + event("messageStart", role=7)
    assert read(odd + RICH) == read(RICH)
    with pytest.raises(EventTooLong):
        AwsEventReader().feed(frame(b"x" * LONGEST_EVENT))


async def test_arguments_of_ten_megabytes():
    long = json.dumps({"text": "x" * 10_000_000})
    pieces = [long[at : at + 1_000_000] for at in range(0, len(long), 1_000_000)]
    raw = event("contentBlockStart", contentBlockIndex=0, start={"toolUse": {"toolUseId": "t", "name": "write"}})
    for piece in pieces:
        raw += event("contentBlockDelta", contentBlockIndex=0, delta={"toolUse": {"input": piece}})
    async with serving(aws_stream(raw + event("messageStop", stopReason="tool_use"), every=65_536)) as server:
        *_, message = await ask(server)
    assert message.tool_calls[0].arguments == long


@pytest.mark.parametrize(
    ("reply", "at_least"),
    [
        (refusal(429, {"message": "Too many requests"}), 0),
        (refusal(429, {"message": "Too many requests"}, Retry_After="7"), 7),
        (refusal(503, {"message": "busy"}), 0),
        (aws_stream(exception("throttlingException", "Too many tokens")), 0),
    ],
)
async def test_a_server_that_is_busy_is_asked_again_with_a_new_signature(waits, reply, at_least):
    async with serving(reply, aws_stream(RICH)) as server:
        retrying, *_, message = await ask(server)
    assert isinstance(retrying, Retrying)
    assert message.finish == "calls"
    assert len(waits) == 1
    assert at_least <= waits[0] <= at_least * 1.1 + 1
    assert all("Signature=" in one.headers["authorization"] for one in server.asked)


async def test_an_exception_in_the_middle_is_not_an_answer():
    start = event("contentBlockDelta", contentBlockIndex=0, delta={"text": "Hello"})
    async with serving(aws_stream(start + exception("modelStreamErrorException", "lost"))) as server:
        with pytest.raises(BrokeOff, match="lost"):
            await ask(server)
    async with serving(
        aws_stream(exception("validationException", "Input is too long for requested model."))
    ) as server:
        with pytest.raises(PromptTooLong):
            await ask(server)
    assert len(server.asked) == 1


async def test_a_model_that_cannot_stream_with_tools_is_asked_without_streaming():
    said = {"message": "This model doesn't support tool use in streaming mode."}
    content = [{"text": "Hello."}, {"toolUse": {"toolUseId": "t1", "name": "now", "input": {"a": 1}}}]
    whole = {
        "output": {"message": {"role": "assistant", "content": content}},
        "stopReason": "tool_use",
        "usage": {"inputTokens": 3, "outputTokens": 2, "totalTokens": 5},
    }
    reply = Reply([json.dumps(whole).encode()], headers={"Content-Type": "application/json"}, framing="length")
    async with serving(refusal(400, said), reply) as server:
        *_, message = await ask(server, model="mistral.mistral-large-2402-v1:0")
    assert (message.text, message.finish, message.usage) == ("Hello.", "calls", Usage(3, 2))
    assert json.loads(message.tool_calls[0].arguments) == {"a": 1}
    assert [one.path.rpartition("/")[2] for one in server.asked] == ["converse-stream", "converse"]


@pytest.mark.parametrize(
    ("status", "said", "advice"),
    [
        (403, "The security token included in the request is invalid.", "Renew the AWS credentials"),
        (403, "You don't have access to the model with the specified model ID.", "Enable access to this model"),
        (
            400,
            "Invocation with on-demand throughput isn't supported. Use an inference profile.",
            "bedrock:us.anthropic",
        ),
    ],
)
async def test_common_refusals_say_what_to_do(status, said, advice):
    async with serving(refusal(status, {"message": said})) as server:
        with pytest.raises(ProviderError) as refused:
            await ask(server, model="anthropic.claude-sonnet-5-v1:0")
    assert advice in refused.value.suggestion
    assert len(server.asked) == 1


async def test_an_unknown_model_gets_the_nearest(monkeypatch):
    missing = refusal(400, {"message": "The provided model identifier is invalid."})
    listed = {"modelSummaries": [{"modelId": "amazon.nova-pro-v1:0"}, {"modelId": "cohere.embed"}]}
    async with serving(missing, Reply([json.dumps(listed).encode()], framing="length")) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_BEDROCK", server.url)
        with pytest.raises(ProviderError) as refused:
            await ask(server, model="amazon.nova-por-v1:0")
    assert refused.value.suggestion == "Did you mean amazon.nova-pro-v1:0?"
    assert server.asked[1].path == "/foundation-models"


async def test_a_bearer_token_replaces_the_signature(monkeypatch):
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "bedrock-api-key-0123456789")
    async with serving(aws_stream(RICH)) as server:
        await ask(server)
    assert server.asked[0].headers["authorization"] == "Bearer bedrock-api-key-0123456789"
    assert "x-amz-date" not in server.asked[0].headers


def test_without_a_region_the_variable_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ProviderError, match="no AWS region is set") as refused:
        provider_for(f"bedrock:{CLAUDE}")
    assert "AWS_REGION" in refused.value.suggestion
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    provider = provider_for(f"bedrock:{CLAUDE}")
    assert isinstance(provider, Bedrock)
    assert provider.base_url == "https://bedrock-runtime.eu-central-1.amazonaws.com"


async def test_a_whole_run_through_the_agent():
    final = event("contentBlockDelta", contentBlockIndex=0, delta={"text": "It is sunny."})
    final += event("messageStop", stopReason="end_turn")
    call = b"".join(
        [
            event(
                "contentBlockStart", contentBlockIndex=0, start={"toolUse": {"toolUseId": "t", "name": "find_weather"}}
            ),
            event("contentBlockDelta", contentBlockIndex=0, delta={"toolUse": {"input": '{"city": "Bern"}'}}),
            event("messageStop", stopReason="tool_use"),
        ]
    )
    async with serving(aws_stream(call), aws_stream(final)) as server:
        model = Bedrock(CLAUDE, region="us-east-1", base_url=server.url)
        result = await Agent(model, tools=[find_weather], limits=Limits(turns=3)).run("Weather?")
    assert result.text == "It is sunny."
    for sent in server.bodies:
        check(sent)
    answered = server.bodies[1]["messages"][2]["content"][0]["toolResult"]
    assert answered == {"toolUseId": "t", "content": [{"text": "sunny in Bern"}], "status": "success"}
