"""A workspace that cannot be written can still be looked at."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Ended, environment
from tests.cli.scripts import script

LOOKS = {
    "schedule list": "nightly",
    "schedule history": "",
    "session list": "talk",
    "session show talk": "hello",
    "session export talk": "hello",
    "memory show": "MEMORY.md",
    "memory search tea": "likes tea",
    "audit --summary": "runs: answer 1",
}


@pytest.fixture
def read_only(here: Any, workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The command where the workspace, with a state of its own, is mounted so that nobody can write it."""
    assert here("schedule", "add", "@daily", "Do it.", "--id", "nightly").code == 0
    model = script(tmp_path_factory.mktemp("models"), "Hi.")
    assert here("run", "hello", "--session", "talk", "--model", model).code == 0
    (workspace / ".forge" / "memory").mkdir()
    (workspace / ".forge" / "memory" / "MEMORY.md").write_text("The person likes tea.\n")

    def run(words: str) -> Ended:
        place = shlex.quote(str(workspace))
        line = f"mount --bind {place} {place} && mount -o remount,ro,bind {place} && cd {place} && echo mounted >&2"
        line += f" && exec {shlex.quote(sys.executable)} -m forge {words}"
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", line], capture_output=True, env=environment(), timeout=150, text=True
        )
        if "mounted" not in done.stderr:
            pytest.skip("nothing can be mounted here")
        return Ended(done.returncode, done.stdout, done.stderr)

    return run


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="how it is mounted is Linux's")
def test_what_only_looks_needs_to_write_nothing(read_only: Any, workspace: Path) -> None:
    before = sorted(path.name for path in (workspace / ".forge").iterdir())
    for words, shown in LOOKS.items():
        ended = read_only(words)
        assert ended.code == 0, (words, ended.err)
        assert shown in ended.out, words
    refused = read_only("schedule add @daily Other.")
    assert refused.code == 2
    assert "cannot be opened or written" in refused.err
    assert sorted(path.name for path in (workspace / ".forge").iterdir()) == before


def test_a_copy_to_look_at_has_what_was_committed_last_and_is_gone_afterwards(workspace: Path) -> None:
    from forge.schedules.store import ScheduleStore
    from forge.workspace.state.store import copy_state_file

    with ScheduleStore.of(workspace) as store:
        store.set(id="one", cron="@daily", task="x")  # still in the log, as long as the store is open
        with copy_state_file(workspace, "state.db") as path, ScheduleStore(path) as copy:
            assert path is not None
            assert [one.id for one in copy.list()] == ["one"]
            copy.set(id="two", cron="@daily", task="y")
        assert not path.exists()
        assert [one.id for one in store.list()] == ["one"]
    with copy_state_file(workspace, "nothing.db") as path:
        assert path is None
