"""What a model is known not to do is refused before the request; everything else is tried."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import pytest

from forge import Agent, Attachment, Message
from forge.core.errors import ErrorKind
from forge.core.provider import ModelRequest, ProviderError
from forge.models.http.model import check_abilities
from forge.models.known_models import find_known
from forge.models.openai_chat import OpenAI
from tests.models.serving import serving, sse, stream
from tests.models.test_http_structured_output import look

IMAGE = Message("user", "What is this?", attachments=(Attachment(name="a.png", media_type="image/png", data=b"x"),))
ANSWER = stream(sse({"choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}]}))


def request(what: str) -> ModelRequest:
    options: dict[str, Any] = {"reasoning": {"reasoning_effort": "high"}}.get(what, {})
    messages = [IMAGE] if what == "images" else [Message("user", "Hi")]
    return ModelRequest(messages=messages, tools=[look.spec] if what == "tools" else (), options=options)


@pytest.mark.parametrize(
    ("label", "model", "what"),
    [
        ("openai", "o3-mini", "images"),
        ("openai-chat", "o1-mini", "tools"),
        ("openai-responses", "gpt-4.1", "reasoning"),
        ("anthropic", "claude-2.1", "images"),
        ("anthropic", "claude-3-5-haiku-latest", "reasoning"),
        ("deepseek", "deepseek-chat", "images"),
        ("mistral", "codestral-latest", "images"),
        ("xai", "grok-3", "reasoning"),
        ("xai", "grok-4.20-non-reasoning", "reasoning"),
        ("openai", "gpt-audio-mini", "images"),
        ("openai", "o3-deep-research", "tools"),
        ("deepseek", "deepseek-r1", "images"),
    ],
)
def test_a_known_gap_is_refused_with_advice(label, model, what):
    with pytest.raises(ProviderError, match=f"asking {label}:{model}: it ") as caught:
        check_abilities(label, model, request(what))
    assert caught.value.kind == ErrorKind.VALIDATION
    assert caught.value.suggestion


@pytest.mark.parametrize("what", ["images", "tools", "reasoning"])
@pytest.mark.parametrize(
    ("label", "model"),
    [
        ("openai", "gpt-5.4"),
        ("anthropic", "claude-sonnet-5"),
        ("xai", "grok-4"),
        ("deepseek", "new"),
        ("ollama", "x"),
        ("xai", "grok-code-fast-1"),
    ],
)
def test_other_models_are_tried(label, model, what):
    check_abilities(label, model, request(what))


def test_a_known_window_is_that_of_the_input():
    windows = [(known := find_known(*name)) and known.window for name in (("openai", "gpt-5"), ("openai", "gpt-4.1"))]
    assert windows == [272_000, 1_000_000]


def test_reasoning_that_is_switched_off_is_not_asked_for():
    for options in (
        {"reasoning_effort": "none"},
        {"thinking": {"type": "disabled"}},
        {"reasoning": {"summary": "auto"}},
    ):
        check_abilities("openai", "gpt-4o", ModelRequest(messages=[Message("user", "Hi")], options=options))


async def test_nothing_is_sent_for_a_known_gap_and_a_run_ends_with_the_advice():
    async with serving(ANSWER) as server:
        blind = OpenAI("o3-mini", base_url=f"{server.url}/v1", api_key="k")
        result = await Agent(blind).run([IMAGE])
        assert server.asked == []
        assert result.error is not None
        assert "cannot see images" in result.error.message
        async with aclosing(blind.stream(request("tools"))) as parts:
            *_, message = [part async for part in parts]
        assert isinstance(message, Message)
        assert message.text == "Hi"
    assert len(server.asked) == 1
