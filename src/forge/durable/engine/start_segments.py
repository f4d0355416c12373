"""Queues segments of runs: all that a submitting process needs of the engine."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import sqlalchemy as sa

from forge.durable.engine.queues import NOBODY, claim_key, compute_priority
from forge.durable.store import RunStore
from forge.durable.store.inbox import notify_queued
from forge.durable.store.rows import RunInfo
from forge.durable.store.steps import APPLICATION

if TYPE_CHECKING:
    from dbos import DBOSClient


SEGMENT = "forge_segment"

on_start: set[Callable[[], None]] = set()
"""Callbacks of this process for a newly queued segment."""


def workflow_id(run: str, segment: int) -> str:
    return f"{run}.{segment}"


class Starter:
    """Queues segments. It connects at first use; keep one if you submit often."""

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._client: DBOSClient | None = None
        self._lock = threading.Lock()

    def start(self, run: RunInfo) -> None:
        """Queues the run's segment; idempotent: a queued, running or ended segment stays as it is."""
        client = self.client

        def enqueue(connection: sa.Connection) -> None:
            priority = compute_priority(
                connection, queue=run.queue, tenant=run.tenant, priority=run.priority, begun=run.segment > 1
            )
            client.enqueue_in_transaction(
                connection,
                {
                    "workflow_name": SEGMENT,
                    "workflow_id": workflow_id(run.id, run.segment),
                    "queue_name": run.queue,
                    "queue_partition_key": run.tenant or NOBODY,
                    "priority": priority,
                    "app_version": claim_key(run.version, run.agent),
                },
                run.id,
                run.segment,
            )
            notify_queued(connection, run.queue)

        self._store.database.write(enqueue)
        for wake in tuple(on_start):
            wake()

    @property
    def client(self) -> DBOSClient:
        with self._lock:
            if self._client is None:
                from dbos import DBOSClient  # slow to load: programs that only read runs do without

                from forge.durable.engine.dbos_parts import JsonSerializer, adapt_to

                adapt_to()
                silence_dbos_logger()
                self._store.prepare()
                client = DBOSClient(
                    system_database_engine=self._store.engine, serializer=JsonSerializer(), application_name=APPLICATION
                )
                self._store.database.migrate_engine(client._sys_db)  # private: DBOS.migrate takes no engine of ours
                self._client = client
            return self._client

    def close(self) -> None:
        with self._lock:
            if self._client is not None:
                self._client.destroy()
            self._client = None


def silence_dbos_logger() -> None:
    """Keeps DBOS from writing to standard error; a configured logging still shows its messages."""
    logger = logging.getLogger("dbos")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
        logger.setLevel(logging.WARNING)
