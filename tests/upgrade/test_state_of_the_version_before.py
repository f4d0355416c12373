"""What an earlier version left behind opens, and goes on: `.forge/`, the trust store, durable runs.

Each `made_by_COMMIT.tar.gz` was made by that commit; `make_state.py` says how to make the next.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from forge.project.trust import trust_state
from forge.workspace.state.ownership import _machine_id
from tests.cli.conftest import here, start

__all__ = ["here"]  # a fixture

ARCHIVES = sorted(Path(__file__).parent.glob("made_by_*.tar.gz"))
PATIENCE = 120.0  # seconds; the machine may be busy


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.gz"))
def workspace(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project of an archive, which is also the current directory, as if it had been made here."""
    root = tmp_path.resolve()
    with tarfile.open(request.param) as tar:
        if hasattr(tarfile, "data_filter"):  # from Python 3.11.4 on
            tar.extraction_filter = tarfile.data_filter
        tar.extractall(root)
    before = made(root / "project")["root"]
    trust = root / "data" / "forge" / "trust.json"
    trust.write_text(trust.read_text().replace(before, str(root)))
    _move_paths(root / "project" / ".forge" / "state.db", before, str(root))
    _mark(root / "project" / ".forge")
    monkeypatch.setenv("XDG_DATA_HOME", str(root / "data"))
    monkeypatch.delenv("AGENT_WORKSPACE_ROOT", raising=False)
    monkeypatch.chdir(root / "project")
    return root / "project"


def _move_paths(database: Path, before: str, now: str) -> None:
    with closing(sqlite3.connect(database)) as connection, connection:
        for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for _, column, *_ in connection.execute(f'PRAGMA table_info("{table}")').fetchall():
                changed = f'UPDATE "{table}" SET "{column}" = replace("{column}", ?, ?)'
                connection.execute(
                    f'{changed} WHERE typeof("{column}") = \'text\' AND instr("{column}", ?)', (before, now, before)
                )


def _mark(folder: Path) -> None:
    """As those versions marked a directory that they made. It holds for one machine and directory alone."""
    number = os.lstat(folder).st_ino
    words = f"forge state {_machine_id()} {os.getuid()} {number}"
    (folder / "made-here").write_text(hashlib.sha256(words.encode()).hexdigest())


def made(workspace: Path) -> Any:
    return json.loads((workspace.parent / "made.json").read_text())


def said(here: Any, session: str) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = here("session", "show", session, "--json").json["messages"]
    return messages


def script(workspace: Path, *turns: Any) -> str:
    (workspace / "scripts" / "now.json").write_text(json.dumps(turns))
    return "scripted:scripts/now.json"


def test_there_is_something_to_go_on_with() -> None:
    assert ARCHIVES
    assert all(path.stat().st_size < 200_000 for path in ARCHIVES)


def test_what_was_accepted_is_accepted(workspace: Path, here: Any) -> None:
    assert trust_state(workspace).status == "trusted"
    shown = here("trust", "--dry-run", "--json").json
    assert (shown["status"], shown["state"]) == ("trusted", "own")
    assert str(workspace) in here("trust", "--list").out
    assert here("config", "show", "--json").out.count("Be brief.")
    (workspace / "forge.yaml").write_text("sandbox: off\n")
    assert trust_state(workspace).status == "changed", "another text counts as accepted"


def test_a_directory_of_state_that_was_copied_is_not_used(workspace: Path, here: Any) -> None:
    (workspace / ".forge" / "made-here").write_text("0" * 64)
    assert here("trust", "--dry-run", "--json").json["state"] == "foreign"


def test_a_conversation_goes_on(workspace: Path, here: Any) -> None:
    before = said(here, "talk")
    assert [one["role"] for one in before if one["role"] != "tool"] == [
        *["system", "user", "assistant", "assistant", "assistant"],
        *["user", "assistant", "assistant"],
    ]
    ended = here("run", "And now?", "--session", "talk", "--quiet", "--model", script(workspace, "Still 42."))
    assert (ended.code, ended.out) == (0, "Still 42.\n"), ended.err
    after = said(here, "talk")
    assert after[: len(before)] == before
    assert [(one["role"], one["text"]) for one in after[len(before) :]] == [
        ("user", "And now?"),
        ("assistant", "Still 42."),
    ]


def test_a_call_that_was_left_open_is_answered(workspace: Path, here: Any) -> None:
    (asked,) = said(here, "open")[-1]["tool_calls"]
    assert asked["name"] == "bash"
    ended = here("run", "Go on.", "--session", "open", "--quiet", "--model", script(workspace, "I did not repeat it."))
    assert (ended.code, ended.out) == (0, "I did not repeat it.\n"), ended.err
    answered, prompt, _ = said(here, "open")[-3:]
    assert (answered["role"], answered["call_id"]) == ("tool", asked["id"])
    assert "interrupted" in answered["text"]
    assert prompt["text"] == "Go on."


def test_a_schedule_is_still_there(workspace: Path, here: Any) -> None:
    (schedule,) = here("schedule", "list", "--json").json["schedules"]
    assert (schedule["id"], schedule["cron"], schedule["task"]) == ("look", "@daily", "Look at the notes.")
    assert "look" in here("schedule", "list").out


def test_a_change_is_taken_back(workspace: Path, here: Any) -> None:
    assert (workspace / "notes.txt").read_text() == "two\n"
    assert "notes.txt" in here("undo", "--list").out
    ended = here("undo", "--yes")
    assert ended.code == 0, ended.err
    assert (workspace / "notes.txt").read_text() == "one\n"


def test_a_file_that_was_changed_since_is_left_alone(workspace: Path, here: Any) -> None:
    (workspace / "notes.txt").write_text("three\n")
    assert here("undo", "--yes").code == 1
    assert (workspace / "notes.txt").read_text() == "three\n"


def test_what_was_approved_of_a_server_stays_approved(
    workspace: Path, here: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = workspace.parent / "programs"
    programs.mkdir()
    (programs / "python3").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    monkeypatch.setenv("FORGE_SANDBOX", "off")  # this test also runs where no sandbox can be had

    def state() -> str:
        (server,) = here("mcp", "list", "--json", "--config", "with_server.yaml").json["servers"]
        (offered,) = server["tools"]
        found: str = offered["state"]
        return found

    assert state() == "pinned"
    server = workspace / "server.py"
    server.write_text(server.read_text().replace("Write a note.", "Write anything."))
    assert state() == "changed"


def test_the_log_is_read(workspace: Path, here: Any) -> None:
    logged = here("audit", "--json").lines
    assert len(logged) == len((workspace / ".forge" / "audit.ndjson").read_text().splitlines())
    assert "file_write" in here("audit").out
    summary = here("audit", "--summary", "--json").json
    assert summary["unreadable"] == 0
    assert {"file_read", "file_write", "math_calculate", "bash"} <= {one["tool"] for one in summary["tools"]}


def prepared(workspace: Path, here: Any) -> dict[str, str]:
    """The names of the durable runs, which are for workers of this version."""
    pytest.importorskip("dbos")
    if made(workspace)["version"] != here("--version").out.strip():
        assert here("runs", "migrate", "--all").code == 0  # what a person does after an update
    runs: dict[str, str] = made(workspace)["runs"]
    return runs


def status_of(here: Any, run: str) -> str:
    status: str = here("runs", "show", run, "--json").json["status"]
    return status


def test_a_finished_run_is_shown(workspace: Path, here: Any) -> None:
    runs = prepared(workspace, here)
    found = {one["id"]: one["status"] for one in here("runs", "list", "--json").json["runs"]}
    assert {name: found[run] for name, run in runs.items()} == {
        "finished": "finished",
        "approval": "waiting",
        "question": "waiting",
        "queued": "queued",
    }
    shown = here("runs", "show", runs["finished"])
    assert shown.code == 0
    assert "It was 42." in shown.out


def test_a_run_that_waits_for_a_yes_gets_it_and_finishes(workspace: Path, here: Any) -> None:
    run = prepared(workspace, here)["approval"]
    (question,) = here("runs", "show", run, "--json").json["questions"]
    assert question["request"]["arguments"]["command"] == "echo one >> done.txt"
    assert here("runs", "answer", run, "--yes").code == 0
    ended = here("runs", "resume", run, "--quiet")
    assert (ended.code, ended.out) == (0, "It is written.\n"), ended.err
    assert (workspace / "done.txt").read_text() == "one\n"


@pytest.mark.slow
def test_a_run_that_waits_for_a_yes_gets_a_no_and_finishes(workspace: Path, here: Any) -> None:
    run = prepared(workspace, here)["approval"]
    assert here("runs", "answer", run, "--no", "not today").code == 0
    assert here("runs", "resume", run, "--quiet").code == 0
    assert not (workspace / "done.txt").exists()
    assert "not today" in here("runs", "show", run).out


def test_a_run_that_waits_for_an_answer_gets_it_and_finishes(workspace: Path, here: Any) -> None:
    run = prepared(workspace, here)["question"]
    assert here("runs", "answer", run, "the first").code == 0
    ended = here("runs", "resume", run, "--quiet")
    assert (ended.code, ended.out) == (0, "Then it is that one.\n"), ended.err
    messages = here("session", "show", run, "--json").json["messages"]
    assert [one["text"] for one in messages if one["role"] == "user"] == ["Do question.", "the first"]


@contextmanager
def working(workspace: Path) -> Iterator[None]:
    """A worker of this version, in a process of its own."""
    process = start(workspace, "worker", stream=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)


def test_a_worker_takes_what_was_queued_and_what_was_answered(workspace: Path, here: Any) -> None:
    runs = prepared(workspace, here)
    from forge import Runs

    assert here("runs", "answer", runs["approval"], "--yes").code == 0
    assert here("runs", "answer", runs["question"], "the second").code == 0
    with Runs(f"sqlite:///{workspace}/.forge/durable.db") as kept, working(workspace):
        ended = {name: kept.wait(run, PATIENCE) for name, run in runs.items()}
        assert {name: run.status for name, run in ended.items()} == dict.fromkeys(runs, "finished")
        assert {name: (run.result or {})["text"] for name, run in ended.items()} == {
            "finished": "It was 42.",
            "approval": "It is written.",
            "question": "Then it is that one.",
            "queued": "It was worked on.",
        }
    assert (workspace / "done.txt").read_text() == "one\n"
    assert status_of(here, runs["queued"]) == "finished"
