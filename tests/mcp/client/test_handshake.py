"""The revision that a server speaks is found, whatever it does with the first question."""

from __future__ import annotations

import json
from typing import Any

import pytest

from forge.core.errors import ErrorKind, ToolError
from forge.mcp import mcp
from forge.mcp.client import handshake, session
from forge.mcp.client.connection import Connection, SilentListener
from forge.mcp.client.link import Http
from tests.mcp import hostile
from tests.mcp.client.test_connection import by_hand, opened, said
from tests.mcp.remote import until
from tests.network.serving import Asked, Reply, serving

VERSIONS = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
COMPLETE = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


@pytest.mark.parametrize(
    ("behaviour", "is_modern"),
    [
        ("Server", False),
        ("EndsAtProbe", False),
        ("IgnoresProbe", False),
        ("Modern", True),
        ("Reluctant", True),
        ("LateProbe", True),
    ],
)
async def test_the_revision_is_found(behaviour: str, is_modern: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if behaviour in ("IgnoresProbe", "LateProbe"):
        monkeypatch.setattr(handshake, "PROBE", 0.2)
    async with opened(by_hand(behaviour)) as server:
        assert server.is_modern is is_modern
        assert [tool["name"] for tool in await server.list_tools()] == ["echo"]


@pytest.mark.parametrize(
    ("behaviour", "said_of_it"),
    [
        ("FromTheFuture", "it speaks 2031-01-01; Forge speaks 2024-11-05, "),
        ("GreetsAsModern", "it answers `initialize` with revision 2026-07-28, but not `server/discover`"),
        ("Stubbornly", "it refused the handshake: not this one"),
    ],
)
async def test_a_revision_that_is_not_spoken_is_explained(behaviour: str, said_of_it: str) -> None:
    with pytest.raises(ToolError) as failed:
        await Connection("git", by_hand(behaviour), SilentListener()).open()
    assert failed.value.kind is ErrorKind.CONFIG
    assert said_of_it in failed.value.message
    assert failed.value.suggestion


async def test_a_list_is_read_again_when_it_is_no_longer_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "SHORTEST", 0.0)
    async with opened(by_hand("ShortLived")) as server:
        await server.list_tools()
        await until(lambda: server.is_list_expired)
    monkeypatch.undo()
    async with opened(by_hand("ShortLived")) as server:
        await server.list_tools()
        assert not server.is_list_expired  # a server may not demand that at every call


class Site:
    """A server of revision 2026-07-28 over HTTP; it notes what it was asked."""

    def __init__(self, *tools: dict[str, Any]) -> None:
        self.tools = tools
        self.asked: list[tuple[str, dict[str, str]]] = []

    def __call__(self, asked: Asked) -> Reply:
        message = json.loads(asked.body)
        self.asked.append((message["method"], dict(asked.headers)))
        results: dict[str, dict[str, Any]] = {
            "server/discover": VERSIONS,
            "tools/list": {"tools": list(self.tools)},
            "tools/call": hostile.text("done"),
        }
        body = {"jsonrpc": "2.0", "id": message["id"], "result": {**results[message["method"]], **COMPLETE}}
        return Reply([json.dumps(body).encode()], headers=[("Content-Type", "application/json")])


def tool_with_header(name: str, kind: str, header: str) -> dict[str, Any]:
    properties = {"region": {"type": kind, "x-mcp-header": header}}
    return {"name": name, "inputSchema": {"type": "object", "properties": properties}}


async def test_parameters_are_sent_as_headers_where_the_server_wants_it() -> None:
    site = Site(tool_with_header("query", "string", "Region"))
    async with serving(site) as web, opened(Http(f"{web.url}/mcp")) as server:
        await server.list_tools()
        assert said(await server.call_tool("query", {"region": "Zürich"}, 1)) == "done"
        assert said(await server.call_tool("query", {}, 1)) == "done"
    (_, first), (_, second) = [one for one in site.asked if one[0] == "tools/call"]
    assert first["mcp-name"] == "query"
    assert first["mcp-method"] == "tools/call"
    assert first["mcp-protocol-version"] == "2026-07-28"
    assert first["mcp-param-region"] == "=?base64?WsO8cmljaA==?="
    assert "mcp-param-region" not in second
    assert [method for method, _ in site.asked].count("initialize") == 0


async def test_a_tool_with_an_invalid_header_is_left_out_alone() -> None:
    site = Site(tool_with_header("query", "string", "Region"), tool_with_header("bad", "number", "Region"))
    async with serving(site) as web:
        server = mcp(f"{web.url}/mcp", name="site")
        async with server:
            assert [tool.remote for tool in server.tools] == ["query"]
            assert "x-mcp-header is only permitted on" in server.left_out["bad"]
