"""What a recorded step costs beside the engine's own, how much workers do, how soon a killed run is back at work."""

from __future__ import annotations

import asyncio
import gc
import statistics
import tempfile
import time
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from dbos import DBOS, SetWorkflowID

from benchmarks.durable_cost import AT_ONCE, SHORT, cost
from benchmarks.durable_latency import latency
from benchmarks.durable_processes import databases, read_cpu, read_moment, say, start_process
from benchmarks.durable_worker import VERSION, subject
from benchmarks.timing import Measure
from forge.core.messages import Message
from forge.durable.engine.segment import segment_workflow
from forge.durable.engine.start_segments import Starter
from forge.durable.store import RunStore
from forge.durable.store.find import RunFilter
from forge.durable.store.rows import NewRun, RunInfo
from forge.durable.worker import Worker, WorkerSettings

STEPS = 180  # of one workflow: less than a segment has at most
ROUNDS = 11
RUNS, CALLS = 120, 5  # for the throughput
LONG = 1_000  # steps of the run that is killed
SHORT_LIMITS = {"Postgres": 0.71, "SQLite": 0.85}  # of bare DBOS's time: at least 1.4 times, or 1.18 times, its speed
_EACH = 2 * CALLS + 1  # steps of a run: a turn before each call, and one after the last

_ids = count(1)


async def measures() -> list[Measure]:
    found: list[Measure] = []
    with databases() as urls:
        for name, url in urls.items():
            found += await steps(name, url)
            found += await cost(name, url, _short_bare, _short_runs) if name == "Postgres" else []
            found += await asyncio.to_thread(latency, name, url)
            found += await asyncio.to_thread(_with_processes, name, url)
    return found


async def steps(database: str, url: str) -> list[Measure]:
    """A workflow of bare steps and two runs, in turns, in one process and one database."""
    with tempfile.TemporaryDirectory() as directory:
        async with Worker(url, [subject(Path(directory))], WorkerSettings(version=VERSION)) as worker:
            await _bare(), await _run(worker, "look"), await _run(worker, "put")
            rounds = [(await _bare(), await _run(worker, "look"), await _run(worker, "put")) for _ in range(ROUNDS)]
            await _short_bare(), await _short_runs(worker)
            short = [(await _short_bare(), await _short_runs(worker)) for _ in range(ROUNDS)]
    bare, looks, puts = (statistics.median(column) for column in zip(*rounds, strict=True))
    short_bare, short_runs = (statistics.median(column) for column in zip(*short, strict=True))
    limit = SHORT_LIMITS[database]
    at_once = f"short runs of {SHORT} steps, {AT_ONCE} at a time, a step"
    return [
        Measure(f"durable, {database}: a step", "a step of bare DBOS", bare, looks, "µs", 1.15),
        Measure(f"durable, {database}: a step of calls with an intent", "a step of bare DBOS", bare, puts, "µs", 1.15),
        Measure(f"durable, {database}: {at_once}", "the same of bare DBOS", short_bare, short_runs, "µs", limit),
    ]


@DBOS.workflow(name="bare")
async def bare(number: int) -> int:
    """The floor: nothing but steps that return what a call returns."""
    for step in range(number):
        await DBOS.run_step_async({"name": "bare"}, _step, step)
    return number


async def _step(number: int) -> dict[str, Any]:
    return {"for_llm": f"{number} was looked at"}


async def _bare() -> float:
    """Microseconds on the clock for each step."""
    gc.collect()
    started = time.perf_counter()
    handle = await DBOS.start_workflow_async(bare, STEPS)
    await handle.get_result()
    return (time.perf_counter() - started) / STEPS * 1e6


async def _run(worker: Worker, name: str) -> float:
    """The same for a run that is begun in the same way. All that it does counts: its rows, its events, its end."""
    calls = (STEPS - 1) // 2  # a turn and a call each time; an intent of a call is not a step
    run = await asyncio.to_thread(worker.store.create, _new(name, calls))
    gc.collect()
    started = time.perf_counter()
    with SetWorkflowID(f"{run.id}.1"):
        handle = await DBOS.start_workflow_async(segment_workflow, run.id, 1)
    status = await handle.get_result()
    taken = time.perf_counter() - started
    assert status == "finished", status
    return taken / (2 * calls + 1) * 1e6


async def _short_bare() -> float:
    """Microseconds on the clock for each step of workflows that are started together."""
    gc.collect()
    started = time.perf_counter()
    handles = [await DBOS.start_workflow_async(bare, SHORT) for _ in range(AT_ONCE)]
    await asyncio.gather(*(handle.get_result() for handle in handles))
    return (time.perf_counter() - started) / (SHORT * AT_ONCE) * 1e6


async def _short_runs(worker: Worker) -> float:
    """The same for runs. Their rows are made in this time, too: a short run pays for its beginning."""
    gc.collect()
    started = time.perf_counter()
    handles = []
    for _ in range(AT_ONCE):
        run = await asyncio.to_thread(worker.store.create, _new("look", SHORT // 2))
        with SetWorkflowID(f"{run.id}.1"):
            handles.append(await DBOS.start_workflow_async(segment_workflow, run.id, 1))
    ended = await asyncio.gather(*(handle.get_result() for handle in handles))
    taken = time.perf_counter() - started
    assert set(ended) == {"finished"}, ended
    return taken / (SHORT * AT_ONCE) * 1e6


def _new(name: str, calls: int) -> NewRun:
    prompt = f"{name} {calls}"
    return NewRun(id=f"{name}-{next(_ids)}", version=VERSION, prompt=prompt, messages=(Message("user", prompt),))


def _with_processes(database: str, url: str) -> list[Measure]:
    found: list[Measure] = []
    for workers in (1, 2, 3):
        rate, cpu = throughput(url, workers)
        label = f"durable, {database}: {workers} worker{'s' if workers > 1 else ''}, runs of {_EACH} steps"
        found += [
            Measure(label, "", 0.0, rate, "runs/s", None, absolute=True),
            Measure(label, "", 0.0, rate * _EACH, "steps/s", None, absolute=True),
            Measure(f"{label}, CPU of the workers a step", "", 0.0, cpu, "ms", None, absolute=True),
        ]
    back = resumed(url)
    label = f"durable, {database}: killed at step {LONG:,}, back at work"
    return [
        *found,
        Measure(label, "", 0.0, back.segment, "s", 2.0, absolute=True),
        Measure(f"{label}, with the start of the process", "", 0.0, back.process, "s", None, absolute=True),
    ]


def throughput(url: str, workers: int) -> tuple[float, float]:
    """Runs a second, all of them queued before anybody takes one, and milliseconds of the workers' CPU a step."""
    with RunStore(url) as store, tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        runs = _queued(store, [_new("look", CALLS) for _ in range(RUNS)])
        processes = [stack.enter_context(start_process(url, directory)) for _ in range(workers)]
        started, used = time.perf_counter(), sum(map(read_cpu, processes))
        for process in processes:
            say(process, "go")
        _until_over(store, runs)
        used = sum(map(read_cpu, processes)) - used
        return RUNS / (time.perf_counter() - started), used / (RUNS * _EACH) * 1e3


class Back(NamedTuple):
    """Seconds until the first new step: since the segment began again, and since the process was started."""

    segment: float
    process: float


def resumed(url: str) -> Back:
    """A worker is killed in the call that is step 1,000, the last of a segment: there is no longer replay."""
    with RunStore(url) as store, tempfile.TemporaryDirectory() as directory:
        (run,) = _queued(store, [_new("die", LONG // 2)])
        with start_process(url, directory) as first:
            say(first, "go")
            assert first.wait(timeout=120) == -9
        started = time.time()
        with start_process(url, directory, "--tell") as second:
            say(second, "go")
            begun, at_work = read_moment(second, "begun"), read_moment(second, "at work")
            _until_over(store, [run])
        assert store.get(run.id).status == "finished"
        return Back(at_work - begun, at_work - started)


def _queued(store: RunStore, new: list[NewRun]) -> list[RunInfo]:
    starter = Starter(store)
    runs = [store.create(one) for one in new]
    for run in runs:
        starter.start(run)
    starter.close()
    return runs


def _until_over(store: RunStore, runs: list[RunInfo]) -> None:
    wanted = {run.id for run in runs}
    until = time.monotonic() + 120
    while wanted - {run.id for run in store.list(RunFilter(status=("finished", "failed", "cancelled")), limit=10000)}:
        assert time.monotonic() < until, "the runs did not come to their end"
        time.sleep(0.05)
