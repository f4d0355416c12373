"""The MCP server over HTTP on loopback, with the official client, and with clients that mean no good."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import asynccontextmanager

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult

from forge import ToolContext, ToolRegistry, rules, tool
from forge.core.context import Scope
from forge.mcp.server import ElicitingApprover, mcp_app, serve_http
from forge.mcp.server import http as transport
from forge.pipeline import standard_executor
from tests.network.serving import is_closed, unfinished

TOKEN = "a-token-that-is-long-enough"
ERAS = ("legacy", "2026-07-28")
INITIALIZE: dict = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}},
}
HEADERS = {
    "authorization": f"Bearer {TOKEN}",
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
}


@tool
def add(a: int, b: int = 1) -> dict:
    """Add two numbers."""
    return {"sum": a + b}


@tool(permissions={"execute"}, target="service")
def deploy(service: str) -> str:
    """Deploy a service."""
    return f"{service} is live"


@tool
async def busy(ctx: ToolContext) -> str:
    """Work for a while and say so."""
    ctx.progress("half", done=1, total=2)
    return "done"


class Wait:
    def __init__(self) -> None:
        self.started, self.ended = asyncio.Event(), asyncio.Event()

    def tool(self):
        @tool
        async def wait() -> str:
            """Wait for ever."""
            self.started.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.ended.set()
            return "never"

        return wait


@asynccontextmanager
async def served(*tools, hosts=(), policy=None):
    """The server in a task of this loop; its URL."""
    executor = standard_executor(ToolRegistry(tools or [add]), policy=policy, approve=ElicitingApprover())
    ready = asyncio.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = asyncio.create_task(
            serve_http(executor, Scope(), listening=listening, token=TOKEN, hosts=hosts, ready=ready.set)
        )
        try:
            await asyncio.wait_for(ready.wait(), 60)
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        finally:
            serving.cancel()
            await asyncio.wait({serving}, timeout=60)
            assert serving.done()


@asynccontextmanager
async def connected(url, era, token=TOKEN, **options):
    async with (
        httpx2.AsyncClient(
            verify=False, headers={"Authorization": f"Bearer {token}"}, timeout=60, trust_env=False
        ) as http,
        Client(streamable_http_client(url, http_client=http), mode=era, **options) as client,
    ):
        yield client


async def post(url, content=INITIALIZE, **headers):
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    sent = {name: value for name, value in {**HEADERS, **given}.items() if value is not None}
    async with httpx2.AsyncClient(verify=False, trust_env=False, timeout=60) as http:
        return await http.post(url, content=body, headers=sent)


def text(answer):
    return "\n".join(block.text for block in answer.content if block.type == "text")


@pytest.mark.parametrize("era", ERAS)
async def test_the_official_client_lists_calls_asks_and_hears_progress(era):
    heard: list = []

    async def hear(progress, total, message):
        heard.append((progress, total, message))

    async def yes(ctx, params):
        return ElicitResult(action="accept", content={"decision": "once"})

    async with served(add, deploy, busy) as url, connected(url, era, elicitation_callback=yes) as client:
        assert client.session.protocol_version == ("2025-11-25" if era == "legacy" else era)
        assert [one.name for one in (await client.list_tools()).tools] == ["add", "deploy", "busy"]
        assert (await client.call_tool("add", {"a": 2})).structured_content == {"sum": 3}
        assert text(await client.call_tool("deploy", {"service": "shop"})) == "shop is live"
        assert text(await client.call_tool("busy", {}, progress_callback=hear)) == "done"
        assert heard == [(1.0, 2.0, "half")]


@pytest.mark.parametrize("era", ERAS)
async def test_a_cancelled_call_is_cancelled_here(era):
    waiting = Wait()
    async with served(waiting.tool()) as url, connected(url, era) as client:
        call = asyncio.create_task(client.call_tool("wait", {}))
        await asyncio.wait_for(waiting.started.wait(), 60)
        call.cancel()
        await asyncio.wait({call})
        await asyncio.wait_for(waiting.ended.wait(), 60)


async def test_the_end_of_the_server_ends_its_calls():
    waiting = Wait()
    async with served(waiting.tool()) as url:
        call = asyncio.create_task(_call_and_ignore(url))
        await asyncio.wait_for(waiting.started.wait(), 60)
    assert waiting.ended.is_set()
    call.cancel()
    await asyncio.wait({call})


async def _call_and_ignore(url):
    async with connected(url, "2026-07-28") as client:
        await client.call_tool("wait", {})


async def test_two_clients_are_two_sessions():
    asked: list = []

    async def always(ctx, params):
        asked.append(params)
        return ElicitResult(action="accept", content={"decision": "always"})

    async with served(deploy) as url:
        for _ in range(2):
            async with connected(url, "legacy", elicitation_callback=always) as client:
                for _ in range(2):
                    assert text(await client.call_tool("deploy", {"service": "shop"})) == "shop is live"
    assert len(asked) == 2


async def test_clients_that_cannot_be_told_apart_are_never_remembered():
    asked: list = []

    async def always(ctx, params):
        asked.append(params)
        return ElicitResult(action="accept", content={"decision": "always" if len(asked) == 1 else "once"})

    async with served(deploy) as url:
        for expected in ("deploy", "shop is live"):
            async with connected(url, "2026-07-28", elicitation_callback=always) as client:
                assert expected in text(await client.call_tool("deploy", {"service": "shop"}))
    assert [one.requested_schema["properties"]["decision"]["enum"] for one in asked] == [["once", "no"]] * 2


VISITORS: tuple[tuple[dict, int], ...] = (
    ({"authorization": None}, 401),
    ({"authorization": "Bearer wrong"}, 401),
    ({"authorization": f"Bearer {TOKEN}x"}, 401),
    ({"authorization": f"Basic {TOKEN}"}, 401),
    ({"authorization": TOKEN}, 401),
    ({"host": "evil.example"}, 421),
    ({"host": "127.0.0.1.evil.example:80"}, 421),
    ({"host": "[::1"}, 421),
    ({"host": "evil.example", "authorization": None}, 421),
    ({"origin": "https://evil.example"}, 403),
    ({"origin": "null"}, 403),
    ({"origin": "http://localhost.evil.example"}, 403),
    ({}, 200),
    ({"origin": "http://localhost:6274"}, 200),
    ({"host": "localhost:1"}, 200),
    ({"authorization": f"bearer {TOKEN}"}, 200),
)


async def test_only_those_who_may_get_in():
    async with served() as url:
        for headers, status in VISITORS:
            answer = await post(url, **headers)
            assert answer.status_code == status, (headers, answer.text)
            assert TOKEN not in answer.text
            assert (answer.headers.get("www-authenticate") == "Bearer") is (status == 401)


async def test_further_names_are_allowed_by_name_and_addresses_where_it_listens_everywhere():
    async with served(hosts=("box.example",)) as url:
        assert (await post(url, host="box.example:8484", origin="https://box.example")).status_code == 200
        assert (await post(url, host="192.0.2.7:8484")).status_code == 421
    async with served(hosts=("0.0.0.0",)) as url:
        assert (await post(url, host="192.0.2.7:8484")).status_code == 200
        assert (await post(url, host="evil.example")).status_code == 421
        assert (await post(url, host="192.0.2.7:8484", origin="http://192.0.2.8")).status_code == 403


async def test_a_body_that_is_too_large_is_refused_and_the_server_goes_on():
    async with served() as url:
        assert (await post(url, b"x" * (transport.MAX_BODY + 1))).status_code == 413
        assert (await post(url)).status_code == 200


async def test_nonsense_is_refused_and_the_server_goes_on():
    async with served() as url:
        for content in (b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b'{"jsonrpc": "2.0", "id": 1}'):
            assert 400 <= (await post(url, content)).status_code < 500, content[:20]
            later = await post(url, content, mcp_protocol_version="2026-07-28")
            assert later.status_code in (400, 404), content[:20]
        assert (await post(url)).status_code == 200


async def test_sessions_nobody_opened_and_versions_nobody_knows_are_refused():
    async with served() as url:
        assert (await post(url, mcp_session_id="guessed")).status_code == 404
        assert (await post(url, mcp_protocol_version="1999-01-01")).status_code == 400
        listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        assert (await post(url, listing)).status_code == 400
        other = {**INITIALIZE, "params": {**INITIALIZE["params"], "protocolVersion": "1999-01-01"}}
        answer = await post(url, other)
        assert '"protocolVersion":"2025-11-25"' in answer.text


async def test_the_number_of_sessions_is_bounded(monkeypatch):
    monkeypatch.setattr(transport, "MOST_SESSIONS", 2)
    async with served() as url:
        assert [(await post(url)).status_code for _ in range(3)] == [200, 200, 503]


async def test_other_paths_and_methods_lead_nowhere():
    async with served() as url, httpx2.AsyncClient(verify=False, trust_env=False, headers=HEADERS) as http:
        assert (await http.get(url.removesuffix("/mcp"))).status_code == 404
        assert (await http.request("OPTIONS", url)).status_code == 405
        assert (await http.request("OPTIONS", url, headers={"authorization": ""})).status_code == 401


async def test_a_client_that_leaves_in_the_middle_harms_nobody():
    waiting = Wait()
    async with served(add, waiting.tool()) as url:
        call = asyncio.create_task(_call_and_ignore(url))
        await asyncio.wait_for(waiting.started.wait(), 60)
        call.cancel()
        await asyncio.wait({call})
        await asyncio.wait_for(waiting.ended.wait(), 60)
        async with connected(url, "legacy") as client:
            assert (await client.call_tool("add", {"a": 1})).structured_content == {"sum": 2}


async def test_an_app_without_a_token_is_not_made():
    executor = standard_executor([add], policy=rules("allow read"))
    with pytest.raises(ValueError, match="token"):
        mcp_app(executor, Scope(), "")
    assert callable(mcp_app(executor, Scope(), TOKEN))


@pytest.mark.parametrize("era", ERAS)
def test_600_unfinished_requests_keep_nobody_out(era):
    async def attempt():
        async with served(add) as url, connected(url, era) as before:
            port = int(url.rsplit(":", 1)[1].partition("/")[0])
            async with unfinished(port, 600) as readers:
                for reader in readers[:450]:
                    assert await is_closed(reader)
                assert (await before.call_tool("add", {"a": 1})).structured_content == {"sum": 2}
                async with connected(url, era) as after:
                    assert (await after.call_tool("add", {"a": 2})).structured_content == {"sum": 3}

    asyncio.run(attempt())
