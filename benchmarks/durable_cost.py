"""What a step of short runs asks of Postgres and of Python beside the engine's own: statements, log and CPU."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from benchmarks.durable_worker import VERSION, subject
from benchmarks.timing import Measure
from forge.durable.worker import Worker, WorkerSettings
from scripts.scale.measured import Cost, Look, counting

SHORT, AT_ONCE = 21, 10  # steps of the runs that people have most, and how many run together
ROUNDS = 7
MOST_STATEMENTS = 9.5  # a step
MOST_LOG = 1.5  # times that of bare DBOS, which stores no events and no messages

Bare = Callable[[], Awaitable[float]]
Ours = Callable[[Worker], Awaitable[float]]


class Spent(NamedTuple):
    """A step's share."""

    statements: float
    log: float  # bytes of the write-ahead log
    cpu: float  # microseconds of this process


async def cost(database: str, url: str, bare_runs: Bare, our_runs: Ours) -> list[Measure]:
    """Bare workflows and runs in turns; what the worker does meanwhile counts for both. Only with Postgres."""
    with tempfile.TemporaryDirectory() as directory, counting(url, set()) as look:
        async with Worker(url, [subject(Path(directory))], WorkerSettings(version=VERSION)) as worker:
            await bare_runs(), await our_runs(worker)
            steps = SHORT * AT_ONCE
            pairs = [
                (await _spend(look, bare_runs, steps), await _spend(look, lambda: our_runs(worker), steps))
                for _ in range(ROUNDS)
            ]
    bare, ours = (Spent(*map(statistics.median, zip(*some, strict=True))) for some in zip(*pairs, strict=True))
    label = f"durable, {database}: short runs of {SHORT} steps, {AT_ONCE} at a time, a step's"
    floor = "the same of bare DBOS"
    return [
        Measure(f"{label} statements", floor, bare.statements, ours.statements, "statements", None),
        Measure(f"{label} statements, at most", "", 0.0, ours.statements, "", MOST_STATEMENTS, absolute=True),
        Measure(f"{label} write-ahead log", floor, bare.log, ours.log, "bytes", MOST_LOG),
        Measure(f"{label} CPU of the worker", floor, bare.cpu, ours.cpu, "µs", 1.15),
    ]


async def _spend(look: Look, work: Callable[[], Awaitable[object]], steps: int) -> Spent:
    before, started = _total(look), time.process_time()
    await work()
    cpu = time.process_time() - started
    await asyncio.sleep(0.3)  # the last events are written a moment later
    spent = _total(look) - before
    return Spent(spent.statements / steps, spent.log / steps, cpu / steps * 1e6)


def _total(look: Look) -> Cost:
    own, kept = look()
    return own + kept
