"""Stores the events of runs. Every function works inside the caller's transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any
from zlib import crc32

import sqlalchemy as sa

from forge.durable.store.check_input import LONGEST_NAME
from forge.durable.store.find import clamp_limit, insert_rows, missing_error
from forge.durable.store.step_json import object_of
from forge.durable.store.tables import events, runs
from forge.workspace.state.store import StoreError

_LAST = 2**62  # above every number
_EVENTS = 0x666F7267  # namespace of our advisory locks
_LOCK = sa.text("SELECT pg_advisory_xact_lock(:namespace, key) FROM unnest(CAST(:keys AS integer[])) AS key")

NewEvent = tuple[str | None, Mapping[str, Any]]
"""A key, with which it is stored once per run, and the event in its wire form."""

NewEvents = Sequence[NewEvent]


def add_events(connection: sa.Connection, batch: Mapping[str, NewEvents]) -> dict[str, StoreError]:
    """Adds events of several runs; returns errors for runs that do not exist."""
    lock_events(connection, *batch)
    known = set(connection.execute(sa.select(runs.c.id).where(runs.c.id.in_(list(batch)))).scalars())
    insert_events(connection, {run: new for run, new in batch.items() if run in known})
    return {run: missing_error(connection, run) for run in batch if run not in known}


def insert_events(connection: sa.Connection, batch: Mapping[str, NewEvents]) -> None:
    """Inserts events of runs that exist. Lock their numbering first."""
    rows = [
        {"run": run, "key": _short(key), "event": object_of(event)} for run, new in batch.items() for key, event in new
    ]
    insert_rows(connection, events, rows, skip=True)


def lock_events(connection: sa.Connection, *run_ids: str) -> None:
    """Locks the numbering of these runs' events until the end of the transaction.

    So numbers become visible in ascending order: a reader of number 7 never gets a 6 later. (Numbers of other runs may
    come late, which does not matter.) SQLite has one writer at a time anyway.
    """
    if connection.dialect.name != "sqlite":
        keys = sorted({crc32(run_id.encode()) - 2**31 for run_id in run_ids})  # one order, so that nobody deadlocks
        connection.execute(_LOCK, {"namespace": _EVENTS, "keys": keys})


def events_of(connection: sa.Connection, run_id: str, after: int, limit: int) -> list[tuple[int, dict[str, Any]]]:
    query = sa.select(events.c.number, events.c.event).where(
        events.c.run == run_id, events.c.number > max(-1, min(after, _LAST))
    )
    return [
        (number, event)
        for number, event in connection.execute(query.order_by(events.c.number).limit(clamp_limit(limit)))
    ]


def _short(key: str | None) -> str | None:
    """Hashes a long key: indexes cannot hold it."""
    if key is None or len(key) <= LONGEST_NAME:
        return key
    return sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
