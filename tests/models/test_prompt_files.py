"""Files in a prompt: each API gets them in its own form; a file that it has no form for is refused in words."""

from __future__ import annotations

import re
from base64 import b64encode
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from anthropic.types import MessageCreateParams
from botocore.validate import ParamValidator
from google.genai import types as google
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming

from forge import Agent, Attachment, Audio, Document, Image, Message, Scope, Scripted, ToolCall, ToolResult, tool
from forge.core.provider import Provider
from forge.models.anthropic import Anthropic
from forge.models.bedrock import Bedrock
from forge.models.gemini import Gemini
from forge.models.openai_chat import OpenAI
from forge.models.openai_responses import OpenAIResponses
from tests.models.oracle import problems
from tests.models.serving import Server, refusal, serving

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 8
WAV = b"RIFF\x24\0\0\0WAVEfmt "
PDF = b"%PDF-1.7\n\xff"
NAMES = [
    "anthropic:claude-sonnet-5",
    "openai-chat:gpt-5.4",
    "openai-responses:gpt-5.4",
    "gemini:gemini-3-pro",
    "bedrock:eu.anthropic.claude-sonnet-5",
]


def at(server: Server, name: str) -> Provider:
    label, _, model = name.partition(":")
    if label == "anthropic":
        return Anthropic(model, base_url=server.url, api_key="k")
    if label == "gemini":
        return Gemini(model, base_url=f"{server.url}/v1", api_key="k")
    if label == "bedrock":
        return Bedrock(model, base_url=server.url, region="eu-central-1")
    chosen = OpenAIResponses if label == "openai-responses" else OpenAI
    return chosen(model, base_url=f"{server.url}/v1", api_key="k", label=label)


@pytest.fixture(autouse=True)
def _token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "k")


async def parts_of(name: str, *content: Any, workspace: Path = Path()) -> list[Any]:
    """The parts of the person's message as the server got them, after the vendor's own types have accepted them."""
    async with serving(*[refusal(400)] * 5) as server:
        await Agent(at(server, name)).run(["What is this?", *content], scope=Scope(workspace=workspace))
    body = server.bodies[0]
    label = name.partition(":")[0]
    if label == "gemini":
        google.Content.model_validate(body["contents"][0])
        parts: list[Any] = body["contents"][0]["parts"]
        return parts
    if label == "openai-responses":
        assert problems(body, ResponseCreateParamsStreaming) == []
        return list(body["input"][0]["content"])
    if label == "bedrock":
        shape = botocore.session.get_session().get_service_model("bedrock-runtime").shape_for("Messages")
        assert not ParamValidator().validate(body["messages"], shape).has_errors()
        return [one for one in body["messages"][0]["content"] if "cachePoint" not in one]
    assert problems(body, MessageCreateParams if label == "anthropic" else CompletionCreateParamsStreaming) == []
    return [{key: one[key] for key in one if key != "cache_control"} for one in body["messages"][0]["content"]]


def encoded(data: bytes) -> str:
    return b64encode(data).decode()


URL = "https://example.com/a.png"
FORMS = [
    *[("anthropic:claude-sonnet-5", *one) for one in [
        (Image(PNG), {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": encoded(PNG)}}),
        (Image(URL), {"type": "image", "source": {"type": "url", "url": URL}}),
        (Document(PDF), {
            "type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": encoded(PDF)},
        }),
        (Document("https://example.com/a.pdf"), {
            "type": "document", "source": {"type": "url", "url": "https://example.com/a.pdf"},
        }),
        (Document(b"Words.", name="a.md"), {"type": "text", "text": "[a.md]\nWords."}),
    ]],
    *[("openai-chat:gpt-5.4", *one) for one in [
        (Image(PNG), {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{encoded(PNG)}"}}),
        (Image(URL), {"type": "image_url", "image_url": {"url": URL}}),
        (Document(PDF, name="a.pdf"), {
            "type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{encoded(PDF)}"},
        }),
        (Document(b"Words."), {"type": "text", "text": "[a file]\nWords."}),
    ]],
    ("openai-chat:gpt-audio", Audio(WAV), {
        "type": "input_audio", "input_audio": {"data": encoded(WAV), "format": "wav"},
    }),
    *[("openai-responses:gpt-5.4", *one) for one in [
        (Image(PNG), {
            "type": "input_image", "detail": "auto", "image_url": f"data:image/png;base64,{encoded(PNG)}",
        }),
        (Image(URL), {"type": "input_image", "detail": "auto", "image_url": URL}),
        (Document(PDF, name="a.pdf"), {
            "type": "input_file", "filename": "a.pdf", "file_data": f"data:application/pdf;base64,{encoded(PDF)}",
        }),
        (Document("https://example.com/a.pdf"), {"type": "input_file", "file_url": "https://example.com/a.pdf"}),
        (Document(b"Words.", name="a.md"), {"type": "input_text", "text": "[a.md]\nWords."}),
    ]],
    *[("gemini:gemini-3-pro", *one) for one in [
        (Image(PNG), {"inlineData": {"mimeType": "image/png", "data": encoded(PNG)}}),
        (Image(URL), {"fileData": {"fileUri": URL, "mimeType": "image/png"}}),
        (Image("https://example.com/photo"), {"fileData": {"fileUri": "https://example.com/photo"}}),
        (Audio(WAV), {"inlineData": {"mimeType": "audio/wav", "data": encoded(WAV)}}),
        (Document(PDF), {"inlineData": {"mimeType": "application/pdf", "data": encoded(PDF)}}),
        (Document(b"Words.", name="a.md"), {"text": "[a.md]\nWords."}),
    ]],
    *[("bedrock:eu.anthropic.claude-sonnet-5", *one) for one in [
        (Image(PNG), {"image": {"format": "png", "source": {"bytes": encoded(PNG)}}}),
        (Document(PDF, name="a.pdf"), {
            "document": {"format": "pdf", "name": "a 1", "source": {"bytes": encoded(PDF)}},
        }),
        (Document(b"a,b", name="a.csv"), {
            "document": {"format": "csv", "name": "a 1", "source": {"bytes": encoded(b"a,b")}},
        }),
    ]],
    ("bedrock:mistral.voxtral-small-24b-2507", Audio(WAV), {
        "audio": {"format": "wav", "source": {"bytes": encoded(WAV)}},
    }),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "file", "form"), FORMS, ids=[f"{name}-{file.media_type}-{bool(file.url)}" for name, file, _ in FORMS]
)
async def test_each_api_gets_a_file_in_its_own_form(name: str, file: Attachment, form: dict[str, Any]) -> None:
    assert (await parts_of(name, file))[1:] == [form]


@pytest.mark.parametrize(
    ("name", "file", "what"),
    [
        ("anthropic:claude-sonnet-5", Audio(WAV, name="a.wav"), r"it does not take a\.wav \(audio/wav\)"),
        ("anthropic:claude-sonnet-5", Audio("https://example.com/a.mp3"), "the address https://example.com/a.mp3"),
        ("anthropic:claude-sonnet-5", Image(b"II*\0rest"), r"a file \(image/tiff\)"),
        ("openai-chat:gpt-5.4", Audio(WAV), "it cannot hear audio"),
        ("openai-chat:gpt-5.4", Document("https://example.com/a.pdf"), "it does not take the address"),
        ("openai-chat:gpt-audio", Audio(b"fLaC...\xff"), r"a file \(audio/flac\)"),
        ("openai-responses:gpt-5.4", Audio(WAV), "it cannot hear audio"),
        ("gemini:gemini-3-pro", Attachment("application/zip", b"PK\3\4"), r"a file \(application/zip\)"),
        ("bedrock:eu.anthropic.claude-sonnet-5", Audio(WAV), r"a file \(audio/wav\)"),
        ("bedrock:eu.anthropic.claude-sonnet-5", Image(URL), "it does not take the address"),
        ("bedrock:amazon.nova-micro-v1:0", Image(PNG), "the model cannot see images"),
    ],
)
async def test_what_a_model_does_not_take_is_an_error_and_nothing_is_sent(
    name: str, file: Attachment, what: str
) -> None:
    async with serving(refusal(400)) as server:
        result = await Agent(at(server, name)).run(["What is this?", file])
    assert server.bodies == []
    assert result.error is not None
    assert result.error.message.startswith(f"asking {name}: ")
    assert re.search(what, result.error.message)
    assert result.error.suggestion


@pytest.mark.parametrize("name", NAMES)
async def test_a_file_that_another_model_answered_becomes_a_note(name: str) -> None:
    seen = Message("user", "Look", attachments=(Attachment("application/zip", b"PK\3\4", "a.zip"),))
    async with serving(*[refusal(400)] * 5) as server:
        await Agent(at(server, name)).run("And now?", history=[seen, Message("assistant", "A zip.")])
    assert "a.zip: application/zip, 4 bytes, cannot be shown here" in str(server.bodies[0])


@pytest.mark.parametrize("name", NAMES)
async def test_an_address_in_a_result_is_never_fetched_by_a_provider(name: str) -> None:
    @tool
    def draw() -> ToolResult:
        """Draw."""
        return ToolResult(for_llm="Drawn.", attachments=(Image("https://example.com/?secret"),))

    history = (await Agent(Scripted(ToolCall("draw"), "ok"), tools=[draw]).run("?")).messages
    async with serving(*[refusal(400)] * 5) as server:
        await Agent(at(server, name)).run("And now?", history=history)
    assert "Drawn." in str(server.bodies[0])
    assert "secret" not in str(server.bodies[0])
