"""What released versions have stored opens here and goes on: durable runs, sessions and a configuration.

`tests/stored` has a folder for each release; `scripts/stored_by_release.py` wrote it at the time of that release.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest

from forge.agent.session import SessionStore
from forge.durable.client import Runs
from tests import programs

STORED = Path(__file__).parents[1] / "stored"
every_release = pytest.mark.parametrize("release", sorted(one.name for one in STORED.iterdir()))


@pytest.fixture
def project(release: str, tmp_path: Path) -> Path:
    """A project as that release left it."""
    folder = tmp_path / "project"
    shutil.copytree(STORED / release, folder, ignore=shutil.ignore_patterns("*.sql"))
    (folder / ".forge").mkdir(mode=0o700)
    for name, database in (("runs.sql", "runs.db"), ("state.sql", ".forge/state.db")):
        with sqlite3.connect(folder / database) as connection:
            connection.executescript((STORED / release / name).read_text(encoding="utf-8"))
        connection.close()
    return folder


def forge(folder: Path, *words: str) -> str:
    variables = {name: str(folder.parent / name) for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME")}
    done = programs.run(
        [sys.executable, "-m", "forge", *words, "--config", "forge.yaml"],
        cwd=folder, env={**os.environ, **variables}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


@every_release
def test_what_a_release_stored_can_be_read(project: Path) -> None:
    with Runs(f"sqlite:///{project / 'runs.db'}") as runs:
        found = {run.session: run for run in runs.list()}
        assert {name: run.status for name, run in found.items()} == {
            "finished": "finished", "waiting": "waiting", "queued": "queued",
        }  # fmt: skip
        assert runs.result(found["finished"].id).text == "Hello."
        assert [one.tool for one in runs.questions(found["waiting"].id)] == ["file_write"]
        assert len(runs.events(found["finished"].id)) > 1
    with SessionStore(project / ".forge" / "state.db") as sessions:
        assert [one.text for one in sessions.show("notes").messages][-2:] == ["Remember the colour blue.", "Hello."]


@pytest.mark.slow
@every_release
def test_what_a_release_stored_goes_on(project: Path) -> None:
    """Its waiting run is answered and finished, its queued run is done, its session continues, its file is taken."""
    shown: Any = json.loads(forge(project, "config", "show", "--json"))
    assert "keeper" in json.dumps(shown)
    with Runs(f"sqlite:///{project / 'runs.db'}") as runs:
        ids = {run.session: run.id for run in runs.list()}
    forge(project, "runs", "migrate", "--all")
    assert "Hello." in forge(project, "runs", "resume", ids["queued"], "--quiet")
    forge(project, "runs", "answer", ids["waiting"], "--yes")
    assert "It is written." in forge(project, "runs", "resume", ids["waiting"], "--quiet")
    assert (project / "note.txt").read_text() == "hello"
    assert "Hello again." in forge(project, "runs", "resume", ids["finished"], "--say", "And again.", "--quiet")
    forge(project, "trust", "--yes")  # the state of another machine, which an owner takes over
    forge(project, "session", "fork", "notes", "more", "--trust")
    forge(project, "run", "--session", "more", "Which colour?", "--model", "scripted:talk.yaml", "--quiet")
    with SessionStore.of(project) as sessions:
        assert [one.text for one in sessions.show("more").messages if one.role == "user"] == [
            "Remember the colour blue.", "Which colour?",
        ]  # fmt: skip
