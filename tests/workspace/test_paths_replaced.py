"""A workspace or root that is replaced during a session is not followed, by no tool; one that stays is."""

from __future__ import annotations

import gc
import os
import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from forge.core.context import ProgramLimits, Root, Scope
from forge.core.errors import ToolError
from forge.core.executor import ToolExecutor
from forge.core.files import check_held, find_held, hold
from forge.core.messages import ToolCall
from forge.core.registry import ToolRegistry
from forge.permissions.policy import load_rules
from forge.pipeline import standard_executor
from forge.tools import built_ins
from forge.tools.cli_execute import CliExecute
from forge.workspace.paths import Location, PathValidator
from forge.workspace.paths.open import open_at, open_directory, open_file, status_of
from forge.workspace.state import state_directory
from tests.descriptors import open_below


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    (root / "notes.txt").write_text("inside\n")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "notes.txt").write_text("elsewhere\n")
    return root


def swap(root: Path) -> None:
    """The directory goes away, and a link to another one has its name."""
    root.rename(root.with_name("moved"))
    root.symlink_to(root.with_name("outside"))


def restore(root: Path) -> None:
    root.unlink()
    root.with_name("moved").rename(root)


CALLS = {
    "file_read": {"path": "notes.txt"},
    "file_write": {"path": "new.txt", "content": "written"},
    "directory_list": {"path": "."},
    "glob_search": {"pattern": "*.txt"},
    "grep_search": {"pattern": "e"},
    "bash": {"command": "cat notes.txt; touch made.txt"},
    "cli_execute": {"binary": "ls"},
}


def _executor() -> ToolExecutor:
    registry = ToolRegistry()
    registry.add(*built_ins(registry))
    registry.discard(["cli_execute"])
    registry.add(CliExecute(allowed_binaries=["ls"]))
    return standard_executor(registry, policy=load_rules("permissions: {rules: [allow *]}\n"))


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("how", ["link", "directory", "gone"])
async def test_a_replaced_workspace_is_refused_by_every_tool_and_one_put_back_is_not(project, name, how):
    executor = _executor()
    scope = Scope(workspace=project)
    if how == "link":
        swap(project)
    else:
        project.rename(project.with_name("moved"))
    if how == "directory":
        project.mkdir()
        (project / "notes.txt").write_text("elsewhere\n")
    before = sorted(os.listdir(project.with_name("outside")))
    result = await executor.execute(ToolCall(name, CALLS[name]), scope)
    assert "replaced by another directory" in result.for_llm or "cannot be reached any more" in result.for_llm
    assert "elsewhere" not in result.for_llm
    assert sorted(os.listdir(project.with_name("outside"))) == before
    if how == "directory":
        assert sorted(os.listdir(project)) == ["notes.txt"]
        (project / "notes.txt").unlink()
        project.rmdir()
        project.with_name("moved").rename(project)
    elif how == "link":
        restore(project)
    else:
        project.with_name("moved").rename(project)
    again = await executor.execute(ToolCall(name, CALLS[name]), scope)
    assert not again.is_error, again.for_llm


async def test_a_replaced_root_beside_the_workspace_is_refused_too(project, tmp_path):
    executor = _executor()
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    scope = Scope(workspace=workspace, roots=(Root(project, True),))
    read = ToolCall("file_read", {"path": str(project / "notes.txt")})
    line = ToolCall("bash", {"command": f"cat {project}/notes.txt"})
    assert "inside" in (await executor.execute(read, scope)).for_llm
    swap(project)
    later = scope.in_turn("2")
    assert "replaced by another directory" in (await executor.execute(read, later)).for_llm
    assert "elsewhere" not in (await executor.execute(line, later)).for_llm
    restore(project)
    last = scope.in_turn("3")
    assert "inside" in (await executor.execute(read, last)).for_llm
    assert (await executor.execute(line, last)).for_llm == "inside"


def test_the_scope_of_a_turn_has_every_field(project):
    scope = Scope(workspace=project, user="ann", writes=False, skills=("a",), programs=ProgramLimits(memory=8192))
    assert scope.in_turn("2") == replace(scope, message_id="2")


def test_a_place_that_was_resolved_before_the_swap_still_leads_inside(project):
    scope = Scope(workspace=project)
    place = PathValidator.of(scope).resolve("notes.txt")
    swap(project)
    with open(open_file(place), encoding="utf-8") as file:
        assert file.read() == "inside\n"
    folder = open_directory(Location(place.root, ".", "."))
    assert "notes.txt" in os.listdir(folder)
    os.close(folder)
    os.close(open_at(Location(place.root, "made.txt", "made.txt"), os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600))
    assert not project.with_name("outside").joinpath("made.txt").exists()
    assert project.with_name("moved").joinpath("made.txt").exists()
    top = status_of(Location(place.root, ".", "."))
    assert top is not None
    assert top.st_ino == project.with_name("moved").stat().st_ino


def test_a_link_that_names_the_workspace_may_not_lead_elsewhere_later(project, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(project)
    scope = Scope(workspace=link)
    assert PathValidator.of(scope).resolve("notes.txt").path == project / "notes.txt"
    link.unlink()
    link.symlink_to(tmp_path / "outside")
    with pytest.raises(ToolError, match="replaced by another directory"):
        PathValidator.of(scope).resolve("notes.txt")
    with pytest.raises(ToolError, match="replaced by another directory"):
        check_held([link / "a/b"])
    check_held([tmp_path / "outside"])


def test_a_directory_above_may_not_be_replaced_either(project, tmp_path):
    inner = project / "inner"
    inner.mkdir()
    (tmp_path / "outside/inner").mkdir()
    scope = Scope(workspace=inner)
    swap(project)
    with pytest.raises(ToolError, match="replaced by another directory"):
        PathValidator.of(scope).resolve("a.txt")


def test_the_state_of_a_replaced_workspace_is_not_made_elsewhere(project):
    scope = Scope(workspace=project)
    swap(project)
    assert state_directory(scope.workspace).parent != project
    assert not project.with_name("outside").joinpath(".forge").exists()
    restore(project)
    assert state_directory(scope.workspace) == project / ".forge"


def test_a_session_that_begins_later_takes_the_directory_as_it_is_then(project):
    scope = Scope(workspace=project)
    swap(project)
    assert PathValidator(project).workspace == project, "as long as one of them works there, for all"
    del scope
    gc.collect()
    later = Scope(workspace=project)
    assert PathValidator.of(later).resolve("notes.txt").path == project.with_name("outside") / "notes.txt"


def test_one_descriptor_for_a_directory_and_none_after_the_last_session(project):
    scopes = [Scope(workspace=project, session_id=str(number)) for number in range(200)]
    scopes += [replace(scope, agent="other").in_turn("m") for scope in scopes]
    assert open_below(project) in ([], [str(project)])
    scopes.clear()
    gc.collect()
    assert open_below(project) == []
    for number in range(300):
        folder = project / str(number)
        folder.mkdir()
        Scope(workspace=folder)
    gc.collect()
    assert open_below(project) == []


def test_what_is_no_directory_is_not_held_and_scopes_can_be_sent(project, tmp_path):
    assert hold(tmp_path / "missing") is None
    assert hold(project / "notes.txt") is None
    assert hold("a\0b") is None
    assert Scope(workspace=tmp_path / "missing").workspace == tmp_path / "missing"
    scope = Scope(workspace=project)
    assert pickle.loads(pickle.dumps(scope)) == scope
    assert find_held(project) is not None
