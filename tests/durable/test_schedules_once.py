"""Workers, and processes that run schedules themselves, fire each time once, also when one of them is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import forge
from forge.core.errors import ToolError
from forge.durable.store import RunStore
from forge.durable.store.rows import NewRun, Outcome, RunInfo
from forge.durable.worker import schedules as occurrences
from forge.durable.worker.schedules import ProcessOccurrences, StoredOccurrences, run_id_of
from forge.schedules.runner import Runner
from forge.schedules.schedule import ClaimRefusal, Due, Schedule, Source, Status, claim_due
from forge.schedules.schedule import ScheduleOutcome as Ended
from forge.schedules.store import ScheduleStore
from tests import programs
from tests.schedules.clocks import Clocks, at

START = at("2026-11-15 12:00")
MINUTE = 60.0

PROCESS = """
import asyncio, json, os, signal, sys
from pathlib import Path
from forge.durable.worker.schedules import ProcessOccurrences
from forge.durable.store import RunStore
from forge.schedules.runner import Runner
from forge.schedules.schedule import ScheduleOutcome
from forge.schedules.store import ScheduleStore

state, database, *names = sys.argv[1:]
moment = [float(sys.stdin.readline())]
store = ScheduleStore(Path(state), lambda: moment[0])
ran = []
for name in names:
    store.set(cron="* * * * *", task="look", id=name)

async def run(schedule):
    if schedule.id == "deadly":
        os.kill(os.getpid(), signal.SIGKILL)
    ran.append(schedule.id)
    return ScheduleOutcome()

print("ready", flush=True)
for line in sys.stdin:
    moment[0] = float(line)
    ran.clear()
    asyncio.run(Runner(store, run, shared=ProcessOccurrences(RunStore(database))).once())
    print(json.dumps(ran), flush=True)
"""

WORKER = """
import json, sys
from forge.durable.worker.schedules import StoredOccurrences, prepare, run_id_of
from forge.durable.store.rows import NewRun, Outcome
from forge.durable.store import RunStore
from forge.schedules.schedule import Schedule, claim_due

_, database, *names = sys.argv[1:]
store = RunStore(database)
prepare(store.database)
runs = StoredOccurrences(store.database, lambda due: NewRun(id=run_id_of(due), scope={"schedule": due.schedule.id}))
schedules = {name: Schedule(id=name, cron="* * * * *", task="look") for name in names}
claim_due(runs, schedules, float(sys.stdin.readline()))
print("ready", flush=True)
for line in sys.stdin:
    begun = claim_due(runs, schedules, float(line)).claims
    for run in begun:
        store.begin(run.id, run.segment, "w")
        store.close_segment(run.id, run.segment, Outcome(status="finished", messages=(), spent={}))
    print(json.dumps([run.scope["schedule"] for run in begun]), flush=True)
"""


@contextmanager
def started(code: str, *arguments: str) -> Iterator[Any]:
    environment = {**os.environ, "PYTHONPATH": str(Path(forge.__file__).parents[1])}
    pipe = subprocess.PIPE
    with programs.Popen(
        [sys.executable, "-c", code, *arguments], env=environment, text=True, stdin=pipe, stdout=pipe
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def tell(process: Any, moment: float) -> None:
    process.stdin.write(f"{moment}\n")
    process.stdin.flush()


def each_minute(processes: list[Any], minutes: int) -> list[list[list[str]]]:
    """What each of them fired, minute by minute: all hear of the time at once."""
    for process in processes:
        tell(process, START)
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    found = []
    for minute in range(1, minutes + 1):
        for process in processes:
            tell(process, START + minute * MINUTE)
        found.append([json.loads(process.stdout.readline()) for process in processes])
    return found


@pytest.mark.parametrize(("one", "other"), [(PROCESS, WORKER), (WORKER, WORKER), (PROCESS, PROCESS)])
@pytest.mark.matrix
def test_two_processes_fire_each_time_once(database: str, tmp_path: Path, one: str, other: str) -> None:
    with RunStore(database) as store:
        store.prepare()
    with (
        started(one, str(tmp_path / "one.db"), database, "a", "b") as first,
        started(other, str(tmp_path / "other.db"), database, "a", "b") as second,
    ):
        for fired in each_minute([first, second], 8):
            assert sorted(fired[0] + fired[1]) == ["a", "b"]


def test_two_processes_with_different_schedules_both_fire(database: str, tmp_path: Path) -> None:
    with RunStore(database) as store:
        store.prepare()
    with (
        started(PROCESS, str(tmp_path / "one.db"), database, "a") as first,
        started(WORKER, str(tmp_path / "other.db"), database, "b") as second,
    ):
        assert each_minute([first, second], 4) == [[["a"], ["b"]]] * 4


def plan(name: str = "nightly", **more: Any) -> Schedule:
    return Schedule(id=name, cron="* * * * *", task="look", **more)


def fire(store: RunStore, schedule: Schedule, moment: float) -> list[str]:
    """As a worker does; the names of the runs that it began."""
    occurrences.prepare(store.database)
    runs = StoredOccurrences(store.database, lambda due: NewRun(id=run_id_of(due), scope={"schedule": "nightly"}))
    return [run.id for run in claim_due(runs, {schedule.id: schedule}, moment).claims]


def end(store: RunStore, run: str) -> RunInfo:
    store.begin(run, 1, "w")
    return store.close_segment(run, 1, Outcome(status="finished", messages=(), spent={}))


def test_a_process_killed_in_a_run_holds_it_for_a_while_and_says_that_it_is_lost(
    store: RunStore, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with started(PROCESS, str(tmp_path / "state.db"), database, "deadly") as victim:
        tell(victim, START)
        assert victim.stdout.readline() == "ready\n"
        tell(victim, START + MINUTE)
        assert victim.wait(60) == -signal.SIGKILL
    schedule = plan("deadly")
    assert fire(store, schedule, START + 2 * MINUTE) == []  # it may be at work still
    monkeypatch.setattr(occurrences, "LEASE", -1.0)
    assert fire(store, schedule, START + 2 * MINUTE) == []  # what was left out stays left out
    assert fire(store, schedule, START + 3 * MINUTE) == ["sched-deadly-20261115T120300Z"]
    clocks = Clocks()
    with ScheduleStore(tmp_path / "state.db", lambda: START + 2 * MINUTE, lambda: clocks.steady + 10_000_000) as own:
        (lost,) = own.tick("next", 0).lost
        assert (lost.status, lost.due) == (Status.LOST, START + MINUTE)


def test_a_process_killed_before_it_claimed_the_time_here_leaves_it_to_workers(store: RunStore, tmp_path: Path) -> None:
    schedule = plan()
    assert fire(store, schedule, START) == []
    moment = [START]
    with ScheduleStore(tmp_path / "state.db", lambda: moment[0]) as own:
        own.set(cron="* * * * *", task="look", id="nightly")
        moment[0] += MINUTE
        assert own.tick("dead", 1).claims  # and then it is killed
    assert fire(store, schedule, START + MINUTE) == ["sched-nightly-20261115T120100Z"]


async def run_once(own: ScheduleStore, store: RunStore) -> list[str]:
    ran: list[str] = []

    async def run(schedule: Schedule) -> Ended:
        ran.append(schedule.id)
        return Ended()

    await Runner(own, run, shared=ProcessOccurrences(store)).once()
    return ran


async def test_what_workers_are_still_at_is_skipped(store: RunStore, tmp_path: Path) -> None:
    moment = [START]
    with ScheduleStore(tmp_path / "state.db", lambda: moment[0]) as own:
        own.set(cron="* * * * *", task="look", id="nightly")
        fire(store, plan(), START)
        (begun,) = fire(store, plan(), START + MINUTE)
        moment[0] = START + 2 * MINUTE
        assert await run_once(own, store) == []
        assert [run.status for run in own.history()] == [Status.SKIPPED]
        end(store, begun)
        moment[0] = START + 3 * MINUTE
        assert await run_once(own, store) == ["nightly"]
        assert fire(store, plan(), START + 3 * MINUTE) == []
        assert [run.status for run in own.history()] == [Status.COMPLETED, Status.SKIPPED]
        assert fire(store, plan(), START + 4 * MINUTE) != []  # it does not hold it any more


async def test_a_time_that_workers_saw_to_leaves_nothing_in_the_history_here(store: RunStore, tmp_path: Path) -> None:
    moment = [START]
    with ScheduleStore(tmp_path / "state.db", lambda: moment[0]) as own:
        own.set(cron="* * * * *", task="look", id="nightly")
        fire(store, plan(), START)
        (begun,) = fire(store, plan(), START + 5 * MINUTE)
        end(store, begun)
        moment[0] = START + 5 * MINUTE
        assert await run_once(own, store) == []
        assert own.history("nightly") == []
        assert own.get("nightly").next_fire == START + 6 * MINUTE


async def test_a_one_shot_that_was_set_again_fires_again_and_a_declared_one_does_not(
    store: RunStore, tmp_path: Path
) -> None:
    moment = [START]
    with ScheduleStore(tmp_path / "state.db", lambda: moment[0]) as own:
        made = own.set(cron="* * * * *", task="look", id="nightly", one_shot=True)
        moment[0] += MINUTE
        assert await run_once(own, store) == ["nightly"]
        assert fire(store, made, START + 2 * MINUTE) == []
        moment[0] = START + 10.5 * MINUTE
        again = own.set(cron="* * * * *", task="look", id="nightly", one_shot=True)
        assert fire(store, again, moment[0]) == []  # not for times before it was set
        declared = plan(one_shot=True, source=Source.CONFIG, updated=moment[0])
        assert fire(store, declared, START + 11 * MINUTE) == []
        assert fire(store, again, START + 11 * MINUTE) == ["sched-nightly-20261115T121100Z"]
        assert fire(store, again, START + 12 * MINUTE) == []


def test_intervals_that_are_counted_from_elsewhere_fire_once_an_interval(store: RunStore) -> None:
    schedule, mine = Schedule(id="nightly", cron="@every 10m", task="look"), ProcessOccurrences(store)
    mine.prepare()
    fire(store, schedule, START)  # first seen here: due at 12:10, 12:20, …
    due = Due(schedule, START + 15 * MINUTE)  # and by the plan of a process at 12:05, 12:15, …
    assert mine.claim(due, due.at, "one") is None
    assert mine.claim(Due(schedule, due.at + 1), due.at + 1, "two") is ClaimRefusal.ELSEWHERE
    mine.release("one")
    (begun,) = fire(store, schedule, START + 20 * MINUTE)
    end(store, begun)
    assert mine.claim(Due(schedule, START + 25 * MINUTE), START + 25 * MINUTE, "one") is ClaimRefusal.ELSEWHERE
    assert mine.claim(Due(schedule, START + 35 * MINUTE), START + 35 * MINUTE, "one") is None


def test_beats_keep_what_a_process_holds(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, schedule = ProcessOccurrences(store), plan()
    assert mine.claim(Due(schedule, START), START, "one") is None
    clock = [1_000.0]
    monkeypatch.setattr(occurrences, "database_now", lambda connection: clock[0])
    mine.beat("one")
    clock[0] += 59
    assert mine.claim(Due(schedule, START + MINUTE), START + MINUTE, "two") is ClaimRefusal.ACTIVE
    clock[0] += 2
    assert mine.claim(Due(schedule, START + 2 * MINUTE), START + 2 * MINUTE, "two") is None
    mine.release("one")  # holds nothing any more
    assert mine.claim(Due(schedule, START + 3 * MINUTE), START + 3 * MINUTE, "one") is ClaimRefusal.ACTIVE


async def test_a_shared_store_that_is_away_is_said_in_the_history(tmp_path: Path) -> None:
    class Away:
        def claim(self, due: Due, now: float, owner: str) -> ClaimRefusal | None:
            raise ToolError("the database is away")

        def beat(self, owner: str) -> None: ...

        def release(self, owner: str, schedule_id: str | None = None) -> None: ...

    moment = [START]
    with ScheduleStore(tmp_path / "state.db", lambda: moment[0]) as own:
        own.set(cron="* * * * *", task="look", id="nightly")
        moment[0] += MINUTE

        async def run(schedule: Schedule) -> Ended:
            raise AssertionError("it must not run")

        (ended,) = await Runner(own, run, shared=Away()).once()
        assert ended.status is Status.FAILED
        assert "the database is away" in ended.error
