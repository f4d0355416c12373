"""Reads the load of a database: queues and their age, open runs, open approvals, workers. Ended runs are not read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from forge.durable.store import RunStore
from forge.durable.store.find import now
from forge.durable.store.heartbeats import list_workers
from forge.durable.store.tables import runs

_OPEN = ("queued", "running", "waiting")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLoad:
    """The queued runs of a queue, and the age of the oldest in seconds."""

    length: int = 0
    age: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The load of a database at one moment."""

    queues: Mapping[str, QueueLoad] = field(default_factory=dict)
    runs: Mapping[str, int] = field(default_factory=dict)  # by status; those that are not over
    due_age: float = 0.0  # seconds since the oldest wait ended whose run was not resumed
    approvals: int = 0
    workers: Mapping[str, int] = field(default_factory=dict)  # by state; those that left are not counted
    unattended: int = 0  # queued runs that no running worker takes


def read_load(store: RunStore) -> Load:
    """Reads the load, in a few queries that use indexes. Raises `StoreError`."""
    queued, counts, due = store.database.read(_read_runs)
    workers = [one for one in list_workers(store.database) if not one.gone]
    queues: dict[str, QueueLoad] = {}
    for (_, queue, _), one in queued.items():
        before = queues.get(queue, QueueLoad())
        queues[queue] = QueueLoad(length=before.length + one.length, age=max(before.age, one.age))
    states = [one.state for one in workers]
    return Load(
        queues=queues,
        runs={status: counts.get(status, 0) for status in _OPEN},
        due_age=due,
        approvals=store.count_questions(),
        workers={state: states.count(state) for state in ("working", "draining", "silent")},
        unattended=sum(
            one.length for kind, one in queued.items() if not any(worker.takes(*kind) for worker in workers)
        ),
    )


def _read_runs(connection: sa.Connection) -> tuple[dict[tuple[str, str, str], QueueLoad], dict[str, int], float]:
    c, clock = runs.c, now(connection)
    queued = connection.execute(
        sa.select(c.version, c.queue, c.agent, sa.func.count(), clock - sa.func.min(c.updated))
        .where(c.status == "queued")
        .group_by(c.version, c.queue, c.agent)
    )
    found = {(row[0], row[1], row[2]): QueueLoad(length=row[3], age=_seconds(row[4])) for row in queued}
    counted = sa.select(c.status, sa.func.count()).where(c.status.in_(_OPEN)).group_by(c.status)
    counts = {row[0]: row[1] for row in connection.execute(counted)}
    due = sa.select(clock - sa.func.min(c.look)).where(c.status == "waiting", c.look <= clock)
    return found, counts, _seconds(connection.execute(due).scalar())


def _seconds(value: Any) -> float:
    return max(0.0, float(value or 0.0))
