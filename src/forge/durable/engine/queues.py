"""Defines queues: their limits, and fair priorities, so that no tenant waits behind another's backlog."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from forge.core.errors import ErrorKind, ToolError
from forge.durable.store.database import Database

if TYPE_CHECKING:
    from dbos import DBOSClient

DEFAULT = "default"
NOBODY = "-"  # the tenant of runs without one: a queue with tenant limits needs a name

FIRST, LAST = 10, -10  # priorities: the higher one goes first, across tenants
CLASS = 100_000_000  # turns within one priority; 21 of them fit into the engine's 31 bits


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
    """Returns what a worker must have to take a segment, as the engine's version: the application's version and the
    agent. A worker claims only the keys of its own agents.
    """
    return json.dumps([version, agent])


def register(client: DBOSClient, names: Sequence[str], limits: Mapping[str, QueueLimits], poll: float) -> None:
    """Registers missing queues; sets the given limits."""
    for name in names:
        own = limits.get(name)
        given = own or QueueLimits()
        client.register_queue(
            name,
            global_concurrency=given.concurrency,
            limiter={"limit": given.calls, "period": given.seconds} if given.calls and given.seconds else None,
            partition_concurrency=given.per_tenant,
            polling_interval_sec=poll,
            # a worker without limits for a queue must not reset another worker's
            on_conflict="never_update" if own is None else "always_update",
        )


def compute_priority(connection: sa.Connection, *, queue: str, tenant: str, priority: int, begun: bool) -> int:
    """Returns the engine's priority of a run: lower goes first, equal ones in order of arrival.

    Uses start-time fair queueing: each new run of a tenant gets the turn after its last queued one, but none before the
    turn being served. So each tenant's first run stands beside the others' next ones, and unused turns do not add up. A
    run that already began (it waited, or its worker ended) had its turn and goes to the head. The queue is the only
    state; two concurrent callers may get the same turn, and then the earlier one goes first.
    """
    base = (FIRST - max(LAST, min(FIRST, priority))) * CLASS
    c = _workflows(connection.dialect.name == "sqlite").c
    beside = sa.and_(_is_queued(c), c.queue_name == queue, c.priority >= base, c.priority < base + CLASS)
    own = sa.and_(c.queue_partition_key == (tenant or NOBODY), c.queue_partition_key.is_not(None))
    head = sa.select(sa.func.min(c.priority)).where(beside).scalar_subquery()
    last = sa.select(sa.func.max(c.priority)).where(beside, own).scalar_subquery()
    served, latest = connection.execute(sa.select(head, last)).one()
    turn = max(1, (served or base) - base)
    if latest is not None and not begun:
        turn = max(turn, latest - base + 1)
    return base + min(turn, CLASS - 1)


def undo_attempt_count(connection: sa.Connection, worker: str, ids: Sequence[str]) -> None:
    """Undoes DBOS's count of an attempt, for segments handed over in good order: DBOS counts at the claim."""
    status = _workflows(connection.dialect.name == "sqlite")
    c = status.c
    mine = sa.and_(c.workflow_uuid.in_(ids), c.executor_id == worker, c.status == "PENDING", c.recovery_attempts > 0)
    connection.execute(sa.update(status).where(mine).values(recovery_attempts=c.recovery_attempts - 1))


def count_queued(database: Database) -> dict[str, int]:
    """Counts the segments in each queue; omits empty queues."""
    c = _workflows(database.is_sqlite).c
    query = sa.select(c.queue_name, sa.func.count()).where(_is_queued(c), c.queue_name.is_not(None))
    rows = database.read(lambda connection: connection.execute(query.group_by(c.queue_name)).all())
    return {name: count for name, count in rows if not name.startswith("_")}


_COLUMNS = (
    *("queue_name", "queue_partition_key", "status", "priority"),
    *("workflow_uuid", "executor_id", "recovery_attempts"),
)


def _workflows(is_sqlite: bool) -> sa.TableClause:
    """Describes DBOS's documented table: no public call returns the head or the length of a queue."""
    columns: list[sa.ColumnClause[Any]] = [sa.column(name) for name in _COLUMNS]
    return sa.table("workflow_status", *columns, schema=None if is_sqlite else "dbos")


def _is_queued(c: Any) -> sa.ColumnElement[bool]:
    # both conditions, as literals: SQLite uses DBOS's partial indexes only if a query repeats their conditions
    among = c.status.in_([sa.literal_column("'ENQUEUED'"), sa.literal_column("'PENDING'")])
    return sa.and_(c.status == sa.literal_column("'ENQUEUED'"), among)
