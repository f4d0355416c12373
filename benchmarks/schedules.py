"""What it costs to find what is due next among ten thousand schedules, and to claim it."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.timing import Measure
from forge.schedules import tables as schedule_rows
from forge.schedules.schedule import Schedule, ScheduleOutcome, Status
from forge.schedules.store import ScheduleStore

SCHEDULES = 10_000
ROUNDS = 101
START = 1_800_000_000.0


async def measures() -> list[Measure]:
    with tempfile.TemporaryDirectory() as directory:
        now = START
        with ScheduleStore(Path(directory) / "state.db", lambda: now) as store:
            _fill(store)
            found = _microseconds(store.next_due)
            idle = _microseconds(lambda: store.tick("bench", 4))

            def claim() -> None:
                nonlocal now
                now += 60
                for one in store.tick("bench", 1).claims:
                    store.finish(one.run.id, Status.COMPLETED, ScheduleOutcome(text="done"), 1.0)

            claimed = _microseconds(claim)
    return [
        Measure(f"{SCHEDULES:,} schedules: next due found", "", 0.0, found, "µs", 5_000.0, absolute=True),
        Measure(
            f"{SCHEDULES:,} schedules: a look at the clock, nothing due", "", 0.0, idle, "µs", 5_000.0, absolute=True
        ),
        Measure(f"{SCHEDULES:,} schedules: one claimed and finished", "", 0.0, claimed, "µs", 25_000.0, absolute=True),
    ]


def _fill(store: ScheduleStore) -> None:
    with store._store.write_transaction() as connection:
        for number in range(SCHEDULES):
            following = START + 60 + number * 60
            one = Schedule(id=f"task-{number}", cron="@every 30d", task=f"Do number {number}", next_fire=following)
            schedule_rows.write_row(connection, schedule_rows.Row(one, START, START))


def _microseconds(function: Callable[[], object]) -> float:
    """On the clock, the median: a first call has to open the file."""
    taken = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        function()
        taken.append((time.perf_counter() - started) * 1e6)
    return statistics.median(taken)
