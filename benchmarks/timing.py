"""Measures two things side by side, in turns, so that a noisy machine disturbs both alike."""

from __future__ import annotations

import gc
import os
import resource
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

ROUNDS = 15


@dataclass(frozen=True)
class Measure:
    """One row of the table: ours against its floor, both in the same unit."""

    name: str
    floor_name: str
    floor: float
    ours: float
    unit: str
    must: float | None  # the largest ratio allowed, or with `absolute` the largest figure; None: it is only shown
    absolute: bool = False

    @property
    def ratio(self) -> float:
        return self.ours / self.floor if self.floor else float("inf")

    @property
    def holds(self) -> bool:
        return self.must is None or (self.ours if self.absolute else self.ratio) <= self.must


def per_call(function: Callable[[], object], calls: int) -> float:
    """Microseconds of CPU a call."""
    gc.collect()
    started = time.process_time()
    for _ in range(calls):
        function()
    return (time.process_time() - started) / calls * 1e6


async def per_await(function: Callable[[], Awaitable[object]], calls: int) -> float:
    gc.collect()
    started = time.process_time()
    for _ in range(calls):
        await function()
    return (time.process_time() - started) / calls * 1e6


def side_by_side(floor: Callable[[], float], ours: Callable[[], float]) -> tuple[float, float]:
    """Measures both in turns and returns the turn whose ratio is the median: the machine may change its speed."""
    floor(), ours()
    return median_pair([(floor(), ours()) for _ in range(ROUNDS)])


async def side_by_side_async(
    floor: Callable[[], Awaitable[float]], ours: Callable[[], Awaitable[float]]
) -> tuple[float, float]:
    await floor(), await ours()
    return median_pair([(await floor(), await ours()) for _ in range(ROUNDS)])


def median_pair(pairs: list[tuple[float, float]]) -> tuple[float, float]:
    return sorted(pairs, key=lambda pair: pair[1] / pair[0] if pair[0] else float("inf"))[len(pairs) // 2]


async def wall(function: Callable[[], Awaitable[object]]) -> float:
    """Milliseconds on the clock, the least of a few: a nap cannot be shorter than it is."""
    gc.collect()
    started = time.perf_counter()
    await function()
    return (time.perf_counter() - started) * 1e3


def process(
    *command: str,
    python: str = sys.executable,
    environment: Mapping[str, str] = os.environ,
    directory: Path | None = None,
) -> float:
    """Milliseconds of CPU of a whole process of this Python, or of another one."""
    kept = {key: value for key, value in environment.items() if key != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([python, *command], check=True, capture_output=True, env=kept, cwd=directory)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime) * 1e3
