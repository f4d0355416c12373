"""`forge acp` and editors that are slow, dead or hostile."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import forge
from forge import Agent, Scripted, ToolCall, tool
from forge.agent.session import SessionStore
from forge.doors import acp_updates
from forge.events import TextDelta, ToolOutput, ToolStarted
from tests.cli.scripts import call, script
from tests.doors.acp_editor import Editor, forge_in

WRITE = call("file_write", path="a.txt", content="one\n")


@tool
def echo() -> str:
    """Say something."""
    return "something"


async def begin(editor: Editor, workspace: Path) -> str:
    session: str = (await editor.agent.new_session(cwd=str(workspace))).session_id
    return session


@asynccontextmanager
async def raw(workspace: Path, *flags: str):
    """`forge acp` without any SDK on the other side."""
    environment = {**os.environ, "PYTHONPATH": str(Path(forge.__file__).parents[1])}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "forge", "acp", *flags,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env=environment, cwd=workspace, limit=2**26,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def talk(process: Any, line: bytes) -> Any:
    process.stdin.write(line + b"\n")
    await process.stdin.drain()
    return json.loads(await asyncio.wait_for(process.stdout.readline(), 60))


def ask(method: str, id_: Any = 1, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id_, "method": method, "params": params}).encode()


SSE = {"type": "sse", "name": "s", "url": "https://example.com", "headers": []}
GO = [{"type": "text", "text": "Go"}]
INITIALIZE = ask("initialize", protocolVersion=1, clientCapabilities={})


@pytest.mark.slow
async def test_lines_that_are_no_messages_are_answered_and_skipped(workspace):
    async with raw(workspace, "--model", script(workspace, "Hi.")) as process:
        codes = {
            b"not json": -32700,
            b"[1, 2]": -32600,
            b'{"jsonrpc": "2.0", "id": [1], "method": "initialize"}': -32600,
            b'{"jsonrpc": "2.0", "id": 1, "method": 7}': -32600,
            b'{"jsonrpc": "2.0", "id": 1, "method": "no/such"}': -32601,
            b'{"jsonrpc": "2.0", "id": 1, "method": "_no/such", "params": {}}': -32601,
            b"[" * 100_000: -32700,
            b'"' + b"x" * (49 * 1024 * 1024): -32600,
            ask("session/prompt", sessionId="none", prompt=[{"type": "text", "text": "Hi"}]): -32602,
            ask("session/prompt", prompt="Hi"): -32602,
            ask("session/load", sessionId="none", cwd=str(workspace), mcpServers=[]): -32002,
            ask("session/new", cwd="\0", mcpServers=[]): -32602,
            ask(
                "session/new", cwd=str(workspace), mcpServers=[{"type": "sse", "name": "s", "url": "x", "headers": []}]
            ): -32602,
            ask("session/list", cwd=str(workspace), cursor="-1"): -32602,
            ask("authenticate", methodId="other"): -32602,
        }
        for line, code in codes.items():
            answer = await talk(process, line)
            assert answer["error"]["code"] == code, line[:80]
        for ignored in (b'{"jsonrpc": "2.0", "id": 99, "result": {}}', b'{"id": "x", "error": 7}', b"", b"{}"):
            process.stdin.write(ignored + b"\n")
        process.stdin.write(b'{"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "none"}}\n')
        assert (await talk(process, INITIALIZE))["result"]["protocolVersion"] == 1
        newer = ask("initialize", protocolVersion=99, clientCapabilities={})
        assert (await talk(process, newer))["result"]["protocolVersion"] == 1
        process.stdin.close()
        assert await asyncio.wait_for(process.wait(), 30) == 0


@pytest.mark.slow
async def test_an_editor_that_never_answers_and_leaves_ends_the_run(workspace):
    model = script(workspace, WRITE, call("file_write", path="b.txt", content="x"), "Done.")
    async with raw(workspace, "--model", model) as process:
        await talk(process, INITIALIZE)
        session = (await talk(process, ask("session/new", cwd=str(workspace), mcpServers=[])))["result"]["sessionId"]
        process.stdin.write(ask("session/prompt", 2, sessionId=session, prompt=GO) + b"\n")
        seen: dict[str, Any] = {}
        while seen.get("method") != "session/request_permission":
            seen = json.loads(await asyncio.wait_for(process.stdout.readline(), 60))
        process.stdin.close()
        assert await asyncio.wait_for(process.wait(), 30) == 0
    with SessionStore.of(workspace) as store:
        messages = store.show(session).messages
    assert not (workspace / "a.txt").exists()
    assert [one.role for one in messages if one.role != "system"] == ["user", "assistant", "tool"]


@pytest.mark.slow
async def test_an_editor_that_does_not_read_costs_no_memory(workspace):
    text = "x" * 400_000
    async with raw(workspace, "--model", script(workspace, call("todo_read", text=text), text)) as process:
        await talk(process, INITIALIZE)
        session = (await talk(process, ask("session/new", cwd=str(workspace), mcpServers=[])))["result"]["sessionId"]
        for number in range(500):  # answers that nobody reads
            process.stdin.write(ask("session/list", number, cwd=str(workspace)) + b"\n")
        process.stdin.write(ask("session/prompt", "p", sessionId=session, prompt=GO) + b"\n")
        await asyncio.sleep(0)
        status = Path(f"/proc/{process.pid}/status").read_text()
        assert int(status.split("VmRSS:")[1].split()[0]) < 600_000  # kB
        process.stdin.close()
        read = 0
        while await asyncio.wait_for(process.stdout.readline(), 60):
            read += 1
        assert await asyncio.wait_for(process.wait(), 60) == 0
        assert read


async def test_too_much_that_waits_ends_the_connection(workspace, monkeypatch):
    monkeypatch.setattr(acp_updates, "MOST_WAITING", 2_000)
    editor = Editor()
    with pytest.raises(ConnectionError):
        async with forge_in(editor, workspace, script(workspace, "y" * 10_000)):
            await editor.say(await begin(editor, workspace), "Go")
    monkeypatch.undo()
    async with forge_in(editor, workspace, script(workspace, "y" * 10_000)):
        assert (await editor.say(await begin(editor, workspace), "Go")).stop_reason == "end_turn"


async def test_much_output_waits_as_its_end_and_texts_wait_whole(workspace):
    agent = Agent(Scripted("x"), tools=[echo])
    reading, sent = asyncio.Event(), list[Any]()

    async def send(update: Any) -> None:
        await reading.wait()
        sent.append(update)

    def give_up() -> None:
        raise AssertionError("the editor was given up")

    queue = acp_updates.UpdateQueue(send, give_up)
    view = acp_updates.RunView(agent, queue.put)
    calls = [ToolCall("echo", {}, id=f"c{number}") for number in range(2)]
    for one in calls:
        view.take(ToolStarted(one))
    for number in range(5_000):
        for one in calls:
            view.take(ToolOutput(one, f"{number} {'x' * 400}\n"))
        view.take(TextDelta(f"{number} ", agent=agent.name))
    reading.set()
    await queue.flush()
    await queue.close()
    shown = [one for one in sent if one.session_update == "tool_call_update"]
    assert len(shown) <= 4
    assert all("4999 xxx" in one.content[0].content.text for one in shown[-2:])
    said = "".join(one.content.text for one in sent if one.session_update == "agent_message_chunk")
    assert said == "".join(f"{number} " for number in range(5_000))
