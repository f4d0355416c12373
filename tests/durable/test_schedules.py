"""What is due begins one run, however many workers look at the clock, and however often they start anew."""

from __future__ import annotations

import asyncio
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from forge.agent.agent import Agent
from forge.core.errors import ToolError
from forge.core.messages import Message, ToolCall
from forge.core.tool import tool
from forge.durable.engine.agents import prepare_for_worker
from forge.durable.engine.engine import make_context
from forge.durable.engine.start_segments import Starter
from forge.durable.store import RunStore
from forge.durable.store.find import RunFilter
from forge.durable.store.rows import NewRun, Outcome, RunInfo
from forge.durable.worker.housekeeping import deliver_ended
from forge.durable.worker.schedules import Schedules, fire_due
from forge.permissions.questions import approve_all
from forge.schedules.cron import Cron
from forge.schedules.schedule import Due, Progress, Schedule, latest_time
from forge.workspace.state.store import StoreError
from tests.durable.working import ended, script, working

MINUTE, HOUR, DAY = 60.0, 3_600.0, 86_400.0


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


START = at("2026-11-15T12:00:30Z")


def schedule(cron: str = "0 * * * *", id: str = "nightly", **more: Any) -> Schedule:
    return Schedule(id=id, cron=cron, task="look at the logs", **more)


class Noting(Starter):
    """In the place of the queues: notes what would be queued."""

    def __init__(self, store: RunStore) -> None:
        super().__init__(store)
        self.started: list[str] = []

    def start(self, run: RunInfo) -> None:
        self.started.append(run.id)


class Home:
    """A worker as far as schedules are concerned."""

    def __init__(self, store: RunStore) -> None:
        self.store, self.starter = store, Noting(store)
        agent = prepare_for_worker(Agent(script("hi"), instructions="You watch."))
        self.context = replace(make_context(store, [agent], worker="w", version="7"), starter=self.starter)

    @property
    def started(self) -> list[str]:
        return self.starter.started


def over(store: RunStore) -> None:
    """All runs, as if they had been worked on."""
    for run in store.list(RunFilter(status="queued")):
        store.begin(run.id, run.segment, "w")
        store.close_segment(run.id, run.segment, Outcome(status="finished", messages=(), spent={}))


async def fired(home: Home, schedules: Schedules, *moments: float) -> list[str]:
    found = []
    for moment in moments:
        found += [run.id for run in await fire_due(home.context, schedules, moment)]
        over(home.store)
    return found


async def test_a_time_that_comes_begins_a_run_of_a_name_that_all_know(store: RunStore) -> None:
    home, schedules = Home(store), Schedules([schedule()], prompt=lambda one: f"{one.task}!")
    assert await fired(home, schedules, START, START + 50 * MINUTE) == []
    assert await fired(home, schedules, START + HOUR, START + HOUR + 1) == ["sched-nightly-20261115T130000Z"]
    run = store.get("sched-nightly-20261115T130000Z")
    assert (run.prompt, run.agent, run.version, run.scope) == (
        "look at the logs!",
        "main",
        "7",
        {"schedule": "nightly"},
    )
    assert store.messages(run.id) == [Message("system", "You watch."), Message("user", "look at the logs!")]
    assert home.started == [run.id]


async def test_nothing_before_it_was_first_seen_is_made_up_for(store: RunStore) -> None:
    home, schedules = Home(store), Schedules([schedule("* * * * *")])
    assert await fired(home, schedules, at("2026-11-15T12:00:00Z")) == []  # due this very moment, and seen just now
    assert len(await fired(home, schedules, at("2026-11-15T12:01:00Z"))) == 1
    changed = Schedules([schedule("30 11 * * *")])  # another rule is another schedule
    assert await fired(home, changed, at("2026-11-15T12:05:00Z")) == []


async def test_after_a_pause_the_latest_time_is_made_up_for_and_only_that(store: RunStore) -> None:
    home = Home(store)
    await fired(home, Schedules([schedule("*/5 * * * *")]), START)
    restarted = Schedules([schedule("*/5 * * * *")])
    assert await fired(home, restarted, START + 3 * DAY, START + 3 * DAY + 1) == ["sched-nightly-20261118T120000Z"]
    assert await fired(home, restarted, START + 3 * DAY + 5 * MINUTE) == ["sched-nightly-20261118T120500Z"]


async def test_intervals_count_from_when_they_were_first_seen(store: RunStore) -> None:
    home = Home(store)
    assert await fired(home, Schedules([schedule("@every 90m")]), START, START + 89 * MINUTE) == []
    again = Schedules([schedule("@every 90m")])
    assert await fired(home, again, START + 90 * MINUTE) == ["sched-nightly-20261115T133030Z"]
    assert await fired(home, again, START + 10 * HOUR) == ["sched-nightly-20261115T210030Z"]


async def test_a_one_shot_fires_once_for_ever(store: RunStore) -> None:
    home = Home(store)
    once = [schedule("0 13 * * *", one_shot=True)]
    assert len(await fired(home, Schedules(once), START, START + HOUR)) == 1
    assert await fired(home, Schedules(once), START + DAY + HOUR, START + 9 * DAY) == []


async def test_what_is_switched_off_goes_by(store: RunStore) -> None:
    home = Home(store)
    on, off = Schedules([schedule()]), Schedules([schedule(enabled=False)])
    await fired(home, on, START)
    assert await fired(home, off, START + HOUR, START + 2 * HOUR) == []
    assert await fired(home, on, START + 2 * HOUR + MINUTE) == []  # not made up for
    assert len(await fired(home, on, START + 3 * HOUR)) == 1


async def test_nothing_begins_while_the_run_before_is_at_work(store: RunStore) -> None:
    home, schedules = Home(store), Schedules([schedule()])
    await fire_due(home.context, schedules, START)
    (first,) = await fire_due(home.context, schedules, START + HOUR)
    assert await fire_due(home.context, schedules, START + 2 * HOUR) == []
    store.begin(first.id, 1, "w")
    assert await fire_due(home.context, schedules, START + 3 * HOUR) == []
    over(store)
    store.close_segment(first.id, 1, Outcome(status="finished", messages=(), spent={}))
    assert await fire_due(home.context, schedules, START + 3 * HOUR + MINUTE) == []  # what was left out stays left out
    assert len(await fire_due(home.context, schedules, START + 4 * HOUR)) == 1


async def test_a_run_of_that_name_is_the_run(store: RunStore) -> None:
    """Whatever became of our table: a restored backup, two configurations with another task."""
    home, schedules = Home(store), Schedules([schedule()])
    await fired(home, schedules, START)
    store.create(NewRun(id="sched-nightly-20261115T130000Z", prompt="something else"))
    assert await fired(home, schedules, START + HOUR) == []
    assert len(await fired(home, schedules, START + 2 * HOUR)) == 1


async def test_an_agent_that_this_worker_does_not_have_leaves_the_time_to_others(store: RunStore, caplog: Any) -> None:
    home = Home(store)
    await fired(home, Schedules([schedule()], agent="other"), START)
    assert await fired(home, Schedules([schedule()], agent="other"), START + HOUR) == []
    assert "no agent 'other'" in caplog.text
    assert len(await fired(home, Schedules([schedule()]), START + HOUR)) == 1


def test_three_workers_that_race_fire_each_time_once(shared_first: str) -> None:
    rules = [schedule("* * * * *", "often"), schedule("*/3 * * * *", "thirds"), schedule("@every 2m", "second")]
    with RunStore(shared_first) as store:
        store.prepare()

    def work(seed: int) -> list[str]:
        """A worker whose clock is a little off, and that starts anew now and then."""
        dice, begun = random.Random(seed), []
        with RunStore(shared_first) as own:
            home, schedules = Home(own), Schedules(rules)
            for minute in range(12):
                if dice.random() < 0.3:
                    schedules = Schedules(rules)
                moment = START + minute * MINUTE + dice.uniform(0.0, 20.0)
                begun += [run.id for run in asyncio.run(fire_due(home.context, schedules, moment))]
                over(own)
        return begun

    with ThreadPoolExecutor(3) as pool:
        found = [name for names in pool.map(work, range(3)) for name in names]
    assert len(found) == len(set(found))
    with RunStore(shared_first) as store:
        assert sorted(found) == sorted(run.id for run in store.list(limit=1_000))
    assert sum(name.startswith("sched-often") for name in found) >= 6  # some are left out: another's was under way


async def test_while_nothing_is_due_the_database_is_left_alone(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    real = RunStore.now
    monkeypatch.setattr(RunStore, "now", lambda own: asked.append(1) or real(own))  # type: ignore[func-returns-value]
    home, schedules = Home(store), Schedules([schedule("0 0 1 1 *")])
    for _ in range(20):
        assert await fire_due(home.context, schedules) == []
    assert len(asked) == 1
    assert await fire_due(home.context, Schedules([])) == []
    assert len(asked) == 1


async def test_schedules_that_are_given_by_a_function_may_change(store: RunStore) -> None:
    given: list[Schedule] = []
    home, schedules = Home(store), Schedules(lambda: given)
    assert await fired(home, schedules, START) == []
    given.append(schedule())
    assert await fired(home, schedules, START + HOUR, START + 2 * HOUR) == ["sched-nightly-20261115T140000Z"]


@pytest.mark.parametrize(
    ("cron", "zone", "day", "expected"),
    [
        ("30 2 * * *", "Europe/Berlin", "2026-03-29", ["01:00"]),  # 02:30 is left out: when the gap ends
        ("30 2 * * *", "Europe/Berlin", "2026-10-25", ["00:30"]),  # comes twice: the first
        ("0 12 * * *", "Europe/Berlin", "2026-03-28", ["11:00"]),
        ("0 12 * * *", "Europe/Berlin", "2026-03-29", ["10:00"]),
        ("0 0 * * *", "America/New_York", "2026-11-01", ["04:00"]),
    ],
)
async def test_summer_time_makes_a_schedule_fire_neither_twice_nor_never(
    sqlite: str, cron: str, zone: str, day: str, expected: list[str]
) -> None:
    store = RunStore(sqlite)
    store.prepare()
    home = Home(store)
    begin = at(f"{day}T00:00:00Z")
    moments = [begin - 1, *(begin + 1800.0 * number for number in range(48))]
    names = await fired(home, Schedules([schedule(cron, timezone=zone)]), *moments)
    store.close()
    assert names == [f"sched-nightly-{day.replace('-', '')}T{time.replace(':', '')}00Z" for time in expected]


def test_the_latest_time_is_the_one_that_counting_finds() -> None:
    dice = random.Random(3)
    rules = ["* * * * *", "*/7 3 * * *", "30 2 * * *", "0 0 29 2 *", "15 9 * * MON-FRI", "0 2 * 3,10 SUN", "@hourly"]
    for _ in range(60):
        one = schedule(dice.choice(rules), timezone=dice.choice(["UTC", "Europe/Berlin", "America/New_York"]))
        after = at("2026-01-01T00:00Z") + dice.uniform(0, 365 * DAY)
        now = after + dice.choice([1.0, 50.0, HOUR, 5 * HOUR])
        rule, found = Cron.parse(one.cron, one.timezone), None
        moment = rule.next_after(after)
        while moment is not None and moment <= now:
            found, moment = moment, rule.next_after(moment)
        assert latest_time(one, Progress(after, after), now) == found


def test_what_is_due_can_be_asked_without_a_database() -> None:
    rules = [schedule(id="a"), schedule(id="b", enabled=False), schedule("@every 2h", "c"), schedule("@yearly", "d")]
    due = Schedules(rules).due(START, START + 4 * HOUR)
    assert due == [Due(rules[0], at("2026-11-15T16:00Z")), Due(rules[2], START + 4 * HOUR)]
    assert Schedules(rules).due(START, START) == []
    years = Schedules([schedule("* * * * *")]).due(START - 5_000 * DAY, START)
    assert [datetime.fromtimestamp(one.at, UTC).minute for one in years] == [0]


async def test_a_worker_that_starts_anew_does_nothing_again(sqlite: str, tmp_path: Path) -> None:
    ran: list[str] = []

    @tool(permissions={"write"})
    def note(text: str) -> str:
        """Write down what was seen."""
        ran.append(text)
        return "noted"

    for _ in range(3):  # each a start of the same project's worker
        model = script(ToolCall("note", {"text": "seen"}, "n"), "done")
        agent = Agent(model, tools=[note], approve=approve_all)
        schedules = Schedules([schedule()])
        async with working(sqlite, agent, tmp_path) as worker:
            await fire_due(worker.engine.context, schedules, START)
            await fire_due(worker.engine.context, schedules, START + HOUR)
            run = await ended(worker, "sched-nightly-20261115T130000Z")
            assert run.status == "finished"
    assert ran == ["seen"]


async def test_an_answer_is_delivered_where_the_schedule_says_once(store: RunStore) -> None:
    home = Home(store)
    schedules = Schedules([schedule(channel="team", channel_target="42"), schedule(id="silent")])
    got: list[tuple[str, str, str]] = []

    async def deliver(run: RunInfo, channel: str, target: str) -> None:
        got.append((run.id, channel, target))

    await fire_due(home.context, schedules, START)
    await fire_due(home.context, schedules, START + HOUR)
    assert await deliver_ended(home.context, deliver) == 0  # it is not over
    over(store)
    assert await asyncio.gather(*(deliver_ended(home.context, deliver) for _ in range(3))) in (
        [1, 0, 0],
        [0, 1, 0],
        [0, 0, 1],
    )
    assert await deliver_ended(home.context, deliver) == 0
    assert got == [("sched-nightly-20261115T130000Z", "team", "42")]


async def test_what_could_not_be_delivered_is_tried_again_some_times(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, schedules = Home(store), Schedules([schedule(channel="team")])
    tries = 0

    async def deliver(run: RunInfo, channel: str, target: str) -> None:
        nonlocal tries
        tries += 1
        raise ToolError("it is away")

    await fire_due(home.context, schedules, START)
    await fire_due(home.context, schedules, START + HOUR)
    over(store)
    assert await deliver_ended(home.context, deliver) == 0
    assert await deliver_ended(home.context, deliver) == 0
    assert tries == 1  # not at once
    monkeypatch.setattr("forge.durable.worker.housekeeping.DELIVERY_LEASE", -1.0)
    for _ in range(10):
        await deliver_ended(home.context, deliver)
    assert tries == 5


async def test_a_schedule_that_cannot_be_planned_is_left_out_and_said_once(store: RunStore, caplog: Any) -> None:
    """A zone that this machine lacks, a rule that nobody checked, a prompt that cannot be made."""
    wrong = [schedule(id="a", timezone="Europe/Atlantis"), schedule("@every 5s", "b"), schedule(id="c")]

    def missing(one: Schedule) -> str:
        if one.id == "c":
            raise ToolError("its skill is gone")
        return one.task

    schedules = Schedules([*wrong, schedule()], prompt=missing)
    names = await fired(Home(store), schedules, START, START + HOUR, START + 2 * HOUR)
    assert names == ["sched-nightly-20261115T130000Z", "sched-nightly-20261115T140000Z"]
    said = sorted(record.message for record in caplog.records if "is skipped:" in record.message)
    assert [line.split()[1] for line in said] == ["a", "b", "c"]
    assert said[2] == "schedule c is skipped: its skill is gone"
    assert [due.schedule.id for due in schedules.due(START, START + HOUR)] == ["c", "nightly"]


async def test_a_database_that_is_away_is_no_schedules_fault(
    store: RunStore, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    home, schedules = Home(store), Schedules([schedule()])
    await fired(home, schedules, START)

    def away(*_: object, **__: object) -> None:
        raise StoreError("the database is away")

    monkeypatch.setattr(store.database, "write", away)
    with pytest.raises(StoreError):
        await fire_due(home.context, schedules, START + HOUR)
    assert not caplog.records
    monkeypatch.undo()
    assert await fired(home, schedules, START + HOUR) == ["sched-nightly-20261115T130000Z"]
