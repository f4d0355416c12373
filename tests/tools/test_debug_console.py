"""`debug_console`: what it shows of the live run, and what it never shows."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from forge.core.context import Scope, ToolContext
from forge.core.events import RunFinished, RunStarted, TextDelta
from forge.core.executor import ToolExecutor
from forge.core.messages import ToolCall
from forge.core.registry import ToolRegistry
from forge.core.result import ToolResult
from forge.core.tool import tool
from forge.permissions.gate import Answer, approve_all
from forge.permissions.policy import PermissionRequest, rules
from forge.pipeline import standard_executor
from forge.project.project import Project, RunOptions
from forge.tools.debug_console import LONGEST_TEXT, MOST_RECORDED, ActivityRecorder, DebugConsole

SECRET = "hunter2hunter2"


@tool
def echo(text: str) -> str:
    """Say it again."""
    return text


@tool
def broken() -> str:
    """Fail."""
    raise ValueError("broken on purpose")


@tool(permissions={"write"}, target="path")
def write(path: str) -> str:
    """Pretend to write."""
    return path


@tool
async def goes_on(ctx: ToolContext, until: str) -> ToolResult:
    """Go on in the background."""
    return ctx.background(asyncio.Event().wait, f"goes on until {until}")


class Bench:
    def __init__(self, workspace: Path, **more: Any) -> None:
        registry = ToolRegistry([echo, broken, write, goes_on])
        self.console = DebugConsole(registry)
        registry.add(self.console)
        self.executor: ToolExecutor = standard_executor(registry, secrets=[SECRET], **more)
        self.scope = Scope(session_id="debugged", workspace=workspace)

    async def call(self, name: str, /, scope: Scope | None = None, **arguments: Any) -> ToolResult:
        return await self.executor.execute(ToolCall(name, arguments), scope or self.scope)

    async def look(self, topic: str, **more: Any) -> ToolResult:
        result = await self.call("debug_console", topic=topic, **more)
        assert result.success, result.for_llm
        return result


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    made = Bench(tmp_path)
    made.console.watch(made.executor)
    return made


async def test_the_history_is_told_in_order(bench):
    for event in (RunStarted("Do it."), TextDelta("I "), TextDelta("will.")):
        event.session, event.agent = "debugged", "main"
        bench.executor.activity.emit(event)
    await bench.call("echo", text="hello")
    end = RunFinished("Done.", "answer", 1)
    end.session = "debugged"
    bench.executor.activity.emit(end)
    found = await bench.look("history")
    said = [(entry["kind"], entry["name"], entry["text"]) for entry in found.data["entries"]]
    assert said == [
        ("prompt", "", "Do it."),
        ("text", "", "I will."),
        ("call", "echo", '{"text": "hello"}'),
        ("result", "echo", "hello"),
        ("end", "", "Done."),
    ]
    assert "result echo: hello" in found.for_llm


async def test_results_are_those_of_a_tool_the_latest_so_many_and_say_what_failed(bench):
    for number in range(5):
        await bench.call("echo", text=str(number))
    await bench.call("broken")
    latest = await bench.look("results", limit=2)
    assert latest.data["entries"][0]["text"] == "4"
    assert latest.data["total"] == 6
    assert "4 earlier entries" in latest.for_llm
    failed = await bench.look("results", name="broken")
    assert [entry["success"] for entry in failed.data["entries"]] == [False]
    assert "broken on purpose" in failed.for_llm


async def test_a_call_never_sees_itself_and_other_sessions_are_not_shown(bench):
    other = Scope(session_id="another", workspace=bench.scope.workspace)
    await bench.call("echo", scope=other, text="theirs")
    for topic in ("history", "events", "results"):
        assert (await bench.call("debug_console", scope=bench.scope, topic=topic)).data["entries"] == []
        bench.scope = Scope(session_id=f"after {topic}", workspace=bench.scope.workspace)
    assert (await bench.look("background")).data["running"] == []
    theirs = await bench.call("debug_console", scope=other, topic="results")
    assert [entry["text"] for entry in theirs.data["entries"]] == ["theirs"]


async def test_without_a_watch_it_says_what_it_cannot_know_and_begins_to_record(tmp_path):
    bench = Bench(tmp_path)
    await bench.call("echo", text="before")
    first = await bench.look("results")
    assert first.data["complete"] is False
    assert "were not recorded" in first.for_llm
    await bench.call("echo", text="after")
    second = await bench.look("results", name="echo")
    assert [entry["text"] for entry in second.data["entries"]] == ["after"]
    assert (await bench.look("registry")).data["steps"] is None


async def test_the_registry_shows_the_tools_and_the_steps_around_them(bench):
    found = await bench.look("registry")
    assert [row["name"] for row in found.data["tools"]] == ["echo", "broken", "write", "goes_on", "debug_console"]
    assert found.data["steps"][:4] == ["trace", "label_results", "limit_output", "redact"]
    assert "- write (custom, write)" in found.for_llm
    fewer = await bench.look("registry", limit=1)
    assert "4 more" in fewer.for_llm


async def test_of_one_tool_all_is_shown_and_only_the_steps_that_apply_to_it(bench):
    found = await bench.look("registry", name="write")
    assert found.data["permissions"] == ["write"]
    assert found.data["parameters"]["required"] == ["path"]
    assert "authorize" in found.data["steps"]
    assert "authorize" not in (await bench.look("registry", name="echo")).data["steps"]
    unknown = await bench.call("debug_console", topic="registry", name="nothing")
    assert unknown.failure is not None
    assert unknown.failure.kind == "not_found"


async def test_a_question_that_waits_is_seen_then_its_answer_then_what_always_covers(tmp_path):
    asked, answer = asyncio.Event(), asyncio.Event()

    async def person(request: PermissionRequest) -> Answer:
        asked.set()
        await answer.wait()
        return Answer("always", by="a test")

    bench = Bench(tmp_path, approve=person)
    bench.console.watch(bench.executor)
    writing = asyncio.create_task(bench.call("write", path="a.txt"))
    await asked.wait()
    waiting = await bench.look("approvals")
    assert [(entry["name"], entry["text"]) for entry in waiting.data["pending"]] == [("write", "write a.txt")]
    assert "Running calls:" in (await bench.look("background")).for_llm
    answer.set()
    assert (await writing).success
    after = await bench.look("approvals")
    assert after.data["pending"] == []
    assert [entry["answer"] for entry in after.data["answered"]] == ["always"]
    assert after.data["always"] == ["allow write a.txt"]


async def test_work_that_goes_on_is_shown_until_it_ends(bench):
    await bench.call("goes_on", until="later")
    found = await bench.look("background")
    assert [entry["name"] for entry in found.data["background"]] == ["goes_on"]
    bench.executor.background.cancel()
    await bench.executor.background.settled()
    assert (await bench.look("background")).data["background"] == []


async def test_secrets_stay_masked_everywhere(bench):
    token = "sk-" + "a1b2c3d4" * 4
    started = RunStarted(f"my password={SECRET} and {token}")
    started.session = "debugged"
    bench.executor.activity.emit(started)
    await bench.call("echo", text=f"{SECRET} {token}")
    for topic in ("history", "results", "events", "session", "approvals", "background", "registry"):
        found = await bench.look(topic)
        assert SECRET not in f"{found.for_llm}{found.data}", topic
        assert token not in f"{found.for_llm}{found.data}", topic
    assert "[secret]" in (await bench.look("history")).for_llm


def test_the_state_of_a_session_is_that_of_the_project(tmp_path):
    (tmp_path / "a.txt").write_text("old\n")
    made = Project(RunOptions(workspace=str(tmp_path), dev=True)).agent(with_model=False, approve=approve_all)

    def call(name: str, **arguments: Any) -> ToolResult:
        result = asyncio.run(made.executor.execute(ToolCall(name, arguments), made.scope))
        assert result.success, result.for_llm
        return result

    call("file_read", path="a.txt")
    call("file_edit", path="a.txt", old_text="old", new_text="new")
    call("todo_write", items=[{"content": "Rest."}])
    found = call("debug_console", topic="session")
    assert [Path(one["path"]).name for one in found.data["files"]] == ["a.txt"]
    assert found.data["files"][0]["written"] is True
    assert [(one["tool"], one["files"]) for one in found.data["undo"]] == [("file_edit", ["a.txt"])]
    assert [item["content"] for item in found.data["todos"]] == ["Rest."]
    assert "a.txt (written)" in found.for_llm


async def test_to_look_makes_nothing_in_the_workspace(bench, tmp_path):
    assert "Files seen: none" in (await bench.look("session")).for_llm
    assert list(tmp_path.iterdir()) == []


async def test_it_needs_no_more_than_to_read_and_a_rule_can_forbid_it(tmp_path):
    assert (await Bench(tmp_path, policy=rules("allow read")).look("registry")).success
    refused = await Bench(tmp_path, policy=rules("deny tool:debug_console")).call("debug_console", topic="registry")
    assert refused.failure is not None
    assert refused.failure.kind == "permission_error"


async def test_a_selected_registry_shows_itself_and_the_same_run(bench):
    await bench.call("echo", text="before")
    chosen = bench.executor.registry.select(lambda spec: spec.name in ("echo", "debug_console"))
    executor = ToolExecutor(chosen, bench.executor.steps, bench.executor.activity)
    listed = await executor.execute(ToolCall("debug_console", {"topic": "registry"}), bench.scope)
    assert [row["name"] for row in listed.data["tools"]] == ["echo", "debug_console"]
    seen = await executor.execute(ToolCall("debug_console", {"topic": "results", "name": "echo"}), bench.scope)
    assert seen.data["entries"][0]["text"] == "before"


def test_what_is_kept_is_bounded():
    recorder = ActivityRecorder()
    for number in range(MOST_RECORDED + 50):
        for event in (RunStarted(f"{number} {'x' * 10_000}"), TextDelta("y" * 3_000), TextDelta("y" * 3_000)):
            recorder.take(event)
    assert len(recorder.history()) == len(recorder.events()) == MOST_RECORDED
    assert max(len(entry.text) for entry in recorder.history()) <= LONGEST_TEXT + 1
