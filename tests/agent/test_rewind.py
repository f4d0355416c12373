"""A session goes back to any turn: conversation and files, both or neither, and back again.

The tests that kill start this file as a program of its own, which forks: in the tests' process there are threads.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from forge import Agent, AgentType, Scope, Scripted, SessionStore, ToolCall, rules, tool, tool_group
from forge.agent import Rewind, SessionState
from forge.core.errors import ErrorKind, ToolError
from forge.core.messages import Message
from forge.events import Event, SessionRewound
from forge.pipeline import standard_steps
from forge.process.running.trial import find_trial
from forge.process.sandbox import Confinement
from forge.tools.bash import Bash
from forge.tools.todo import TodoWrite
from forge.workspace.changes.commit import recover
from forge.workspace.history.undo import UndoLog
from forge.workspace.trial import find_places

CALLS = ("open", "write", "rename", "link", "mkdir", "rmdir", "fchmod", "unlink", "close")


class Desk:
    """A workspace with an agent: `desk.run("Do it.", [write("a.txt", "one")])`; a snapshot is kept of every turn."""

    def __init__(self, workspace: Path, *, session: str = "ada", rule: Sequence[str] = ("allow write",)) -> None:
        self.workspace, self.session = workspace, session
        self.store, self.state = SessionStore.of(workspace), SessionState(workspace)
        self.rules = ("allow read", "allow execute", *rule)
        self.trees: list[dict[str, Any]] = [tree(workspace)]
        self.messages: list[list[Message]] = [[]]
        self.model: Callable[..., Any] | None = None

    def agent(self, *said: Any, **more: Any) -> Agent[Any, Any]:
        return Agent(
            Scripted(*said),
            tools=[*tool_group("code-agent"), Bash(), TodoWrite(), unknown],
            policy=rules(*self.rules),
            steps=lambda gate, secrets: standard_steps(gate, secrets, files=self.state),
            scope=Scope(workspace=self.workspace),
            **more,
        )

    def run(self, prompt: str, *turns: Any, **more: Any) -> None:
        """Run turns, and keep how the tree and the conversation are after each of them."""

        def look(request: Any) -> Any:
            if self.is_new_turn(request.messages):
                self.keep(request.messages)
            return said.pop(0)

        said = [*turns, "Done."]
        agent = self.agent(*(look for _ in said), **more)
        agent.run_sync(prompt, session=self.session, store=self.store)
        self.keep(self.store.show(self.session).messages)

    def is_new_turn(self, messages: Sequence[Message]) -> bool:
        return sum(one.role == "assistant" for one in messages) == len(self.trees)

    def keep(self, messages: Sequence[Message]) -> None:
        end = len(messages)
        while end and messages[end - 1].role in ("user", "system"):
            end -= 1
        self.messages.append(list(messages[:end]))
        self.trees.append(tree(self.workspace))

    def rewind(self, turn: int | None, **more: Any) -> Rewind:
        return asyncio.run(self.agent().rewind(self.session, turn, store=self.store, **more))

    def check(self, turn: int) -> None:
        """The tree and the conversation are as they were after the turn."""
        assert tree(self.workspace) == self.trees[turn], turn
        assert self.store.show(self.session).messages == self.messages[turn], turn


@tool(permissions={"write"})
def unknown(name: str) -> str:
    """Write a file, without a record."""
    Path(name).write_text("unknown")
    return "written"


def tree(folder: Path) -> dict[str, Any]:
    """Everything in a folder, with modes; without what Forge keeps."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if name.split("/")[0] == ".forge":
            continue
        status = path.lstat()
        mode = stat.S_IMODE(status.st_mode)
        found[name] = os.readlink(path) if path.is_symlink() else (mode, None if path.is_dir() else path.read_bytes())
    return found


def write(path: str, content: str) -> ToolCall:
    return ToolCall("file_write", {"path": path, "content": content})


def patch(action: str, path: str, **more: Any) -> ToolCall:
    return ToolCall("file_patch", {"operations": [{"action": action, "path": path, **more}]})


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_a_session_goes_back_to_any_turn_byte_for_byte_and_forth_again(tmp_path):
    (tmp_path / "crlf.txt").write_bytes(b"one\r\ntwo\r\n")
    (tmp_path / "run.sh").write_bytes(b"#!/bin/sh\n")
    (tmp_path / "run.sh").chmod(0o751)
    (tmp_path / "picture.bin").write_bytes(bytes(range(256)) * 300)
    (tmp_path / "target").write_bytes(b"x")
    (tmp_path / "link").symlink_to("target")
    (tmp_path / "empty").write_bytes(b"")
    desk = Desk(tmp_path)
    read = [ToolCall("file_read", {"path": one}) for one in ("crlf.txt", "run.sh", "empty")]
    edit = ToolCall("file_edit", {"path": "crlf.txt", "old_text": "two", "new_text": "three"})
    desk.run("First.", read, [edit, write("new/deep/a.txt", "")], [patch("delete", "picture.bin")])
    desk.run("Second.", [patch("move", "run.sh", new_path="bin/run.sh")], [patch("delete", "link")])
    desk.run(
        "Third.", [write("empty", "full\n"), write("new/deep/a.txt", "now\n")], [patch("delete", "new/deep/a.txt")]
    )
    assert len(desk.trees) == len(desk.messages) == 11
    for turn in (9, 5, 2, 0):
        done = desk.rewind(turn)
        assert done.is_done
        assert done.left == ()
        desk.check(turn)
    for turn in (2, 5, 9, 10):
        desk.rewind(None)
        desk.check(turn)


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(one, marks=pytest.mark.slow) for one in range(4, 40))])
def test_random_changes_over_many_turns_are_rewound_to_any_of_them(tmp_path, seed):
    pick = random.Random(seed)
    names = ["a", "b", "sub/c", "sub/d", "other/deep/e", "new"]
    for name in pick.sample(names[:4], 2):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(pick.randbytes(pick.choice([0, 10, 100_000])))
        (tmp_path / name).chmod(pick.choice([0o644, 0o600, 0o755]))
    desk = Desk(tmp_path)

    def any_call() -> ToolCall:
        name = pick.choice(names)
        text = pick.choice(["", "one\n", "two\r\nthree", "ä" * pick.randrange(50_000)])
        others = {
            "delete": lambda: patch("delete", name),
            "move": lambda: patch("move", name, new_path=pick.choice(names), overwrite=True),
            "add": lambda: patch("add", name, content=text, overwrite=True),
            "undo": lambda: ToolCall("undo", {"action": "apply"}),
        }
        return others[pick.choice([*others])]() if pick.random() < 0.6 else write(name, text)

    for prompt in range(3):
        desk.run(f"Prompt {prompt}", *([any_call() for _ in range(pick.randrange(3))] or "Well." for _ in range(4)))
    at = len(desk.trees) - 1
    for _ in range(6):
        turn = pick.randrange(at + 1)
        if turn == at:
            continue
        desk.rewind(turn)
        desk.check(turn)
        if pick.random() < 0.5:
            desk.rewind(None)
            desk.check(at)
        else:
            at = turn


def test_what_came_after_a_rewind_comes_back_when_taking_it_back_is_taken_back(desk):
    desk.run("First.", [write("a", "1")])
    desk.rewind(0)
    desk.run("Another first.", [write("b", "2")])
    other, conversation = tree(desk.workspace), desk.store.show("ada").messages
    desk.rewind(None)
    desk.check(2)
    desk.rewind(None)
    assert tree(desk.workspace) == other
    assert desk.store.show("ada").messages == conversation
    with pytest.raises(ToolError, match="it is there already") as caught:
        desk.rewind(2)
    assert caught.value.suggestion == "Choose a turn from 0 to 1."


def test_a_preview_shows_the_diff_and_changes_nothing(desk):
    (desk.workspace / "a.txt").write_text("one\n")
    desk.run("Go.", [ToolCall("file_read", {"path": "a.txt"})], [write("a.txt", "two\n"), write("b.txt", "new\n")])
    shown = desk.rewind(1, preview=True)
    assert not shown.is_done
    assert shown.summary() == "Conversation: removes 4 messages (2 turns).\nFiles: changes 1 file, deletes 1 file."
    assert "-two\n+one\n" in shown.effects.diff()
    desk.check(3)
    assert desk.rewind(1, expect=shown.digest).is_done
    desk.check(1)


def test_only_what_the_preview_showed_is_done(desk):
    desk.run("Go.", [write("a", "1")])
    shown = desk.rewind(0, preview=True)
    desk.run("More.", [write("b", "2")])
    with pytest.raises(ToolError, match="something changed since the preview"):
        desk.rewind(0, expect=shown.digest)
    desk.check(4)
    desk.rewind(0, expect=desk.rewind(0, preview=True).digest)
    desk.check(0)


def test_a_file_that_somebody_else_changed_refuses_all_of_it_and_both_versions_are_kept(desk):
    (desk.workspace / "mine.txt").write_text("at the turn\n")
    desk.run("Go.", [ToolCall("file_read", {"path": "mine.txt"})], [write("mine.txt", "later\n"), write("b", "2")])
    (desk.workspace / "mine.txt").write_text("by hand\n")
    before = tree(desk.workspace)
    assert desk.rewind(1, preview=True).conflicts
    with pytest.raises(ToolError, match=r'nothing was changed, since "mine.txt" was changed since call') as caught:
        desk.rewind(1)
    assert caught.value.kind is ErrorKind.USER
    assert tree(desk.workspace) == before
    assert desk.store.show("ada").messages == desk.messages[3]
    kept = Path(caught.value.message.rpartition("the version of the turn is in ")[2])
    assert kept.read_text() == "at the turn\n"
    (desk.workspace / "mine.txt").write_text("later\n")
    desk.rewind(1)
    desk.check(1)


def test_two_sessions_of_one_workspace_go_back_on_their_own(tmp_path):
    one, other = Desk(tmp_path, session="one"), Desk(tmp_path, session="other")
    one.run("Go.", [write("a", "1"), write("shared/x", "1")])
    other.run("Go.", [write("b", "2"), write("shared/y", "2")])
    one.rewind(0)
    assert sorted(tree(tmp_path)) == ["b", "shared", "shared/y"]
    assert len(other.store.show("other").messages) == len(other.messages[-1])
    other.rewind(0)
    assert sorted(tree(tmp_path)) == ["shared"]  # it was there when the other session began


def test_a_file_that_another_session_changed_later_is_a_conflict_which_names_it(tmp_path):
    one, other = Desk(tmp_path, session="one"), Desk(tmp_path, session="other")
    one.run("Go.", [write("a", "1")])
    other.run("Go.", [ToolCall("file_read", {"path": "a"})], [write("a", "2")])
    with pytest.raises(ToolError, match='by the session "other"'):
        one.rewind(0)
    other.rewind(0)
    one.rewind(0)
    assert tree(tmp_path) == {}


def test_a_session_in_which_a_run_is_in_progress_is_refused(desk):
    desk.run("Go.", [write("a", "1")])

    async def both() -> None:
        async with desk.store.turn("ada"):
            with pytest.raises(ToolError, match='a run of the session "ada" is in progress'):
                await desk.agent().rewind("ada", 0, store=desk.store)
        desk.check(2)
        await desk.agent().rewind("ada", 0, store=desk.store)

    asyncio.run(both())
    desk.check(0)


def test_changes_of_a_sub_agent_belong_to_the_turn_that_gave_the_task(desk):
    child = Scripted([write("child", "1")], "Written.")
    types = {"writer": AgentType(prompt="Write.", tools=("code-agent",), model=child)}
    task = ToolCall("task", {"description": "Write it", "prompt": "Write.", "agent_type": "writer"})
    desk.run("Go.", [write("before", "1")], [task], [write("after", "1")], agents=types)
    assert sorted(tree(desk.workspace)) == ["after", "before", "child"]
    desk.rewind(2)
    desk.check(2)
    desk.rewind(1)
    desk.check(1)


def test_programs_on_the_real_tree_and_foreign_tools_are_named_and_what_they_did_stays(desk, monkeypatch):
    monkeypatch.chdir(desk.workspace)
    line = ToolCall("bash", {"command": "touch made-by-a-program"})
    desk.run("Go.", [write("a", "1")], [line], [ToolCall("unknown", {"name": "made-by-a-tool"})])
    turns = asyncio.run(desk.agent().list_turns("ada", store=desk.store))
    assert [one.files for one in turns] == [("a",), (), (), ()]
    assert turns[1].unrecorded == ("bash: touch made-by-a-program",)
    done = desk.rewind(0)
    assert done.left == (
        "turn 2: bash: touch made-by-a-program: what it changed stays",
        "turn 3: unknown: what it changed stays",
    )
    assert sorted(tree(desk.workspace)) == ["made-by-a-program", "made-by-a-tool"]


def test_a_call_that_was_denied_or_changed_nothing_is_not_named(desk):
    desk.rules = (*desk.rules, "deny execute rm *")
    desk.run("Go.", [write("a", "1")], [write("a", "1")], [ToolCall("bash", {"command": "rm a"})])
    assert desk.rewind(0).left == ()
    desk.check(0)


def test_calls_of_another_session_that_was_copied_are_named(desk):
    desk.run("Go.", [write("a", "1"), ToolCall("bash", {"command": "true"})])
    desk.store.fork("ada", "copy")
    desk.session = "copy"
    left = desk.rewind(0).left
    assert [one.split(" (call")[0] for one in left] == ["turn 1: file_write", "turn 1: bash"]
    assert (desk.workspace / "a").read_text() == "1"


def test_an_image_over_the_limit_is_named_and_the_file_stays(desk):
    path = desk.state.path
    vars(desk.state)["undo"] = UndoLog(path, cap=50_000)
    (desk.workspace / "large").write_bytes(random.Random(1).randbytes(200_000))
    (desk.workspace / "small").write_bytes(b"old")
    desk.run("Go.", [patch("delete", "large")], [ToolCall("file_read", {"path": "small"})], [write("small", "new")])
    done = desk.rewind(0)
    assert done.left == ('"large": stays as it is, since its old content was dropped to make room for later changes',)
    assert {name: value[1] for name, value in tree(desk.workspace).items()} == {"small": b"old"}


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("rm -r was_folder && echo now >was_folder", {"was_folder", "was_folder/inside"}),
        ("rm -r was_folder && ln -s other was_folder", {"was_folder", "was_folder/inside"}),
        ("rm was_file && mkdir was_file && echo x >was_file/new", {"was_file", "was_file/new"}),
        ("rm was_file && ln -s other was_file", set()),
    ],
)
def test_a_path_that_became_a_folder_or_was_one_is_named_and_stays(tmp_path, line, named):
    if not (tier := find_trial(Confinement(workspace=tmp_path, sandbox="auto"), find_places([tmp_path]))).how:
        pytest.skip(f"NOT TESTED: no trial is possible here: {tier.problem}")
    for name in ("was_folder/inside", "was_file", "other"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"old {name}")
    desk = Desk(tmp_path)
    desk.run("Do it.", [ToolCall("bash", {"command": f"{line} && echo 2 >other"})], trial="always")
    applied = tree(tmp_path)
    assert applied != desk.trees[0]
    done = desk.rewind(0)
    found = {one.split('"')[1]: one for one in done.left}
    assert set(found) == named, done.left
    assert all("changed between a folder and a file or link" in one for one in done.left)
    back, then = tree(tmp_path), desk.trees[0]
    assert {name: back.get(name) for name in named} == {name: applied.get(name) for name in named}
    assert {name: one for name, one in back.items() if name not in named} == {
        name: one for name, one in then.items() if name not in named
    }


def test_what_a_rule_denies_is_not_written(desk):
    desk.run("Go.", [write("a", "1"), write("b", "1")])
    desk.rules = (*desk.rules, "deny write a")
    with pytest.raises(ToolError) as caught:
        desk.rewind(0)
    assert caught.value.kind is ErrorKind.PERMISSION
    desk.check(2)
    desk.rules = desk.rules[:-1]
    desk.rewind(0)
    desk.check(0)


def test_after_a_rewind_files_must_be_read_again_and_the_todo_list_is_that_of_the_turn(desk):
    todo = [ToolCall("todo_write", {"items": [{"content": one}]}) for one in ("first", "second")]
    desk.run("Go.", [write("a", "1\n"), todo[0]], [write("a", "2\n"), todo[1]])
    desk.rewind(1)
    assert [one["content"] for one in desk.state.todos.get("ada")] == ["first"]
    result = asyncio.run(desk.agent().call("file_write", {"path": "a", "content": "3"}, session="ada"))
    assert "was not read in this session" in result.for_llm
    desk.run("Read.", [ToolCall("file_read", {"path": "a"})], [write("a", "3")])
    assert (desk.workspace / "a").read_text().strip() == "3"


def test_a_summary_of_removed_turns_is_not_shown_to_the_model(desk):
    desk.run("One.")
    desk.run("Two.")
    session = desk.store.open("ada")
    session.meta["summary"] = {"text": "They said Two.", "covers": len(session.messages)}
    desk.rewind(1)
    assert "summary" not in desk.store.open("ada").meta
    session = desk.store.open("ada")
    session.meta["summary"] = {"text": "They said One.", "covers": 2}
    desk.run("Three.")
    desk.rewind(1)
    assert "summary" in desk.store.open("ada").meta


def test_an_open_session_sees_that_another_process_rewound_it(desk):
    desk.run("One.")
    desk.run("Two.")
    mine = desk.store.open("ada")
    desk.rewind(1)
    desk.run("Other.")
    assert mine.refresh()
    assert [one.text for one in mine.messages if one.role == "user"] == ["One.", "Other."]
    assert not mine.refresh()


def test_files_alone_go_back_if_this_is_wanted(desk):
    desk.run("Go.", [write("a", "1")])
    done = desk.rewind(0, files_only=True)
    assert done.summary() == "Conversation: stays as it is.\nFiles: deletes 1 file."
    assert tree(desk.workspace) == {}
    assert desk.store.show("ada").messages == desk.messages[2]
    desk.rewind(None)
    desk.check(2)


def test_a_rewind_is_an_event(desk):
    desk.run("Go.", [write("a", "1")])
    agent, seen = desk.agent(), list[Event]()
    agent.activity.subscribe(seen.append)
    asyncio.run(agent.rewind("ada", 0, store=desk.store))
    (event,) = seen
    assert isinstance(event, SessionRewound)
    assert (event.session, event.turn, event.removed, event.files) == ("ada", 0, 4, ("a",))


@pytest.mark.parametrize("turn", [-1, 3, 1_000])
def test_a_turn_that_is_not_there_is_refused(desk, turn):
    desk.run("Go.", [write("a", "1")])
    with pytest.raises(ToolError, match=f"to turn {turn}: it has 2 turns"):
        desk.rewind(turn)
    desk.check(2)
    desk.rewind(1)
    desk.check(1)


def test_the_undo_of_a_rewind_is_a_rewind(desk):
    desk.run("Go.", [write("a", "1")])
    desk.rewind(0)
    entry = desk.state.undo.entries("ada")[0]
    result = asyncio.run(desk.agent().call("undo", {"action": "apply", "call_id": entry.call_id}, session="ada"))
    assert "is a rewind, which changed the conversation, too" in result.for_llm
    desk.rewind(None)
    desk.check(2)


@pytest.mark.parametrize("moment", ["before", pytest.param("after", marks=pytest.mark.slow)])
def test_killed_at_any_step_conversation_and_files_agree(tmp_path, moment):
    outcomes = run_program("steps", tmp_path, moment)
    assert set(outcomes) == {"rewound", "not rewound"}
    assert sum(outcomes.values()) >= 50


def run_program(*arguments: object) -> Any:
    ended = subprocess.run(
        [sys.executable, __file__, *map(str, arguments)], capture_output=True, text=True, timeout=280
    )
    assert ended.returncode == 0, ended.stderr[-3_000:]
    return json.loads(ended.stdout)


def steps(root: str, moment: str) -> dict[str, int]:
    """Kill a rewind at each of the calls that it makes, one after the other, and before and after its decision."""
    outcomes = {"rewound": 0, "not rewound": 0}
    for call in (*CALLS, "cut"):
        for number in range(200):
            desk = prepared(Path(root, f"{call}{number}"))
            was_killed = in_child(desk.workspace, call, number, moment)
            said = recover(desk.workspace)
            assert recover(desk.workspace) == []
            messages, files = desk.store.show("ada").messages, tree(desk.workspace)
            is_rewound = messages == desk.messages[1]
            assert is_rewound or messages == desk.messages[3], (call, number, said)
            assert files == desk.trees[1 if is_rewound else 3], (call, number, said, files)
            if not is_rewound:
                desk.rewind(1)
                desk.check(1)
            desk.rewind(None)
            desk.check(3)
            outcomes["rewound" if is_rewound else "not rewound"] += 1
            desk.store.close()
            shutil.rmtree(desk.workspace)
            if not was_killed:
                assert is_rewound
                break
    return outcomes


def prepared(workspace: Path) -> Desk:
    workspace.mkdir()
    (workspace / "gone").write_bytes(b"gone")
    (workspace / "changed").write_bytes(b"old")
    desk = Desk(workspace)
    read = ToolCall("file_read", {"path": "changed"})
    desk.run("Go.", [read], [write("changed", "new"), write("made/it", "1"), patch("delete", "gone")])
    return desk


def in_child(workspace: Path, call: str, number: int, moment: str) -> bool:
    """Return whether it was killed."""
    child = os.fork()
    if child == 0:
        try:
            killed_at(workspace, call, number, moment)
            os._exit(0)
        except BaseException as error:
            os.write(2, repr(error).encode())
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def killed_at(workspace: Path, call: str, number: int, moment: str) -> None:
    desk = Desk(workspace)
    agent = desk.agent()
    os.fsync = lambda fd: None  # a kill loses nothing that was written, and the disk is slow
    owner: Any = desk.store if call == "cut" else os
    real, count = getattr(owner, call), iter(range(100_000))

    def kills(*given: Any, **named: Any) -> Any:
        is_now = next(count) == number
        if is_now and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = real(*given, **named)
        if is_now:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, call, kills)
    asyncio.run(agent.rewind("ada", 1, store=desk.store))


if __name__ == "__main__":
    print(json.dumps({"steps": steps}[sys.argv[1]](*sys.argv[2:])))
