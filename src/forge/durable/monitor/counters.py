"""Counts what a worker does: steps, take-overs, tokens and cost. The numbers are of this process, since its start."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from forge.durable.store.rows import Outcome, RunInfo

MOST_LABELS = 100  # pairs of agent and tenant; further ones are counted as "other"
LONGEST_LABEL = 80  # characters
OTHER = "other"

Payer = tuple[str, str]  # agent and tenant


# upper bounds in seconds; Prometheus adds one without a bound
TURNS = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0)
CALLS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0)
WAITS = (0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0, 3600.0)


class Histogram:
    """Counts durations by upper bounds, as Prometheus reads them."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(bounds) + 1)  # of each bound alone; the last has no bound
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.sum += seconds


@dataclass(slots=True, eq=False)
class Counters:
    """The counters of a worker; they survive its coming back under a new id. Used on the worker's loop only."""

    turns: int = 0  # answers of models that were recorded
    calls: int = 0  # results of calls that were recorded
    unknown: int = 0  # calls that an earlier attempt may have run
    reconciled: Counter[str] = field(default_factory=Counter)  # answers of tools about such calls, by state
    lost_workers: int = 0  # workers whose runs this one took over
    requeued: int = 0  # their segments
    segments: Counter[str] = field(default_factory=Counter)  # by outcome
    tokens: Counter[tuple[str, str, str]] = field(default_factory=Counter)  # by agent, tenant and kind
    cost: dict[Payer, float] = field(default_factory=dict)
    payers: set[Payer] = field(default_factory=set)
    failed: Counter[str] = field(default_factory=Counter)  # runs that failed here, by agent
    turn_seconds: Histogram = field(default_factory=lambda: Histogram(TURNS))
    call_seconds: Histogram = field(default_factory=lambda: Histogram(CALLS))
    queue_seconds: dict[str, Histogram] = field(default_factory=dict)  # by queue

    def add_wait(self, queue: str, seconds: float) -> None:
        """Adds the time that a segment was queued."""
        self.queue_seconds.setdefault(queue, Histogram(WAITS)).add(max(0.0, seconds))

    def add_failure(self, agent: str) -> None:
        """Adds a run that failed."""
        name = agent[:LONGEST_LABEL]
        self.failed[name if name in self.failed or len(self.failed) < MOST_LABELS else OTHER] += 1

    def add_segment(self, run: RunInfo, outcome: Outcome) -> None:
        """Adds a segment and what it cost. The usage of a sub-run is part of its parent's, so it is not added again."""
        self.segments[outcome.status] += 1
        if outcome.status == "failed":
            self.add_failure(run.agent)
        if run.parent:
            return
        before, after = _mapping(run.spent, "usage"), _mapping(outcome.spent, "usage")
        payer = self._payer_of(run)
        for kind in ("input", "output"):
            self.tokens[(*payer, kind)] += max(0, int(after.get(kind, 0)) - int(before.get(kind, 0)))
        if (cost := outcome.spent.get("cost")) is not None:
            self.cost[payer] = self.cost.get(payer, 0.0) + max(0.0, cost - float(run.spent.get("cost") or 0.0))

    def _payer_of(self, run: RunInfo) -> Payer:
        payer = (run.agent[:LONGEST_LABEL], run.tenant[:LONGEST_LABEL])
        if payer not in self.payers and len(self.payers) >= MOST_LABELS:
            return OTHER, OTHER
        self.payers.add(payer)
        return payer


def _mapping(spent: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = spent.get(key)
    return found if isinstance(found, Mapping) else {}
