"""The start of `forge serve`: it answers first, and loads the SDK and the project's sources meanwhile."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any, cast

import pytest
import yaml
from mcp import Client
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from forge import ToolRegistry, tool
from forge.cli.running.serve_mcp import _open_agent
from forge.core.context import Scope
from forge.mcp import prompt
from forge.mcp.server import first_answer, offers, stdio
from forge.mcp.server import offer as offer_module
from forge.mcp.server.handlers import make_server
from forge.mcp.server.offer import Offer
from forge.pipeline import standard_executor
from forge.project.project import load_project
from tests.cli.test_serve import hello, received, request, send, talking
from tests.mcp.server.test_offer import text

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "hand", "version": "0"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
SLOW = """
import json, os, sys
open(sys.argv[1], "rb").read()  # blocks until the test writes into the pipe
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    answer = {"initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                             "serverInfo": {"name": "slow", "version": "0"}},
              "tools/list": {"tools": [{"name": "say", "inputSchema": {"type": "object"}}]},
              }.get(message["method"])
    body = {"result": answer} if answer else {"error": {"code": -32601, "message": "no"}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **body}), flush=True)
"""


CLIENT = {"capabilities": {}, "clientInfo": {"name": "hand", "version": "0"}}
FIRST = [
    *(request(7, "initialize", protocolVersion=one, **CLIENT) for one in (*first_answer.HANDSHAKES, "1999-01-01")),
    request("x", "server/discover", _meta=META),
]


async def answered(message, *, early, **offered):
    """The answers to this message and to a list of tools, with or without the early answer."""
    params = {"_meta": META} if message["method"] == "server/discover" else {}
    follow_up = [{"jsonrpc": "2.0", "method": "notifications/initialized"}, request(8, "tools/list", **params)]
    lines = b"".join(json.dumps(one).encode() + b"\n" for one in (message, *follow_up))
    (given, client_writes), (client_reads, taken) = os.pipe(), os.pipe()
    with open(client_reads, "rb") as output:
        os.write(client_writes, lines)
        os.close(client_writes)
        executor = standard_executor(ToolRegistry([add]))
        resources, prompts = offers(executor, cast(Any, offered))
        offer = Offer(executor, Scope(), version="1", **offered)
        answering = first_answer.answer_first(given, taken, "forge", "1", resources=resources, prompts=prompts)
        first = await answering if early else stdio.NOTHING_READ
        answering.close()
        assert (first.result is not None) == early
        await stdio.serve(offer, given, taken, first)
        os.close(taken)
        os.close(given)
        return [json.loads(line) for line in output]


@prompt
def welcome() -> str:
    """Say hello."""
    return "Hello!"


OFFERED = [{}, {"files": True}, {"prompts": [welcome]}, {"files": True, "prompts": ToolRegistry([welcome])}]


@pytest.mark.parametrize("offered", OFFERED, ids=str)
@pytest.mark.parametrize("message", FIRST, ids=lambda one: str(one["params"].get("protocolVersion", "discover")))
async def test_the_first_answer_is_the_one_that_the_sdk_gives_and_is_sent_once(message, offered, caplog):
    early = await answered(message, early=True, **offered)
    assert [one["id"] for one in early] == [message["id"], 8]
    assert early == await answered(message, early=False, **offered)
    assert not caplog.records


BROKEN = [
    request(7, "initialize", protocolVersion="2025-11-25"),
    request(7, "initialize", protocolVersion=3, **CLIENT),
    request(None, "initialize", protocolVersion="2025-11-25", **CLIENT),
    request(True, "initialize", protocolVersion="2025-11-25", **CLIENT),
    request(7, "server/discover", _meta={}),
    request(7, "server/discover", _meta={**META, "io.modelcontextprotocol/protocolVersion": "2099-01-01"}),
    {"jsonrpc": "1.0", **{key: FIRST[0][key] for key in ("id", "method", "params")}},
    request(7, "ping"),
    [],
]


@pytest.mark.parametrize("message", BROKEN, ids=str)
async def test_another_first_message_is_left_to_the_sdk(message):
    (given, client_writes), (client_reads, taken) = os.pipe(), os.pipe()
    os.write(client_writes, json.dumps(message).encode() + b"\n")
    first = await first_answer.answer_first(given, taken, "forge", "1")
    for file in (given, client_writes, taken):
        os.close(file)
    assert (first.read, first.result) == (json.dumps(message).encode() + b"\n", None)
    with open(client_reads, "rb") as output:
        assert output.read() == b""


def test_the_spoken_revisions_are_the_sdks():
    assert tuple(HANDSHAKE_PROTOCOL_VERSIONS) == first_answer.HANDSHAKES
    assert tuple(MODERN_PROTOCOL_VERSIONS) == (first_answer.MODERN,)


def test_a_server_that_starts_slowly_delays_the_list_but_not_the_first_answer(tmp_path):
    os.mkfifo(tmp_path / "go")
    (tmp_path / "slow.py").write_text(SLOW)
    entry = {"command": sys.executable, "args": [str(tmp_path / "slow.py"), str(tmp_path / "go")]}
    config = tmp_path / "forge.yaml"
    config.write_text(yaml.safe_dump({"mcpServers": {"slow": entry}}))
    with talking("--workspace", str(tmp_path), "--config", str(config), "--no-audit") as process:
        assert hello(process)["result"]["serverInfo"]["name"] == "forge"
        send(process, request(1, "ping"))
        assert received(process)["id"] == 1, "other requests do not wait"
        send(process, request(2, "tools/list"))
        (tmp_path / "go").write_text("go")
        answer = received(process)
        assert answer["id"] == 2
        assert "slow__say" in {one["name"] for one in answer["result"]["tools"]}


@tool
def add(a: int) -> int:
    """Add one."""
    return a + 1


@tool
def late(a: int) -> int:
    """Come late."""
    return a


async def test_a_list_does_not_wait_for_ever_and_the_client_hears_of_late_tools(monkeypatch):
    monkeypatch.setattr(offer_module, "EVERY", 0.01)
    monkeypatch.setattr(offer_module, "LOADING", 0.01)
    heard = asyncio.Event()

    async def hear(message):
        if "list_changed" in str(getattr(message, "method", "")):
            heard.set()

    loading = asyncio.get_running_loop().create_future()
    offer = Offer(standard_executor(ToolRegistry([add])), Scope(), loading=loading)
    async with offer.open(), Client(make_server(offer), mode="legacy", cache=None, message_handler=hear) as client:
        assert [one.name for one in (await client.list_tools()).tools] == ["add"]
        offer.registry.add(late)
        loading.set_result(None)
        await asyncio.wait_for(heard.wait(), 60)
        assert [one.name for one in (await client.list_tools()).tools] == ["add", "late"]


async def test_a_call_of_a_tool_that_is_still_loading_waits_for_it():
    loading = asyncio.get_running_loop().create_future()
    offer = Offer(standard_executor(ToolRegistry([add])), Scope(), loading=loading)
    async with offer.open(), Client(make_server(offer), mode="legacy", cache=None) as client:
        assert text(await client.call_tool("add", {"a": 1})) == "2"
        waiting = asyncio.create_task(client.call_tool("late", {"a": 5}))
        assert text(await client.call_tool("add", {"a": 2})) == "3"
        assert not waiting.done()
        offer.registry.add(late)
        loading.set_result(None)
        assert text(await asyncio.wait_for(waiting, 60)) == "5"


async def test_an_error_while_sources_are_opened_ends_the_server(tmp_path):
    agent = load_project(tmp_path).agent(with_model=False)

    def fail():
        raise RuntimeError("broken source")

    agent.while_open(fail)

    async def serve():
        async with _open_agent(agent):
            await asyncio.Event().wait()

    with pytest.raises(RuntimeError, match="broken source"):
        await asyncio.wait_for(asyncio.create_task(serve()), 60)


def test_the_first_message_may_come_in_pieces_and_with_others(tmp_path):
    with talking("--workspace", str(tmp_path), "--no-audit") as process:
        client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "h", "version": "0"}}
        whole = json.dumps(request(0, "initialize", **client)).encode()
        process.stdin.write(whole[:30])
        process.stdin.flush()
        process.stdin.write(whole[30:] + b"\n")
        send(process, {"jsonrpc": "2.0", "method": "notifications/initialized"}, request(1, "tools/list"))
        assert [received(process)["id"] for _ in range(2)] == [0, 1]
