"""Decides when to stop waiting for a run: it is over, or only a person can resume it."""

from __future__ import annotations

from collections.abc import Iterator

from forge.durable.store import RunStore
from forge.durable.store.rows import RunInfo, Wait

SHORTEST, LONGEST = 0.05, 0.5  # seconds between two queries of a run


def needs_no_worker(store: RunStore, run: RunInfo) -> bool:
    """Returns True if the run is over, or waits only for answers of people."""
    if run.status != "waiting":
        return run.is_over
    return all(_needs_person(store, wait) for wait in run.waits)


def pauses() -> Iterator[float]:
    """Yields the pauses between queries, short at first, without end."""
    pause = SHORTEST
    while True:
        yield pause
        pause = min(LONGEST, pause * 1.3)


def _needs_person(store: RunStore, wait: Wait) -> bool:
    if wait.kind == "approval":
        return store.question(wait.detail["question"]).answer is None
    if wait.kind == "run":
        child = store.get(wait.detail["run"])
        return not child.is_over and needs_no_worker(store, child)
    return wait.kind == "question"
