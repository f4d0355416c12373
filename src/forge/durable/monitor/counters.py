"""Counts what a worker does: steps, take-overs, tokens and cost. The numbers are of this process, since its start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from forge.durable.store.rows import Outcome, RunInfo

MOST_LABELS = 100  # pairs of agent and tenant; further ones are counted as "other"
LONGEST_LABEL = 80  # characters
OTHER = "other"

Payer = tuple[str, str]  # agent and tenant


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

    def add_segment(self, run: RunInfo, outcome: Outcome) -> None:
        """Adds a segment and what it cost. The usage of a sub-run is part of its parent's, so it is not added again."""
        self.segments[outcome.status] += 1
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
