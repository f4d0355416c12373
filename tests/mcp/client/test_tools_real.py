"""The tools of a real server on the official SDK, over both transports."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager

import pytest

from forge import Scope, ToolCall, ToolRegistry, rules
from forge.core.context import Root
from forge.core.errors import ErrorKind, ToolError
from forge.core.events import ToolProgress
from forge.core.messages import Message
from forge.core.registry import mount_source
from forge.mcp import Stdio, mcp
from forge.permissions.questions import Answer, PermissionRequest
from forge.pipeline import standard_executor
from forge.tools import register_all
from tests.mcp import hostile
from tests.mcp.remote import Desk, until
from tests.mcp.servers import PIXEL, SOUND, http_server, stdio_command


class Model:
    async def stream(self, request):
        yield Message("assistant", f"You asked: {request.messages[-1].text}")


async def person(request):
    if "Who are you?" in request.question:
        return Answer.edit({"name": "Ada"})
    return Answer.ONCE


@asynccontextmanager
async def everything(transport, sampling=None, **program):
    desk = Desk(person=person)
    older = ("--old",) if transport.startswith("old") else ()
    if transport.endswith("stdio"):
        command, *args = stdio_command(*older)
        server = mcp(Stdio(command, args, **program), name="every", sampling=sampling)
        async with mount_source(desk.registry, server):
            yield desk
        return
    async with http_server(*older) as url, mount_source(desk.registry, mcp(url, name="every", sampling=sampling)):
        yield desk


@pytest.mark.parametrize(
    "transport", ["stdio", "old http", *(pytest.param(one, marks=pytest.mark.slow) for one in ("http", "old stdio"))]
)
async def test_everything_a_server_can_do_arrives(transport, tmp_path):
    progress: list[str] = []
    async with everything(transport, sampling=Model(), roots=[Root(tmp_path, writable=True)]) as desk:
        desk.executor.activity.subscribe(lambda event: progress.append(event.title), ToolProgress)

        async def said(tool, **arguments):
            return (await desk.call(f"every__{tool}", **arguments)).for_llm

        assert await said("echo", text="grüezi") == "grüezi"
        added = await desk.call("every__add", a=1, b="2")
        assert (added.for_llm, added.data["structured"]) == ("3", {"result": 3})
        assert await said("slow", steps=2) == "2 steps"
        assert {"step 1", "step 2", "every: logged 1"} <= set(progress)
        assert (await desk.call("every__image")).attachments[0].data == PIXEL
        assert (await desk.call("every__audio")).attachments[0].data == SOUND
        assert await said("link") == "[link to docs://guide: guide, text/plain]"
        assert "inside" in await said("embedded")
        assert await said("only_structured") == '{"count": 2}'
        failed = await desk.call("every__fails")
        assert failed.failure.kind is ErrorKind.USER
        assert "it is broken" in failed.for_llm
        assert await said("elicits") == "accept Ada"
        assert await said("elicits_url") == "accept"
        declined = await said("elicits_url", page="file:///etc/passwd")
        why = "the page that the server every wants you to open is declined: the scheme file: is not supported"
        assert declined == f"decline: {why}"
        assert why in progress
        assert await said("samples", question="How?") == "the model said: You asked: How?"
        assert desk.registry["every__erase"].spec.confirm
        assert not desk.registry["every__look"].spec.confirm
        await said("change_list")
        await until(lambda: "every__extra" in desk.registry)
        assert await said("extra") == "extra"
        await said("redefine")
        await until(lambda: desk.registry["every__echo"].needs_person)
        assert await said("echo", text="still") == "still"
        assert desk.registry["every__echo"].spec.description == "Say the text again, and send it to us."
        await _cancelled(desk, tmp_path / "note", progress)
    assert not desk.registry


async def _cancelled(desk, note, progress):
    """A call that is cancelled here is cancelled there, and others go on meanwhile."""
    waiting = asyncio.create_task(desk.call("every__waits", note=str(note)))
    await until(lambda: "waiting" in progress)
    assert (await desk.call("every__look")).for_llm == "seen"
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await until(note.exists)


async def test_a_server_that_dies_fails_its_call_and_comes_back():
    async with everything("stdio", sandbox="off") as desk:  # in a sandbox, every server has the same process number
        first = (await desk.call("every__surroundings")).data["structured"]["pid"]
        died = await desk.call("every__dies", code=3)
        assert died.failure.kind is ErrorKind.SYSTEM
        assert "every is down" in died.for_llm
        assert "I am dying" in died.for_llm
        async with asyncio.timeout(60):
            while not (back := await desk.call("every__surroundings")).success:
                assert "every is down" in back.for_llm
                await asyncio.sleep(0.05)
        second = back.data["structured"]["pid"]
        assert second not in (first, os.getpid())
    with pytest.raises(ProcessLookupError):
        os.kill(second, 0)


async def test_a_project_that_serves_itself_to_itself_comes_to_an_end(monkeypatch):
    says = mcp(["sh", "-c", "echo depth $FORGE_MCP_DEPTH >&2; exit 3"], name="deep")
    for inside, found in (
        ("", "depth 1"),
        ("3", "depth 4"),
        ("4", "MCP servers started other MCP servers"),
        ("x" * 9, "depth 1"),
    ):
        monkeypatch.setenv("FORGE_MCP_DEPTH", inside)
        with pytest.raises(ToolError, match=found):
            await says.__aenter__()


async def test_an_impostor_takes_no_name_reaches_nothing_inside_and_is_asked_about_once_it_changed():
    registry = ToolRegistry()
    register_all(registry)
    own = dict(registry)
    answers: list[Answer] = []

    async def approve(request: PermissionRequest) -> Answer:
        return answers.pop() if answers else Answer.no()

    executor = standard_executor(registry, policy=rules("allow *"), approve=approve)
    program, *args = hostile.command("Impostor")
    async with mount_source(registry, mcp(Stdio(program, args, sandbox="off"), name="by_hand")):
        assert all(registry[name] is tool for name, tool in own.items())
        new = set(registry) - set(own)
        assert {"by_hand__go", "by_hand__bash", "by_hand__file_write"} <= new
        assert all(name.startswith("by_hand__") and name.isprintable() for name in new)
        first = await executor.execute(ToolCall("by_hand__go", {}), Scope())
        assert first.success, first.for_llm
        assert "[link to file:///etc/passwd: x]" in first.for_llm
        assert "root:" not in first.for_llm
        assert "\x1b" not in first.for_llm
        async with asyncio.timeout(60):
            while (later := await executor.execute(ToolCall("by_hand__go", {}), Scope())).success:
                continue  # its new list is on the way
        assert "changed" in later.for_llm
        answers.append(Answer.ONCE)  # no rule allows a changed definition, only a person
        again = await executor.execute(ToolCall("by_hand__go", {}), Scope())
        assert again.success, again.for_llm
        assert answers == []
