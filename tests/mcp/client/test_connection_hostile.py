"""Servers that do not do as the protocol says: none of them harms more than the calls to itself."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from forge.core.errors import ErrorKind, ToolError
from forge.mcp import OAuth
from forge.mcp.client import connection as listing
from forge.mcp.client import connection as module
from forge.mcp.client.connection import Connection, SilentListener
from forge.mcp.client.link import Http, Stdio
from tests.mcp import hostile
from tests.mcp.client.test_connection import Heard, by_hand, opened, said, until


async def refused(behaviour: str, connect_timeout: float = 30.0) -> ToolError:
    with pytest.raises(ToolError) as failed:
        await Connection("git", replace(by_hand(behaviour), connect_timeout=connect_timeout), SilentListener()).open()
    assert failed.value.suggestion
    return failed.value


async def test_one_that_never_greets_is_given_up() -> None:
    error = await refused("Silent", connect_timeout=0.5)
    assert error.kind is ErrorKind.TIMEOUT
    assert "no response to the handshake within 0.5 s; its last output: thinking …" in error.message


async def test_one_that_ends_at_once_is_quoted_without_its_colours() -> None:
    error = await refused("Dead")
    assert error.kind is ErrorKind.CONFIG
    assert error.message == ("the server git ended before it could be used (exit code 3; its last output: no database)")


async def test_one_of_an_unknown_version_is_named() -> None:
    error = await refused("WrongVersion")
    assert error.kind is ErrorKind.CONFIG
    assert "1999-01-01" in error.message
    assert "2025-06-18" in error.message


async def test_an_odd_greeting_is_refused() -> None:
    assert "its handshake is not valid MCP" in (await refused("OddGreeting")).message


async def test_endless_pages_come_to_an_end(caplog: pytest.LogCaptureFixture) -> None:
    async with opened(by_hand("EndlessPages")) as server:
        assert len(await server.list_tools()) == 100
    assert "more than 100 pages" in caplog.text


async def test_pages_in_a_circle_are_read_once(caplog: pytest.LogCaptureFixture) -> None:
    async with opened(by_hand("Circle")) as server:
        assert [tool["name"] for tool in await server.list_tools()] == ["tNone", "ta", "tb"]
    assert "links back" in caplog.text


async def test_5000_tools_are_enough(caplog: pytest.LogCaptureFixture) -> None:
    async with opened(by_hand("Many")) as server:
        assert len(await server.list_tools()) == 5_000
    assert "more than 5,000 tools" in caplog.text


async def test_a_definition_of_40_mib_costs_only_itself(caplog: pytest.LogCaptureFixture) -> None:
    async with opened(by_hand("Huge")) as server:
        assert [tool["name"] for tool in await server.list_tools()] == ["small", "last"]
    assert "the maximum is 32 MiB" in caplog.text
    assert "not an object" in caplog.text


async def test_a_list_that_is_too_deep_fails_at_once() -> None:
    async with opened(by_hand("Deep")) as server, asyncio.timeout(60):
        with pytest.raises(ToolError, match="not a valid message"):
            await server.list_tools()
        assert said(await server.call_tool("echo", {"text": "on"}, 1)) == "on"


async def test_a_list_that_takes_too_long_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "LISTING", 0.2)
    async with opened(by_hand("Deaf")) as server:
        with pytest.raises(ToolError, match=r"did not list its tools within 0\.2 s") as failed:
            await server.list_tools()
        assert failed.value.kind is ErrorKind.TIMEOUT


async def test_an_answer_past_64_mib_fails_its_call_alone() -> None:
    async with opened(by_hand("Oversized")) as server:
        with pytest.raises(ToolError, match="its response has 68,157"):
            await server.call_tool("big", {}, 1)
        assert said(await server.call_tool("echo", {"text": "on"}, 2)) == "on"


@pytest.mark.parametrize("kind", ["lists", "strings"])
async def test_an_answer_of_millions_of_values_fails_its_call_alone(kind: str) -> None:
    async with opened(by_hand("ManyValues")) as server:
        with pytest.raises(ToolError, match="its response has more than 1,000,000 values"):
            await server.call_tool(kind, {}, 1)
        assert said(await server.call_tool("echo", {}, 2)).count(",") == 400_000


@pytest.mark.slow
async def test_a_line_without_end_ends_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_BACKOFF", 30.0)
    async with opened(by_hand("EndlessLine")) as server:
        with pytest.raises(ToolError, match="it wrote more than 256 MiB without a line break"):
            await server.call_tool("any", {}, 1)


async def test_garbage_between_the_messages_is_logged_and_skipped() -> None:
    heard = Heard()
    async with opened(by_hand("Garbage"), heard) as server:
        assert said(await server.call_tool("echo", {"text": "on"}, 1)) == "on"
    lines = [event[3] for event in heard.events if event[:3] == ("log", "warning", "stdout")]
    assert lines[:3] == ["Listening …", "{]", "[1, 2]"]
    assert not any("\x1b" in line or "\x00" in line for line in lines)


async def test_a_flood_of_notifications_is_dammed() -> None:
    heard = Heard()
    async with opened(by_hand("Flood"), heard) as server:
        began = time.monotonic()
        assert said(await server.call_tool("any", {}, "key")) == "done"
        assert time.monotonic() - began < 60
        assert said(await server.call_tool("any", {}, "key")) == "done"
    assert 0 < len(heard.events) < 1_500
    assert sum(event == ("changed",) for event in heard.events) < 20
    assert {event[1] for event in heard.events if event[0] == "progress"} == {"key"}


async def test_others_are_served_meanwhile() -> None:
    """The event loop is not held up by a server that shouts."""
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.001)
            longest = max(longest, time.monotonic() - began)

    async with opened(by_hand("Flood"), Heard()) as server:
        watching = asyncio.create_task(watch())
        await server.call_tool("any", {}, 1)
        watching.cancel()
    assert longest < 1.0


async def test_only_the_first_answer_counts() -> None:
    async with opened(by_hand("Twice")) as server:
        for key in range(3):
            assert said(await server.call_tool("any", {}, key)) == "first"


async def test_an_odd_result_is_an_error_and_the_next_call_works() -> None:
    async with opened(by_hand("OddResult")) as server:
        with pytest.raises(ToolError, match="sent an invalid MCP response") as failed:
            await server.call_tool("odd", {}, 1)
        assert failed.value.kind is ErrorKind.SYSTEM
        assert said(await server.call_tool("even", {}, 2)) == "fine"


async def test_an_error_of_the_server_is_quoted_clean() -> None:
    async with opened(by_hand("Refusing")) as server:
        with pytest.raises(ToolError) as failed:
            await server.call_tool("any", {}, 1)
        assert failed.value.message == "the server git says: no such tool"
        assert failed.value.kind is ErrorKind.VALIDATION
        with pytest.raises(ToolError) as failed:  # the number that the SDK has for a closed connection
            await server.call_tool("fails", {}, 2)
        assert failed.value.message == "the server git says: the disk is full"


async def test_error_output_is_bounded_line_by_line() -> None:
    heard = Heard()
    async with opened(by_hand("Chatty"), heard):
        await heard.until("log")
        async with asyncio.timeout(60):
            while len(heard.events) < 4:
                heard.told.clear()
                await heard.told.wait()
    lines = [event[3] for event in heard.events if event[:3] == ("log", "info", "stderr")]
    assert lines[:3] == ["line 0", "line 1", "line 2"]
    assert len(lines[3]) == 1_000


async def test_one_that_reads_nothing_holds_up_nobody() -> None:
    async with opened(by_hand("Deaf")) as server:
        calls = [asyncio.create_task(server.call_tool("echo", {"text": "x" * 100_000}, key)) for key in range(5)]
        await asyncio.sleep(0)
        began = time.monotonic()
        for call in calls:
            call.cancel()
        await asyncio.wait(calls, timeout=60)
        assert all(call.cancelled() for call in calls)
    assert time.monotonic() - began < 60


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return True


async def gone(*pids: int) -> None:
    await until(lambda: not any(map(alive, pids)))


async def test_closing_ends_the_most_stubborn_one_with_all_it_started(tmp_path: Path) -> None:
    server = Connection("git", by_hand("Stubborn", str(tmp_path / "pids")), SilentListener())
    await server.open()
    pids = [int(word) for word in (tmp_path / "pids").read_text().split()]
    assert all(map(alive, pids))
    began = time.monotonic()
    await server.close()
    assert time.monotonic() - began < 60
    await gone(*pids)


async def test_cancelling_the_opening_leaves_nothing_behind(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    server = Connection("git", by_hand("StubbornAndSilent", str(pids)), SilentListener())
    opening = asyncio.create_task(server.open())
    await until(lambda: pids.exists() and pids.read_text() != "")
    began = time.monotonic()
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert time.monotonic() - began < 60
    await gone(*map(int, pids.read_text().split()))


async def test_nothing_outlives_a_killed_forge(tmp_path: Path) -> None:
    script = (
        "import asyncio, sys\n"
        "from forge.mcp.client.connection import Connection, SilentListener\n"
        "from forge.mcp import Stdio\n"
        "async def main():\n"
        "    server = Connection('git', Stdio(sys.argv[1], sys.argv[2:], sandbox='off'), SilentListener())\n"
        "    await server.open()\n"
        "    print('open', flush=True)\n"
        "    await asyncio.sleep(600)\n"
        "asyncio.run(main())\n"
    )
    forge = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", script, *hostile.command("Stubborn", str(tmp_path / "pids"))),
        stdout=asyncio.subprocess.PIPE,
    )
    assert forge.stdout is not None
    assert await forge.stdout.readline() == b"open\n"
    pids = [int(word) for word in (tmp_path / "pids").read_text().split()]
    forge.send_signal(signal.SIGKILL)
    await forge.communicate()
    await gone(*pids)


def test_a_transport_does_not_show_its_secrets() -> None:
    assert "s3cret" not in repr(Stdio("x", env={"A": "s3cret"}))
    login = OAuth(client_id="me", client_secret="s3cret")
    assert "s3cret" not in repr(Http("https://s3cret", headers={"B": "s3cret"}, auth=login)) + repr(login)
