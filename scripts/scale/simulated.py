"""A day of runs, simulated one by one: when they come, how long they work, how long they wait for a free place."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import dataclass
from heapq import heappop, heappush

DAY = 86_400  # seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is asked of the workers."""

    runs: int = 1_000_000  # a day
    workers: int = 10_000
    concurrency: int = 10  # runs at a time on one worker
    calls: float = 10.0  # of a run, on the average
    turn_seconds: float = 6.0  # the model's
    call_seconds: float = 3.0
    peak: float = 3.0  # the busiest moment's share, the average being 1

    @property
    def steps(self) -> float:
        """Of a run: a turn before each call and one after the last, an intent before every third call."""
        return 2 * self.calls + 1 + self.calls / 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """What was seen."""

    runs: int
    most_runs: float  # begun a second, in the busiest minute
    most_at_work: int  # at the same moment
    mean_at_work: float
    longest_wait: float  # seconds in the queue


def simulated(load: Load, seed: int = 1) -> Day:
    """Every run comes at its time, takes a place as soon as one is free, and keeps it while it works.

    What waits for a person or for a time takes none: it is a row.
    """
    chance = random.Random(seed)  # noqa: S311 - a simulation, the same each time
    places = load.workers * load.concurrency
    ends: list[float] = []  # of those at work
    begun: Counter[int] = Counter()  # by minute
    most, worked, longest = 0, 0.0, 0.0
    for come in sorted(_moment(chance, load.peak) for _ in range(load.runs)):
        start = come
        while ends and ends[0] <= come:
            heappop(ends)
        if len(ends) >= places:
            start = heappop(ends)
        seconds = _seconds(chance, load)
        heappush(ends, start + seconds)
        begun[int(start // 60)] += 1
        most, worked, longest = max(most, len(ends)), worked + seconds, max(longest, start - come)
    return Day(
        runs=load.runs,
        most_runs=max(begun.values()) / 60,
        most_at_work=most,
        mean_at_work=worked / DAY,
        longest_wait=longest,
    )


def _moment(chance: random.Random, peak: float) -> float:
    """In a day whose density is a hill around noon, `peak` times the average at its top."""
    while True:
        moment = chance.random() * DAY
        if chance.random() * peak < _density(moment, peak):
            return moment


def _density(moment: float, peak: float) -> float:
    """Its average is about 1: that of cos² to the power n is about 1/√(πn)."""
    return peak * math.pow(math.cos(math.pi * (moment / DAY - 0.5)), 2 * peak * peak / math.pi)


def _seconds(chance: random.Random, load: Load) -> float:
    """At work. Many runs are short and some are long: the number of calls falls off geometrically."""
    calls = int(math.log(1 - chance.random()) / math.log(1 - 1 / (load.calls + 1)))
    turns = (calls + 1) * load.turn_seconds * chance.uniform(0.5, 1.5)
    return turns + calls * load.call_seconds * chance.uniform(0.5, 1.5)
