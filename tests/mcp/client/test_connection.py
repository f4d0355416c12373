"""Connections to servers that do as the protocol says, over stdio and over HTTP: real processes, the official SDK."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from forge.core.errors import ErrorKind, ToolError
from forge.mcp.client import connection as module
from forge.mcp.client.connection import Connection, SilentListener, current_call_key
from forge.mcp.client.link import Http, Stdio, Transport
from tests.mcp import hostile, servers


class Heard(SilentListener):
    """Remembers all it hears; `told` is set by each of it."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []
        self.told = asyncio.Event()
        self.answer: Any = {"name": "Ann"}

    def _hear(self, *event: Any) -> None:
        self.events.append(event)
        self.told.set()

    def tools_changed(self) -> None:
        self._hear("changed")

    def progress(self, call: object, done: float, total: float | None, message: str) -> None:
        self._hear("progress", call, done, total, message)

    def log(self, level: str, logger: str, text: str) -> None:
        self._hear("log", level, logger, text)

    async def elicit(self, message: str, schema: Mapping[str, Any] | None, url: str | None) -> Any:
        self._hear("elicit", message, sorted((schema or {}).get("properties", {})), url, current_call_key.get())
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def went_down(self, reason: str, seconds: float) -> None:
        self._hear("down", reason, seconds)

    def came_back(self) -> None:
        self._hear("back")

    async def until(self, *kinds: str) -> None:
        async with asyncio.timeout(60):
            while not set(kinds) <= {event[0] for event in self.events}:
                self.told.clear()
                await self.told.wait()


class Sampling(Heard):
    async def sample(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        self._hear("sample", request["messages"][0]["content"]["text"], request["maxTokens"], current_call_key.get())
        if isinstance(self.answer, Exception):
            raise self.answer
        return {"role": "assistant", "content": {"type": "text", "text": "fine"}, "model": "m"}


@asynccontextmanager
async def opened(target: Transport, listener: Any = None) -> AsyncIterator[Connection]:
    connection = Connection("git", target, listener or SilentListener())
    await connection.open()
    try:
        yield connection
    finally:
        await connection.close()


@pytest.fixture(scope="module")
def http_url() -> Iterator[str]:
    yield from http_process()


@pytest.fixture(scope="module")
def old_http_url() -> Iterator[str]:
    yield from http_process("--old")


def http_process(*options: str) -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, servers.__file__, "http", *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().decode().strip()
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(params=["stdio", "http", "old stdio", "old http"])
def target(request: pytest.FixtureRequest) -> Transport:
    """Servers of revision 2026-07-28, and older ones."""
    if request.param.endswith("stdio"):
        return program(*servers.stdio_command(*(["--old"] if request.param != "stdio" else [])))
    return Http(request.getfixturevalue("http_url" if request.param == "http" else "old_http_url"))


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_BACKOFF", 0.05)


async def until(holds: Callable[[], bool]) -> None:
    """Where nobody tells us: what happens in another process."""
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def program(command: str, *args: str, **settings: Any) -> Stdio:
    return Stdio(command, args, sandbox="off", **settings)


def by_hand(behaviour: str, *arguments: str) -> Stdio:
    return program(*hostile.command(behaviour, *arguments))


def said(result: Mapping[str, Any]) -> str:
    return "".join(block.get("text", "") for block in result["content"])


async def test_everything_a_server_can_do(target: Transport) -> None:
    heard = Sampling()
    async with opened(target, heard) as server:
        assert server.is_up
        assert server.server_info == {"name": "everything", "version": "1.2.3"}
        assert server.instructions == "Call `echo` first."
        tools = {tool["name"]: tool for tool in await server.list_tools()}
        assert tools["echo"]["description"] == servers.ECHO
        assert tools["echo"]["inputSchema"]["required"] == ["text"]
        assert tools["erase"]["annotations"]["destructiveHint"] is True
        assert said(await server.call_tool("echo", {"text": "hi"}, 1)) == "hi"
        assert (await server.call_tool("add", {"a": 1, "b": 2}, 1))["structuredContent"] == {"result": 3}
        assert (await server.call_tool("image", {}, 1))["content"][0]["mimeType"] == "image/png"
        failed = await server.call_tool("fails", {}, 1)
        assert failed["isError"]
        assert "it is broken" in said(failed)
        assert said(await server.call_tool("slow", {"steps": 2}, "key")) == "2 steps"
        assert ("progress", "key", 2.0, 2.0, "step 2") in heard.events
        assert ("log", "info", "steps", "logged 1") in heard.events
        assert said(await server.call_tool("elicits", {}, "e")) == "accept Ann"
        assert said(await server.call_tool("elicits_url", {}, "u")) == "accept"
        assert ("elicit", "Who are you?", ["age", "name"], None, "e") in heard.events
        assert ("elicit", "Please sign in.", [], "https://example.com/sign-in", "u") in heard.events
        assert said(await server.call_tool("samples", {}, "s")) == "the model said: fine"
        assert ("sample", "How are you?", 50, "s") in heard.events
        await server.call_tool("change_list", {}, 1)
        await heard.until("changed")
        assert "extra" in {tool["name"] for tool in await server.list_tools()}
        await server.call_tool("change_list", {}, 1)
    assert not server.is_up


@pytest.mark.parametrize(
    ("answer", "action"), [(None, "decline"), (False, "cancel"), (ToolError("no"), "decline"), ({"a": {}}, "decline")]
)
async def test_a_question_may_be_declined_or_dismissed(answer: Any, action: str, http_url: str) -> None:
    heard = Heard()
    heard.answer = answer
    async with opened(Http(http_url), heard) as server:
        assert said(await server.call_tool("elicits", {}, 1)) == action


async def test_a_server_is_told_that_nobody_can_be_asked(http_url: str) -> None:
    async with opened(Http(http_url)) as server:
        for name in ("elicits", "samples"):
            with pytest.raises(ToolError, match="not supported"):
                await server.call_tool(name, {}, 1)


async def test_a_refused_sample_says_why(http_url: str) -> None:
    heard = Sampling()
    heard.answer = ToolError("the person said no")
    async with opened(Http(http_url), heard) as server:
        with pytest.raises(ToolError, match="the server git says: the person said no"):
            await server.call_tool("samples", {}, 1)


async def test_calls_run_side_by_side(http_url: str) -> None:
    async with opened(Http(http_url)) as server:
        calls = [server.call_tool("echo", {"text": str(number)}, number) for number in range(50)]
        assert [said(result) for result in await asyncio.gather(*calls)] == [str(number) for number in range(50)]


async def test_a_cancelled_call_is_cancelled_over_there(tmp_path: Path, http_url: str) -> None:
    note = tmp_path / "note"
    heard = Heard()
    async with opened(Http(http_url), heard) as server:
        call = asyncio.create_task(server.call_tool("waits", {"note": str(note)}, 1))
        await heard.until("progress")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await until(note.exists)
        assert said(await server.call_tool("echo", {"text": "on"}, 2)) == "on"


async def test_a_cancelled_call_over_stdio_is_cancelled_over_there() -> None:
    heard = Heard()
    async with opened(by_hand("Cancellable"), heard) as server:
        call = asyncio.create_task(server.call_tool("waits", {}, 1))
        await heard.until("progress")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert said(await server.call_tool("was it", {}, 2)) == "True"


async def test_a_server_sees_little_of_our_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORGE_TEST_SECRET", "hidden")
    seen = "[os.getcwd(), os.environ.get('GIVEN'), 'PATH' in os.environ, 'FORGE_TEST_SECRET' in os.environ]"
    script = f"import json, os, sys; print(json.dumps({seen}), file=sys.stderr)"
    heard = Heard()
    target = program(sys.executable, "-c", script, env={"GIVEN": "yes"}, cwd=tmp_path)
    with pytest.raises(ToolError) as failed:
        await Connection("git", target, heard).open()
    words = failed.value.message
    assert f'its last output: ["{tmp_path}", "yes", true, false]' in words


async def test_a_server_that_dies_fails_its_calls_at_once_and_is_restarted(soon: None) -> None:
    heard = Heard()
    async with opened(by_hand("Dying"), heard) as server:
        waiting = asyncio.create_task(server.call_tool("waits", {}, 1))
        with pytest.raises(ToolError) as failed:
            await server.call_tool("dies", {}, 2)
        expected = "server git is down (exit code 7; its last output: out of memory): restarting now"
        assert failed.value.message == expected
        assert failed.value.kind is ErrorKind.SYSTEM
        assert not failed.value.passing  # it may have done something
        with pytest.raises(ToolError, match="is down"):
            await waiting
        await heard.until("down", "back", "changed")
        assert ("down", "exit code 7; its last output: out of memory", 0.05) in heard.events
        assert said(await server.call_tool("echo", {"text": "again"}, 3)) == "again"


async def test_calls_fail_at_once_while_a_restart_is_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_BACKOFF", 300.0)
    monkeypatch.setattr(module, "LONGEST_BACKOFF", 300.0)
    async with opened(by_hand("Dying")) as server:
        with pytest.raises(ToolError, match=r"restarting in \d\d\d s"):
            await server.call_tool("dies", {}, 1)
        async with asyncio.timeout(60):
            with pytest.raises(ToolError, match=r"restarting in \d\d\d s") as failed:
                await server.call_tool("echo", {}, 2)
        assert failed.value.passing
        assert not server.is_up


async def test_each_restart_waits_twice_as_long(soon: None) -> None:
    heard = Heard()
    async with opened(by_hand("Dying"), heard) as server:
        for _ in range(3):
            with pytest.raises(ToolError, match="is down"):
                await server.call_tool("dies", {}, 1)
            await heard.until("back")
            heard.events = [event for event in heard.events if event[0] == "down"]
        assert [event[2] for event in heard.events] == [0.05, 0.1, 0.2]


async def test_a_server_that_stayed_up_is_restarted_as_if_it_were_the_first_time(
    soon: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STEADY", 0.0)
    heard = Heard()
    async with opened(by_hand("Dying"), heard) as server:
        for _ in range(2):
            with pytest.raises(ToolError, match="is down"):
                await server.call_tool("dies", {}, 1)
            await heard.until("back")
            heard.events = [event for event in heard.events if event[0] == "down"]
        assert [event[2] for event in heard.events] == [0.05, 0.05]


async def test_nothing_is_called_before_opening_or_after_closing() -> None:
    server = Connection("git", by_hand("Server"), SilentListener())
    with pytest.raises(ToolError, match="is closed"):
        await server.list_tools()
    await server.open()
    assert [tool["name"] for tool in await server.list_tools()] == ["echo"]
    await server.close()
    await server.close()
    with pytest.raises(ToolError, match="is closed"):
        await server.list_tools()
    await server.open()
    assert server.is_up
    await server.close()


async def test_a_server_without_handshake_is_understood_and_may_ask() -> None:
    heard = Heard()
    async with opened(by_hand("Modern"), heard) as server:
        assert [tool["name"] for tool in await server.list_tools()] == ["echo"]
        result = await server.call_tool("any", {}, "key")
        assert json.loads(said(result)) == {"action": "accept", "content": {"name": "Ann"}}
        assert ("elicit", "Who?", ["name"], None, "key") in heard.events


async def test_closing_while_it_opens_ends_both() -> None:
    server = Connection("git", by_hand("Silent"), SilentListener())
    opening = asyncio.create_task(server.open())
    await asyncio.sleep(0)
    await server.close()
    with pytest.raises(ToolError, match="is closed"):
        await opening


async def test_a_program_that_does_not_exist_is_a_matter_of_configuration(tmp_path: Path) -> None:
    for command in ("no-such-program", str(tmp_path / "missing")):
        with pytest.raises(ToolError) as failed:
            await Connection("git", program(command), SilentListener()).open()
        assert failed.value.kind in (ErrorKind.CONFIG, ErrorKind.NOT_FOUND)
        assert failed.value.suggestion
    with pytest.raises(ToolError, match="directory"):
        await Connection("git", program("true", cwd=tmp_path / "gone"), SilentListener()).open()
