"""Model servers on this machine are found, and their models get tools one way or the other."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from contextlib import aclosing
from typing import Any

import pytest

from forge import Agent, Limits, tool
from forge.core.events import Retrying
from forge.core.messages import Message
from forge.core.provider import ModelRequest, Provider, ProviderError, expects_calls
from forge.models import vendors as names
from forge.models.http import post
from forge.models.http.outgoing import NoTools
from forge.models.local import find_local_servers, is_loopback
from forge.models.vendors import Server, default_model, local_servers, provider_for
from forge.network import connections
from tests.models.serving import Reply, refusal, serving, sse, stream

LISTED = Reply(
    [json.dumps({"data": [{"id": "nomic-embed-text"}, {"id": "qwen3:8b"}, {"id": "llama3"}]}).encode()],
    framing="length",
)


@tool
def look(at: str) -> str:
    """Look at something."""
    return f"saw {at}"


ASK = ModelRequest(messages=[Message("user", "Look at it.")], tools=[look.spec])


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No local server, whatever runs on this machine; no pauses."""

    async def pause(seconds: float) -> None:
        pass

    monkeypatch.setattr(post, "pause", pause)
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    for name in names.LOCAL:
        monkeypatch.delenv(f"{name.upper()}_BASE_URL", raising=False)
        monkeypatch.setitem(names.SERVERS, name, Server("http://127.0.0.1:9/v1"))


def reply(text: str) -> Reply:
    return stream(sse({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": "stop"}]}))


async def ask(provider: Provider, request: ModelRequest = ASK) -> list[Any]:
    async with aclosing(provider.stream(request)) as parts:  # type: ignore[type-var]
        return [part async for part in parts]


async def test_the_servers_that_answer_are_found_with_their_chat_models(monkeypatch):
    async with serving(LISTED) as one, serving(LISTED) as other:
        monkeypatch.setenv("OLLAMA_BASE_URL", f"{one.url}/v1")
        monkeypatch.setenv("VLLM_BASE_URL", f"{other.url}/v1")
        found = await asyncio.to_thread(local_servers)
        assert await asyncio.to_thread(default_model) == "ollama:qwen3:8b"
    assert [(server.name, server.models) for server in found] == [
        ("ollama", ("qwen3:8b", "llama3")),
        ("vllm", ("qwen3:8b", "llama3")),
    ]


def test_nothing_there_costs_next_to_nothing():
    began = time.perf_counter()
    assert local_servers() == []
    assert default_model() is None
    assert time.perf_counter() - began < 30


def test_a_server_that_accepts_and_says_nothing_is_left_soon():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        began = time.perf_counter()
        assert find_local_servers({"ollama": url, "vllm": url, "llamacpp": url}) == []
        assert time.perf_counter() - began < 30


@pytest.mark.parametrize(
    ("url", "near"),
    [
        ("http://127.0.0.1:11434/v1", True),
        ("http://localhost:1234/v1", True),
        ("http://[::1]:8000/v1", True),
        ("http://192.168.1.5:11434/v1", False),
        ("http://169.254.169.254/v1", False),
        ("http://models.example.org/v1", False),
        ("http://localhost.example.org/v1", False),
        ("http://[::1", False),
        ("nonsense", False),
    ],
)
def test_only_this_machine_is_asked(monkeypatch, url, near):
    assert is_loopback(url) is near
    if not near:

        async def connect(*_: object, **__: object) -> None:
            raise AssertionError("a connection was tried")

        monkeypatch.setattr(connections.GuardedBackend, "connect_tcp", connect)
        assert find_local_servers({"ollama": url}) == []


SAYS = [
    (400, {"error": {"message": "registry.ollama.ai/library/gemma:2b does not support tools"}}),
    (500, {"error": {"code": 500, "message": "tools param requires --jinja flag", "type": "server_error"}}),
    (400, {"message": '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'}),
]


@pytest.mark.parametrize(("status", "said"), SAYS)
@pytest.mark.parametrize("name", ["ollama", "vllm"])
async def test_a_model_without_tools_writes_its_calls_in_the_text(monkeypatch, name, status, said):
    call = '<tool>\n{"tool_name": "look", "arguments": {"at": "it"}}\n</tool>'
    async with serving(refusal(status, said), reply(call), reply(call)) as server:
        monkeypatch.setenv(f"{name.upper()}_BASE_URL", f"{server.url}/v1")
        provider = provider_for(f"{name}:small")
        assert not expects_calls(provider)
        note, *_, message = await ask(provider)
        assert isinstance(note, Retrying)
        assert "describes the tools in the prompt" in note.reason
        assert [one.name for one in message.tool_calls] == ["look"]
        assert expects_calls(provider)
        await ask(provider)  # it is known now
    assert ["tools" in body for body in server.bodies] == [True, False, False]
    assert "<tool>" in server.bodies[1]["messages"][0]["content"]


async def test_a_model_with_tools_calls_them_natively(monkeypatch):
    call = {"index": 0, "id": "c1", "function": {"name": "look", "arguments": '{"at": "it"}'}}
    body = sse({"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]})
    async with serving(stream(body)) as server:
        monkeypatch.setenv("OLLAMA_BASE_URL", f"{server.url}/v1")
        provider = provider_for("ollama:qwen3")
        *_, message = await ask(provider)
    assert message.tool_calls[0].id == "c1"
    assert not expects_calls(provider)
    assert len(server.asked) == 1


@pytest.mark.parametrize("name", ["llamacpp", "openai", "openai-chat"])
async def test_llamacpp_is_asked_whether_its_template_has_a_place_for_tools(monkeypatch, name):
    lacks = Reply([json.dumps({"chat_template_caps": {"supports_tools": False}}).encode()], framing="length")
    has = Reply([json.dumps({"chat_template_caps": {"supports_tools": True}}).encode()], framing="length")
    for props, native in ((lacks, False), (has, True), (refusal(404), True), (Reply([b"<"], framing="length"), True)):
        async with serving(props, reply("Hello.")) as server:
            monkeypatch.setenv(f"{name.partition('-')[0].upper()}_BASE_URL", f"{server.url}/v1")
            await ask(provider_for(f"{name}:small"))
        assert server.asked[0].path == "/props"
        assert ("tools" in server.asked[1].body) is native


@pytest.mark.parametrize("choice", ["required", "look"])
@pytest.mark.parametrize("name", ["llamacpp", "ollama"])
async def test_where_a_call_is_required_a_local_model_is_held_to_the_schema_of_one(monkeypatch, choice, name):
    has = Reply([json.dumps({"chat_template_caps": {"supports_tools": True}}).encode()], framing="length")
    first = [has] if name == "llamacpp" else []
    call = '{"tool_name": "look", "arguments": {"at": "it"}}'
    asked = ModelRequest(messages=ASK.messages, tools=[look.spec], options={"tool_choice": choice})
    async with serving(*first, reply(call), reply("Hello.")) as server:
        monkeypatch.setenv(f"{name.upper()}_BASE_URL", f"{server.url}/v1")
        model = provider_for(f"{name}:small")
        *_, answer = await ask(model, asked)
        await ask(model)
    assert [(one.name, json.loads(one.arguments)) for one in answer.tool_calls] == [("look", {"at": "it"})]
    assert answer.text == ""
    held, free = (one.body for one in server.asked[len(first) :])
    schema = held["response_format"]["json_schema"]["schema"]
    assert schema["properties"]["tool_name"] == {"enum": ["look"]}
    assert schema["properties"]["arguments"]["required"] == ["at"]
    assert "tools" not in held
    assert "tool_choice" not in held
    assert "response_format" not in free
    assert [one["function"]["name"] for one in free["tools"]] == ["look"]


async def test_ollama_which_ignores_that_no_call_may_come_gets_no_tools(monkeypatch):
    asked = ModelRequest(messages=ASK.messages, tools=[look.spec], options={"tool_choice": "none"})
    async with serving(reply("Hello."), reply("Hello.")) as server:
        monkeypatch.setenv("OLLAMA_BASE_URL", f"{server.url}/v1")
        monkeypatch.setenv("VLLM_BASE_URL", f"{server.url}/v1")
        await ask(provider_for("ollama:small"), asked)
        await ask(provider_for("vllm:small"), asked)
    assert ["tools" in one.body for one in server.asked] == [False, True]


async def test_a_server_that_keeps_a_model_to_calls_itself_gets_the_tools(monkeypatch):
    asked = ModelRequest(messages=ASK.messages, tools=[look.spec], options={"tool_choice": "required"})
    async with serving(reply("Hello.")) as server:
        monkeypatch.setenv("VLLM_BASE_URL", f"{server.url}/v1")
        await ask(provider_for("vllm:small"), asked)
    (request,) = server.asked
    assert request.body["tool_choice"] == "required"
    assert "response_format" not in request.body


async def test_a_hosted_model_without_tools_is_refused_with_advice(monkeypatch):
    async with serving(refusal(*SAYS[0])) as server:
        monkeypatch.setenv("GROQ_BASE_URL", server.url)
        with pytest.raises(NoTools) as refused:
            await ask(provider_for("groq:small"))
    assert "text:" in refused.value.suggestion
    assert len(server.asked) == 1


async def test_another_failure_stays_one(monkeypatch):
    async with serving(refusal(400, {"error": {"message": "context is broken"}})) as server:
        monkeypatch.setenv("OLLAMA_BASE_URL", f"{server.url}/v1")
        with pytest.raises(ProviderError, match="context is broken"):
            await ask(provider_for("ollama:small"))


async def test_a_whole_run_of_a_model_without_tools(monkeypatch):
    call = '<tool>\n{"tool_name": "look", "arguments": {"at": "it"}}\n</tool>'
    async with serving(refusal(*SAYS[0]), reply(call), reply("I saw it.")) as server:
        monkeypatch.setenv("OLLAMA_BASE_URL", f"{server.url}/v1")
        result = await Agent(provider_for("ollama:small"), tools=[look], limits=Limits(turns=4)).run("Look at it.")
    assert result.text == "I saw it."
    assert "saw it" in json.dumps(server.bodies[2]["messages"])
