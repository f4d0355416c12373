"""`mcp_call`: one tool of a server, whichever way it is named, under the rules of that tool."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from forge.core.context import Scope
from forge.core.errors import ErrorKind
from forge.core.events import PermissionAnswered, PermissionAsked
from forge.core.executor import ToolExecutor
from forge.core.messages import ToolCall
from forge.core.registry import mount_source
from forge.mcp import Http, mcp
from forge.mcp.client.mcp_call import McpCall
from forge.network.egress import Egress
from forge.permissions.policy import rules
from forge.permissions.questions import Answer, nobody
from forge.pipeline import standard_executor
from tests.mcp.remote import Desk, Person, Remote, definition, until
from tests.mcp.servers import http_server, stdio_command


@pytest.fixture
def remote(monkeypatch):
    return Remote(definition("status"), definition("log")).install(monkeypatch)


def desk_with(server, *policy, person=None) -> Desk:
    desk = Desk(*policy, person=person)
    desk.registry.add(McpCall({"git": server}))
    return desk


async def call(desk, tool="status", server="git", **arguments):
    return await desk.call("mcp_call", server=server, tool_name=tool, arguments=arguments)


async def test_a_configured_server_that_is_open_is_used_as_it_is(remote):
    server = mcp("uvx mcp-server-git")
    desk = desk_with(server)
    async with mount_source(desk.registry, server):
        result = await call(desk, path="a")
        assert result.for_llm == "status done"
        assert (result.data["server"], result.data["tool"]) == ("git", "status")
        assert (await call(desk, "git__log")).success, "its name here is understood too"
    assert remote.calls == [("status", {"path": "a"}), ("log", {})]
    assert remote.opened == 1


async def test_one_that_is_not_open_is_opened_for_the_call_once_that_is_allowed(remote):
    desk = desk_with(mcp("uvx mcp-server-git"), "allow read", person=nobody)
    refused = await call(desk)
    assert refused.failure.kind is ErrorKind.PERMISSION
    assert not remote.opened
    desk = desk_with(mcp("uvx mcp-server-git"))
    assert (await call(desk)).success
    assert (remote.opened, remote.closed) == (1, 1)


async def test_the_rules_about_a_tool_hold_whichever_way_it_is_called(remote):
    server = mcp("uvx mcp-server-git")
    desk = desk_with(server, "allow *", "deny tool:git__log")
    async with mount_source(desk.registry, server):
        assert (await call(desk, "status")).success
        refused = await call(desk, "log")
        assert refused.failure.kind is ErrorKind.PERMISSION
        assert not (await desk.call("git__log")).success
    assert [name for name, _ in remote.calls] == ["status"]


async def test_what_a_tool_needs_is_asked_once_with_its_own_arguments(remote):
    server = mcp("uvx mcp-server-git")
    desk = desk_with(server, "ask *")
    async with mount_source(desk.registry, server):
        desk.person.answer = Answer("once", feedback="only this time")
        result = await call(desk, path="a")
        assert "only this time" in result.for_llm
    (asked,) = desk.person.asked
    assert asked.spec.name == "git__status"
    assert asked.arguments == {"path": "a"}


async def test_arguments_that_a_person_edits_run_instead(remote):
    server = mcp("uvx mcp-server-git")
    desk = desk_with(server, "ask *", person=Person(Answer.edit({"path": "b"})))
    async with mount_source(desk.registry, server):
        result = await call(desk, path="a")
        assert "The person changed the arguments" in result.for_llm
    assert remote.calls == [("status", {"path": "b"})]


async def test_pins_hold_here_too(remote, tmp_path):
    server = mcp("uvx mcp-server-git", pins=tmp_path / "pins.json")
    desk = desk_with(server)
    async with mount_source(desk.registry, server):
        assert (await call(desk)).success
        assert [one.spec.name for one in desk.person.asked] == ["git__status"]
        assert (await call(desk)).success
        assert len(desk.person.asked) == 1
        await remote.change(definition("status", "Something else."))
        await until(lambda: server.tools[0].needs_person)
        desk.person.answer = Answer.NO
        assert not (await call(desk)).success
        assert desk.person.asked[-1].personal
        assert "Something else." in desk.person.asked[-1].preview
    assert list(json.loads((tmp_path / "pins.json").read_text())["servers"]["git"]["tools"]) == ["status"]


async def test_what_is_excluded_cannot_be_called(remote):
    server = mcp("uvx mcp-server-git", exclude=["log"])
    desk = desk_with(server)
    async with mount_source(desk.registry, server):
        refused = await call(desk, "log")
    assert refused.failure.kind is ErrorKind.NOT_FOUND
    assert "It has status." in refused.for_llm


async def test_unknown_servers_and_tools_say_what_there_is(remote):
    server = mcp("uvx mcp-server-git")
    desk = desk_with(server)
    nothing = await call(desk, server="svn")
    assert nothing.failure.kind is ErrorKind.NOT_FOUND
    assert "The configured servers are git." in nothing.for_llm
    assert "Did you mean status?" in (await call(desk, "statsu")).for_llm
    empty = Desk()
    empty.registry.add(McpCall())
    assert "No server is configured." in (await call(empty)).for_llm
    assert (await call(desk, "status", path=[3, 4])).failure.kind is ErrorKind.VALIDATION


async def test_the_url_of_a_configured_server_is_that_server(remote):
    server = mcp(Http("https://EXAMPLE.com/mcp", headers={"Authorization": "Bearer geheimgeheim"}), name="docs")
    desk = Desk("allow *", "deny tool:docs__log")
    desk.registry.add(McpCall({"docs": server}))
    async with mount_source(desk.registry, server):
        assert (await call(desk, server="https://example.com:443/mcp")).success
        assert not (await call(desk, "log", server="https://example.com/mcp")).success


async def test_a_url_is_asked_for_as_what_it_is(remote):
    desk = Desk("allow network example.com", person=nobody)
    desk.registry.add(McpCall())
    assert (await call(desk, server="https://example.com/mcp")).success
    assert remote.transport.egress is not None
    assert (await call(desk, server="https://other.example/mcp")).failure.kind is ErrorKind.PERMISSION
    assert remote.opened == 1


async def test_a_tool_that_destroys_is_asked_about_at_a_url_too(remote):
    remote.definitions = [definition("wipe", annotations={"destructiveHint": True})]
    desk = Desk(person=Person(Answer.NO))
    desk.registry.add(McpCall())
    assert (await call(desk, "wipe", server="https://example.com/mcp")).failure.kind is ErrorKind.PERMISSION
    assert "may destroy data" in desk.person.asked[0].question
    desk.person.answer = Answer.ONCE
    assert (await call(desk, "wipe", server="https://example.com/mcp")).success


async def test_one_question_about_a_tool_that_destroys_is_one_pair_of_events(remote):
    """A program of a server needs `execute` and `network`: both are in the one event."""
    remote.definitions = [definition("wipe", annotations={"destructiveHint": True, "openWorldHint": True})]
    for answer, runs in ((Answer.ONCE, True), (Answer.NO, False)):
        desk = Desk(person=Person(answer))
        heard: list[Any] = []
        desk.executor.activity.subscribe(heard.append, PermissionAsked, PermissionAnswered)
        async with mount_source(desk.registry, mcp("uvx mcp-server-git", name="git")):
            result = await desk.executor.execute(ToolCall("git__wipe", {"path": "a"}), Scope())
        assert result.success is runs
        asked, answered = heard
        assert {asked.permission, *(permission for permission, _ in asked.others)} == {"execute", "network"}
        assert answered.answer == ("once" if runs else "no")


async def test_where_the_gate_knows_only_permissions_they_are_required(remote):
    required = []

    class Gate:
        async def require(self, ctx, permission, target):
            required.append((str(permission), target))

    async def guard(ctx, proceed):
        return await proceed(ctx.replace(gate=Gate()))

    server = mcp("https://example.com/mcp", name="git")
    async with server:
        bare = ToolExecutor(desk_with(server).registry, [guard])
        wanted = ToolCall("mcp_call", {"server": "git", "tool_name": "status"})
        assert (await bare.execute(wanted, Scope())).success
    assert required == [("network", "https://example.com")]


async def test_a_real_server_is_called_over_stdio():
    desk = Desk()
    desk.registry.add(McpCall({"every": mcp(stdio_command(), name="every")}))
    result = await call(desk, "add", server="every", a=1, b=2)
    assert result.for_llm == "3"
    assert result.data["structured"] == {"result": 3}


async def test_a_real_server_is_called_at_its_url_where_the_project_lets_it():
    async with http_server() as url:
        for private, allowed in (((), False), (("127.0.0.1",), True)):
            executor = standard_executor([McpCall()], policy=rules("allow *"), egress=Egress(private=private))
            wanted = ToolCall("mcp_call", {"server": url, "tool_name": "echo", "arguments": {"text": "hi"}})
            result: Any = await executor.execute(wanted, Scope())
            assert result.success is allowed, result
            if allowed:
                assert result.for_llm == "hi"
            else:
                assert result.failure.kind is ErrorKind.SECURITY


@pytest.mark.parametrize("body", [b'{"a": 1}', b"[]", b"<html>", b'"x"', b'{"jsonrpc": "2.0", "id": 1, "error": "no"}'])
async def test_what_is_no_mcp_server_is_told_in_words(body):
    async with _answering(body) as url:
        executor = standard_executor([McpCall()], policy=rules("allow *"), egress=Egress(private=("127.0.0.1",)))
        result: Any = await executor.execute(ToolCall("mcp_call", {"server": url, "tool_name": "x"}), Scope())
    assert "its handshake is not valid MCP" in result.for_llm
    assert "validation error" not in result.for_llm
    assert "Check that the command or the URL belongs to an MCP server" in result.failure.suggestion


@asynccontextmanager
async def _answering(body: bytes) -> AsyncIterator[str]:
    """A server that says the same to everything."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        writer.write(f"{head}Connection: close\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
