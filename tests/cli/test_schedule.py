"""`forge schedule`: tasks by the clock, from the command line."""

from __future__ import annotations

import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from forge.cli import forge as whole_command
from forge.core.errors import ToolError
from forge.project.assemble import services as schedule_store
from forge.project.runs import scheduled_runs as schedules
from forge.schedules.runner import Runner
from forge.schedules.schedule import ScheduleOutcome
from forge.schedules.store import ScheduleStore


@pytest.fixture
def ran():
    """The tasks that were run."""
    return []


@pytest.fixture
def cli(here, workspace, ran, monkeypatch):
    """The command over a store of the workspace, with work that only notes what it is given."""

    async def run(schedule):
        ran.append(schedule.task)
        if schedule.task == "fail":
            return ScheduleOutcome(success=False, error="it \x1b[31mfailed")
        return ScheduleOutcome(text=f"did {schedule.task}", session="s")

    for name in ("project_schedules", "read_schedules"):
        monkeypatch.setattr(schedule_store, name, lambda options: ScheduleStore.of(workspace))
    monkeypatch.setattr(schedules, "make_runner", lambda options, model=None: Runner(ScheduleStore.of(workspace), run))
    monkeypatch.setitem(whole_command.modules, "schedule", "forge.cli.commands.schedule")
    return here


def test_a_schedule_is_added_listed_and_removed(cli):
    added = cli(
        "schedule", "add", "30 9 * * MON-FRI", "Count the stars", "--id", "stars", "--timezone", "Europe/Berlin"
    )
    assert (added.code, added.out) == (0, "")
    assert added.err.startswith("stars: At 09:30 on Monday through Friday (Europe/Berlin); next at ")
    [line] = cli("schedule", "list").out.splitlines()[1:]
    assert line.startswith("stars  30 9 * * MON-FRI (Europe/Berlin)  ")
    assert line.endswith("  person  Count the stars")
    assert cli("schedule", "remove", "stars").err == "stars is removed.\n"
    empty = cli("schedule", "list")
    assert (empty.code, empty.out, empty.err) == (0, "", "There are no schedules.\n")


def test_programs_read_json(cli):
    made = cli(
        "schedule",
        "add",
        "@daily",
        "Count",
        "--id",
        "stars",
        "--one-shot",
        "--channel",
        "me",
        "--target",
        "7",
        "--json",
    )
    assert {
        key: made.json[key] for key in ("id", "cron", "task", "enabled", "source", "one_shot", "channel_target")
    } == {
        "id": "stars",
        "cron": "@daily",
        "task": "Count",
        "enabled": True,
        "source": "person",
        "one_shot": True,
        "channel_target": "7",
    }
    assert cli("schedule", "list", "--json").json == {"schedules": [made.json]}
    assert cli("schedule", "history", "--json").json == {"history": []}
    assert cli("schedule", "remove", "stars", "--json").json == {"removed": "stars"}
    assert cli("schedule", "list", "--json").json == {"schedules": []}


def test_an_existing_one_is_replaced_and_stays_switched_off(cli):
    cli("schedule", "add", "@daily", "Count", "--id", "stars", "--disabled")
    assert "disabled" in cli("schedule", "add", "@hourly", "Count", "--id", "stars").err
    assert cli("schedule", "list", "--enabled", "--json").json == {"schedules": []}
    assert cli("schedule", "add", "@hourly", "Count", "--id", "stars", "--enabled", "--json").json["next_fire"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["add", "61 * * * *", "Count"], 'minute "61"'),
        (["add", "@daily", " "], "blank"),
        (["add", "@daily", "Count", "--id", "A B"], '"a-b"'),
        (["add", "@daily", "Count", "--timezone", "Berlin"], "Europe/Berlin"),
        (["remove", "nothing"], "no schedule"),
        (["history", "nothing"], "no schedule"),
        (["run", "nothing"], "no schedule"),
        (["run", "nothing", "--once"], "cannot be combined"),
        (["run", "--once", "--yes"], "--yes: it has no effect on `forge schedule run`"),
        (["add", "--cron", "@daily", "Count"], "--cron: CRON is given without one, in its place"),
        (["add", "@daily", "Count", "--timezon", "UTC"], "Did you mean --timezone?"),
    ],
)
def test_what_cannot_be_is_exit_code_2(cli, arguments, said):
    ended = cli("schedule", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err


def test_names_that_nothing_has_are_said_when_it_is_added(cli, workspace):
    assert "no channel 'nobody'" in cli("schedule", "add", "@daily", "Count", "--channel", "nobody").err
    assert "no skill 'nothing'" in cli("schedule", "add", "@daily", "Count", "--skill", "nothing").err
    config = workspace / "team.yaml"
    config.write_text("channels: {team: {type: terminal}}")
    ended = cli("schedule", "add", "@daily", "C", "--channel", "team", "--skill", "code-agent", "--config", str(config))
    assert (ended.code, len(ended.err.splitlines())) == (0, 2)
    assert ended.err.splitlines()[1].startswith("It runs while one of these does: forge schedule run")


def test_one_is_run_now(cli, ran):
    cli("schedule", "add", "@yearly", "Count", "--id", "stars")
    ended = cli("schedule", "run", "stars")
    assert (ended.code, ended.out, ran) == (0, "did Count\n", ["Count"])
    assert "stars  completed in " in ended.err
    assert [one["status"] for one in cli("schedule", "history", "stars", "--json").json["history"]] == ["completed"]
    assert "  stars  completed  " in cli("schedule", "history").out


def test_a_run_that_fails_is_exit_code_1_and_shown_without_harm(cli):
    cli("schedule", "add", "@yearly", "fail", "--id", "bad")
    ended = cli("schedule", "run", "bad")
    assert ended.code == 1
    assert "it ⟨U+001B⟩[31mfailed" in ended.err
    assert "\x1b" not in cli("schedule", "history").out
    lines = cli("schedule", "run", "bad", "--json").lines
    assert [line["status"] for line in lines] == ["running", "failed"]


def test_what_is_due_is_run_once(cli, workspace, ran):
    cli("schedule", "add", "@yearly", "Later", "--id", "later")
    cli("schedule", "add", "@yearly", "Count", "--id", "stars")
    with ScheduleStore.of(workspace) as store, store._store.write_transaction() as connection:
        connection.execute("UPDATE schedules SET next_fire = 1 WHERE id = 'stars'")
    ended = cli("schedule", "run", "--once", "--json")
    assert (ended.code, ran) == (0, ["Count"])
    assert [line["status"] for line in ended.lines] == ["running", "completed"]
    assert cli("schedule", "run", "--once").code == 0
    assert ran == ["Count"]


def test_a_service_is_stopped_by_a_signal_and_ends_well(cli, workspace, ran, monkeypatch):
    cli("schedule", "add", "@yearly", "Count", "--id", "stars")
    with ScheduleStore.of(workspace) as store, store._store.write_transaction() as connection:
        connection.execute("UPDATE schedules SET next_fire = 1")
    make = schedules.make_runner

    def stopping(options, model=None):
        made = make(options, model)
        work = made._run

        async def run(schedule):
            outcome = await work(schedule)
            signal.raise_signal(signal.SIGTERM)
            return outcome

        made._run = run
        return made

    monkeypatch.setattr(schedules, "make_runner", stopping)
    ended = cli("schedule", "run")
    assert (ended.code, ran) == (0, ["Count"])
    assert "1 schedule is enabled" in ended.err


def test_a_task_cannot_pass_for_a_line_of_the_list(cli):
    cli("schedule", "add", "@daily", "Count\nforged  * * * * *\r\x1b[2J", "--id", "stars")
    assert len(cli("schedule", "list").out.splitlines()) == 2


def test_what_the_configuration_declares_comes_back_and_says_so(cli, workspace):
    with ScheduleStore.of(workspace) as store:
        store.declare([{"id": "nightly", "cron": "0 3 * * *", "task": "Count"}])
    assert cli("schedule", "list").out.splitlines()[1].endswith("  forge.yaml  Count")
    assert cli("schedule", "add", "@daily", "Mine", "--id", "nightly").code == 2
    assert "comes back" in cli("schedule", "remove", "nightly").err


def tamper(workspace: Path, *statements: str) -> None:
    """Does what a program can do that reaches `.forge`."""
    with closing(sqlite3.connect(workspace / ".forge" / "state.db", isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


COPY = "INSERT INTO schedules SELECT 'planted', {} FROM schedules WHERE id = 'stars'".format(
    "cron, 'steal', timezone, enabled, one_shot, skill, channel, channel_target, source, origin, created, updated,"
    " next_fire, last_fire, anchor, planned, spent, command, seal"
)
TAMPERED = {
    "another task": "UPDATE schedules SET task = 'steal' WHERE id = 'stars'",
    "a command": "UPDATE schedules SET command = 1 WHERE id = 'stars'",
    "another target": "UPDATE schedules SET channel_target = 'eve' WHERE id = 'stars'",
    "another author": "UPDATE schedules SET source = 'model' WHERE id = 'stars'",
    "no author": "UPDATE schedules SET source = 'nobody', task = x'00ff' WHERE id = 'stars'",
    "no seal": "UPDATE schedules SET seal = '' WHERE id = 'stars'",
    "a copy": COPY,
    "switched on": "UPDATE schedules SET enabled = 1 WHERE id = 'off'",
}


@pytest.mark.parametrize("how", TAMPERED)
def test_a_schedule_that_forge_did_not_store_does_not_run(cli, workspace, ran, how):
    cli("schedule", "add", "@yearly", "Count", "--id", "stars")
    cli("schedule", "add", "@yearly", "Sleep", "--id", "off", "--disabled")
    cli("schedule", "add", "@yearly", "Fine", "--id", "fine")
    changed = {"a copy": "planted", "switched on": "off"}.get(how, "stars")
    tamper(workspace, TAMPERED[how], f"UPDATE schedules SET next_fire = 1 WHERE id IN ('{changed}', 'fine')")
    assert f"{changed} does not run: it " in cli("schedule", "list").err
    ended = cli("schedule", "run", "--once")
    assert ran == ["Fine"]
    assert f"{changed}  failed: it was not run, and is disabled: it " in ended.err
    if how == "switched on":  # it is again what the person stored
        return
    refused = cli("schedule", "run", changed)
    assert (refused.code, ran) == (2, ["Fine"])
    assert f'Check what it runs, then `forge schedule enable "{changed}"`' in refused.err
    if how == "no author":  # there is nothing to accept
        return
    accepted = cli("schedule", "enable", changed)
    assert accepted.code == 0, accepted.err
    assert cli("schedule", "run", changed).code == 0
    assert len(ran) == 2


def test_nothing_of_a_changed_schedule_is_kept_when_it_is_added_again(cli, workspace, ran):
    cli("schedule", "add", "@yearly", "Count", "--id", "stars")
    tamper(workspace, "UPDATE schedules SET command = 1, channel_target = 'eve', source = 'model'")
    with ScheduleStore.of(workspace) as store, pytest.raises(ToolError, match="only a person may change"):
        store.set(id="stars", cron="@daily", task="Count")
    made = cli("schedule", "add", "@daily", "Count", "--id", "stars", "--json").json
    assert (made["command"], made["channel_target"], made["problem"]) == (False, None, None)
    assert cli("schedule", "run", "stars").code == 0
    assert ran == ["Count"]


def test_a_declared_schedule_is_declared_again(cli, workspace, ran):
    declared = [{"id": "nightly", "cron": "0 3 * * *", "task": "Count"}]
    with ScheduleStore.of(workspace) as store:
        store.declare(declared)
        tamper(workspace, "UPDATE schedules SET task = 'steal'")
        assert store.get("nightly").problem
        store.declare(declared)
    assert cli("schedule", "run", "nightly").code == 0
    assert ran == ["Count"]


def test_a_lost_key_stops_schedules_until_a_person_enables_them(cli, workspace, ran, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    cli("schedule", "add", "@yearly", "Count", "--id", "stars")
    (tmp_path / "settings" / "forge" / "state.key").unlink()
    refused = cli("schedule", "run", "stars")
    assert (refused.code, ran) == (2, [])
    assert "sealed with another key" in refused.err
    cli("schedule", "enable", "stars")
    assert cli("schedule", "run", "stars").code == 0


def test_without_a_place_for_a_key_schedules_run(cli, workspace, ran, monkeypatch, tmp_path):
    (tmp_path / "no-folder").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "no-folder"))
    cli("schedule", "add", "@yearly", "Count", "--id", "stars")
    assert cli("schedule", "run", "stars").code == 0
    assert ran == ["Count"]


@pytest.fixture
def runs(workspace):
    """The database of the workspace's workers."""
    pytest.importorskip("dbos")
    from forge.durable.store import RunStore
    from forge.project.config import Configuration
    from forge.project.runs.durable_runs import make_own_file, project_database

    make_own_file(workspace)
    with RunStore(project_database(Configuration(), workspace)) as store:
        store.prepare()
        yield store


def fired(runs: Any, schedule: str, time: str, status: Any = "finished", **result: Any) -> str:
    from forge.durable.store.rows import NewRun, Outcome

    run = f"sched-{schedule}-{time}"
    runs.create(NewRun(id=run, scope={"schedule": schedule}))
    if status != "queued":
        runs.begin(run, 1, "w")
        runs.close_segment(run, 1, Outcome(status=status, messages=(), spent={}, result=result or None))
    return run


def test_what_workers_ran_is_in_the_history(here, workspace, runs):
    first = fired(runs, "nightly", "20261115T030000Z", text="all is well", reason="answer")
    fired(runs, "nightly-b", "20261115T040000Z", "failed", text="", reason="max_turns", error={"message": "it \x1b[1m"})
    last = fired(runs, "nightly", "20261116T030000Z", "queued")
    shown = here("schedule", "history", "nightly", "--json").json["history"]
    assert [(one["run"], one["status"], one["result"]) for one in shown] == [
        (last, "running", None),
        (first, "completed", "all is well"),
    ]
    assert shown[1]["due"] == "2026-11-15T03:00:00Z"
    table = here("schedule", "history").out
    assert [line.split()[2] for line in table.splitlines()[1:]] == ["nightly", "nightly-b", "nightly"]
    assert "\x1b" not in table
    assert len(here("schedule", "history", "--limit", "2", "--json").json["history"]) == 2
    unknown = here("schedule", "history", "night")
    assert (unknown.code, "there is no schedule" in unknown.err) == (2, True)


def test_what_workers_fired_is_not_fired_again_and_the_rest_is(here, workspace, runs):
    from forge.durable.store.rows import NewRun
    from forge.durable.worker.schedules import StoredOccurrences, prepare, run_id_of
    from forge.schedules.schedule import claim_due

    now, long_ago = time.time(), time.time() - 400 * 86_400
    (workspace / "script.json").write_text('["done"]')
    with ScheduleStore(workspace / ".forge" / "state.db", lambda: long_ago) as store:
        theirs = store.set(cron="@yearly", task="theirs", id="theirs")
        store.set(cron="@yearly", task="mine", id="mine")
    prepare(runs.database)
    workers = StoredOccurrences(
        runs.database, lambda due: NewRun(id=run_id_of(due), scope={"schedule": due.schedule.id})
    )
    claim_due(workers, {"theirs": theirs}, long_ago)
    assert len(claim_due(workers, {"theirs": theirs}, now).claims) == 1
    done = here("schedule", "run", "--once", "--json", "--model", f"scripted:{workspace / 'script.json'}")
    assert (done.code, [(one["schedule_id"], one["status"]) for one in done.lines]) == (
        0,
        [("mine", "running"), ("mine", "completed")],
    ), done.err
    assert sorted(one["schedule_id"] for one in here("schedule", "history", "--json").json["history"]) == [
        "mine",
        "theirs",
    ]
    assert claim_due(workers, {"mine": store.get("mine")}, now).claims == []


def test_a_database_that_is_away_is_said_before_anything_is_due(here, workspace, runs, monkeypatch):
    (workspace / "script.json").write_text('["done"]')
    monkeypatch.setenv("FORGE_DATABASE", "postgresql://nobody@127.0.0.1:9/nothing")
    away = here("schedule", "run", "--once", "--model", f"scripted:{workspace / 'script.json'}")
    assert away.code == 2
    monkeypatch.delenv("FORGE_DATABASE")
    assert here("schedule", "run", "--once", "--model", f"scripted:{workspace / 'script.json'}").code == 0


def test_a_command_runs_without_a_model(here, workspace, monkeypatch):
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL", "FORGE_MODEL"):
        monkeypatch.delenv(name, raising=False)
    rules = workspace / "rules"
    rules.write_text("allow execute touch *\n")
    added = here("schedule", "add", "@yearly", "touch made", "--id", "make", "--command", "--json")
    assert added.json["command"] is True
    here("schedule", "add", "@yearly", "mkdir made-too", "--id", "refused", "--command")
    ended = here("schedule", "run", "make", "--policy", str(rules))
    assert ended.code == 0, ended.err
    assert (workspace / "made").exists()
    refused = here("schedule", "run", "refused", "--policy", str(rules))
    assert refused.code == 1
    assert not (workspace / "made-too").exists()
    (last, *_) = here("schedule", "history", "refused", "--json").json["history"]
    assert last["status"] == "failed"
    assert "the command failed" in last["error"]
