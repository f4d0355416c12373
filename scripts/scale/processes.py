"""Measures what `forge worker --processes N` does: steps a second, and the CPU of the workers and of Postgres."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import sqlalchemy as sa

from forge.durable.client import Runs
from scripts.scale.measured import _driver, server

RUNS, CALLS = 600, 5
PATIENCE = 600.0  # seconds
TURNS = "".join(f'- {{call: math_calculate, arguments: {{expression: "6*{number}"}}}}\n' for number in range(CALLS))
SCRIPT = (TURNS + "- done\n") * RUNS  # all runs of a process share it; each ends with a text
WORKING = "(SELECT DISTINCT executor_id FROM dbos.workflow_status WHERE status IN ('PENDING', 'SUCCESS')) AS working"


class Spent(NamedTuple):
    """The outcome for a number of processes; CPU in milliseconds a step."""

    processes: int
    steps: int
    seconds: float
    workers: float
    postgres: float


def measure_processes(number: int) -> Spent:
    """Queues runs, starts workers, and waits until all runs are over. Linux only."""
    with server() as url, tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "model.yaml").write_text(SCRIPT)
        (Path(directory) / "forge.yaml").write_text("agent: {model: 'scripted:model.yaml'}\n")
        with Runs(url) as runs:
            runs.store.prepare()
            for _ in range(RUNS):
                runs.submit("go", version="1")
        command = [sys.executable, "-m", "forge", "worker", "--processes", str(number), "--concurrency", "10"]
        command += ["--database", url, "--app-version", "1", "--config", "forge.yaml"]
        with subprocess.Popen(command, cwd=directory, stdout=subprocess.DEVNULL) as process:
            try:
                return _measure(url, process, number)
            finally:
                process.send_signal(signal.SIGTERM)


def _measure(url: str, process: subprocess.Popen[bytes], number: int) -> Spent:
    """Measures from the moment at which all workers are at work."""
    engine = sa.create_engine(_driver(url), poolclass=sa.NullPool)
    with engine.connect() as connection:
        backend = connection.execute(sa.text("SELECT pg_backend_pid()")).scalar_one()
        postmaster = int(_read_fields(backend)[1])
    _wait(lambda: _count(engine, WORKING) >= number, process)
    begun, before = _look(engine, process, postmaster)
    _wait(lambda: _count(engine, "forge_runs WHERE status NOT IN ('queued', 'running')") >= RUNS, process)
    ended, after = _look(engine, process, postmaster)
    steps = after.steps - before.steps
    workers, postgres = (1e3 * (now - then) / steps for now, then in zip(after[1:], before[1:], strict=True))
    return Spent(number, steps, ended - begun, workers, postgres)


class _Seen(NamedTuple):
    steps: int
    workers: float  # seconds of CPU
    postgres: float


def _look(engine: sa.Engine, process: subprocess.Popen[bytes], postmaster: int) -> tuple[float, _Seen]:
    steps = _count(engine, "dbos.operation_outputs")
    return time.monotonic(), _Seen(steps, _read_cpu(process.pid), _read_cpu(postmaster))


def process_table(numbers: list[int]) -> Iterator[str]:
    yield "| processes | steps per second | CPU of the workers, ms per step | CPU of Postgres, ms per step |"
    yield "|---|---|---|---|"
    for number in numbers:
        found = measure_processes(number)
        rate = found.steps / found.seconds
        yield f"| {found.processes} | {rate:.0f} | {found.workers:.1f} | {found.postgres:.1f} |"


def _count(engine: sa.Engine, rows: str) -> int:
    try:
        with engine.connect() as connection:
            return int(connection.execute(sa.text(f"SELECT count(*) FROM {rows}")).scalar_one())  # noqa: S608 - ours
    except sa.exc.ProgrammingError:  # no tables yet
        return 0


def _wait(is_so: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + PATIENCE
    while not is_so():
        assert process.poll() is None, "the workers ended"
        assert time.monotonic() < until, "the workers did not get on"
        time.sleep(0.2)


def _read_fields(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _read_cpu(root: int) -> float:
    """Returns the seconds that a process, its children and those of them that have ended have used."""
    parents: dict[int, int] = {}
    used: dict[int, float] = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            fields = _read_fields(int(place.name))
        except OSError:
            continue
        parents[int(place.name)] = int(fields[1])
        used[int(place.name)] = float(sum(map(int, fields[11:13])))
    family, found = {root}, True
    while found:
        more = {pid for pid, parent in parents.items() if parent in family} - family
        family, found = family | more, bool(more)
    ended = sum(map(int, _read_fields(root)[13:15]))
    return (sum(used[pid] for pid in family) + ended) / os.sysconf("SC_CLK_TCK")
