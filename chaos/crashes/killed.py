"""Kills the workers of a system with -9, again and again, while its runs go on, and counts what came of their calls."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from chaos.crashes.score import Score
from chaos.crashes.systems import System
from chaos.crashes.systems.order import Order

NURSERY = Path(__file__).parent / "systems" / "nursery.py"
PATIENCE = 300.0  # seconds for a worker to get anything done, or to finish what is left
EFFECTS = 10  # between two rounds of kills, at most


class Killed(NamedTuple):
    """The outcome of the storm."""

    version: str
    kills: int
    score: Score


class StormError(Exception):
    """The storm could not be run."""


class Plan(NamedTuple):
    """How workers are killed: `kills` of them, for at most `seconds`."""

    kills: int
    seconds: float = float("inf")
    calls: int = 5  # of each run
    seed: int = 0


def kill_workers(system: System, python: str, database: str, plan: Plan, say: Callable[[str], None]) -> Killed:
    """Runs until the workers were killed this often, or no run is left; then lets the last ones finish what began."""
    with tempfile.TemporaryDirectory() as place:
        rounds = -(-plan.kills // ((system.workers + 1) // 2))
        runs = max(8, rounds * EFFECTS * 6 // (5 * plan.calls))
        order = Order(database, place, runs, plan.calls)
        command = [python, str(NURSERY), system.module, order.write()]
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            nursery = Nursery(process, system)
            try:
                killed = _kill(nursery, order, plan, say)
                return Killed(nursery.version, killed, count_outcomes(order))
            finally:
                nursery.end()


class Nursery:
    """The process that starts workers, and the workers that live."""

    def __init__(self, process: subprocess.Popen[str], system: System) -> None:
        self.process, self.system = process, system
        self.workers: list[int] = []
        word, _, self.version = self._read().partition(" ")
        if word != "ready":
            assert process.stderr is not None
            raise StormError(f"{system.name} did not start: {process.stderr.read()[-500:]}")

    def start_worker(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.workers.append(int(self._read()))

    def kill_worker(self, index: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.workers.pop(index), signal.SIGKILL)

    def end(self) -> None:
        while self.workers:
            self.kill_worker(0)
        self.process.kill()

    def _read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


def _kill(nursery: Nursery, order: Order, plan: Plan, say: Callable[[str], None]) -> int:
    """Returns how many workers were killed."""
    chance, killed, ends = random.Random(plan.seed), 0, time.monotonic() + plan.seconds
    while killed < plan.kills and time.monotonic() < ends:
        while len(nursery.workers) < nursery.system.workers:
            nursery.start_worker()
        if _wait(nursery, order, chance.randrange(1, EFFECTS)):
            return killed
        for _ in range((nursery.system.workers + 1) // 2):
            time.sleep(chance.random() * 0.08)
            nursery.kill_worker(chance.randrange(len(nursery.workers)))
            killed += 1
        if killed % 30 == 0:
            say(f"{nursery.system.name}: {killed} kills, {len(order.read_finished())} of {order.runs} runs are over")
    order.close()
    while len(nursery.workers) < nursery.system.workers:
        nursery.start_worker()
    _wait(nursery, order, None)
    return killed


def _wait(nursery: Nursery, order: Order, effects: int | None) -> bool:
    """Waits for this many effects, or for the end of all runs. Returns True at the end."""
    seen: tuple[int, ...]
    first, since, seen = len(order.read_ledger()), time.monotonic(), ()
    while True:
        now = order.measure()
        if now != seen:
            seen, since = now, time.monotonic()
            if len(order.read_finished()) + len(order.read_left_out()) >= order.runs:
                return True
            if effects is not None and len(order.read_ledger()) - first >= effects:
                return False
        if time.monotonic() - since > PATIENCE:
            raise StormError(f"{nursery.system.name}: nothing happened for {PATIENCE:g} s")
        time.sleep(0.01)


def count_outcomes(order: Order) -> Score:
    """Counts what came of the calls of all runs that were not left out."""
    finished, times = order.read_finished(), Counter(order.read_ledger())
    runs = order.runs - len(order.read_left_out())
    unknown = sum(finished.values())
    silent = sum(not times[f"{name} {number}"] for name in finished for number in range(order.calls))
    return Score(
        calls=runs * order.calls,
        duplicates=sum(one - 1 for one in times.values()),
        lost=max(0, silent - unknown) + (runs - len(finished)) * order.calls,
        unknown=unknown,
    )


def find_python(system: System) -> str:
    """Returns the Python of the system's environment, which is made where there is none. Raises `NotInstalledError`."""
    from benchmarks.peer_environments import HOME, install, run

    if not system.packages:
        return sys.executable
    place = HOME / f"storm-{system.module.removesuffix('_worker')}"
    if not (place / "bin" / "python").exists():
        try:
            run([sys.executable, "-m", "venv", str(place)])
            install(place, *system.packages)
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)  # or the next storm would take it for whole
            raise
    return str(place / "bin" / "python")
