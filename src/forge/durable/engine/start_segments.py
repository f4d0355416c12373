"""Queues segments of runs: all that a submitting process needs of the engine, whose data is JSON, never a pickle."""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from dbos import DBOSClient, Serializer, _migration, _serialization, _sys_db  # private: the engine's version is pinned

from forge.durable.engine.queues import NOBODY, claim_key, compute_priority
from forge.durable.store import RunStore
from forge.durable.store.inbox import notify_queued
from forge.durable.store.rows import Outcome, RunInfo
from forge.durable.store.steps import APPLICATION, FORMAT
from forge.pipeline.spans import AGENT, find_telemetry, run_operation

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


# Lets the engine run on SQLite before 3.42: it assumes that Python 3.12 and later have a newer one.


_NEWER = "(unixepoch('subsec') * 1000)"  # NULL before 3.42
_OLDER = "(strftime('%s','now') * 1000)"


@cache
def adapt_to(version: tuple[int, ...] = sqlite3.sqlite_version_info) -> None:
    """Writes times in whole seconds if this SQLite has no finer ones, as the engine does on Python 3.11."""
    if version >= (3, 42):
        return
    _migration.sqlite_migrations[:] = [text.replace(_NEWER, _OLDER) for text in _migration.sqlite_migrations]
    newer = _sys_db.SystemDatabase._now_ms_sql

    def now(system: Any) -> Any:
        if system.engine.dialect.name != "sqlite":
            return newer(system)
        return sa.cast(sa.func.strftime("%s", "now") * 1000, sa.BigInteger)

    setattr(_sys_db.SystemDatabase, "_now_ms_sql", now)  # noqa: B010


# The engine's data is JSON: with a pickle, anyone who can write to the database could run code.


class RecordedError(Exception):
    """An exception that a step or a workflow raised in some process, as recorded."""


class JsonSerializer(Serializer):
    """Stores JSON in plain ASCII (so that no NUL reaches Postgres), never a pickle."""

    def serialize(self, data: Any) -> str:
        if isinstance(data, BaseException):
            data = {"__error__": f"{type(data).__name__}: {data}"}
        return json.dumps(data, separators=(",", ":"))

    def deserialize(self, serialized_data: str) -> Any:
        data = json.loads(serialized_data)
        if isinstance(data, dict) and data.keys() == {"__error__"}:
            return RecordedError(data["__error__"])
        return data

    def decode(self, serialized_data: str, name: str | None) -> Any:
        """Decodes what a serializer of this name wrote. Raises `TypeError` if it was not ours."""
        return self.deserialize(serialized_data) if name in (FORMAT, None) else _refuse_pickle(serialized_data)

    def name(self) -> str:
        return FORMAT


def refuse_pickles() -> None:
    """Refuses pickles in this process until `allow_pickles`. DBOS unpickles rows marked as pickles with any
    serializer.
    """
    # private: there is no setting for it. DBOS is one for the whole process
    _serialization.DBOSDefaultSerializer.deserialize = _refuse_pickle  # type: ignore[method-assign]


def allow_pickles() -> None:
    vars(_serialization.DBOSDefaultSerializer).pop("deserialize", None)


def _refuse_pickle(serialized_data: str) -> Any:
    raise TypeError(
        "a pickle in the durable database was not loaded: Forge never writes pickles, and a pickle could run any code"
    )


# Continues traces across machines: the spans of a run's segments belong to the span in which the run was submitted.


def carrier() -> dict[str, str]:
    """Returns the current span, as the parent of a run; empty if there is none.

    Only the trace, in its own format: baggage may be private, and the resuming worker may use other formats.
    """
    found: dict[str, str] = {}
    if find_telemetry() is not None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        TraceContextTextMapPropagator().inject(found)
    return found


@contextmanager
def segment_span(run: RunInfo, worker: str) -> Iterator[Callable[[Outcome], None]]:
    """Makes a span around the work on a segment; yields a function that records its outcome."""
    attributes = {
        "gen_ai.agent.name": run.agent,
        "gen_ai.conversation.id": run.session or run.id,
        "forge.run.id": run.id,
        "forge.run.segment": run.segment,
        "forge.worker": worker,
    }
    with run_operation(AGENT, run.agent, attributes, parent=lambda: _parent(run.carrier)) as operation:

        def tell(outcome: Outcome) -> None:
            operation.set("forge.run.status", outcome.status)
            if outcome.status == "failed":
                operation.fail(str((outcome.result or {}).get("reason") or "error"))

        yield tell


def _parent(carried: Mapping[str, str]) -> Any:
    """Returns the caller's span, never one of the worker's own."""
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    words = {str(name): str(value) for name, value in carried.items()}
    return TraceContextTextMapPropagator().extract(words, Context())
