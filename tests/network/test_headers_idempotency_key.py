"""Requests with a key: the same whenever the same call is sent, and another for every other call."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from forge.core.context import Scope, ToolContext
from forge.core.errors import ToolError
from forge.core.messages import ToolCall
from forge.core.registry import ToolRegistry
from forge.core.result import ToolResult
from forge.core.tool import Tool
from forge.network.egress import Egress
from forge.network.headers import key_header
from forge.openapi import openapi
from forge.permissions.policy import rules
from forge.pipeline import standard_executor
from forge.project.assemble.sources import Sources
from forge.project.config import load_configuration
from forge.tools.http_request import HttpRequest
from forge.tools.webhook_call import WebhookCall
from forge.webhooks import webhook
from tests.network.serving import HERE, Asked, Reply, page, redirect, serving

NAME = "Idempotency-Key"
KEY = "idempotency-key"
TURN = Scope(session_id="a session", message_id="run.3")


def document(url: str) -> dict[str, Any]:
    header = {"name": NAME, "in": "header", "required": True, "schema": {"type": "string"}}
    operations: dict[str, Any] = {
        method: {"operationId": method, "parameters": [header] if method == "post" else [], "responses": {}}
        for method in ("get", "post", "put", "patch", "delete")
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Pay", "version": "1"},
        "servers": [{"url": url}],
        "paths": {"/pay": operations},
    }


def dropping() -> Any:
    """A server that takes the first request, and goes away without an answer."""
    seen: list[Asked] = []

    def answer(asked: Asked) -> Reply:
        seen.append(asked)
        return Reply(raw=True) if len(seen) == 1 else page("done")

    return answer


async def send(
    tool: Tool, arguments: dict[str, Any], scope: Scope = TURN, id: str = "call-1", egress: Egress = HERE
) -> ToolResult:
    """By an executor of its own each time, as after a crash."""
    executor = standard_executor([tool], policy=rules("allow network"), egress=egress)
    return await executor.execute(ToolCall(tool.spec.name, arguments, id), scope)


@pytest.mark.parametrize("kind", [HttpRequest, WebhookCall])
async def test_a_call_that_is_sent_again_after_a_crash_carries_the_same_key(kind: type[Tool]) -> None:
    more: dict[str, Any] = {"method": "POST"} if kind is HttpRequest else {"payload": {}}
    async with serving(dropping()) as server:
        arguments = {"url": server.url, **more}
        lost = await send(kind(idempotency_header=NAME), arguments)  # type: ignore[call-arg]
        assert lost.is_error
        assert len(server.asked) == 1  # who honours keys is not known: nothing is repeated by itself
        again = await send(kind(idempotency_header=NAME), arguments)  # type: ignore[call-arg]
        await send(kind(idempotency_header=NAME), arguments, id="call-2")  # type: ignore[call-arg]
    assert again.success, again.for_llm
    first, second, other = (asked.headers[KEY] for asked in server.asked)
    assert first == second != other
    assert re.fullmatch("[0-9a-f]{32}", first)


async def test_a_server_that_takes_keys_is_asked_again_at_once() -> None:
    async with serving(dropping()) as server, openapi(document(server.url), idempotency_header=NAME) as tools:
        post = next(tool for tool in tools if tool.spec.name.endswith("post"))
        result = await send(post, {})
    assert result.success, result.for_llm
    assert len({asked.headers[KEY] for asked in server.asked}) == 1
    assert len(server.asked) == 2


async def test_a_webhook_that_takes_keys_is_sent_again_at_once() -> None:
    async with serving(dropping()) as server:
        result = await send(webhook("pay", server.url, idempotency_header=NAME), {"payload": {}})
        assert result.success, result.for_llm
        assert len({asked.headers[KEY] for asked in server.asked}) == 1
        assert len(server.asked) == 2


async def test_without_the_setting_nothing_is_sent_and_nothing_repeated() -> None:
    async with serving(dropping()) as server:
        result = await send(webhook("pay", server.url), {"payload": {}})
        assert result.is_error
        assert (await send(HttpRequest(), {"method": "POST", "url": server.url})).success
    assert len(server.asked) == 2
    assert all(KEY not in asked.headers for asked in server.asked)


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"])
async def test_only_methods_that_change_something_have_a_key(method: str) -> None:
    async with serving(page("x")) as server:
        await send(HttpRequest(idempotency_header=NAME), {"method": method, "url": server.url})
    assert (KEY in server.asked[0].headers) is (method not in ("GET", "HEAD"))


@pytest.mark.parametrize("method", ["get", "post", "put", "patch", "delete"])
async def test_an_operations_key_is_neither_shown_to_the_model_nor_asked_of_it(method: str) -> None:
    async with serving(page("x")) as server, openapi(document(server.url), idempotency_header=NAME) as tools:
        tool = next(tool for tool in tools if tool.spec.name.endswith(f"__{method}"))
        assert NAME.lower() not in str(tool.spec.parameters).lower()
        assert (await send(tool, {})).success
        assert (KEY in server.asked[0].headers) is (method != "get")
        assert tool.deduplicates_by_key is (method != "get")


async def test_a_key_that_the_caller_gives_is_left_alone() -> None:
    async with serving(page("x")) as server:
        arguments = {"method": "POST", "url": server.url, "headers": {"idempotency-KEY": "mine"}}
        await send(HttpRequest(idempotency_header=NAME), arguments)
        tool = webhook("pay", server.url, headers={"idempotency-key": "ours"}, idempotency_header=NAME)
        await send(tool, {"payload": {}})
    assert [asked.headers[KEY] for asked in server.asked] == ["mine", "ours"]
    assert [asked.names.count(KEY) for asked in server.asked] == [1, 1]
    assert not tool.deduplicates_by_key


async def test_another_server_does_not_get_the_key() -> None:
    async with serving(page("x")) as other, serving(redirect(f"{other.url}/", 307)) as server:
        egress = Egress(private=("127.0.0.1",))
        await send(HttpRequest(idempotency_header=NAME), {"method": "POST", "url": server.url}, egress=egress)
    assert KEY in server.asked[0].headers
    assert all(KEY not in asked.headers for asked in other.asked)


def test_the_key_tells_sessions_turns_and_calls_apart_and_no_name_of_them() -> None:
    tool = HttpRequest()
    scopes = [TURN, Scope(session_id="b", message_id="run.3"), Scope(session_id="a session", message_id="run.4")]
    contexts = [ToolContext(ToolCall("http_request", {}, id), tool, scope=scope) for scope in scopes for id in "xy"]
    keys = {key_header(NAME, "POST", ctx)[NAME] for ctx in contexts}
    assert len(keys) == len(contexts)
    assert not any("session" in key for key in keys)


def test_a_session_with_a_strange_name_has_a_key_that_can_be_sent() -> None:
    strange = ToolContext(ToolCall("http_request", {}, "\ud800\r\n" * 500), HttpRequest(), scope=TURN)
    assert re.fullmatch("[0-9a-f]{32}", key_header(NAME, "POST", strange)[NAME])


def test_a_stored_run_repeats_what_its_server_takes_once_and_nothing_else() -> None:
    from forge.durable.engine.record_calls import RecordedExecutor  # the engine is an extra

    tools = [webhook("keyed", "https://example.com", idempotency_header=NAME), webhook("plain", "https://example.com")]
    nobody: Any = None
    executor = RecordedExecutor(nobody, ToolRegistry([*tools, HttpRequest(idempotency_header=NAME)]), ())
    repeated = {name: executor._may_be_repeated(ToolCall(name, {}, "c")) for name in executor.registry}
    assert repeated == {"keyed": True, "plain": False, "http_request": False}


def test_a_name_that_is_no_header_is_told_where_it_is_configured() -> None:
    with pytest.raises(ToolError, match="not a valid header name"):
        webhook("pay", "https://example.com", idempotency_header="two words")
    with pytest.raises(ToolError, match="set by the client itself"):
        openapi(document("https://example.com"), idempotency_header="Host")


def test_the_configuration_names_the_header(tmp_path: Path) -> None:
    file = tmp_path / "forge.yaml"
    file.write_text(
        "openapi: {pets: {spec: ./pets.yaml, idempotency_header: X-Key}}\n"
        "webhooks: {pay: {url: 'https://example.com', idempotency_header: Idempotency-Key}}\n"
        "tools: [{name: http_request, config: {idempotency_header: Idempotency-Key}}]\n"
    )
    configuration = load_configuration(str(file))
    assert configuration.openapi["pets"].idempotency_header == "X-Key"
    (made,) = Sources(configuration, tmp_path).webhooks()
    assert made.deduplicates_by_key
