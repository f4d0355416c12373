"""Servers that speak Chat Completions with words of their own: DeepSeek, Mistral, xAI, models of others on Vertex."""

from __future__ import annotations

import json
from contextlib import aclosing
from typing import Any

import pytest

from forge.core.events import ReasoningDelta, TextDelta
from forge.core.messages import Message
from forge.core.provider import ModelRequest, ProviderError
from forge.models.vendors import provider_for
from tests.models.serving import Reply, refusal, serving, sse, stream


def chunk(finish: str | None = None, usage: Any = None, **delta: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"choices": [choice], **({"usage": usage} if usage else {})}


async def ask(model: str, *messages: Message) -> list[Any]:
    provider = provider_for(model)
    async with aclosing(provider.stream(ModelRequest(messages=messages))) as parts:  # type: ignore[type-var]
        return [part async for part in parts]


async def test_deepseeks_reasoning_is_shown_and_goes_back_with_calls_only(monkeypatch):
    call = {"index": 0, "id": "c1", "function": {"name": "now", "arguments": "{}"}}
    usage = {"prompt_tokens": 9, "completion_tokens": 5, "prompt_cache_hit_tokens": 4}
    thinks = sse(
        chunk(reasoning_content="I need "),
        chunk(reasoning_content="the time."),
        chunk(tool_calls=[call]),
        chunk("tool_calls", usage),
    )
    answers = sse(chunk(reasoning_content="It is noon."), chunk(content="Noon."), chunk("stop"))
    async with serving(stream(thinks), stream(answers)) as server:
        monkeypatch.setenv("DEEPSEEK_BASE_URL", server.url)
        monkeypatch.setenv("DEEPSEEK_API_KEY", "a-deepseek-key")
        user, model = Message("user", "When?"), "deepseek:deepseek-reasoner"
        *deltas, first = await ask(model, user)
        assert "".join(one.text for one in deltas if isinstance(one, ReasoningDelta)) == "I need the time."
        assert first.usage.cached == 4
        result = Message("tool", "12:00", call_id="c1")
        *_, second = await ask(model, user, first, result)
        assert second.text == "Noon."
        await ask(model, user, first, result, second, Message("user", "Thanks"))
    sent = server.bodies[1]["messages"][1]
    assert sent["reasoning_content"] == "I need the time."
    assert "reasoning_content" not in server.bodies[2]["messages"][3]


async def test_mistrals_thinking_is_shown_and_is_no_part_of_the_answer(monkeypatch):
    thought = [{"type": "thinking", "thinking": [{"type": "text", "text": "Let me see."}]}]
    text = [{"type": "text", "text": "Noon."}]
    async with serving(stream(sse(chunk(content=thought), chunk(content=text), chunk("stop")))) as server:
        monkeypatch.setenv("MISTRAL_BASE_URL", server.url)
        *deltas, message = await ask("mistral:magistral-medium-latest", Message("user", "When?"))
    assert [one.text for one in deltas if isinstance(one, ReasoningDelta)] == ["Let me see."]
    assert [one.text for one in deltas if isinstance(one, TextDelta)] == ["Noon."]
    assert message.text == "Noon."


@pytest.mark.parametrize("prefix", ["xai", "deepseek", "mistral", "groq", "openai-chat", "openai-responses"])
async def test_an_unknown_model_gets_the_nearest(monkeypatch, prefix):
    missing = refusal(404, {"error": {"message": "The model grok-44 does not exist"}})
    listed = {"object": "list", "data": [{"id": "grok-4"}, {"id": "an-embedder"}]}
    async with serving(missing, Reply([json.dumps(listed).encode()], framing="length")) as server:
        variable = prefix.partition("-")[0].upper()
        monkeypatch.setenv(f"{variable}_BASE_URL", f"{server.url}/v1")
        monkeypatch.setenv(f"{variable}_API_KEY", "a-key-0123456789")
        with pytest.raises(ProviderError) as refused:
            await ask(f"{prefix}:grok-44", Message("user", "Hi"))
    assert refused.value.suggestion == "Did you mean grok-4?"
    assert server.asked[1].path == "/v1/models"
    assert server.asked[1].headers["authorization"] == "Bearer a-key-0123456789"


async def test_models_of_others_on_vertex(monkeypatch):
    async with serving(stream(sse(chunk("stop", content="Hello.")))) as server:
        monkeypatch.setenv("VERTEX_BASE_URL", server.url)
        monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "p")
        monkeypatch.setenv("GOOGLE_CLOUD_LOCATION", "us-east5")
        monkeypatch.setenv("CLOUDSDK_AUTH_ACCESS_TOKEN", "ya29.given")
        *_, message = await ask("vertex:meta/llama-4-maverick", Message("user", "Hi"))
    assert message.text == "Hello."
    assert server.asked[0].path == "/v1/projects/p/locations/us-east5/endpoints/openapi/chat/completions"
    assert server.asked[0].body["model"] == "meta/llama-4-maverick"
    assert server.asked[0].headers["authorization"] == "Bearer ya29.given"
