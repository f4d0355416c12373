"""A model is chosen by name; what is missing is named."""

from __future__ import annotations

import asyncio
import json

import pytest

from forge.core.errors import ErrorKind
from forge.core.messages import Message
from forge.core.provider import ModelRequest, ProviderError
from forge.models import vendors as names
from forge.models.anthropic import Anthropic
from forge.models.openai_chat import OpenAI
from forge.models.openai_responses import OpenAIResponses
from forge.models.vendors import SERVERS, Server, default_model, provider_for, setup_advice
from tests.models.serving import Reply, refusal, serving, sse, stream

KEY = "sk-test-0123456789abcdef"
ANSWER = stream(sse({"choices": [{"index": 0, "delta": {"content": "ok"}, "finish_reason": "stop"}]}))


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch):
    for name, server in SERVERS.items():
        for variable in (server.key, f"{name.upper()}_BASE_URL", f"{name.upper()}_API_KEY"):
            monkeypatch.delenv(variable, raising=False)
    for variable in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def nobody_near(monkeypatch):
    """No local server, whatever runs on this machine."""
    for name in names.LOCAL:
        monkeypatch.setitem(names.SERVERS, name, Server("http://127.0.0.1:9/v1"))


def refused(name: str) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        provider_for(name)
    assert caught.value.kind == ErrorKind.CONFIG
    assert caught.value.suggestion
    assert not caught.value.passing
    return caught.value


async def ask(provider) -> Message:
    return [one async for one in provider.stream(ModelRequest(messages=[Message("user", "Hello")]))][-1]


@pytest.mark.parametrize("name", [name for name, server in SERVERS.items() if server.key])
def test_a_missing_key_is_named(name, monkeypatch):
    variable = SERVERS[name].key
    assert variable in refused(f"{name}:model").suggestion
    monkeypatch.setenv(variable, KEY)
    provider = provider_for(f"{name}:model")
    assert isinstance(provider, OpenAIResponses if name == "openai" else OpenAI)
    assert (provider.model, provider.label) == ("model", name)
    assert KEY not in repr(provider)


def test_an_empty_key_is_a_missing_one(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "  ")
    assert "OPENAI_API_KEY" in refused("openai:m").message


def test_anthropic_wants_its_key(monkeypatch):
    assert "ANTHROPIC_API_KEY" in refused("anthropic:claude").suggestion
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    assert isinstance(provider_for("anthropic:claude"), Anthropic)


@pytest.mark.parametrize("name", names.LOCAL)
def test_local_servers_want_no_key(name):
    assert isinstance(provider_for(f"{name}:model"), OpenAI)


@pytest.mark.parametrize("name", ["ollama:qwen3:8b", " ollama:qwen3:8b", "Ollama:qwen3:8b"])
def test_a_model_may_have_colons(name):
    provider = provider_for(name)
    assert isinstance(provider, OpenAI)
    assert provider.model == "qwen3:8b"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("opanai:gpt", "openai:"),
        ("olama:qwen3", "ollama:"),
        ("antropic:x", "anthropic:"),
        ("gpt-5.4", "openai:gpt-5.4"),
        ("claude-sonnet", "anthropic:claude-sonnet"),
        ("qwen3", "PROVIDER:MODEL"),
        ("", "PROVIDER:MODEL"),
        (":model", "PROVIDER:MODEL"),
        ("zzzz:model", "The providers are"),
        ("x" * 5000 + ":m", "The providers are"),
        ("openai:", "openai:MODEL"),
        ("text:", "text:openai:MODEL"),
        ("scripted:", "scripted:FILE"),
        ("text:nonsense:m", "The providers are"),
        ("local:model.gguf", "ollama:"),
    ],
)
def test_a_name_that_is_none_is_explained(name, hint):
    error = refused(name)
    assert hint in error.suggestion
    assert len(error.message) < 300


async def test_the_base_url_comes_from_the_environment(monkeypatch):
    async with serving(ANSWER) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        monkeypatch.setenv("GROQ_BASE_URL", f"{server.url}/groq")
        monkeypatch.setenv("GROQ_API_KEY", KEY)
        assert (await ask(provider_for("openai:m"))).text == "ok"
        assert (await ask(provider_for("groq:m"))).text == "ok"
    assert [asked.path for asked in server.asked] == ["/v1/chat/completions", "/groq/chat/completions"]
    assert [asked.headers.get("authorization") for asked in server.asked] == [None, f"Bearer {KEY}"]


async def test_text_wraps_any_other_name(monkeypatch):
    async with serving(ANSWER) as server:
        monkeypatch.setenv("OLLAMA_BASE_URL", server.url)
        assert "ok" in (await ask(provider_for("text:ollama:m"))).text


def test_keys_decide_which_model_is_the_default(monkeypatch, nobody_near):
    assert default_model() is None
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert default_model() == f"openai:{names.DEFAULTS['openai']}"
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    assert default_model() == f"anthropic:{names.DEFAULTS['anthropic']}"


async def default_beside(reply: Reply, monkeypatch, name: str = "ollama") -> tuple[str | None, list]:
    async with serving(reply) as server:
        monkeypatch.setenv(f"{name.upper()}_BASE_URL", f"{server.url}/v1")
        return await asyncio.to_thread(default_model), server.asked


def models(*ids) -> Reply:
    return Reply([json.dumps({"object": "list", "data": [{"id": id} for id in ids]}).encode()], framing="length")


@pytest.mark.usefixtures("nobody_near")
async def test_a_local_server_that_answers_is_the_default(monkeypatch):
    found, asked = await default_beside(models("nomic-embed-text", "qwen3:8b", "llama3"), monkeypatch)
    assert found == "ollama:qwen3:8b"
    assert [one.path for one in asked] == ["/v1/models"]


@pytest.mark.usefixtures("nobody_near")
async def test_a_server_elsewhere_says_which_models_it_has(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    found, asked = await default_beside(models("mine"), monkeypatch, "openai")
    assert found == "openai:mine"
    assert asked[0].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.usefixtures("nobody_near")
@pytest.mark.parametrize(
    "reply",
    [
        Reply([b"<html>"], framing="length"),
        Reply([b"{}"], framing="length"),
        Reply([b"[" * 100_000], framing="length"),
        Reply([b'{"data": [3, null, {}, {"id": 5}, {"id": ""}, {"id": "a\\nb"}]}'], framing="length"),
        Reply([b'{"data": 3}'], framing="length"),
        Reply([b'{"data": [{"id": "x"}]}'], 404, framing="length"),
        Reply(["reset"]),
    ],
)
async def test_something_else_on_that_port_is_no_model(reply, monkeypatch):
    assert (await default_beside(reply, monkeypatch))[0] is None


@pytest.mark.usefixtures("nobody_near")
@pytest.mark.parametrize("url", ["", "nonsense", "http://[::1", "http://127.0.0.1:port/v1", "https://127.0.0.1:9/v1"])
def test_a_base_url_that_is_none_finds_no_model(url, monkeypatch):
    monkeypatch.setenv("OLLAMA_BASE_URL", url)
    assert default_model() is None


def test_without_a_model_three_lines_say_how_to_get_one(monkeypatch):
    for server in SERVERS.values():
        monkeypatch.delenv(server.key or "UNUSED", raising=False)
    monkeypatch.setenv("OLLAMA_BASE_URL", f"http://user:{KEY}@host/v1")
    head, key, local, demo = setup_advice().splitlines()
    assert head == "No model is set. Choose one:"
    assert key.startswith("  export ANTHROPIC_API_KEY=…")
    assert "OPENAI_API_KEY" in key
    assert "--model PROVIDER:MODEL" in key
    assert local.startswith("  ollama run ")
    assert demo.startswith("  forge demo ")
    assert max(map(len, setup_advice().splitlines())) <= 100
    assert KEY not in setup_advice()


@pytest.mark.parametrize("name", [name for name, server in SERVERS.items() if server.key])
def test_a_key_of_another_provider_is_named_with_its_command(name, monkeypatch):
    for server in SERVERS.values():
        monkeypatch.delenv(server.key or "UNUSED", raising=False)
    monkeypatch.setenv(SERVERS[name].key, KEY)
    _, first, *_ = setup_advice().splitlines()
    assert first.startswith(f"  forge run --model {name}:MODEL ")
    assert f"{SERVERS[name].key} is set" in first
    assert KEY not in setup_advice()


@pytest.mark.parametrize(("name", "variable"), [("openai:m", "OPENAI_API_KEY"), ("groq:m", "GROQ_API_KEY")])
@pytest.mark.parametrize("key", ["", "a-key-that-is-wrong"])
async def test_a_refused_key_names_the_variable_that_holds_it(name, variable, key, monkeypatch):
    monkeypatch.setenv(variable, key)
    async with serving(refusal(401, {"error": {"message": "no"}})) as server:
        monkeypatch.setenv(variable.replace("API_KEY", "BASE_URL"), server.url)
        with pytest.raises(ProviderError, match="401") as caught:
            [one async for one in provider_for(name).stream(ModelRequest(messages=[Message("user", "hi")]))]
    assert caught.value.suggestion == (
        f"Check that the API key in {variable} is correct and may use this model."
        if key
        else f"No API key was sent: set {variable}."
    )
