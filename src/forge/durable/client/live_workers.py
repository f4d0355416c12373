"""Finds runs that no living worker takes, and warns those who wait for one."""

from __future__ import annotations

import logging
import time

from forge.durable.store import RunStore
from forge.durable.store.heartbeats import list_workers
from forge.durable.store.rows import RunInfo

EVERY = 5.0  # seconds between two checks for workers while waiting for a run

log = logging.getLogger("forge.durable")


def has_worker(store: RunStore, run: RunInfo) -> bool:
    """Returns True if a living worker takes the run."""
    return any(one.takes(run.version, run.queue, run.agent) for one in list_workers(store.database))


def find_unattended(store: RunStore, run: RunInfo) -> RunInfo | None:
    """Returns the run, or a run it waits for, that is queued where no living worker takes it."""
    if run.status == "queued":
        return None if has_worker(store, run) else run
    waited_for = (store.get(str(wait.detail.get("run"))) for wait in run.waits if wait.kind == "run")
    return next((found for child in waited_for if (found := find_unattended(store, child)) is not None), None)


def describe_unattended(run: RunInfo) -> str:
    return f"run {run.id} waits for a worker {describe_needed(run.version, run.queue, run.agent)}, but none is running"


def describe_needed(version: str, queue: str, agent: str) -> str:
    """Describes what a worker must have to take a run."""
    return f"with agent {agent}, version {version} and queue {queue}"


class UnattendedWarning:
    """Warns once about each run that no worker takes. Waiting continues, since a worker may start."""

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._next = 0.0
        self._warned: set[str] = set()

    def look(self, run: RunInfo) -> None:
        if time.monotonic() < self._next or run.status not in ("queued", "waiting"):
            return
        self._next = time.monotonic() + EVERY
        found = find_unattended(self._store, run)
        if found is not None and found.id not in self._warned:
            self._warned.add(found.id)
            log.warning("%s: start one, or check the run's agent, queue and version", describe_unattended(found))
