"""Claims queued segments for a worker: the first that it can run, within the limits of their queues and tenants."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from functools import cache
from typing import Any, Literal, NamedTuple

import sqlalchemy as sa

from forge.durable.engine.queues import QueueLimits, list_limits
from forge.durable.store.database import Database
from forge.durable.store.find import now
from forge.durable.store.tables import IS_BEGUN, IS_QUEUED, AnyText, Seconds, queue_limits, segments

LIMITS_READ = 5.0  # seconds after which a worker looks which queues have limits: they change rarely


class Claim(NamedTuple):
    """A segment that this worker begins."""

    run: str
    segment: int
    starts: int  # how often it was claimed, this time included
    tries: int  # … without those that were handed back in good order


EndState = Literal["over", "failed", "lost"]
"""How a claimed segment ended, as it is stored. "lost": it was tried too often, and its workers were lost each time."""


class Ended(NamedTuple):
    """A claimed segment that this worker has ended."""

    claim: Claim
    state: EndState


class Claims:
    """The claims of one worker. Its methods block; one poll must follow the other."""

    def __init__(
        self, database: Database, worker: str, queues: Collection[str], keys: Callable[[], Sequence[str]]
    ) -> None:
        """`keys`: returns what the worker can run (`claim_key`)."""
        self._database, self._worker, self._keys = database, worker, keys
        self._queues = list(queues)
        self._limited: Collection[str] = ()  # queues with limits
        self._read_at: float | None = None

    def poll(self, room: int, ended: Sequence[Ended] = ()) -> list[Claim]:
        """Stores the ends of segments, and claims up to `room` others. A poll that finds nothing costs one statement a
        queue.
        """
        self._read_limits()
        keys = self._keys() if room > 0 else ()
        if keys and self._database.is_sqlite and not ended:  # looking needs no lock of the file
            keys = keys if self._database.read(self._has_queued) else ()
        if not keys and not ended:
            return []
        self._queues = [*self._queues[1:], self._queues[0]]  # each is the first in turn
        is_single_statement = not ended and len(self._queues) == 1 and not self._limited
        write = self._database.write_once if is_single_statement else self._database.write
        return write(lambda connection: self._settle(connection, keys, room, ended), lasting=False)

    def hand_back(self, worker: str, *, counts: bool, only: Collection[Claim] | None = None) -> list[Claim]:
        """Puts segments that a worker claimed back into their queues: all, or only some; returns those it still had.

        `counts`: the loss counts as a try, so that a run that kills its workers ends some day.
        """

        def write(connection: sa.Connection) -> list[Claim]:
            c = segments.c
            values: dict[str, Any] = {"state": "queued", "counted": None}
            if not counts:
                values["tries"] = c.tries - 1
            change = sa.update(segments).where(IS_BEGUN, c.worker == worker)
            if only is not None:
                key = sa.tuple_(c.run, c.segment, c.starts)
                change = change.where(key.in_([(one.run, one.segment, one.starts) for one in only]))
            found = connection.execute(change.values(values).returning(c.run, c.segment, c.starts, c.tries))
            return sorted(Claim(*row) for row in found)

        return self._database.write(write)

    def list_claimed(self) -> list[Claim]:
        """Lists the segments that this worker has, by the database."""
        c = segments.c
        query = sa.select(c.run, c.segment, c.starts, c.tries).where(IS_BEGUN, c.worker == self._worker)
        return self._database.read(lambda connection: [Claim(*row) for row in connection.execute(query)])

    def _read_limits(self) -> None:
        if self._read_at is None or time.monotonic() - self._read_at >= LIMITS_READ:
            self._limited = list_limits(self._database, self._queues)
            self._read_at = time.monotonic()

    def _has_queued(self, connection: sa.Connection) -> bool:
        query = sa.select(segments.c.run).where(IS_QUEUED, segments.c.queue.in_(self._queues)).limit(1)
        return connection.execute(query).first() is not None

    def _settle(self, connection: sa.Connection, keys: Sequence[str], room: int, ended: Sequence[Ended]) -> list[Claim]:
        for one, state in ended:
            c = segments.c
            mine = (c.run == one.run, c.segment == one.segment, c.starts == one.starts, c.worker == self._worker)
            connection.execute(sa.update(segments).where(IS_BEGUN, *mine).values(state=state))
        claims: list[Claim] = []
        for queue in self._queues if keys else ():
            if len(claims) < room:
                claims += self._claim(connection, queue, keys, room - len(claims))
        return claims

    def _claim(self, connection: sa.Connection, queue: str, keys: Sequence[str], room: int) -> list[Claim]:
        limits = QueueLimits()
        if queue in self._limited:
            limits = _lock_limits(connection, queue)
            room = min(room, _count_free(connection, queue, limits))
        if room <= 0:
            return []
        values = {"queue": queue, "keys": keys, "room": room, "worker": self._worker}
        if limits.per_tenant:
            values |= {"limit": limits.per_tenant, "most": min(limits.per_tenant, room)}
        values["counted"] = connection.execute(sa.select(now(connection))).scalar_one() if limits.calls else None
        query = claim_query(connection.dialect.name == "sqlite", by_tenant=limits.per_tenant is not None)
        rows = sorted(connection.execute(query, values), key=lambda row: (row.priority, row.queued))
        return [Claim(row.run, row.segment, row.starts, row.tries) for row in rows]


def _lock_limits(connection: sa.Connection, queue: str) -> QueueLimits:
    """Reads the limits of a queue. Until this transaction ends, no other worker claims from the queue: so what it
    counts stays true. (SQLite has one writer anyway.)
    """
    row = connection.execute(
        sa.select(queue_limits).where(queue_limits.c.name == queue).with_for_update()
    ).one_or_none()
    return QueueLimits() if row is None else QueueLimits.of_row(row)


def _count_free(connection: sa.Connection, queue: str, limits: QueueLimits) -> int:
    """Counts how many segments may begin now."""
    c, free = segments.c, 1_000_000_000
    count = sa.select(sa.func.count()).select_from(segments).where(c.queue == queue)
    if limits.concurrency:
        free = limits.concurrency - connection.execute(count.where(IS_BEGUN)).scalar_one()
    if limits.calls and limits.seconds:
        begun = connection.execute(count.where(c.counted > now(connection) - limits.seconds)).scalar_one()
        free = min(free, limits.calls - begun)
    return free


# The statement that claims: it chooses queued segments and changes their state, at once. With Postgres, it skips a row
# that another worker is just choosing, and does not wait for it. SQLite has one writer at a time anyway.


@cache
def claim_query(is_sqlite: bool, *, by_tenant: bool) -> Any:
    """Returns the statement that claims the next segments and returns them. Two workers never wait for each other, and
    never claim the same.
    """
    text = f"""
    WITH chosen AS MATERIALIZED ({next_query(is_sqlite, by_tenant=by_tenant)})
    UPDATE forge_segments
    SET state = 'begun', worker = :worker, starts = starts + 1, tries = tries + 1, counted = :counted
    FROM chosen
    WHERE forge_segments.run = chosen.run AND forge_segments.segment = chosen.segment AND state = 'queued'
    RETURNING forge_segments.run, forge_segments.segment, starts, tries, forge_segments.priority, forge_segments.queued
    """  # noqa: S608 - all of it is ours
    c = segments.c
    bound = (sa.bindparam("worker", type_=AnyText), sa.bindparam("counted", type_=Seconds))
    return bind_next(text).bindparams(*bound).columns(c.run, c.segment, c.starts, c.tries, c.priority, c.queued)


def bind_next(text: str) -> sa.TextClause:
    """Returns the statement with the parameters of `next_query`."""
    return sa.text(text).bindparams(sa.bindparam("keys", expanding=True), sa.bindparam("queue", type_=AnyText))


_CLAIMABLE = "queue = :queue AND state = 'queued' AND key IN :keys"


def next_query(is_sqlite: bool, *, by_tenant: bool) -> str:
    """Returns the query for the next segments that have one of these keys: `room` of them at most. `by_tenant`: each
    tenant has at most `limit` at work.
    """
    if by_tenant:
        return _tenants_query(is_sqlite)
    lock = "" if is_sqlite else "FOR UPDATE SKIP LOCKED"
    order = "ORDER BY priority, queued LIMIT :room"
    return f"SELECT run, segment, tenant FROM forge_segments WHERE {_CLAIMABLE} {order} {lock}"  # noqa: S608


def _tenants_query(is_sqlite: bool) -> str:
    """Returns the same with a limit for each tenant, in four parts.

    1. `tenants` lists those with queued segments. It jumps from one to the next in the index: one lookup for each
       tenant, however many segments are queued. A plain DISTINCT would read all of them.
    2. `free` counts what each has at work, and so how many places it has left. The count stays true: the worker has
       locked the limits of the queue (`_lock_limits`).
    3. `heads` takes the first segments of each tenant that has places, numbered in their order: never more than `most`,
       which is how many could be claimed.
    4. Those within their tenant's places are sorted together, and the first `room` are the answer.
    """
    of_queue = "FROM forge_segments WHERE queue = :queue"
    theirs = f"FROM forge_segments WHERE {_CLAIMABLE} AND tenant = free.tenant ORDER BY priority, queued LIMIT :most"
    of_each = f"CROSS JOIN LATERAL (SELECT * {theirs}) one"
    if is_sqlite:  # has no LATERAL, but a subquery after IN may use the row of the outer query
        of_each = f"CROSS JOIN forge_segments one ON one.rowid IN (SELECT rowid {theirs})"
    return f"""
    WITH RECURSIVE tenants(tenant) AS (
        SELECT min(tenant) {of_queue} AND state = 'queued'
        UNION ALL
        SELECT (SELECT min(tenant) {of_queue} AND state = 'queued' AND tenant > tenants.tenant)
        FROM tenants WHERE tenant IS NOT NULL
    ), free AS (
        SELECT tenant, :limit - (SELECT count(*) {of_queue} AND state = 'begun' AND tenant = tenants.tenant) AS places
        FROM tenants WHERE tenant IS NOT NULL
    ), heads AS (
        SELECT free.tenant, free.places, one.run, one.segment, one.priority, one.queued,
               row_number() OVER (PARTITION BY free.tenant ORDER BY one.priority, one.queued) AS position
        FROM free {of_each} WHERE free.places > 0
    )
    SELECT run, segment, tenant FROM heads WHERE position <= places ORDER BY priority, queued LIMIT :room"""  # noqa: S608
