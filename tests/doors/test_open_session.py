"""One session of a project that a person elsewhere talks to."""

from __future__ import annotations

import asyncio

import pytest

from forge import Answer, ToolError
from forge.agent.session import SessionStore
from forge.core.events import TextDelta, ToolStarted
from forge.doors.open_session import open_session
from forge.project.project import RunOptions
from forge.project.trust import accept
from forge.workspace.state import state_directory
from tests.cli.scripts import call, script

WRITE = call("file_write", path="a.txt", content="one\n")


async def yes(request):
    return Answer.ONCE


def at(workspace) -> RunOptions:
    return RunOptions(workspace=str(workspace))


async def test_a_session_is_stored_and_continued(workspace):
    model = script(workspace, "Hello.", "Again.")
    async with open_session(at(workspace), approve=yes, model=model) as session:
        assert SessionStore.of(workspace).list() == []
        assert (await session.run("Hi")).text == "Hello."
    async with open_session(at(workspace), session.name, approve=yes) as again:
        assert [one.text for one in again.messages if one.role != "system"] == ["Hi", "Hello."]
        assert again.agent.model == model
        assert (state_directory(workspace) / "audit.ndjson").read_text().count("run_finished") == 1


async def test_an_untrusted_project_is_refused_until_it_is_trusted(workspace):
    (workspace / "forge.yaml").write_text("agent: {prompt: Be brief.}\n")
    with pytest.raises(ToolError, match="not trusted") as refused:
        async with open_session(at(workspace), approve=yes, model=script(workspace, "x")):
            pass
    assert "forge trust" in refused.value.suggestion
    accept(workspace)
    async with open_session(at(workspace), approve=yes, model=script(workspace, "Fine.")) as session:
        assert (await session.run("Hi")).text == "Fine."


async def test_a_run_takes_messages_and_stops(workspace):
    model = script(workspace, WRITE, "Done.", WRITE, "Never.")
    asked, answered = asyncio.Event(), asyncio.Event()

    async def approve(request):
        asked.set()
        await answered.wait()
        return Answer.ONCE

    async with open_session(at(workspace), approve=approve, model=model) as session:
        running = asyncio.create_task(session.run("Write it."))
        await asked.wait()
        session.send("And be quick.")
        session.send("Not this.")
        assert session.withdraw("Not this.")
        answered.set()
        assert (await running).text == "Done."
        assert "And be quick." in [one.text for one in session.messages]
        assert not session.cancel()
        asked.clear()
        answered.clear()
        running = asyncio.create_task(session.run("Once more."))
        await asked.wait()
        assert session.cancel()
        assert (await running).reason == "cancelled"


async def test_a_prompt_that_waits_for_another_run_can_be_stopped(workspace):
    model = script(workspace, WRITE, "Done.", "x")
    asked, answered = asyncio.Event(), asyncio.Event()

    async def approve(request):
        asked.set()
        await answered.wait()
        return Answer.ONCE

    async with (
        open_session(at(workspace), "s", approve=approve, model=model) as first,
        open_session(at(workspace), "s", approve=yes, model=script(workspace, "x", name="x.json")) as second,
    ):
        running = asyncio.create_task(first.run("Write it."))
        await asked.wait()
        waiting = asyncio.create_task(second.run("Hi"))
        await asyncio.sleep(0)
        assert second.is_busy
        assert second.cancel()
        assert (await waiting).reason == "cancelled"
        answered.set()
        assert (await running).text == "Done."
        assert (await second.run("Hi")).text == "x"


async def test_modes_are_rules(workspace):
    refused: list[object] = []

    async def approve(request):
        refused.append(request)
        return Answer.NO

    model = script(workspace, WRITE, "Asked.", WRITE, "Accepted.", WRITE, "Planned.")
    async with open_session(at(workspace), approve=approve, model=model) as session:
        await session.run("Write it.")
        assert refused
        assert not (workspace / "a.txt").exists()
        session.set_mode("accept edits")
        await session.run("Write it.")
        assert (workspace / "a.txt").read_text() == "one\n"
        (workspace / "a.txt").unlink()
        session.set_mode("plan")
        await session.run("Write it.")
        assert len(refused) == 1
        assert not (workspace / "a.txt").exists()
        with pytest.raises(ToolError, match="no such mode"):
            session.set_mode("anything goes")
        assert session.mode == "plan"


async def test_commands_answer_and_everything_else_is_a_prompt(workspace):
    folder = state_directory(workspace) / "commands"
    folder.mkdir()
    (folder / "review.md").write_text("# Review\n\nReview $1.")
    async with open_session(at(workspace), approve=yes, model=script(workspace, WRITE, "Fine.", "Seen.")) as session:
        assert "not trusted" in (await session.command("/review a.py") or "")
        accept(workspace)
        assert "/review" in session.commands()
        assert await session.command("/review a.py") is None
        assert await session.command("/etc/passwd is a file") is None
        assert await session.command("Hi") is None
        assert "Did you mean /cost" in (await session.command("/cots") or "")
        await session.run("/review a.py")
        assert "# Review\n\nReview a.py." in [one.text for one in session.messages]
        assert "+one" in (await session.command("/diff") or "")
        assert "tokens in" in (await session.command("/cost") or "")
        assert "a.txt" in (await session.command("/undo") or "")
        assert not (workspace / "a.txt").exists()
        for word in session.commands():
            assert word == "/review" or await session.command(word), word
        assert "from now on" in (await session.command(f"/model {script(workspace, 'New.', name='other.json')}") or "")
        assert (await session.run("Hi")).text == "New."
        assert [one.text for one in session.messages][-3:] == ["Fine.", "Hi", "New."]


async def test_events_of_a_run_reach_listeners(workspace):
    seen: list[object] = []
    async with open_session(at(workspace), approve=yes, model=script(workspace, WRITE, "Done.")) as session:
        session.agent.activity.subscribe(seen.append)
        await session.run("Write it.")
    assert next(type(one) for one in seen if isinstance(one, ToolStarted | TextDelta)) is ToolStarted
