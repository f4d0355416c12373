"""Runners: each due time once, among any number of them, with time that only the tests let pass."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from forge.core.errors import ErrorKind, ToolError
from forge.schedules.runner import Runner
from forge.schedules.schedule import ScheduleOutcome, ScheduleRun, Status
from forge.schedules.store import ScheduleStore
from forge.workspace.state.store import StoreError
from tests.schedules.clocks import Waiting, shown


class Work:
    """Notes what is run and when; waits where it is told to."""

    def __init__(self, time: Waiting, seconds: float = 0.0) -> None:
        self.time = time
        self.seconds = seconds
        self.begun: list[tuple[str, str]] = []
        self.active = self.most = 0

    async def __call__(self, schedule):
        self.begun.append((schedule.id, shown(self.time.clocks.wall)))
        self.active += 1
        self.most = max(self.most, self.active)
        try:
            if self.seconds:
                await self.time.wait(self.seconds)
            return ScheduleOutcome(text=f"did {schedule.task}", session="s1")
        finally:
            self.active -= 1


@pytest.fixture
def time(clocks):
    return Waiting(clocks)


@pytest.fixture
def work(time):
    return Work(time)


@asynccontextmanager
async def running(*runners):
    tasks = [asyncio.create_task(runner.forever()) for runner in runners]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def planned(store, *rules):
    for rule in rules:
        store.set(cron=rule, task=f"Task of {rule}", id=f"task-{len(store.list())}")


async def test_what_is_due_is_run_at_its_time(store, time, work):
    planned(store, "*/10 * * * *", "30 12 * * *")
    told: list[ScheduleRun] = []
    async with running(Runner(store, work, wait=time.wait, report=told.append)):
        await time.go(1_830)
    assert work.begun == [
        ("task-0", "2026-11-15 12:10"),
        ("task-0", "2026-11-15 12:20"),
        ("task-0", "2026-11-15 12:30"),
        ("task-1", "2026-11-15 12:30"),
    ]
    assert [str(run.status) for run in told].count("running") == 4
    assert [str(run.status) for run in told].count("completed") == 4
    last = store.history()[0]
    assert (last.status, last.result, last.session) == (Status.COMPLETED, "did Task of 30 12 * * *", "s1")


async def test_several_runners_share_the_work_and_fire_each_time_once(store, path, clocks, time, work):
    planned(store, *["* * * * *"] * 20)
    with ScheduleStore(path, lambda: clocks.wall, lambda: clocks.steady) as other:
        async with running(*(Runner(one, work, wait=time.wait, parallel=20) for one in (store, other, store))):
            await time.go(190)
    assert len(work.begun) == len(set(work.begun)) == 60


async def test_what_another_process_adds_is_noticed(store, time, work):
    async with running(Runner(store, work, wait=time.wait)):
        await time.go(1_000)
        planned(store, "@every 1m")
        await time.go(65)
    assert len(work.begun) == 1


async def test_no_more_run_at_once_than_is_allowed(store, time):
    planned(store, *["0 13 * * *"] * 10)
    work = Work(time, seconds=10)
    async with running(Runner(store, work, wait=time.wait, parallel=3)):
        await time.go(3_700)
    assert (len(work.begun), work.most) == (10, 3)


async def test_a_run_that_is_still_active_is_skipped_and_its_lease_held(store, time):
    planned(store, "* * * * *")
    work = Work(time, seconds=150)
    told: list[ScheduleRun] = []
    async with running(*(Runner(store, work, wait=time.wait, report=told.append) for _ in range(2))):
        await time.go(400)
    assert [moment for _, moment in work.begun] == ["2026-11-15 12:01", "2026-11-15 12:04"]
    statuses = [str(run.status) for run in told]
    assert (statuses.count("skipped"), statuses.count("lost")) == (4, 0)
    assert [run.duration for run in store.history() if run.status == "completed"] == [150.0, 150.0]


async def test_a_run_that_fails_is_remembered_with_its_reason(store, time):
    planned(store, "* * * * *")
    failures = iter(
        [
            ValueError("no such star"),
            ToolError("the sky is shut", ErrorKind.USER, "Wait for the night."),
            SystemExit(3),
            TimeoutError("theirs, not ours"),
        ]
    )

    async def fail(schedule):
        raise next(failures)

    async with running(Runner(store, fail, wait=time.wait, timeout=100.0)):
        await time.go(4 * 60 + 5)
    assert [(run.status, run.error) for run in reversed(store.history())] == [
        ("failed", "ValueError: no such star"),
        ("failed", "the sky is shut Wait for the night."),
        ("failed", "SystemExit: 3"),
        ("failed", "TimeoutError: theirs, not ours"),
    ]


async def test_an_outcome_without_success_is_a_failure(store, time):
    planned(store, "* * * * *")

    async def fail(schedule):
        return ScheduleOutcome(success=False, error="a limit was reached")

    async with running(Runner(store, fail, wait=time.wait)):
        await time.go(65)
    assert [(run.status, run.error) for run in store.history()] == [("failed", "a limit was reached")]


async def test_a_run_that_takes_too_long_is_stopped(store):
    planned(store, "@daily")

    async def hang(schedule):
        await asyncio.Event().wait()

    run = await Runner(store, hang, timeout=0.01).now("task-0")
    assert (run.status, run.error) == (Status.FAILED, "it took longer than 0.01 seconds")


async def test_what_runs_when_the_runner_is_stopped_is_cancelled(store, time):
    planned(store, "* * * * *")
    work = Work(time, seconds=1_000)
    async with running(Runner(store, work, wait=time.wait)):
        await time.go(65)
        assert work.active == 1
    assert work.active == 0
    assert [(run.status, run.duration) for run in store.history()] == [(Status.CANCELLED, 5.0)]
    assert store.start("next", "task-0")  # nothing holds it


async def test_a_runner_that_was_overtaken_stops_its_run(store, time, clocks):
    planned(store, "@daily")
    work = Work(time, seconds=1_000)
    runner = Runner(store, work, wait=time.wait)
    task = asyncio.create_task(runner.now("task-0"))
    await time.settle()
    clocks.pass_(600)  # as if the process had been stopped for so long
    other = store.start("other", "task-0")
    await time.go(20)
    assert work.active == 0
    assert (await task).status is Status.LOST
    assert store.run(other.run.id).status is Status.RUNNING


async def test_once_runs_what_is_due_and_ends(store, clocks, time, work):
    planned(store, *["0 13 * * *"] * 6, "0 14 * * *", "@every 1m")
    clocks.set("2026-11-15 13:30")
    ended = await Runner(store, work, parallel=2).once()
    assert sorted(run.schedule_id for run in ended) == [*(f"task-{number}" for number in range(6)), "task-7"]
    assert all(run.status is Status.COMPLETED for run in ended)
    assert await Runner(store, work).once() == []


async def test_once_does_not_wait_for_what_becomes_due_meanwhile(store, clocks, time):
    planned(store, "* * * * *", "* * * * *", "* * * * *")
    clocks.pass_(60)
    work = Work(time, seconds=90)
    task = asyncio.create_task(Runner(store, work, parallel=1, wait=time.wait).once())
    await time.go(300)
    assert [run.schedule_id for run in await task] == ["task-0", "task-1", "task-2"]


async def test_now_runs_one_due_or_not(store, work):
    planned(store, "@yearly", "@yearly")
    run = await Runner(store, work).now("task-1")
    assert (run.status, run.result) == (Status.COMPLETED, "did Task of @yearly")
    assert [name for name, _ in work.begun] == ["task-1"]
    with pytest.raises(ToolError) as caught:
        await Runner(store, work).now("task-9")
    assert caught.value.kind is ErrorKind.NOT_FOUND


async def test_a_report_that_fails_disturbs_nothing(store, time, work):
    planned(store, "* * * * *")

    def fail(run):
        raise RuntimeError("nobody listens")

    async with running(Runner(store, work, wait=time.wait, report=fail)):
        await time.go(125)
    assert len(work.begun) == 2


async def test_a_store_that_is_busy_or_full_for_a_while_stops_nobody(store, time, work, monkeypatch):
    planned(store, "* * * * *")
    tick, finish, failures = store.tick, store.finish, iter([True, True, False])

    def failing(*arguments):
        if next(failures, False):
            raise StoreError("locked", passing=True)
        return tick(*arguments)

    endings = iter([True, True, True])

    def unable(*arguments):
        if next(endings, False):
            raise StoreError("locked", passing=True)
        return finish(*arguments)

    monkeypatch.setattr(store, "tick", failing)
    monkeypatch.setattr(store, "finish", unable)
    async with running(Runner(store, work, wait=time.wait)):
        await time.go(70)
    assert len(work.begun) == 1
    assert [run.status for run in store.history()] == [Status.COMPLETED]


async def test_a_damaged_store_ends_the_runner_with_words(store, path, time, work):
    planned(store, "* * * * *")
    store.close()
    task = asyncio.create_task(Runner(store, work, wait=time.wait).forever())
    await time.settle()
    store.close()
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    path.write_bytes(b"nonsense" * 1_000)
    await time.go(10)
    with pytest.raises(StoreError) as caught:
        await task
    assert "set aside" in caught.value.message
    assert list(path.parent.glob("state.db.corrupt-*"))


async def test_a_clock_that_jumps_forward_fires_once(store, clocks, time, work):
    planned(store, "@hourly")
    async with running(Runner(store, work, wait=time.wait)):
        await time.go(10)
        clocks.set("2027-01-01 00:30")
        await time.go(10)
        clocks.set("2026-11-15 12:30")
        await time.go(1_900)
    assert [moment for _, moment in work.begun] == ["2027-01-01 00:30:05", "2026-11-15 13:00"]
