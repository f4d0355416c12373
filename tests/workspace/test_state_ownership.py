"""A state directory counts where it was made, and nowhere else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from forge.agent.agent import Agent
from forge.cli.commands.trust import accept_state
from forge.core.context import Scope
from forge.core.errors import ToolError
from forge.core.messages import ToolCall
from forge.mcp.pins import Pins
from forge.models.scripted import Scripted
from forge.permissions.policy import rules
from forge.process.sandbox import Tier, problem
from forge.schedules.store import ScheduleStore
from forge.tools.bash import Bash
from forge.workspace import state as ownership
from forge.workspace.state import MARK, explain_unusable, is_foreign, mark_own, state_directory


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A workspace with a state of its own."""
    workspace = tmp_path / "made"
    workspace.mkdir()
    with ScheduleStore.of(workspace) as store:
        store.set(id="nightly", cron="0 3 * * *", task="Do it.")
    return workspace


@pytest.fixture
def copied(made: Path, tmp_path: Path) -> Path:
    """What a clone, an archive or a copy is: the same files elsewhere."""
    workspace = tmp_path / "copied"
    shutil.copytree(made, workspace)
    return workspace


def test_what_was_made_here_is_used(made: Path) -> None:
    ownership._known.clear()
    assert state_directory(made) == made / ".forge"
    assert not is_foreign(made / ".forge")
    with ScheduleStore.of(made) as store:
        assert [one.id for one in store.list()] == ["nightly"]


def test_what_was_copied_is_not_used_until_it_is_accepted(copied: Path) -> None:
    assert is_foreign(copied / ".forge")
    assert copied not in state_directory(copied).parents
    with pytest.raises(ToolError, match="was not made by Forge on this machine") as caught:
        ScheduleStore.of(copied)
    assert "forge trust" in caught.value.suggestion
    mark_own(copied / ".forge")
    assert state_directory(copied) == copied / ".forge"
    with ScheduleStore.of(copied) as store:
        assert [one.id for one in store.list()] == ["nightly"]


def test_schedules_of_a_copy_run_once_a_person_has_accepted_them(copied: Path) -> None:
    mark_own(copied / ".forge")  # a program can write the mark, too
    with ScheduleStore.of(copied) as store:
        assert (store.get("nightly").enabled, bool(store.get("nightly").problem)) == (False, True)
        accept_state(copied)
        assert (store.get("nightly").enabled, store.get("nightly").problem) == (True, "")


@pytest.mark.parametrize("mark", [None, "", "0" * 64, "link", "folder"])
def test_no_mark_that_could_come_with_a_clone_is_enough(copied: Path, made: Path, mark: str | None) -> None:
    place = copied / ".forge" / MARK
    place.unlink()
    if mark == "link":
        place.symlink_to(made / ".forge" / MARK)
    elif mark == "folder":
        place.mkdir()
    elif mark is not None:
        place.write_text(mark)
    assert state_directory(copied) != copied / ".forge"


def test_a_project_that_was_moved_keeps_its_state(made: Path, tmp_path: Path) -> None:
    made.rename(tmp_path / "moved")
    assert state_directory(tmp_path / "moved") == tmp_path / "moved" / ".forge"


def test_another_machine_or_user_is_another(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ownership._known.clear()
    monkeypatch.setattr(ownership, "_machine_id", lambda: "another")
    assert state_directory(made) != made / ".forge"


def test_a_directory_that_holds_nothing_but_notes_is_made_ones_own(tmp_path: Path) -> None:
    (tmp_path / ".forge" / "memory").mkdir(parents=True)
    (tmp_path / ".forge" / "memory" / "MEMORY.md").write_text("What a person wrote.\n")
    (tmp_path / ".forge" / ".gitignore").write_text("*\n")
    assert not is_foreign(tmp_path / ".forge")
    assert state_directory(tmp_path) == tmp_path / ".forge"
    assert os.stat(tmp_path / ".forge" / MARK).st_mode & 0o777 == 0o600


def test_what_cannot_be_written_is_told_from_what_is_foreign(tmp_path: Path, copied: Path) -> None:
    assert "cannot be written" in explain_unusable(tmp_path)[0]
    assert "not made by Forge" in explain_unusable(copied)[0]


@pytest.mark.slow
def test_many_processes_at_once_make_one_directory(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from forge.workspace.state import state_directory;"
        "sys.stdin.read(1); print(state_directory(Path(sys.argv[1])))"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(6)
    ]
    said = {one.communicate("x")[0].strip() for one in started}
    assert said == {str(tmp_path / ".forge")}


STATUS = {"name": "status", "description": "Say what is new.", "inputSchema": {"type": "object"}}


@pytest.mark.parametrize("sandbox", ["bubblewrap", "landlock", "off"])
async def test_a_state_directory_that_the_first_program_makes_approves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sandbox: str
) -> None:
    """The twin is `test_a_person_can_approve_again_what_has_no_seal`."""
    if sandbox != "off" and problem(Tier(sandbox)):
        pytest.skip("it is not available here")
    work, planted, settings = tmp_path / "work", tmp_path / "work" / "planted", tmp_path / "settings"
    planted.mkdir(parents=True)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "other"))
    Pins(planted / "pins.json").record("git", "git-server", {"status": STATUS}, "me")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(settings))
    agent = Agent(
        Scripted(ToolCall("bash", {"command": "mkdir .forge && cp planted/pins.json .forge/ && ls .forge"}), "done"),
        tools=[Bash(sandbox=sandbox)],
        policy=rules("allow *"),
        scope=Scope(workspace=work),
    )
    result = await agent.run("Work.")
    assert [message.text for message in result.messages if message.role == "tool"] == ["pins.json"]
    assert (settings / "forge" / "state.key").is_file()
    mark_own(work / ".forge")  # a program can write the mark, too
    pins = Pins(state_directory(work) / "pins.json")
    assert pins.of("git") == {}
    assert "it has no seal" in pins.problem
