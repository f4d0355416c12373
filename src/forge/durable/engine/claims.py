"""Claims queued runs: no more than the worker has capacity for, and with tenant limits in the global order."""

from __future__ import annotations

import copy
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any

import sqlalchemy as sa
from dbos import DBOS

from forge.core.plain_values import text_of
from forge.durable.store.database import Database

LOST = 30.0  # seconds after which a claimed run that never began frees its slot
OWN_POLL = 10.0  # seconds between two polls of DBOS's own queue
MANY = 1_000_000_000  # runs of a queue without a total limit

log = logging.getLogger("forge.durable")


class Claims:
    """Replaces DBOS's claiming, which handles one queue at a time and visits tenants in no order."""

    def __init__(
        self,
        database: Database,
        queues: Collection[str],
        room: Callable[[], int],
        keys: Callable[[], Sequence[str]],
    ) -> None:
        """`room`: returns how many runs may be active here. `keys`: returns what the worker can run (`claim_key`)."""
        self._database = database
        self._queues = frozenset(queues)
        self._capacity, self._keys = room, keys
        self._one_at_a_time = threading.Lock()  # two queues must not get the same slot
        self._coming: dict[str, float] = {}  # claimed runs that do not run yet
        self._per_tenant: dict[str, int] = {}  # by queue
        self._thread = 0  # the thread that claims from a queue with limits
        self._own_next = 0.0  # when to look into DBOS's own queue

    def install(self, dbos: DBOS) -> None:
        """Must be called before DBOS's threads poll the queues: what they claim before it has no limit."""
        # private: there is no other way to limit how many runs this worker claims, or from whom
        self._system, self._active = dbos._sys_db, dbos._active_workflows_set
        self._claim, self._add = self._system.start_queued_workflows, self._active.add
        self._system.start_queued_workflows = self._claim_runs  # type: ignore[method-assign,assignment]
        self._system.start_queued_partitioned_workflows = lambda *_, **__: []  # type: ignore[method-assign]
        self._active.add = self._note_active  # type: ignore[method-assign,assignment]
        if self._database.is_sqlite:
            sa.event.listen(self._system.engine, "begin", self._begin)

    def note_queue(self, queue: Any) -> None:
        """Hides tenant limits from DBOS after it read a queue's row: otherwise it queries each tenant, in any order."""
        limit, queue._partition_concurrency = queue._partition_concurrency, None
        self._per_tenant.pop(queue.name, None)
        if limit is not None:
            self._per_tenant[queue.name] = limit

    def _claim_runs(
        self, queue: Any, worker: str, version: str, partition: str | None, *counts: int, owner_xid: str | None = None
    ) -> tuple[list[str], Any]:
        if queue.name not in self._queues:  # DBOS's own, which Forge puts nothing into
            if time.monotonic() < self._own_next:
                return [], None
            self._own_next = time.monotonic() + OWN_POLL
            return self._claim(queue, worker, version, partition, *counts, owner_xid=owner_xid)
        if partition is not None:  # its row was read before the installation: the next poll uses ours
            return [], "concurrency"

        def claim(limited: Any, key: str, tenant: str | None, most: int) -> tuple[list[str], Any]:
            limited._worker_concurrency = most
            self._thread = threading.get_ident() if limited._concurrency or limited._limiter else 0
            try:
                return self._claim(limited, worker, key, tenant, owner_xid=owner_xid)
            finally:
                self._thread = 0

        with self._one_at_a_time:
            room = self._free_slots()
            if room <= 0:
                return [], "worker_concurrency"
            taken, why = self._claim_next(queue, room, claim)
            self._coming.update(dict.fromkeys(taken, time.monotonic()))
            return taken, why

    def _free_slots(self) -> int:
        moment = time.monotonic()
        coming = self._coming.copy()  # before the active ones: a run that begins meanwhile is in both, never in none
        for lost in [one for one, taken in coming.items() if moment - taken >= LOST]:
            self._coming.pop(lost, None)
            del coming[lost]
        return self._capacity() - len({*coming, *self._active.activeList()})

    def _note_active(self, workflow: str, *where: Any) -> Any:
        entry = self._add(workflow, *where)
        self._coming.pop(workflow, None)
        return entry

    def _begin(self, connection: sa.Connection) -> None:
        """Begins an immediate transaction: SQLite's driver would begin one at the first write, after DBOS has
        counted.
        """
        if self._thread == threading.get_ident():
            connection.exec_driver_sql("BEGIN IMMEDIATE")

    def _claim_next(
        self, queue: Any, room: int, claim: Callable[[Any, str, str | None, int], tuple[list[str], Any]]
    ) -> tuple[list[str], Any]:
        """Claims the first runs that this worker can run, of all tenants below their limits; DBOS then claims them by
        key and tenant and checks all limits again. If another worker claims meanwhile, this one stops, so that the
        order holds. Looking first is one statement: a poll that finds nothing costs no more.
        """
        limit, why = self._per_tenant.get(queue.name), None
        if limit is not None and queue._concurrency is not None:
            room = min(room, queue._concurrency - self._system.count_pending_queue_workflows(queue.name))
        if room <= 0:
            return [], "concurrency"
        taken: list[str] = []
        for (key, tenant), count in find_next(self._database, queue.name, self._keys(), room, limit).items():
            limited = copy.copy(queue)
            if limit is not None:
                limited._partition_concurrency = limit
                limited._concurrency = queue._concurrency or MANY  # this makes all its claims serializable
            try:
                ids, why = claim(limited, key, tenant, count)
            except sa.exc.OperationalError as error:
                if not taken and (limit is None or not _is_contended(error)):
                    raise
                log.debug("queue %s, tenant %s: %s", queue.name, tenant, text_of(error))
                break
            taken += ids
            if why in ("concurrency", "limiter"):
                break
        return taken, None if taken else why


Share = tuple[str, str | None]  # a key, and a tenant where tenants have a limit


def find_next(
    database: Database, queue: str, keys: Sequence[str], room: int, limit: int | None = None
) -> Counter[Share]:
    """Counts the next runs with these keys, the first `room` ones; with a `limit`, of tenants with fewer active ones.

    With a limit, costs a few index lookups for each tenant with queued runs, however many they are.
    """
    if not keys:
        return Counter()
    values = {"queue": queue, "keys": keys, "room": room}
    if limit is not None:
        values |= {"limit": limit, "most": min(limit, room)}
    query = _query(database.is_sqlite, by_tenant=limit is not None)
    rows = database.read(lambda connection: connection.execute(query, values).all())
    return Counter((row[0], row[1]) for row in rows)


def _query(is_sqlite: bool, *, by_tenant: bool, explain: str = "") -> sa.TextClause:
    text = explain + (_tenants_query(is_sqlite) if by_tenant else _plain_query(is_sqlite))
    return sa.text(text).bindparams(sa.bindparam("keys", expanding=True))


_MINE = "application_version IN :keys"


def _plain_query(is_sqlite: bool) -> str:
    table = "workflow_status" if is_sqlite else "dbos.workflow_status"
    return f"""
    SELECT application_version, NULL FROM {table}
    WHERE queue_name = :queue AND status = 'ENQUEUED' AND status IN ('ENQUEUED', 'PENDING') AND {_MINE}
    ORDER BY priority, created_at LIMIT :room"""  # noqa: S608 - all of it is ours


def _tenants_query(is_sqlite: bool) -> str:
    table = "workflow_status" if is_sqlite else "dbos.workflow_status"
    # SQLite uses DBOS's partial index only for conditions that repeat the index's own
    some = "queue_name = :queue AND queue_partition_key IS NOT NULL"
    some += " AND status IN ('ENQUEUED', 'PENDING')" if is_sqlite else ""
    first = f"""
        SELECT * FROM {table} WHERE {some} AND status = 'ENQUEUED' AND queue_partition_key = free.tenant AND {_MINE}
        ORDER BY priority, created_at LIMIT :most"""  # noqa: S608 - all of it is ours
    heads = f"CROSS JOIN LATERAL ({first}) one"
    if is_sqlite:  # has no LATERAL
        heads = f"CROSS JOIN {table} one ON one.workflow_uuid IN ({first.replace('*', 'workflow_uuid', 1)})"
    return f"""
    WITH RECURSIVE tenants(tenant) AS (
        SELECT min(queue_partition_key) FROM {table} WHERE {some} AND status = 'ENQUEUED'
        UNION ALL
        SELECT (SELECT min(queue_partition_key) FROM {table}
                WHERE {some} AND status = 'ENQUEUED' AND queue_partition_key > tenants.tenant)
        FROM tenants WHERE tenant IS NOT NULL
    ), free AS (
        SELECT tenant, :limit - (SELECT count(*) FROM {table}
                                 WHERE {some} AND status = 'PENDING' AND queue_partition_key = tenants.tenant) AS places
        FROM tenants WHERE tenant IS NOT NULL
    ), heads AS (
        SELECT free.tenant, free.places, one.application_version, one.priority, one.created_at,
               row_number() OVER (PARTITION BY free.tenant ORDER BY one.priority, one.created_at) AS position
        FROM free {heads} WHERE free.places > 0
    )
    SELECT application_version, tenant FROM heads WHERE position <= places ORDER BY priority, created_at LIMIT :room"""  # noqa: S608


def _is_contended(error: sa.exc.OperationalError) -> bool:
    """Returns whether another worker claims from the same queue right now."""
    return getattr(error.orig, "sqlstate", None) in ("55P03", "40001")
