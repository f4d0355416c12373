"""Queues segments of runs: all that a submitting process needs of the engine."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Protocol

import sqlalchemy as sa

from forge.durable.engine.queues import claim_key, compute_priority
from forge.durable.store import RunStore
from forge.durable.store.find import insert_into, now
from forge.durable.store.inbox import notify_queued
from forge.durable.store.rows import RunInfo
from forge.durable.store.tables import segments

if TYPE_CHECKING:
    from dbos import DBOSClient


SEGMENT_WORKFLOW = "forge_segment"  # the name of the workflow in DBOS's tables


class LocalEngine(Protocol):
    """The engine of this process, as programs in the process reach it: at once, without the database."""

    def wake(self) -> None:
        """Polls at once: something was queued."""

    def note_messages(self, run_id: str, store: RunStore) -> None:
        """Notes that messages wait for a run of this database."""


_local_engine: LocalEngine | None = None


def set_local_engine(engine: LocalEngine | None) -> None:
    global _local_engine
    _local_engine = engine


def local_engine() -> LocalEngine | None:
    """Returns the engine that runs in this process, if there is one. DBOS allows no second one."""
    return _local_engine


def workflow_id(run: str, segment: int, starts: int = 1) -> str:
    """Returns DBOS's id of a workflow. Each start of a segment is a workflow; the first one has all recorded steps."""
    return f"{run}.{segment}" if starts == 1 else f"{run}.{segment}~{starts}"


class Starter:
    """Queues segments; keep one if you submit often."""

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._client: DBOSClient | None = None
        self._is_prepared = False
        self._lock = threading.Lock()

    def prepare(self) -> None:
        """Makes or migrates our tables, once."""
        with self._lock:
            if not self._is_prepared:
                self._store.prepare()
                self._is_prepared = True

    def start(self, run: RunInfo) -> None:
        """Queues the run's segment; idempotent: a queued, running or ended segment stays as it is."""
        self.prepare()

        def enqueue(connection: sa.Connection) -> None:
            place = compute_priority(
                connection, queue=run.queue, tenant=run.tenant, priority=run.priority, begun=run.segment > 1
            )
            row = insert_into(connection, segments).values(
                run=run.id,
                segment=run.segment,
                queue=run.queue,
                tenant=run.tenant,
                key=claim_key(run.version, run.agent),
                priority=place,
                queued=now(connection),
                state="queued",
                worker="",
                starts=0,
                tries=0,
            )
            connection.execute(row.on_conflict_do_nothing())
            notify_queued(connection, run.queue)

        self._store.database.write(enqueue)
        if (engine := local_engine()) is not None:
            engine.wake()

    def prepare_engine(self) -> None:
        """Makes or migrates the tables: ours and the engine's."""
        _ = self.client

    @property
    def client(self) -> DBOSClient:
        """The engine's client. Makes the tables at first use: ours and the engine's."""
        self.prepare()
        with self._lock:
            if self._client is None:
                from dbos import DBOSClient  # slow to load: programs that only submit and read runs do without

                from forge.durable.engine.dbos_private import (
                    APPLICATION,
                    JsonSerializer,
                    run_migrations,
                    with_old_times,
                )

                silence_dbos_logger()
                engine = with_old_times(self._store.engine)
                self._store.database.migrate_engine(engine, run_migrations)
                self._client = DBOSClient(
                    system_database_engine=engine, serializer=JsonSerializer(), application_name=APPLICATION
                )
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
