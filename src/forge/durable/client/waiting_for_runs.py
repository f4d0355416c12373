"""Waiting for runs: until they are over, or nothing more happens by itself."""

from __future__ import annotations

from collections.abc import Iterator

from forge.durable.store import RunStore
from forge.durable.store.rows import RunInfo, Wait

SHORTEST, LONGEST = 0.05, 0.5  # seconds between two looks at a run


def needs_no_worker(store: RunStore, run: RunInfo) -> bool:
    """Whether the run is over, or all it waits for is somebody's answer."""
    if run.status != "waiting":
        return run.is_over
    return all(_needs_person(store, wait) for wait in run.waits)


def pauses() -> Iterator[float]:
    """Between looks: short at first. They never end."""
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
