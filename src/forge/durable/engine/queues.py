"""Defines queues: their limits, and fair priorities, so that no tenant waits behind another's backlog."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import sqlalchemy as sa

from forge.core.errors import ErrorKind, ToolError
from forge.durable.store.database import Database
from forge.durable.store.find import insert_into
from forge.durable.store.rows import RunInfo
from forge.durable.store.tables import IS_QUEUED, queue_limits, segments

DEFAULT = "default"

HIGHEST_PRIORITY, LOWEST_PRIORITY = 10, -10  # priorities: the higher one goes first, across tenants
TURNS_PER_PRIORITY = 100_000_000  # turns within one priority; 21 of them fit into the column's 31 bits


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Limits of a queue over all workers together. Without any, only the workers' own limits apply."""

    concurrency: int | None = None  # active runs
    calls: int | None = None  # segments begun …
    seconds: float | None = None  # … within so many seconds
    per_tenant: int | None = None  # active runs of one tenant

    @classmethod
    def of(cls, name: str, entry: Mapping[str, Any]) -> QueueLimits:
        """Parses an entry of forge.yaml: `{concurrency: 50, rate: {calls: 100, seconds: 60}, per_tenant: 5}`."""
        rate = entry.get("rate") or {}
        known = {"concurrency", "rate", "per_tenant"}
        unknown = sorted(set(entry) - known) + sorted(f"rate.{word}" for word in set(rate) - {"calls", "seconds"})
        if unknown:
            raise _limits_error(name, f"has no setting {unknown[0]}")
        if bool(rate.get("calls")) != bool(rate.get("seconds")):
            raise _limits_error(name, "needs both calls and seconds in its rate")
        limits = cls(entry.get("concurrency"), rate.get("calls"), rate.get("seconds"), entry.get("per_tenant"))
        for setting in ("concurrency", "calls", "seconds", "per_tenant"):
            value = getattr(limits, setting)
            if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0):
                raise _limits_error(name, f"has {value!r} as {setting}, which is not a number above 0")
        if limits.concurrency and limits.per_tenant and limits.per_tenant > limits.concurrency:
            raise _limits_error(name, "allows more runs per tenant than in total")
        return limits

    @classmethod
    def of_row(cls, row: sa.Row[Any]) -> QueueLimits:
        return cls(row.concurrency, row.calls, row.seconds, row.per_tenant)


def _limits_error(name: str, what: str) -> ToolError:
    return ToolError(
        f"durable.queues: the queue {name} {what}",
        ErrorKind.CONFIG,
        "Write {concurrency: 50, rate: {calls: 100, seconds: 60}, per_tenant: 5}; every part is optional.",
    )


def offer_queue(offer: str) -> str:
    """Returns the queue of calls that only workers with this offer take (`runs_on="gpu"`, `forge worker --offer
    gpu`).
    """
    return f"on:{offer}"


def claim_key(version: str, agent: str) -> str:
    """Returns what a worker must have to take a segment: the application's version and the agent. A worker claims only
    the keys of its own agents.
    """
    return json.dumps([version, agent])


def set_limits(database: Database, limits: Mapping[str, QueueLimits]) -> None:
    """Sets the given limits. Those of other queues stay: another worker may have set them."""

    def write(connection: sa.Connection) -> None:
        for name, given in limits.items():
            values = asdict(given)
            row = insert_into(connection, queue_limits).values(name=name, **values)
            connection.execute(row.on_conflict_do_update(index_elements=["name"], set_=values))

    if limits:
        database.write(write)


def list_limits(database: Database, names: Collection[str] = ()) -> dict[str, QueueLimits]:
    """Returns the limits of queues that have some, of all or of these."""
    chosen = queue_limits.c.name.in_(names) if names else sa.true()
    rows = database.read(lambda connection: connection.execute(sa.select(queue_limits).where(chosen)).all())
    found = {row.name: QueueLimits.of_row(row) for row in rows}
    return {name: limits for name, limits in found.items() if limits != QueueLimits()}


def compute_priority(connection: sa.Connection, *, queue: str, tenant: str, priority: int, begun: bool) -> int:
    """Returns the place of a run in its queue: lower goes first, equal ones in order of arrival.

    Uses start-time fair queueing: each new run of a tenant gets the turn after its last queued one, but none before the
    turn being served. So each tenant's first run stands beside the others' next ones, and unused turns do not add up. A
    run that already began (it waited, or its worker ended) had its turn and goes to the head. The queue is the only
    state; two concurrent callers may get the same turn, and then the earlier one goes first.
    """
    base = (HIGHEST_PRIORITY - max(LOWEST_PRIORITY, min(HIGHEST_PRIORITY, priority))) * TURNS_PER_PRIORITY
    c = segments.c
    beside = sa.and_(IS_QUEUED, c.queue == queue, c.priority >= base, c.priority < base + TURNS_PER_PRIORITY)
    head = sa.select(sa.func.min(c.priority)).where(beside).scalar_subquery()
    last = sa.select(sa.func.max(c.priority)).where(beside, c.tenant == tenant).scalar_subquery()
    served, latest = connection.execute(sa.select(head, last)).one()
    turn = max(1, (served or base) - base)
    if latest is not None and not begun:
        turn = max(turn, latest - base + 1)
    return base + min(turn, TURNS_PER_PRIORITY - 1)


def count_queued(database: Database) -> dict[str, int]:
    """Counts the segments in each queue; omits empty queues."""
    query = sa.select(segments.c.queue, sa.func.count()).where(IS_QUEUED).group_by(segments.c.queue)
    rows = database.read(lambda connection: connection.execute(query).all())
    return {row[0]: row[1] for row in rows}


def change_key(database: Database, run: RunInfo) -> None:
    """Changes the key by which workers claim the segment of a run, if it is queued or abandoned."""
    mine = sa.and_(segments.c.run == run.id, segments.c.segment == run.segment)
    change = sa.update(segments).where(mine).values(key=claim_key(run.version, run.agent))
    database.write(lambda connection: connection.execute(change))
