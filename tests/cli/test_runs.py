"""`forge run --durable` and `forge runs`: what is kept, shown, asked and answered, and how it goes on after a kill."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from forge.core.errors import ToolError
from forge.evaluation import read_cases
from forge.workspace.state import state_directory
from tests.cli.conftest import Ended, start
from tests.cli.scripts import call, script
from tests.cli.test_terminal import ASKED, talk

pytest.importorskip("dbos")
from forge.durable.client import Runs
from forge.durable.store import RunStore, tables
from forge.durable.store.find import RunFilter
from forge.durable.store.heartbeats import SILENT

pytestmark = pytest.mark.timeout(400)

PATIENCE = 120.0  # seconds; the machine may be busy
SUM = call("math_calculate", "Let me see. ", expression="6 * 7")
QUESTION = call("ask_question", question="Which one?", suggestions=["a", "b"])
SECRET = "hunter2-hunter2"


@pytest.fixture(autouse=True)
def on_the_real_tree(monkeypatch):
    """The programs of these tests show that they run by what they write meanwhile; a trial writes at its end."""
    monkeypatch.setenv("FORGE_TRIAL", "off")


def wrote(word: str, then: str = "") -> dict[str, Any]:
    return call("bash", command=f"echo {word} >> done.txt{then}")


def until(found: Callable[[], Any]) -> Any:
    end = time.monotonic() + PATIENCE
    while not (value := found()):
        assert time.monotonic() < end, "it never came"
        time.sleep(0.05)
    return value


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def kept(here: Any) -> list[dict[str, Any]]:
    runs: list[dict[str, Any]] = here("runs", "list", "--json").json["runs"]
    return runs


def durably(here: Any, workspace: Path, *turns: Any, more: tuple[str, ...] = ()) -> tuple[Ended, str]:
    """Run a script; how it ended, and the id of the run."""
    ended = here("run", "--durable", "go", "--model", script(workspace, *turns), *more)
    return ended, kept(here)[0]["id"]


def test_a_run_looks_like_any_other_and_its_conversation_is_a_session(workspace, here):
    ended, run = durably(here, workspace, SUM, "It is 42.")
    assert (ended.code, ended.out) == (0, "Let me see. \nIt is 42.\n")
    said = ended.err.splitlines()
    assert said[0] == f"run {run} · resume after a crash: forge runs resume {run}"
    assert said[1] == '→ math_calculate(expression="6 * 7")'
    assert said[2].startswith("✓ math_calculate  0.")
    assert said[3:4] == ["  42"]
    assert said[4].startswith("2 turns · 1 call · ")
    assert said[5] == f"run {run} · session {run} · resume: forge run --durable --session {run}"
    again = here("run", "--durable", "more", "--session", run, "--model", script(workspace, "Even more."))
    assert (again.code, again.out) == (0, "Even more.\n")
    roles = [one["role"] for one in here("session", "show", run, "--json").json["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "user", "assistant"]
    here("runs", "show", run)
    assert len(here("session", "show", run, "--json").json["messages"]) == 7  # each is kept once
    assert (workspace / ".forge" / "durable.db").stat().st_mode & 0o777 == 0o600


def test_json_is_an_event_a_line_and_the_last_is_the_end(workspace, here):
    ended, run = durably(here, workspace, SUM, "It is 42.", more=("--json",))
    assert (ended.code, ended.err) == (0, "")
    names = [line["event"] for line in ended.lines if line["event"] != "text_delta"]
    assert names == "run_started tool_call_start tool_call_end turn_finished turn_finished run_finished".split()
    assert [line["seq"] for line in ended.lines] == [*range(1, len(ended.lines) + 1)]
    assert {line["session"] for line in ended.lines} == {run}
    assert ended.lines[-1]["text"] == "It is 42."
    seen = here("runs", "show", run, "--follow", "--json")
    assert [line["event"] for line in seen.lines if line["event"] != "text_delta"] == names
    audited = lines(workspace / ".forge" / "audit.ndjson")
    assert [json.loads(line)["event"] for line in audited if "text_delta" not in line] == names


def test_quiet_is_only_the_final_text(workspace, here):
    assert durably(here, workspace, SUM, "It is 42.", more=("--quiet",))[0] == (0, "It is 42.\n", "")


@pytest.mark.slow
def test_what_asks_waits_without_a_terminal_and_goes_on_once_it_is_answered(workspace, here):
    ended, run = durably(here, workspace, wrote("one"), QUESTION, "Thanks.")
    assert (ended.code, ended.out, lines(workspace / "done.txt")) == (3, "", [])
    assert f"run {run} waits for a yes: bash wants to execute echo one >> done.txt" in ended.err
    assert "  --always stores for this tool in this run: allow execute echo one >> done.txt\n" in ended.err
    assert f'forge runs answer {run} --yes, or --no "WHY"' in ended.err
    shown = here("runs", "show", run)
    assert shown.code == 0
    assert "waits for a yes" in shown.out
    (question,) = here("runs", "show", run, "--json").json["questions"]
    assert question["request"]["arguments"]["command"] == "echo one >> done.txt"
    assert here("runs", "answer", run, "words").code == 2
    answered = here("runs", "answer", run, "--yes")
    assert (answered.code, lines(workspace / "done.txt")) == (0, [])
    assert f"continues as soon as a worker is running: forge worker, or here: forge runs resume {run}" in answered.err
    asked = here("runs", "resume", run, "--quiet")
    assert (asked.code, asked.out) == (3, "Which one?\n\n1. a\n2. b\n")
    assert f'run {run} waits for an answer: forge runs answer {run} "…"' in asked.err
    assert lines(workspace / "done.txt") == ["one"]
    assert here("runs", "list", "--status", "waiting").out.startswith(run)
    assert here("runs", "answer", run, "the first").code == 0
    assert here("runs", "resume", run, "--quiet") == (0, "Thanks.\n", "")
    assert here("runs", "resume", run).code == 2  # it is finished
    messages = here("session", "show", run, "--json").json["messages"]
    assert [one["text"] for one in messages if one["role"] == "user"] == ["go", "the first"]


@pytest.mark.slow
def test_a_no_and_other_arguments_reach_the_call(workspace, here):
    _, run = durably(here, workspace, wrote("one"), wrote("two"), "Done.")
    assert here("runs", "answer", run, "--no", "not that").code == 0
    assert here("runs", "resume", run).code == 3
    assert here("runs", "answer", run, "--edit", "[1]").code == 2
    assert here("runs", "answer", run, "--edit", "{oops").code == 2
    refused = here("runs", "answer", run, "--edit", '{"command": 5, "timeout": "soon"}')
    assert refused.code == 2
    assert "the arguments are not valid for bash" in refused.err
    assert len(here("runs", "show", run, "--json").json["questions"]) == 1
    assert here("runs", "answer", run, "--edit", '{"command": "echo changed >> done.txt"}').code == 0
    assert here("runs", "resume", run).out == "Done.\n"
    assert lines(workspace / "done.txt") == ["changed"]
    assert "not that" in here("runs", "show", run).out


@pytest.mark.slow
def test_detached_it_is_left_to_whoever_goes_on_with_it(workspace, here):
    ended = here("run", "--durable", "go", "--detach", "--model", script(workspace, "Done."))
    run = ended.out.strip()
    assert ended.code == 0
    assert ended.err.splitlines() == [
        "No running worker takes it. Start one: forge worker",
        f"To follow it: forge runs show {run} --follow",
    ]
    assert [(one["id"], one["status"]) for one in kept(here)] == [(run, "queued")]
    assert here("runs", "resume", run[:8], "--quiet").out == "Done.\n"
    as_json = here("run", "--durable", "go", "--detach", "--json", "--model", script(workspace, "Done."))
    assert as_json.json["status"] == "queued"
    cancelled = here("runs", "cancel", as_json.json["run"])
    assert (cancelled.code, cancelled.err) == (0, f"{as_json.json['run']} is cancelled.\n")
    assert here("runs", "cancel", as_json.json["run"]).code == 2
    assert here("runs", "show", as_json.json["run"], "--follow").code == 130


@pytest.mark.slow
def test_a_run_has_the_queue_the_tenant_the_priority_and_the_version_it_was_given(workspace, here):
    given = ("--queue", "night", "--tenant", "acme", "--priority", "5", "--app-version", "7")
    ended = here("run", "--durable", "go", "--detach", *given)  # without a model: that is the worker's
    assert (ended.code, ended.err.splitlines()[0]) == (
        0,
        "No running worker takes it. Start one: forge worker --queue night --app-version 7",
    )
    (run,) = kept(here)
    assert [run[name] for name in ("queue", "tenant", "priority", "version")] == ["night", "acme", 5, "7"]
    assert here("runs", "list", "--tenant", "acme", "--json").json["runs"] == [run]
    assert here("runs", "list", "--tenant", "other", "--json").json["runs"] == []
    said = f"run {run['id']} waits for a worker with agent main, version 7 and queue night, but none is running"
    assert said in here("runs", "show", run["id"]).out
    needed = "a worker with agent main, version 7 and queue night"
    listed = here("runs", "list").err
    assert listed == f"1 run waits for {needed}, but none is running: forge worker --queue night\n"
    left = here("worker", "status", "--json").json["unattended"]
    assert left == [{"version": "7", "queue": "night", "agent": "main", "queued": 1}]
    model = script(workspace, "Done.")
    assert here("runs", "resume", run["id"], "--model", model).code == 2
    assert here("runs", "resume", run["id"], "--model", model, "--app-version", "7", "--quiet").out == "Done.\n"
    assert here("worker", "status", "--json").json["unattended"] == []
    assert here("runs", "list").err == ""


def detached(here: Any, *more: str) -> str:
    ended = here("run", "--durable", "go", "--detach", *more)
    assert ended.code == 0, ended.err
    return str(ended.out.strip())


def test_the_beginning_of_an_id_names_a_run_but_does_not_delete_it(workspace, here):
    run = detached(here)
    assert here("runs", "show", run[:6], "--json").json["id"] == run
    assert here("runs", "files", run[:6], "--json").json == {"files": []}
    assert here("runs", "cancel", run[:6], "--json").json["status"] == "cancelled"
    missing = here("runs", "show", f"{run}7")
    assert (missing.code, missing.out) == (2, "")
    assert f"Did you mean {run}?" in missing.err
    refused = here("runs", "delete", run[:6])
    assert (refused.code, refused.out) == (2, "")
    assert f"forge runs delete {run}" in refused.err
    assert [one["id"] for one in kept(here)] == [run]
    assert here("runs", "delete", run) == (0, "", f"{run} is deleted.\n")
    assert kept(here) == []


def test_a_database_of_a_newer_version_is_left_as_it_is(workspace, here):
    run = detached(here)

    def version(number: int) -> None:
        with closing(sqlite3.connect(workspace / ".forge" / "durable.db")) as database, database:
            database.execute("UPDATE forge_durable SET version = ?", (number,))

    with closing(sqlite3.connect(workspace / ".forge" / "durable.db")) as database:
        (ours,) = database.execute("SELECT version FROM forge_durable").fetchone()
    version(99)
    commands = (
        ("list",),
        ("show", run),
        ("show", run, "--follow"),
        ("cancel", run),
        ("answer", run, "yes"),
        ("resume", run),
        ("migrate", "--all", "--to", "2"),
        ("files", run),
        ("delete", run),
        ("prune", "--days", "0"),
    )
    for command in commands:
        ended = here("runs", *command)
        assert (ended.code, ended.out) == (2, ""), command
        assert "was written by a newer Forge" in ended.err
    assert "newer Forge" in here("worker", "status").err
    version(ours)
    assert [(one["id"], one["status"]) for one in kept(here)] == [(run, "queued")]


@pytest.mark.slow
def test_a_waiting_run_shows_the_diff_it_asks_about_and_not_the_system_prompt(workspace, here):
    write = call("file_write", path="a.txt", content="one\n\n\x1b[31mtwo\n")
    ended, run = durably(here, workspace, write, "Written.")
    assert ended.code == 3
    shown = here("runs", "show", run).out
    assert "file_write wants to write a.txt" in shown
    assert "+++ b/a.txt" in shown
    assert "+one\n+\n+⟨U+001B⟩[31mtwo" in shown
    system = here("runs", "show", run, "--json").json["messages"][0]
    assert system["role"] == "system"
    assert system["text"].partition("\n")[0] not in shown


def test_what_cannot_be_kept_in_a_session_is_shown_all_the_same(workspace, here, monkeypatch):
    _, run = durably(here, workspace, "Done.")
    for error in (ToolError("state.db could not be written: the disk is full"), OSError(28, "No space left on device")):

        def full(*_: Any, broken: Exception = error, **__: Any) -> int:
            raise broken

        with monkeypatch.context() as patched:
            patched.setattr("forge.project.runs.durable_runs.store_finished_runs", full)
            for command in (("list",), ("show", run), ("files", run)):
                ended = here("runs", *command)
                assert ended.code == 0
                assert "forge: finished runs are not stored in their sessions yet: " in ended.err
            assert kept(here)[0]["id"] == run
    assert here("runs", "list").err == ""


def test_what_is_to_be_typed_next_works_as_it_stands(workspace, here, monkeypatch):
    elsewhere = workspace / "else where"
    elsewhere.mkdir()
    (workspace / "my.yaml").write_text("limits: {turns: 7}\n")
    given = ("--database", "sqlite:///new.db", "--workspace", "else where", "--config", "my.yaml")
    ended = here("run", "--durable", "go", "--model", script(workspace, wrote("one"), "Done."), *given)
    assert ended.code == 3

    def printed(text: str, beginning: str, end: str = "") -> list[str]:
        (line,) = {line for line in text.splitlines() if beginning in line}
        return shlex.split(
            beginning + line.partition(beginning)[2].partition(end)[0] if end else line[line.index(beginning) :]
        )

    resume = printed(ended.err, "forge runs resume")
    answer = printed(ended.err, "forge runs answer", ",")
    assert here(*answer[1:]).code == 0
    assert here("runs", "show", answer[3]).code == 2, "without its flags it is another database"
    done = here(*resume[1:], "--quiet")
    assert (done.code, done.out) == (0, "Done.\n")
    refused = here("runs", "cancel", resume[3], *given)
    again = printed(refused.err, "forge runs resume", " --say")
    assert again == resume
    left = here("run", "--durable", "go", "--detach", *given)
    follow, worker = printed(left.err, "forge runs show"), printed(left.err, "forge worker")
    assert worker == ["forge", "worker", *given[2:], *given[:2]]
    assert here("runs", "delete", follow[3], *given).err.endswith(
        f"Cancel it first: {shlex.join(['forge', 'runs', 'cancel', *given[2:], *given[:2]])} {follow[3]}\n"
    )
    assert here(*["cancel" if word == "show" else word for word in follow[1:] if word != "--follow"]).code == 0
    assert here(*follow[1:]).code == 130
    monkeypatch.setenv("FORGE_DATABASE", "sqlite:///new.db")
    assert "--database" not in here("run", "--durable", "go", "--detach").err


def test_looking_where_no_file_is_makes_none(workspace, here):
    there = ("--database", "sqlite:///folder/none.db")
    assert here("runs", "list", *there) == (0, "", "There are no runs.\n")
    assert here("runs", "list", "--json", *there).json == {"runs": [], "next": ""}
    assert here("runs", "prune", "--days", "0", "--json", *there).json == {"deleted": 0}
    for command in ("show", "cancel", "files", "delete", "resume"):
        ended = here("runs", command, "run-1", *there)
        assert (ended.code, ended.out) == (2, "")
        assert f"there is no run 'run-1': none is stored in {workspace}/folder/none.db" in ended.err
    assert "does not contain Forge's tables yet: there is no such file" in here("worker", "status", *there).err
    begun = here("run", "--durable", "go", "--detach", *there)
    assert begun.code == 2
    assert f"there is no directory {workspace}/folder" in begun.err
    assert list(workspace.iterdir()) == []
    (workspace / "folder").mkdir()
    run = detached(here, *there)
    assert here("runs", "list", *there).out.startswith(run)


@pytest.mark.slow
def test_yes_answers_for_this_run_alone(workspace, here):
    other = here("run", "--durable", "go", "--detach", "--model", script(workspace, wrote("other"), name="o.json"))
    ended, _ = durably(here, workspace, wrote("mine"), "Done.", more=("--yes",))
    assert (ended.code, ended.out) == (0, "Done.\n")
    assert lines(workspace / "done.txt") == ["mine"]
    assert here("runs", "show", other.out.strip(), "--json").json["status"] != "finished"


@pytest.mark.slow
def test_a_sub_agents_calls_are_shown_with_the_runs(workspace, here):
    turns = [call("task", description="look", prompt="look around"), "It is done."]
    ended, run = durably(here, workspace, *turns, more=("--yes", "--json"))
    assert ended.lines[-1]["event"] == "run_finished"
    assert [line["event"] for line in ended.lines].count("run_finished") == 1
    shown = here("runs", "show", run, "--json").json
    assert [one["agent"] for one in shown["runs"]] == ["main/general"]
    assert len(here("runs", "list", "--all", "--json").json["runs"]) == 2


@pytest.mark.slow
def test_runs_of_another_version_are_moved_by_hand(workspace, here):
    model = script(workspace, "Done.")
    run = here("run", "--durable", "go", "--detach", "--model", model).out.strip()
    (workspace / "other.yaml").write_text("limits: {turns: 7}\n")
    refused = here("runs", "resume", run, "--config", "other.yaml")
    assert refused.code == 2
    assert f"forge runs migrate {run}" in refused.err
    assert here("runs", "migrate").code == 2
    assert "the version has 3000 characters" in here("runs", "migrate", run, "--to", "x" * 3_000).err
    moved = here("runs", "migrate", "--all", "--json", "--config", "other.yaml").json
    assert moved["migrated"] == [run]
    assert here("runs", "resume", run, "--quiet", "--config", "other.yaml").out == "Done.\n"


@pytest.mark.slow
def test_runs_that_have_been_over_for_long_are_pruned(workspace, here):
    assert here("runs", "prune", "--days", "0", "--json").json == {"deleted": 0}
    _, run = durably(here, workspace, "Done.")
    assert here("runs", "prune", "--days", "1").err == "0 runs have been over for 1 days: deleted.\n"
    assert [one["id"] for one in kept(here)] == [run]
    assert here("runs", "prune", "--days", "0", "--dry-run", "--json").json == {"found": 1}
    assert here("runs", "prune", "--days", "0").err == "1 run has been over for 0 days: deleted.\n"
    assert kept(here) == []
    assert here("runs", "prune").code == here("runs", "prune", "--days", "-1").code == 2
    (workspace / "kept.yaml").write_text("durable: {retention: {runs: 0.000001, events: 3}}\n")
    assert here("runs", "prune", "--config", "kept.yaml").err == "0 runs, events and files are deleted.\n"
    assert here("run", "--durable", "hello", "--quiet", "--model", script(workspace, "hi")).code == 0
    assert here("runs", "prune", "--config", "kept.yaml", "--dry-run", "--json").json == {"found": 1}
    assert here("runs", "prune", "--config", "kept.yaml", "--json").json == {"deleted": 1}


@pytest.mark.slow
def test_what_a_pruned_or_deleted_run_said_is_in_its_session(workspace, here):
    from forge.core.messages import Message
    from forge.durable.client import Runs
    from forge.durable.store.rows import Outcome
    from forge.project.config import Configuration
    from forge.project.runs.durable_runs import project_database

    durably(here, workspace, "Done.")  # makes the database
    with Runs(project_database(Configuration(), workspace)) as runs:
        for name in ("pruned", "deleted"):  # a worker ended them, and nobody has looked since
            runs.submit("Q", run_id=name, session=f"of-{name}")
            runs.store.begin(name, 1, "w")
            said = (Message("assistant", f"The answer of {name}."),)
            runs.store.close_segment(name, 1, Outcome(status="finished", messages=said, spent={}, result={}))
    assert here("runs", "delete", "deleted").code == 0
    assert here("runs", "prune", "--days", "0").code == 0
    for name in ("pruned", "deleted"):
        assert f"The answer of {name}." in here("session", "show", f"of-{name}").out


@pytest.fixture
def stored(workspace: Path) -> Iterator[RunStore]:
    """Runs of some users, agents and days, in the workspace's own database."""
    url = f"sqlite:///{state_directory(workspace) / 'durable.db'}"
    with Runs(url) as runs:
        for number in range(7):
            name, user = f"r{number}", ("ada", "Ada", 'a"b\\')[number % 3]
            scope = {"user": user, "note": {"about": 'said "user":"ada"'}}
            runs.submit(
                f"Check backup {number}",
                run_id=name,
                tenant="acme" if number < 3 else "",
                scope=scope,
                agent="bank" if number == 5 else "main",
                queue="night" if number == 6 else "default",
            )
            day = datetime(2026, 11, 10 + number).timestamp()
            figures = {"cost": number / 10, "model": f"m:{number % 2}", "failure": "timeout" if number == 4 else ""}
            status = ("finished", "failed", "queued")[number % 3]
            with runs.store.engine.begin() as connection:
                change = sa.update(tables.runs).where(tables.runs.c.id == name).values(created=day, status=status)
                connection.execute(
                    change.values(updated=day, result=None if status == "queued" else {"reason": "x"}, **figures)
                )
        yield runs.store


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        ((), "6543210"),
        (("--since", "2026-11-12", "--until", "2026-11-15"), "432"),
        (("--queue", "night"), "6"),
        (("--agent", "bank"), "5"),
        (("--user", "ada"), "630"),
        (("--user", 'a"b\\'), "52"),
        (("--user", "nobody"), ""),
        (("--text", "BACKUP 4"), "4"),
        (("--text", "%"), ""),
        (("--tenant", "acme", "--status", "failed", "--agent", "main"), "1"),
        (("--model", "m:1"), "531"),
        (("--min-cost", "0.4"), "654"),
        (("--failure", "timeout"), "4"),
        (("--failure", "any", "--model", "m:1"), ""),
        (("--mark", "any"), ""),
        (("--mark", "none", "--min-cost", "0.6"), "6"),
    ],
)
def test_runs_are_filtered_by_date_queue_user_agent_and_text(
    stored: RunStore, here: Any, flags: tuple[str, ...], wanted: str
) -> None:
    found = here("runs", "list", "--json", *flags).json
    assert [run["id"] for run in found["runs"]] == [f"r{number}" for number in wanted]
    assert found["next"] == ""


def test_answers_are_marked_found_again_and_printed_as_cases(stored: RunStore, here: Any, tmp_path: Path) -> None:
    empty = here("runs", "cases")
    assert (empty.code, "there is no marked run" in empty.err) == (2, True)
    assert "r1 is marked as bad" in here("runs", "mark", "r1", "bad", "--note", "too\x1b slow", "--by", "ada").err
    assert here("runs", "mark", "r3", "good", "--json").json["verdict"] == "good"
    assert [run["id"] for run in here("runs", "list", "--json", "--mark", "bad").json["runs"]] == ["r1"]
    assert stored.marks(["r1"])["r1"].by == "ada"
    assert '"by": "ada"' in here("audit", "--event", "run_marked").out
    shown = here("runs", "show", "r1")
    assert "mark     bad, by ada: too⟨U+001B⟩ slow" in shown.out
    assert (here("runs", "show", "r1", "--json").json["mark"]["note"], "\x1b" in shown.out) == ("too\x1b slow", False)
    (tmp_path / "cases.yaml").write_text(here("runs", "cases", "--judged").out)
    good, bad = read_cases(tmp_path / "cases.yaml")
    assert (good.name, bad.name, "slow" in bad.expect.judge) == ("r3", "r1", True)
    assert [one["name"] for one in here("runs", "cases", "--mark", "bad", "--json").json["cases"]] == ["r1"]
    early = here("runs", "mark", "r2", "good")
    assert (early.code, "no answer to mark yet" in early.err) == (2, True)
    assert here("runs", "mark", "r1", "nice").code == 2
    here("runs", "mark", "r1", "none")
    assert [run["id"] for run in here("runs", "list", "--json", "--mark", "any").json["runs"]] == ["r3"]


def test_a_list_of_runs_has_pages(stored: RunStore, here: Any) -> None:
    seen: list[str] = []
    page = here("runs", "list", "--json", "--limit", "3").json
    while page["next"]:
        seen += [run["id"] for run in page["runs"]]
        page = here("runs", "list", "--json", "--limit", "3", "--before", page["next"]).json
    seen += [run["id"] for run in page["runs"]]
    assert seen == [f"r{number}" for number in (6, 5, 4, 3, 2, 1, 0)]
    shown = here("runs", "list", "--limit", "3")
    cursor = shown.err.split("--before ")[1].split()[0]
    assert here("runs", "list", "--limit", "3", "--before", cursor).out.split()[0] == "r3"
    for flags in (("--before", "yesterday"), ("--since", "soon"), ("--until", "2026-13-40")):
        refused = here("runs", "list", *flags)
        assert refused.code == 2
        assert flags[0] in refused.err


def test_all_ended_runs_of_a_user_or_a_tenant_are_deleted(stored: RunStore, here: Any) -> None:
    assert here("runs", "delete", "--user", "ada", "--tenant", "acme", "--json").json == {"deleted": ["r0"], "left": 0}
    assert here("runs", "delete", "--tenant", "acme", "--json").json == {"deleted": ["r1"], "left": 1}
    assert [run.id for run in stored.list()] == ["r6", "r5", "r4", "r3", "r2"]  # r2 is not over
    told = here("runs", "delete", "--user", "ada")
    assert "2 runs are deleted" in told.err
    assert [run.id for run in stored.list()] == ["r5", "r4", "r2"]
    for arguments in ((), ("r5", "--user", "ada"), ("--user", "")):
        assert here("runs", "delete", *arguments).code == 2
    assert len(stored.list()) == 3


def test_failed_runs_are_queued_again(stored: RunStore, here: Any) -> None:
    assert here("runs", "retry", "--failed", "--since", "2026-11-13", "--json").json == {"retried": ["r4"]}
    assert here("runs", "retry", "r1").code == 0
    assert {run.id for run in stored.list(RunFilter(status="queued"))} == {"r1", "r2", "r4", "r5"}
    assert stored.get("r1").segment == 2
    for arguments in (("r0",), (), ("r0", "--failed")):
        refused = here("runs", "retry", *arguments)
        assert refused.code == 2
        assert refused.err
    assert here("runs", "retry", "--failed", "--json").json == {"retried": []}


def test_reading_runs_loads_no_engine_and_no_agent(stored: RunStore, workspace: Path) -> None:
    for arguments in (["runs", "list"], ["runs", "list", "--json"], ["runs", "show", "r0"]):
        loaded = "[name for name in ('dbos', 'forge.agent.agent', 'forge.agent.loop', 'click') if name in sys.modules]"
        code = f"import sys\nfrom forge.cli import perform\nperform({arguments!r})\nprint({loaded})"
        said = subprocess.run([sys.executable, "-c", code], cwd=workspace, capture_output=True, text=True, check=True)
        assert said.stdout.splitlines()[-1] == "['click']", arguments


@pytest.mark.slow
def test_long_results_are_files_of_the_run(workspace, here):
    long = call("bash", command="seq 100000")
    _, run = durably(here, workspace, long, "Done.", more=("--yes",))
    (file,) = here("runs", "files", run, "--json").json["files"]
    whole = here("runs", "files", run, "--get", file["name"])
    assert "99999\n" in whole.out
    assert file["name"] in here("runs", "files", run).out
    assert here("runs", "files", run, "--get", "nothing").code == 2
    assert (workspace / ".forge" / "spill" / file["name"]).exists()
    assert here("runs", "delete", run).code == 0
    assert not (workspace / ".forge" / "spill" / file["name"]).exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("runs", "show", "nothing"), "there is no run 'nothing': none is stored in"),
        (("run", "--durable"), "needs its task at once"),
        (("run", "x", "--detach"), "add --durable"),
        (("run", "x", "--database", "sqlite:///a.db"), "add --durable"),
        (("run", "--durable", "x", "--detach", "--yes"), "--yes applies to runs in this process"),
        (("run", "--durable", "x", "--detach", "--max-turns", "1"), "--max-turns applies to runs in this process"),
        (("run", "--durable", "x", "--detach", "--policy", "p"), "forge worker --policy FILE"),
        (("run", "x", "--tenant", "acme"), "--tenant is for durable runs: add --durable"),
        (("run", "x", "--priority", "0"), "--priority is for durable runs: add --durable"),
        (("run", "--durable", "x", "--priority", "11"), "-10<=x<=10"),
        (("run", "--durable", "x", "--queue", "_mine"), "cannot be the name of a queue"),
        (("runs", "answer", "x", " "), "The answer is empty"),
        (("runs", "answer", "x"), "Say what the answer is"),
        (("runs", "resume", "x", "--say", ""), "--say is empty"),
        (("runs", "resume", "x", "--say", "  "), "--say is empty"),
        (("runs", "answer", "x", "words", "--yes"), "Say one thing"),
        (("runs", "list", "--database", "mysql://a/b"), "must be SQLite or Postgres"),
    ],
)
def test_what_cannot_be_done_is_said_in_words(workspace, here, arguments, words):
    ended = here(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert words in ended.err
    assert "Traceback" not in ended.err


def test_where_nothing_is_kept_nothing_is_made(workspace, here):
    assert here("runs", "list", "--json").json == {"runs": [], "next": ""}
    assert here("runs", "list").err == "There are no runs.\n"
    assert not (workspace / ".forge").exists()


@pytest.mark.parametrize("way", ["flag", "variable", "file"])
def test_a_password_is_never_shown(workspace, here, way, monkeypatch):
    url = f"postgresql://forge:{SECRET}@127.0.0.1:9/forge"
    more: tuple[str, ...] = ()
    if way == "variable":
        monkeypatch.setenv("FORGE_DATABASE", url)
    elif way == "file":
        monkeypatch.setenv("DATABASE_URL", url)
        (workspace / "a.yaml").write_text('durable: {database: "${DATABASE_URL}"}\n')
        more = ("--config", "a.yaml")
    else:
        more = ("--database", url)
    for command in (("runs", "list"), ("run", "--durable", "x", "--model", script(workspace, "hi"))):
        ended = here(*command, *more, "--debug")
        assert ended.code == 2, ended.err
        assert "postgresql://127.0.0.1:9/forge cannot be reached" in ended.err
        assert SECRET not in ended.out + ended.err
    if way != "flag":
        assert SECRET not in here("config", "show", *more).out


@pytest.mark.slow
def test_at_a_terminal_it_is_asked_and_answered(workspace):
    arguments = (
        "run",
        "--durable",
        "go",
        "--model",
        script(workspace, wrote("one"), wrote("two"), QUESTION, "Thanks."),
    )
    says = ((ASKED, b"y"), (ASKED, b"r"), (b"(optional): ", b"not that\n"), (b"> ", b"the first\n"))
    code, shown = talk(workspace, *arguments, says=says)
    assert code == 0, shown
    assert "bash wants to execute" in shown
    assert "Which one?" in shown
    assert "Thanks." in shown
    assert lines(workspace / "done.txt") == ["one"]


def killed(workspace: Path, process: subprocess.Popen[bytes]) -> None:
    with process:
        until(lambda: "two" in lines(workspace / "done.txt"))
        os.killpg(process.pid, signal.SIGKILL)


def test_killed_it_goes_on_at_once_and_nothing_runs_twice(workspace, here):
    turns = (wrote("one"), wrote("two", "; sleep 60"), wrote("three"), "All done.")
    model = script(workspace, *turns)
    killed(workspace, start(workspace, "run", "--durable", "go", "--yes", "--model", model))
    (left,) = kept(here)
    assert left["status"] == "running"
    ended = here("runs", "resume", left["id"], "--yes")
    assert (ended.code, ended.out) == (0, "All done.\n")
    with closing(sqlite3.connect(workspace / ".forge" / "durable.db")) as database:
        query = "SELECT claimed, started, gone FROM forge_workers ORDER BY started"
        (claimed, _, gone), (_, began, _) = database.execute(query).fetchall()
    assert claimed != left["worker"]
    assert gone - began < SILENT  # nobody waited for its silence: its process had ended
    assert lines(workspace / "done.txt") == ["one", "two", "three"]
    told = here("runs", "show", left["id"]).out
    assert told.count("its state is unknown") == 1
    assert len(here("session", "show", left["id"], "--json").json["messages"]) == 9


@pytest.mark.slow
def test_a_message_to_a_run_is_heard_before_its_next_turn(workspace, here):
    model = script(workspace, wrote("one"), "All done.")
    waits = here("run", "--durable", "go", "--json", "--model", model)  # nobody approves the call
    assert waits.code == 3
    (run,) = kept(here)
    sent = here("runs", "send", run["id"], "Leave the tests alone.")
    assert sent == (0, "", f"{run['id']} gets the message before its next turn.\n")
    assert here("runs", "answer", run["id"], "--yes").code == 0
    assert here("runs", "resume", run["id"], "--quiet") == (0, "All done.\n", "")
    shown = here("runs", "show", run["id"], "--json").json["messages"]
    assert [one["text"] for one in shown if one["role"] == "user"] == ["go", "Leave the tests alone."]
    late = here("runs", "send", run["id"], "Too late.")
    assert late.code != 0
    assert "--say" in late.err


def test_ctrl_c_cancels_the_run_and_it_can_go_on(workspace, here):
    model = script(workspace, wrote("two", "; sleep 60"), "All done.")
    with start(workspace, "run", "--durable", "go", "--yes", "--model", model) as process:
        until(lambda: lines(workspace / "done.txt"))
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, err
    assert "Stopping; Ctrl-C again leaves at once." in err.decode()
    (run,) = kept(here)
    assert run["status"] == "cancelled"
    assert f"run {run['id']} cancelled · resume: forge runs resume {run['id']}" in err.decode()
    assert here("runs", "resume", run["id"], "--quiet") == (0, "All done.\n", "")


@pytest.mark.slow
def test_where_nobody_reads_any_more_the_run_is_left_and_can_go_on(workspace, here):
    model = script(workspace, call("bash", "Some words. ", command="true"), wrote("two"), "All done.")
    with start(workspace, "run", "--durable", "go", "--yes", "--json", "--model", model) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(PATIENCE) == 1
    (run,) = kept(here)
    assert run["status"] != "cancelled"
    if run["status"] != "finished":
        assert here("runs", "resume", run["id"], "--quiet", "--yes") == (0, "All done.\n", "")
    assert lines(workspace / "done.txt") == ["two"]


@pytest.mark.slow
def test_a_second_ctrl_c_leaves_at_once(workspace, here):
    command = "trap '' INT TERM; echo two >> done.txt; sleep 60"
    model = script(workspace, call("bash", command=command), "All done.")
    with start(workspace, "run", "--durable", "go", "--yes", "--model", model) as process:
        until(lambda: lines(workspace / "done.txt"))
        process.send_signal(signal.SIGINT)
        said = process.stderr
        assert said is not None
        until(lambda: b"Stopping" in said.readline())
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert b"Traceback" not in err
    assert kept(here)[0]["status"] in ("running", "cancelled")
