"""Time that passes only when a test says so."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest

from forge import Rate, tool
from forge.memory.memory import Memory
from forge.schedules.runner import Runner
from forge.schedules.schedule import ScheduleOutcome
from forge.schedules.store import ScheduleStore
from forge.testing import Clock, bench
from forge.testing import clock as module


def test_it_stands_until_it_is_moved():
    clock = Clock("2026-03-01 09:00")
    assert clock.now() == datetime(2026, 3, 1, 9, tzinfo=UTC)
    clock.advance(90)
    clock.advance(timedelta(minutes=1))
    assert f"{clock.now():%H:%M:%S}" == "09:02:30"
    steady = clock.steady()
    clock.set("2026-03-01 08:00")
    assert (clock.steady(), f"{clock.now():%H:%M}") == (steady, "08:00")
    with pytest.raises(ValueError, match="set"):
        clock.advance(-1)


def test_it_may_stand_in_a_zone():
    clock = Clock("2026-07-01 12:00", zone="Europe/Berlin")
    assert clock.now().utcoffset() == timedelta(hours=2)
    assert clock.time() == datetime(2026, 7, 1, 10, tzinfo=UTC).timestamp()
    assert "12:00:00 CEST" in repr(clock)


def test_sleeping_takes_no_time():
    clock, seen = Clock(), []

    async def sleeper(seconds: float) -> None:
        await asyncio.sleep(seconds)
        seen.append((seconds, clock.steady() - began))

    async def main() -> None:
        tasks = [asyncio.create_task(sleeper(seconds)) for seconds in (3600, 5, 60)]
        await clock.let_pass(30)
        assert seen == [(5, 5)]
        await clock.let_pass(timedelta(days=1))
        assert all(task.done() for task in tasks)

    began, real = clock.steady(), time.monotonic()
    clock.run(main())
    assert seen == [(5, 5), (60, 60), (3600, 3600)]
    assert time.monotonic() - real < 30
    assert clock.steady() == began + 30 + 86_400


def test_a_rate_limit_can_be_waited_for():
    @tool(rate=Rate(2, 60), timeout=300)
    async def look(word: str) -> str:
        """Look a word up."""
        return word

    clock, made = Clock(), bench(look)

    async def main() -> None:
        asking = [asyncio.create_task(made.execute("look", word=word)) for word in "abc"]
        await clock.let_pass(1)
        assert [one.done() for one in asking] == [True, True, False]
        await clock.let_pass(60)
        assert asking[2].done()

    clock.run(main())


@pytest.mark.parametrize("plain", [False, True])
def test_a_time_limit_can_be_waited_for(plain):
    @tool(timeout=600)
    async def hang() -> str:
        """Hang."""
        await asyncio.Event().wait()
        return ""

    @tool(timeout=600, name="hang")
    def quick() -> str:
        """Work in a thread, for which the clock waits."""
        return "done"

    clock, made = Clock(), bench(quick if plain else hang)

    async def main():
        calling = asyncio.create_task(made.execute("hang"))
        await clock.let_pass(700)
        return await calling

    result = clock.run(main())
    assert result.for_llm == "done" if plain else "timed out after 600 s" in result.for_llm


def test_nobody_lets_time_pass(monkeypatch):
    monkeypatch.setattr(module, "STUCK", 0.01)
    with pytest.raises(RuntimeError, match="let_pass"):
        Clock().run(asyncio.sleep(1))


def test_time_passes_once_for_everybody():
    clock = Clock()

    async def main() -> None:
        first = asyncio.create_task(clock.let_pass(1))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="already running"):
            await clock.let_pass(1)
        await first

    clock.run(main())


async def test_on_an_ordinary_loop_those_who_wait_by_the_clock_go_on():
    clock, seen = Clock(), []

    async def wait(seconds: float) -> None:
        await clock.wait(seconds)
        seen.append(seconds)

    tasks = [asyncio.create_task(wait(seconds)) for seconds in (20, 10, 99)]
    await clock.let_pass(30)
    assert seen == [10, 20]
    tasks[2].cancel()
    await clock.let_pass(100)
    assert seen == [10, 20]


def test_schedules_follow_it(tmp_path):
    clock, ran = Clock("2026-01-01 01:30"), []

    async def work(schedule) -> ScheduleOutcome:
        ran.append(f"{clock.now():%H:%M}")
        return ScheduleOutcome(text="ok")

    async def main() -> None:
        with ScheduleStore(tmp_path / "state.db", clock.time, clock.steady) as store:
            store.set(id="hourly", cron="0 * * * *", task="Tidy up.")
            running = asyncio.create_task(Runner(store, work, wait=clock.wait).forever())
            await clock.let_pass(timedelta(hours=2))
            running.cancel()
            await asyncio.wait([running])

    clock.run(main())
    assert ran == ["02:00", "03:00"]


def test_notes_follow_it(tmp_path):
    clock = Clock("2026-05-04 23:50")
    memory = Memory(tmp_path / "memory", clock=clock.now)
    memory.write("The gate is green.")
    clock.advance(timedelta(minutes=20))
    memory.write("The gate is blue.")
    assert memory.names() == ["2026-05-05.md", "2026-05-04.md"]
    assert "## 00:10" in memory.read("2026-05-05.md")
