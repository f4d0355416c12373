"""Connections over HTTP: what is sent where, what is refused, and what happens when a session or a server is gone."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from forge.core.errors import ErrorKind, ToolError
from forge.mcp import guarded_http
from forge.mcp.client import connection as module
from forge.mcp.client import http
from forge.mcp.client.connection import Connection, SilentListener
from forge.mcp.client.link import Http
from forge.network.egress import Egress
from tests.mcp import servers
from tests.mcp.client.test_connection import Heard, opened, said
from tests.network.serving import Asked, Reply, redirect, serving

INFO = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}}


class ByHand:
    """Answers in JSON, one message a request; `calls` decides what a call is answered with."""

    def __init__(self, calls: Callable[[Asked, dict[str, Any]], Reply] | None = None) -> None:
        self.sessions = 0
        self.calls = calls

    def __call__(self, asked: Asked) -> Reply:
        if asked.method != "POST":
            return Reply(status=405 if asked.method == "GET" else 200)
        message = json.loads(asked.body)
        if message.get("method") == "initialize":
            self.sessions += 1
            return answered(message, INFO, ("Mcp-Session-Id", f"s{self.sessions}"))
        if asked.headers.get("mcp-session-id") != f"s{self.sessions}":
            return Reply([b"who?"], 404)
        if "id" not in message:
            return Reply(status=202)
        if self.calls is not None:
            return self.calls(asked, message)
        return answered(message, {"content": [{"type": "text", "text": f"session {self.sessions}"}]})

    def forget(self) -> None:
        self.sessions += 10


def answered(message: dict[str, Any], result: Any, *headers: tuple[str, str]) -> Reply:
    body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
    return Reply([body], headers=[("Content-Type", "application/json"), *headers])


async def refused(url: str, **options: Any) -> ToolError:
    with pytest.raises(ToolError) as failed:
        await Connection("docs", Http(url, connect_timeout=5, **options), SilentListener()).open()
    assert failed.value.suggestion
    return failed.value


async def test_a_missing_or_wrong_token_is_said_and_never_shown() -> None:
    async with servers.http_server("--token", "sesame-sesame") as url:
        error = await refused(url)
        assert error.kind is ErrorKind.CONFIG
        assert "401: the header Authorization is missing" in error.message
        error = await refused(url, headers={"Authorization": "Bearer guessed-wrongly"})
        assert "rejected the configured Authorization header" in error.message
        assert "guessed-wrongly" not in repr((error.message, error.suggestion, error.__cause__, error.__context__))
        async with opened(Http(url, headers={"Authorization": "Bearer sesame-sesame"})) as server:
            assert said(await server.call_tool("echo", {"text": "in"}, 1)) == "in"


async def test_an_expired_session_is_renewed_and_the_call_made_once_more() -> None:
    site = ByHand()
    heard = Heard()
    async with serving(site) as web, opened(Http(f"{web.url}/mcp"), heard) as server:
        assert said(await server.call_tool("any", {}, 1)) == "session 1"
        site.forget()
        assert said(await server.call_tool("any", {}, 2)) == "session 12"
        assert ("down", "its session expired", 0.0) in heard.events
        await heard.until("back", "changed")


async def test_one_that_forgets_every_session_at_once_is_not_asked_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_BACKOFF", 30.0)
    site = ByHand()
    site.calls = lambda asked, message: Reply(status=404)
    async with serving(site) as web, opened(Http(f"{web.url}/mcp")) as server:
        with pytest.raises(ToolError, match="expired"):
            await server.call_tool("any", {}, 1)
        assert site.sessions == 2


async def test_a_server_that_is_gone_is_told_at_once_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_BACKOFF", 0.05)
    heard = Heard()
    async with serving(ByHand()) as web:
        port = web.port
        server = Connection("docs", Http(f"{web.url}/mcp"), heard)
        await server.open()
    with pytest.raises(ToolError, match=r"no connection|the connection broke"):
        await server.call_tool("any", {}, 1)
    while not any(event[0] == "down" for event in heard.events):
        with pytest.raises(ToolError):
            await server.call_tool("any", {}, 1)
    async with serving(ByHand(), port=port):
        await heard.until("back")
        assert said(await server.call_tool("any", {}, 2)) == "session 1"
        await server.close()


async def test_nobody_there_at_all_is_said_on_opening() -> None:
    async with serving(ByHand()) as web:
        url = web.url
    error = await refused(f"{url}/mcp")
    assert error.kind is ErrorKind.SYSTEM
    assert "no connection" in error.message


async def test_headers_and_body_stay_with_the_origin() -> None:
    async with serving(ByHand()) as other, serving(redirect(f"{other.url}/mcp", 307)) as web:
        error = await refused(f"{web.url}/mcp", headers={"X-Key": "a-secret-key"})
        assert "not followed" in error.message
        assert web.asked[0].headers["x-key"] == "a-secret-key"
        assert not other.asked


async def test_a_redirect_within_the_origin_is_followed() -> None:
    site = ByHand()

    def answer(asked: Asked) -> Reply:
        return redirect("/mcp/", 307) if asked.path == "/mcp" else site(asked)

    async with serving(answer) as web, opened(Http(f"{web.url}/mcp")) as server:
        assert said(await server.call_tool("any", {}, 1)) == "session 1"


async def test_the_projects_egress_decides_where_it_is_given() -> None:
    async with serving(ByHand()) as web:
        error = await refused(f"{web.url}/mcp", egress=Egress())
        assert error.kind is ErrorKind.SECURITY
        assert not web.asked
        async with opened(Http(f"{web.url}/mcp", egress=Egress(private=("127.0.0.1",)))) as server:
            assert server.is_up
    assert (await refused("http://169.254.169.254/mcp")).kind is ErrorKind.SECURITY  # whoever names it


async def test_proxies_of_the_environment_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with serving(ByHand()) as web, opened(Http(f"{web.url}/mcp")) as server:
        assert server.is_up


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (404, ErrorKind.CONFIG, "there is no MCP server with streamable HTTP"),
        (503, ErrorKind.SYSTEM, "answered 503 Service Unavailable"),
        (429, ErrorKind.RATE_LIMITED, "answered 429 Too Many Requests"),
        (403, ErrorKind.CONFIG, "answered 403"),
    ],
)
async def test_a_refusal_is_told_by_its_status(status: int, kind: ErrorKind, words: str) -> None:
    async with serving(Reply([b"<html>\x1b[31mno"], status, headers=[("Retry-After", "7")])) as web:
        error = await refused(f"{web.url}/mcp")
    assert error.kind is kind
    assert words in error.message
    assert "\x1b" not in error.message
    assert status != 429 or error.suggestion == "Try again in 7 s."


async def test_an_answer_that_is_too_large_fails_its_call_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded_http, "MOST_MESSAGE", 100_000)

    def calls(asked: Asked, message: dict[str, Any]) -> Reply:
        size = message["params"]["arguments"]["size"]
        return answered(message, {"content": [{"type": "text", "text": "x" * size}]})

    async with serving(ByHand(calls)) as web, opened(Http(f"{web.url}/mcp")) as server:
        with pytest.raises(ToolError, match="more than 0 MiB"):
            await server.call_tool("any", {"size": 200_000}, 1)
        assert said(await server.call_tool("any", {"size": 3}, 2)) == "xxx"


async def test_an_event_that_is_too_large_fails_its_call_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MOST_MESSAGE", 100_000)

    def calls(asked: Asked, message: dict[str, Any]) -> Reply:
        if message["params"]["arguments"]:
            return Reply([b"data: ", *[b"x" * 10_000] * 20], headers=[("Content-Type", "text/event-stream")])
        return answered(message, {"content": []})

    async with serving(ByHand(calls)) as web, opened(Http(f"{web.url}/mcp")) as server:
        with pytest.raises(ToolError):
            await server.call_tool("any", {"size": 1}, 1)
        assert await server.call_tool("any", {}, 2) == {"content": []}


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
async def test_an_answer_of_millions_of_values_fails_its_call_alone(kind: str) -> None:
    def calls(asked: Asked, message: dict[str, Any]) -> Reply:
        inner = b"[]," * 600_000 if message["params"]["name"] == "many" else b'"' + b",[{" * 400_000 + b'",'
        body = b'{"jsonrpc":"2.0","id":%d,"result":{"content":[],"structuredContent":{"a":[%s1]}}}'
        body %= (message["id"], inner)
        if kind == "text/event-stream":
            body = b"event: message\r\ndata: " + body + b"\r\n\r\n"
        pieces = [body[start : start + 100_001] for start in range(0, len(body), 100_001)]
        return Reply(pieces, headers=[("Content-Type", kind)])

    async with serving(ByHand(calls)) as web, opened(Http(f"{web.url}/mcp")) as server:
        with pytest.raises(ToolError):
            await server.call_tool("many", {}, 1)
        answer = await server.call_tool("text", {}, 2)
        assert answer["structuredContent"]["a"] == [",[{" * 400_000, 1]


async def test_packed_answers_are_refused() -> None:
    packed = Reply([b"\x1f\x8b"], headers=[("Content-Type", "application/json"), ("Content-Encoding", "gzip")])
    async with serving(packed) as web:
        assert "compressed" in (await refused(f"{web.url}/mcp")).message
        assert web.asked[0].headers["accept-encoding"] == "identity"


async def test_a_broken_answer_fails_its_call_alone() -> None:
    def calls(asked: Asked, message: dict[str, Any]) -> Reply:
        if message["params"]["name"] == "cut":
            return Reply(
                [b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{"], raw=True
            )
        if message["params"]["name"] == "html":
            return Reply([b"<html>"], headers=[("Content-Type", "text/html")])
        if message["params"]["name"] == "error":
            told = {"jsonrpc": "2.0", "id": None, "error": {"code": -32602, "message": "not like this"}}
            return Reply([json.dumps(told).encode()], 400, [("Content-Type", "application/json")])
        return answered(message, {"content": []})

    async with serving(ByHand(calls)) as web, opened(Http(f"{web.url}/mcp")) as server:
        for name, words in (("cut", "the connection broke"), ("html", "content type"), ("error", "not like this")):
            with pytest.raises(ToolError, match=re.compile(words, re.IGNORECASE)):
                await server.call_tool(name, {}, 1)
            assert await server.call_tool("fine", {}, 2) == {"content": []}


async def test_bad_urls_and_headers_are_refused_before_anything_is_sent() -> None:
    assert (await refused("ftp://example.com")).kind is ErrorKind.VALIDATION
    async with serving(ByHand()) as web:
        error = await refused(web.url, headers={"X-Key": "se\r\ncret"})
        assert "X-Key" in error.message
        assert "cret" not in error.message
        assert not web.asked
