"""undo, through the standard steps: what is shown, asked, refused and restored."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from forge.core.context import Scope
from forge.core.executor import ToolExecutor
from forge.core.messages import ToolCall
from forge.core.registry import ToolRegistry
from forge.core.result import ToolResult
from forge.permissions.gate import Answer, PolicyGate
from forge.permissions.policy import rules
from forge.permissions.questions import PermissionRequest
from forge.pipeline import standard_steps
from forge.tools.file_edit import FileEdit
from forge.tools.file_patch import FilePatch
from forge.tools.file_read import FileRead
from forge.tools.file_write import FileWrite
from forge.tools.undo import Undo
from forge.workspace.history.tracking import SessionState


class Desk:
    """A session with a person who answers: `desk.call("undo", action="apply")`."""

    def __init__(self, workspace: Path, *lines: str, max_listed: int = 50) -> None:
        self.workspace = workspace
        self.questions: list[PermissionRequest] = []
        self.answer = "once"
        gate = PolicyGate(rules("allow read", *lines), self._asked)
        registry = ToolRegistry([FileRead(), FileWrite(), FileEdit(), FilePatch(), Undo(max_listed)])
        self.executor = ToolExecutor(registry, standard_steps(gate, files=SessionState(workspace)))
        self.turn = "t1"

    def call(self, tool: str, /, call_id: str = "", session: str = "s", **arguments: Any) -> ToolResult:
        scope = Scope(session_id=session, message_id=self.turn, workspace=self.workspace)
        call = ToolCall(tool, arguments, call_id) if call_id else ToolCall(tool, arguments)
        return asyncio.run(self.executor.execute(call, scope))

    def done(self, tool: str, /, call_id: str = "", **arguments: Any) -> ToolResult:
        result = self.call(tool, call_id, **arguments)
        assert result.success, result.for_llm
        return result

    def read(self, path: str) -> str | None:
        whole = self.workspace / path
        return whole.read_text() if whole.exists() else None

    async def _asked(self, request: PermissionRequest) -> Answer:
        self.questions.append(request)
        return Answer.no() if self.answer == "no" else Answer("once")


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def undo(desk: Desk, **arguments: Any) -> ToolResult:
    """`undo` with its own `call_id` parameter, which the desk's `call` would take for the call's."""
    scope = Scope(session_id="s", message_id="later", workspace=desk.workspace)
    return asyncio.run(desk.executor.execute(ToolCall("undo", {"action": "apply", **arguments}), scope))


def test_the_last_change_is_taken_back_and_shown(desk):
    desk.done("file_write", "c1", path="a.txt", content="one\n")
    desk.done("file_edit", "c2", path="a.txt", old_text="one", new_text="two")
    result = undo(desk)
    assert desk.read("a.txt") == "one\n"
    assert result.for_llm == "Undid c2 (file_edit): a.txt restored."
    assert result.for_user.startswith("Undid file_edit: a.txt restored.\n--- a/a.txt")
    assert "-two" in result.for_user
    assert "+one" in result.for_user
    assert result.data["files"] == [{"path": "a.txt", "status": "restored"}]


def test_the_person_sees_the_difference_before_they_are_asked(desk):
    desk.done("file_write", "c1", path="a.txt", content="one\n")
    desk.questions.clear()
    assert undo(desk).success
    (question,) = desk.questions
    assert question.target == "a.txt"
    assert "-one" in question.preview


def test_no_means_that_nothing_happens(desk):
    desk.done("file_write", "c1", path="a.txt", content="one\n")
    desk.answer = "no"
    assert undo(desk).is_error
    assert desk.read("a.txt") == "one\n"


def test_a_rule_that_denies_a_path_holds_for_its_undo_too(tmp_path):
    Desk(tmp_path, "allow write").done("file_write", "c1", path="secret/a.txt", content="one\n")
    other = Desk(tmp_path, "allow write", "deny write secret/**")
    result = undo(other)
    assert result.failure is not None
    assert result.failure.kind == "permission_error"
    assert other.read("secret/a.txt") == "one\n"
    assert undo(Desk(tmp_path, "allow write")).success


def test_a_call_of_many_files_is_taken_back_as_a_whole(desk):
    (desk.workspace / "old.txt").write_text("old\n")
    (desk.workspace / "gone.txt").write_text("gone\n")
    (desk.workspace / "gone.txt").chmod(0o755)
    operations = [
        {"action": "add", "path": "new/deep.txt", "content": "new\n"},
        {"action": "delete", "path": "gone.txt"},
        {"action": "move", "path": "old.txt", "new_path": "moved.txt"},
    ]
    desk.done("file_patch", "c1", operations=operations)
    desk.done("file_write", "c2", path="other.txt", content="other\n")
    result = undo(desk, call_id="c1")
    assert result.success, result.for_llm
    names = {name: desk.read(name) for name in ("new/deep.txt", "gone.txt", "old.txt", "moved.txt", "other.txt")}
    assert names == {
        "new/deep.txt": None,
        "gone.txt": "gone\n",
        "old.txt": "old\n",
        "moved.txt": None,
        "other.txt": "other\n",
    }
    assert os.access(desk.workspace / "gone.txt", os.X_OK)


def test_a_turn_is_taken_back_at_once(desk):
    desk.done("file_write", "c1", path="a.txt", content="one\n")
    desk.turn = "t2"
    desk.done("file_edit", "c2", path="a.txt", old_text="one", new_text="two")
    desk.done("file_write", "c3", path="b.txt", content="b\n")
    result = undo(desk, turn="t2")
    assert result.success, result.for_llm
    assert (desk.read("a.txt"), desk.read("b.txt")) == ("one\n", None)


def test_the_list_says_what_there_is(desk):
    desk.done("file_write", "c1", path="a.txt", content="one\n")
    desk.done("file_edit", "c2", path="a.txt", old_text="one", new_text="two")
    assert undo(desk).success
    listed = desk.done("undo")
    lines = listed.for_llm.splitlines()
    assert len(lines) == 3
    assert "undo: a.txt updated" in lines[0]
    assert "call c2  turn t1  file_edit: a.txt updated [undone]" in lines[1]
    assert "call c1  turn t1  file_write: a.txt created" in lines[2]
    assert [one["can_undo"] for one in listed.data["entries"]] == [True, False, True]
    assert listed.data["truncated"] is False


def test_a_list_of_nothing_says_so(desk):
    assert desk.done("undo").for_llm == "No file was changed by this session's tools."


def test_a_long_list_is_cut_and_says_so(tmp_path):
    desk = Desk(tmp_path, "allow write", max_listed=2)
    for number in range(3):
        desk.done("file_write", f"c{number}", path=f"{number}.txt", content="x")
    listed = desk.done("undo")
    assert listed.for_llm.splitlines()[-1].startswith("[2 of 3 changes")
    assert (listed.data["total"], listed.data["truncated"]) == (3, True)
    assert len(Desk(tmp_path, "allow write", max_listed=3).done("undo").data["entries"]) == 3


def test_a_file_that_somebody_changed_since_is_refused_before_anyone_is_asked(desk):
    desk.done("file_write", "c1", path="a.txt", content="one\n")
    (desk.workspace / "a.txt").write_text("by hand\n")
    desk.questions.clear()
    result = undo(desk)
    assert result.failure is not None
    assert "changed since call c1" in result.failure.message
    assert desk.questions == []
    assert desk.read("a.txt") == "by hand\n"


def test_nothing_to_undo_is_said(desk):
    result = undo(desk)
    assert result.failure is not None
    assert result.failure.kind == "not_found"
    assert "nothing to undo" in result.failure.message


@pytest.mark.parametrize("wrong", [{"call_id": "nope"}, {"turn": "nope"}, {"call_id": "c1", "turn": "t1"}])
def test_what_is_not_there_is_named(desk, wrong):
    desk.done("file_write", "c1", path="a.txt", content="one\n")
    result = undo(desk, **wrong)
    assert result.failure is not None
    assert result.failure.kind in ("not_found", "validation_error")
    assert desk.read("a.txt") == "one\n"


def test_an_undo_is_undone_by_its_call(desk):
    desk.done("file_write", "c1", path="a.txt", content="one\n")
    assert undo(desk).success
    assert desk.read("a.txt") is None
    last = desk.done("undo").data["entries"][0]
    assert last["tool"] == "undo"
    assert undo(desk, call_id=last["call_id"]).success
    assert desk.read("a.txt") == "one\n"


def test_a_restored_file_counts_as_read(desk):
    desk.done("file_write", "c1", path="a.txt", content="one\n")
    desk.done("file_edit", "c2", path="a.txt", old_text="one", new_text="two")
    assert undo(desk).success
    desk.done("file_edit", "c3", path="a.txt", old_text="one", new_text="three")
    assert desk.read("a.txt") == "three\n"


def test_another_session_sees_nothing_of_it(desk):
    desk.done("file_write", "c1", path="a.txt", content="one\n")
    assert desk.call("undo", session="other").for_llm.startswith("No file was changed")


def test_a_deleted_link_comes_back(desk):
    (desk.workspace / "link").symlink_to("a.txt")
    desk.done("file_patch", "c1", operations=[{"action": "delete", "path": "link"}])
    assert not os.path.lexists(desk.workspace / "link")
    result = undo(desk)
    assert result.success, result.for_llm
    assert os.readlink(desk.workspace / "link") == "a.txt"


def test_a_name_with_a_tilde_is_found_again(desk):
    desk.done("file_write", "c1", path="./~notes", content="one\n")
    assert undo(desk).success
    assert desk.read("~notes") is None


def test_of_very_many_files_a_few_are_named_and_the_data_has_all(desk):
    desk.done("file_patch", operations=[{"action": "add", "path": f"n{number}", "content": ""} for number in range(30)])
    assert "and 20 more" in desk.done("undo").for_llm
    undone = desk.done("undo", action="apply")
    assert undone.for_llm.endswith(" and 20 more.")
    assert len(undone.data["files"]) == 30
