"""Schedules that are kept: made, changed, declared, claimed; with clocks that jump."""

from __future__ import annotations

import pytest

from forge.core.errors import ErrorKind, ToolError
from forge.schedules import tables
from forge.schedules.schedule import ScheduleOutcome, Source, Status
from forge.schedules.store import ScheduleStore
from tests.schedules.clocks import at, shown

NIGHTLY = {"id": "nightly", "cron": "0 3 * * *", "task": "Count the stars"}


def made(store, **changes):
    return store.set(**{**NIGHTLY, **changes})


def fired(store, owner="one", free=10):
    """What a runner gets, each run to its end at once."""
    found = store.tick(owner, free)
    for claim in found.claims:
        store.finish(claim.run.id, Status.COMPLETED, ScheduleOutcome(text="done"), 1.5)
    return [(claim.schedule.id, shown(claim.run.due)) for claim in found.claims]


# what is set


def test_everything_comes_back_in_another_process(store, path):
    given = made(
        store, timezone="europe/berlin", skill="astronomy", channel="team", channel_target="#stars", one_shot=True
    )
    assert shown(given.next_fire, "Europe/Berlin") == "2026-11-16 03:00"
    with ScheduleStore(path) as other:
        assert other.get("nightly") == given
        assert other.list() == [given]


def test_a_schedule_without_an_id_gets_one_and_the_same_task_the_same(store):
    first = store.set(cron="@daily", task="Water the plants")
    assert first.id.startswith("water-the-plants-")
    again = store.set(cron="@hourly", task="Water the plants")
    assert (again.id, again.cron) == (first.id, "@hourly")
    assert len(store.list()) == 1


def test_whether_it_is_enabled_is_kept_on_a_change(store):
    assert made(store).enabled
    assert not made(store, enabled=False).enabled
    changed = made(store, task="Count the planets")
    assert (changed.enabled, changed.next_fire, changed.task) == (False, None, "Count the planets")
    assert made(store, enabled=True).next_fire is not None
    assert made(store, task="Again").enabled


def test_a_change_of_the_task_does_not_move_the_times(store, clocks):
    first = made(store, cron="@every 1h")
    clocks.pass_(1_800)
    assert made(store, cron="@every 1h", task="Something else").next_fire == first.next_fire
    assert made(store, cron="@every 2h").next_fire == clocks.wall + 7_200


def test_a_missed_time_is_not_lost_by_setting_the_same_again(store, clocks):
    first = made(store)
    clocks.pass_(86_400)
    assert made(store).next_fire == first.next_fire
    assert fired(store) == [("nightly", "2026-11-16 03:00")]


def test_only_enabled_ones_are_listed_on_request(store):
    made(store)
    made(store, id="off", enabled=False)
    assert [one.id for one in store.list()] == ["nightly", "off"]
    assert [one.id for one in store.list(enabled_only=True)] == ["nightly"]


@pytest.mark.parametrize(
    "wrong",
    [{"cron": "61 * * * *"}, {"task": " "}, {"id": "Nightly!"}, {"timezone": "Mars/Olympus"}, {"channel": "a\nb"}],
)
def test_what_cannot_be_set_changes_nothing(store, wrong):
    before = made(store)
    with pytest.raises(ToolError) as caught:
        made(store, **wrong)
    assert caught.value.kind is ErrorKind.VALIDATION
    assert store.list() == [before]


def test_a_removed_one_is_gone_and_its_history_stays(store, clocks):
    made(store)
    clocks.pass_(86_400)
    fired(store)
    store.delete("nightly")
    assert store.list() == []
    assert [run.status for run in store.history("nightly")] == [Status.COMPLETED]


def test_an_unknown_id_is_explained(store):
    with pytest.raises(ToolError) as caught:
        store.delete("nightly")
    assert caught.value.suggestion == "There are no schedules yet."
    made(store)
    for use in (store.delete, store.get, store.history):
        with pytest.raises(ToolError) as caught:
            use("nihgtly\ud800"[:7])
        assert (caught.value.kind, caught.value.suggestion) == (ErrorKind.NOT_FOUND, 'Did you mean "nightly"?')


def test_a_task_is_only_ever_a_task(store):
    nasty = "x'); DELETE FROM schedules; --\n- id: forged\n  cron: '* * * * *'\n\x1b[2J\u2028forged"
    made(store, task=nasty, channel_target="'); DROP TABLE schedules; --")
    made(store, id="other")
    assert [one.id for one in store.list()] == ["nightly", "other"]
    assert store.get("nightly").task == nasty


def test_there_is_a_limit(store, monkeypatch):
    monkeypatch.setattr(tables, "MOST_SCHEDULES", 2)
    made(store, id="one")
    made(store, id="two")
    with pytest.raises(ToolError):
        made(store, id="three")
    made(store, id="two", task="Changed")
    with pytest.raises(ToolError):
        store.declare([{**NIGHTLY}])
    assert len(store.list()) == 2


# what is declared


def test_declared_schedules_cannot_be_changed_or_removed_by_a_model(store):
    store.declare([NIGHTLY])
    assert store.get("nightly").source is Source.CONFIG
    for change in (
        lambda: made(store, task="Mine now"),
        lambda: store.delete("nightly"),
        lambda: store.draft(**NIGHTLY),
    ):
        with pytest.raises(ToolError) as caught:
            change()
        assert caught.value.kind is ErrorKind.PERMISSION
        assert "forge.yaml" in caught.value.suggestion
    assert store.get("nightly").task == "Count the stars"
    made(store, id="mine")
    store.delete("mine")
    store.delete("nightly", Source.PERSON)
    assert store.list() == []


def test_declaring_again_changes_only_what_is_different(store, clocks):
    store.declare([NIGHTLY, {**NIGHTLY, "id": "second"}])
    made(store, id="models")
    planned = store.get("nightly")
    clocks.pass_(86_400)
    store.declare([NIGHTLY, {**NIGHTLY, "id": "third", "timezone": "+02:00"}])
    assert [one.id for one in store.list()] == ["models", "nightly", "third"]
    assert store.get("nightly") == planned  # what was missed while nobody ran it is still due
    store.declare([])
    assert [one.id for one in store.list()] == ["models"]


def test_two_configurations_do_not_remove_each_others(store):
    store.declare([NIGHTLY], "one.yaml")
    store.declare([{**NIGHTLY, "id": "other"}], "two.yaml")
    store.declare([NIGHTLY], "one.yaml")
    assert [(one.id, one.origin) for one in store.list()] == [("nightly", "one.yaml"), ("other", "two.yaml")]


def test_a_declaration_takes_over_what_a_model_made(store):
    made(store, task="The model's")
    store.declare([NIGHTLY])
    assert (store.get("nightly").task, store.get("nightly").source) == ("Count the stars", Source.CONFIG)


def test_a_declared_one_shot_fires_once_however_often_it_is_declared(store, clocks):
    once = {**NIGHTLY, "one_shot": True}
    store.declare([once])
    clocks.pass_(86_400)
    assert len(fired(store)) == 1
    store.declare([once])
    store.declare([{**once, "task": "Count them again"}])
    clocks.pass_(86_400)
    assert fired(store) == []
    store.declare([{**once, "cron": "0 4 * * *"}])
    clocks.pass_(86_400)
    assert len(fired(store)) == 1


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"cron": "@daily"}, "task is missing"),
        ({**NIGHTLY, "corn": "x"}, "schedules[1].corn: unknown key"),
        ({**NIGHTLY, "id": 5}, "schedules[1].id: expected a string"),
        ({**NIGHTLY, "enabled": "yes"}, "schedules[1].enabled: expected true or false"),
        ({**NIGHTLY, "id": "b", "cron": "x"}, 'schedules[1]: cron "x"'),
        (NIGHTLY, "already"),
    ],
)
def test_a_wrong_declaration_is_named_and_changes_nothing(store, entry, said):
    with pytest.raises(ToolError) as caught:
        store.declare([NIGHTLY, entry])
    assert caught.value.kind is ErrorKind.CONFIG
    assert said in caught.value.message
    assert store.list() == []


# what is due


def test_a_due_time_is_claimed_once(store, clocks, path):
    made(store)
    assert fired(store) == []
    clocks.set("2026-11-16 03:00")
    with ScheduleStore(path, lambda: clocks.wall, lambda: clocks.steady) as other:
        assert fired(store) + fired(other, "two") == [("nightly", "2026-11-16 03:00")]
    assert shown(store.get("nightly").next_fire) == "2026-11-17 03:00"
    assert store.get("nightly").last_fire == clocks.wall


def test_what_was_missed_fires_once(store, clocks):
    made(store)
    clocks.set("2026-11-20 12:00")
    assert fired(store) == [("nightly", "2026-11-16 03:00")]
    assert fired(store) == []
    assert shown(store.next_due()) == "2026-11-21 03:00"


def test_what_was_missed_while_switched_off_does_not_fire(store, clocks):
    made(store, enabled=False)
    clocks.set("2026-11-20 12:00")
    made(store, enabled=True)
    assert fired(store) == []


def test_the_oldest_are_claimed_first_and_no_more_than_there_is_room(store, clocks):
    for hour in (5, 3, 4):
        made(store, id=f"at-{hour}", cron=f"0 {hour} * * *")
    clocks.set("2026-11-16 12:00")
    assert [name for name, _ in fired(store, free=2)] == ["at-3", "at-4"]
    assert fired(store, free=0) == []
    assert [name for name, _ in fired(store)] == ["at-5"]


def test_a_run_that_is_active_at_its_next_time_is_skipped(store, clocks):
    made(store, cron="* * * * *")
    clocks.pass_(60)
    [claim] = store.tick("one", 1).claims
    for _ in range(2):
        clocks.pass_(50)
        store.beat([claim.run.id])
        clocks.pass_(10)
        found = store.tick("two", 0)
        assert (found.claims, [run.status for run in found.skipped]) == ([], [Status.SKIPPED])
    store.finish(claim.run.id, Status.COMPLETED, ScheduleOutcome(), 120.0)
    clocks.pass_(60)
    assert len(fired(store)) == 1
    assert [run.status for run in store.history()] == ["completed", "skipped", "skipped", "completed"]


def test_a_one_shot_fires_once_and_may_be_set_again(store, clocks):
    made(store, one_shot=True)
    clocks.set("2026-11-16 03:00")
    assert len(fired(store)) == 1
    spent = store.get("nightly")
    assert (spent.enabled, spent.next_fire) == (False, None)
    clocks.pass_(86_400)
    assert fired(store) == []
    assert made(store, one_shot=True).enabled
    clocks.pass_(86_400)
    assert len(fired(store)) == 1


def test_a_one_shot_that_is_running_already_waits_for_its_turn(store, clocks):
    made(store, one_shot=True)
    claim = store.start("one", "nightly")
    clocks.wall = at("2026-11-16 03:00")
    found = store.tick("two", 1)
    assert (found.claims, found.skipped) == ([], [])
    store.finish(claim.run.id, Status.COMPLETED, ScheduleOutcome(), 1.0)
    assert fired(store) == [("nightly", "2026-11-16 03:00")]


def test_running_now_changes_no_plan(store, clocks):
    planned = made(store, enabled=False)
    claim = store.start("one", "nightly")
    with pytest.raises(ToolError) as caught:
        store.start("two", "nightly")
    assert "already running" in caught.value.message
    store.finish(claim.run.id, Status.COMPLETED, ScheduleOutcome(), 1.0)
    assert store.start("two", "nightly")
    assert store.get("nightly").next_fire == planned.next_fire


def test_a_zone_that_is_gone_fails_that_schedule_alone(store, clocks):
    made(store)
    made(store, id="other")
    with store._store.write_transaction() as connection:
        connection.execute("UPDATE schedules SET timezone = 'Mars/Olympus' WHERE id = 'nightly'")
    clocks.pass_(86_400)
    found = store.tick("one", 10)
    assert [claim.schedule.id for claim in found.claims] == ["other"]
    assert [(run.schedule_id, run.status) for run in found.skipped] == [("nightly", Status.FAILED)]
    assert "Mars/Olympus" in store.history("nightly")[0].error
    assert not store.get("nightly").enabled
    assert store.get("nightly").to_dict()["next_fire"] is None


# runners that die


def test_a_killed_runners_claim_is_lost_and_the_next_time_fires(store, clocks):
    made(store, cron="* * * * *")
    clocks.pass_(60)
    assert store.tick("dead", 1).claims
    clocks.pass_(59)
    assert not store.tick("two", 1).lost
    clocks.pass_(2)
    found = store.tick("two", 1)
    assert [(run.status, run.schedule_id) for run in found.lost] == [(Status.LOST, "nightly")]
    assert "unknown" in found.lost[0].error
    assert len(found.claims) == 1


def test_signs_of_life_keep_a_claim(store, clocks):
    made(store)
    claim = store.start("one", "nightly")
    for _ in range(10):
        clocks.pass_(30)
        assert store.beat([claim.run.id]) == []
        assert not store.tick("two", 1).lost
    assert store.finish(claim.run.id, Status.COMPLETED, ScheduleOutcome(text="late"), 300.0).status is Status.COMPLETED


def test_a_clock_that_jumps_loses_no_run(store, clocks):
    made(store)
    store.start("one", "nightly")
    for moment in ("2099-01-01 00:00", "1999-01-01 00:00", "2026-11-15 12:00"):
        clocks.set(moment)
        assert not store.tick("two", 0).lost


def test_after_a_restart_of_the_machine_what_ran_is_lost(store, clocks):
    made(store)
    store.start("one", "nightly")
    clocks.steady = 5.0
    assert [run.status for run in store.tick("two", 1).lost] == [Status.LOST]


def test_a_runner_that_only_slept_takes_its_run_up_again(store, clocks):
    made(store)
    claim = store.start("slept", "nightly")
    clocks.pass_(600)
    assert store.tick("two", 0).lost
    assert store.beat([claim.run.id]) == []
    assert store.run(claim.run.id).status is Status.RUNNING


def test_a_runner_that_was_overtaken_is_told_to_stop(store, clocks):
    made(store)
    claim = store.start("slept", "nightly")
    clocks.pass_(600)
    other = store.start("two", "nightly")
    assert store.beat([claim.run.id]) == [claim.run.id]
    assert store.beat([other.run.id]) == []
    assert store.run(claim.run.id).status is Status.LOST


def test_an_end_that_comes_late_is_the_truth(store, clocks):
    made(store)
    claim = store.start("slept", "nightly")
    clocks.pass_(600)
    store.tick("two", 0)
    assert store.finish(claim.run.id, Status.COMPLETED, ScheduleOutcome(text="done"), 600.0).status is Status.COMPLETED


# clocks that are set


def test_a_clock_that_was_far_ahead_does_not_stop_a_schedule(store, clocks):
    clocks.set("2099-06-01 12:00")
    made(store)
    clocks.set("2026-11-15 12:00")
    assert fired(store) == []
    assert shown(store.next_due()) == "2026-11-16 03:00"


@pytest.mark.parametrize("rule", ["* * * * *", "@every 5m", "@hourly", "0 3 * * *"])
def test_after_a_step_back_a_schedule_waits_little_longer_than_ever(store, clocks, rule):
    made(store, cron=rule)
    clocks.set("2026-11-16 03:00")
    fired(store)
    usual = store.next_due() - clocks.wall
    for back in (60, 600, 4_000, 12_000, 100_000, 10_000_000):
        clocks.wall -= back
        fired(store)
        assert store.next_due() - clocks.wall <= 2 * usual + 300


def test_a_small_step_back_fires_nothing_twice(store, clocks):
    made(store)
    made(store, id="often", cron="* * * * *")
    clocks.set("2026-11-16 03:00")
    assert len(fired(store)) == 2
    clocks.set("2026-11-16 02:57")
    found = []
    while clocks.wall < at("2026-11-16 03:02"):
        found += fired(store)
        clocks.pass_(20)
    assert found == [("often", "2026-11-16 03:01")]


def test_a_daily_time_is_not_repeated_when_the_clock_goes_back_an_hour(store, clocks):
    made(store)
    clocks.set("2026-11-16 03:10")
    assert len(fired(store)) == 1
    clocks.set("2026-11-16 02:10")
    fired(store)
    assert shown(store.next_due()) == "2026-11-17 03:00"


def test_a_jump_forward_fires_once_and_back_again_nothing_is_stuck(store, clocks):
    made(store, cron="@hourly")
    clocks.set("2026-12-24 18:30")
    assert len(fired(store)) == 1
    clocks.set("2026-11-15 12:00")
    assert fired(store) == []
    assert shown(store.next_due()) == "2026-11-15 13:00"


# history


def test_history_says_how_it_went(store, clocks):
    made(store)
    claim = store.start("one", "nightly")
    assert store.history()[0].to_dict() == {
        "schedule_id": "nightly",
        "status": "running",
        "due": "2026-11-15T12:00:00Z",
        "started": "2026-11-15T12:00:00Z",
        "duration": None,
        "error": None,
        "result": None,
        "session": None,
        "run": claim.run.id,
    }
    store.finish(claim.run.id, Status.FAILED, ScheduleOutcome(success=False, error="no stars", session="s1"), 2.0)
    shown_run = store.history("nightly")[0].to_dict()
    assert (shown_run["status"], shown_run["duration"], shown_run["error"]) == ("failed", 2.0, "no stars")


def test_history_is_bounded_and_skips_push_out_nothing_else(store, clocks, monkeypatch):
    monkeypatch.setattr(tables, "MOST_RUNS", 3)
    made(store, cron="* * * * *")
    for _ in range(5):
        clocks.pass_(60)
        fired(store)
    claim = store.start("one", "nightly")
    for _ in range(6):
        store.beat([claim.run.id])
        clocks.pass_(60)
        store.tick("two", 1)
    statuses = [str(run.status) for run in store.history("nightly", 50)]
    assert statuses == ["skipped"] * 3 + ["running"] + ["completed"] * 3
    monkeypatch.setattr(tables, "MOST_RUNS_IN_ALL", 2)
    store.finish(claim.run.id, Status.COMPLETED, ScheduleOutcome(), 1.0)
    clocks.pass_(60)
    fired(store)
    assert len(store.history(limit=50)) <= 2


def test_what_a_run_said_is_cut(store):
    made(store)
    claim = store.start("one", "nightly")
    run = store.finish(claim.run.id, Status.COMPLETED, ScheduleOutcome(text="é" * 1_000_000, error="\ud800"), 1.0)
    assert len(run.result.encode()) <= 4_000
    assert run.error == "?"
