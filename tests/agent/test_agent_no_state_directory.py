"""A library call leaves nothing in the current directory; an agent with a workspace keeps its state there."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path

import pytest

from forge import Agent, Scope, Scripted, ToolCall, rules, tool, tool_group
from forge.core.context import CurrentDirectory
from forge.tools.file_create import FileCreate
from forge.workspace.changes.journal import recover
from forge.workspace.state import find_state, state_directory


@tool
def list_numbers() -> str:
    """List many numbers."""
    return "\n".join(str(number) for number in range(100_000))


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A current directory, and a directory for temporary files, both empty."""
    for name in ("here", "temporary"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return tmp_path / "here"


def working(scope: Scope | None) -> Agent:
    tools = [list_numbers, FileCreate(), *tool_group("code-agent")]
    model = Scripted(
        [ToolCall("list_numbers", {})],
        [ToolCall("file_create", {"filename": "report.md", "content": "All is well."})],
        [ToolCall("file_patch", {"operations": PATCH})],
        "done",
    )
    return Agent(model, tools=tools, policy=rules("allow *"), scope=scope)


PATCH = [
    {"action": "add", "path": "a.txt", "content": "a\n"},
    {"action": "add", "path": "b.txt", "content": "b\n"},
]


async def test_a_run_without_a_workspace_makes_no_state_directory(here):
    result = await working(None).run("Work.")
    assert result.reason == "answer"
    assert not [message.text for message in result.messages if message.is_error]
    assert sorted(path.name for path in here.iterdir()) == ["a.txt", "b.txt"]


async def test_a_run_with_a_workspace_keeps_its_state_there(here):
    result = await working(Scope(workspace=here)).run("Work.")
    assert not [message.text for message in result.messages if message.is_error]
    assert sorted(path.name for path in here.iterdir()) == [".forge", "a.txt", "b.txt"]
    assert list((here / ".forge" / "spill").iterdir())


async def test_the_current_directory_may_be_named_as_the_workspace(here):
    await working(Scope(workspace=Path.cwd())).run("Work.")
    assert (here / ".forge").is_dir()


async def test_a_state_directory_that_is_there_is_used(here):
    await working(Scope(workspace=here)).run("Work.")
    before = len(list((here / ".forge" / "spill").iterdir()))
    for name in ("a.txt", "b.txt"):
        (here / name).unlink()
    await working(None).run("Work.")
    assert len(list((here / ".forge" / "spill").iterdir())) == before + 1


async def test_the_model_can_read_a_long_result_whole_without_a_workspace(here):
    agent = working(None)
    result = await agent.call("list_numbers", {}, session="alice")
    path = str(result.data["spilled"])
    assert not path.startswith(str(here))
    read = await agent.call("file_read", {"path": path, "offset": 99_990}, session="alice")
    assert "99999" in read.for_llm, read.for_llm
    other = Path(path).parents[1] / "secret.txt"
    other.write_text("of another tool")
    refused = await agent.call("file_read", {"path": str(other)}, session="alice")
    assert refused.is_error
    written = await agent.call("file_write", {"path": path, "content": "x"}, session="alice")
    assert written.is_error


def test_notes_of_a_killed_process_are_found_without_a_workspace(here):
    folder = state_directory(CurrentDirectory.cwd(), "journal")
    assert here not in folder.parents
    note = folder / f"{'0' * 16}.note"
    note.write_text("")
    recover(CurrentDirectory.cwd(), [])
    assert not note.exists()


def test_a_scope_crosses_processes_and_stays_equal(here):
    scope = Scope()
    assert scope == Scope(workspace=here)
    assert pickle.loads(pickle.dumps(scope)).workspace == here
    assert find_state(scope.workspace, "spill") is None
    assert not list(here.parent.glob("temporary/*"))
