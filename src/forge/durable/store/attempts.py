"""Stores which attempt runs a segment, and its intents: the calls that it was about to run. Every function works inside
the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import sqlalchemy as sa

from forge.durable.store.find import COLUMNS, insert_into, now, run_info
from forge.durable.store.inbox import has_messages
from forge.durable.store.rows import RunInfo
from forge.durable.store.tables import Json, intents, runs

Intent = Literal["recorded", "repeated", "lost"]
"""The state of a call's intent: recorded for this attempt, recorded by an earlier attempt, or refused, because another
attempt runs the segment.
"""


Detail = Mapping[str, Any] | None
"""What a tool's `reconcile` needs; None: it has none."""


class NewIntent(NamedTuple):
    """An intent to store. `earlier`: the attempt that had it before, without effect."""

    run: str
    segment: int
    attempt: str
    call: str
    detail: Detail = None
    earlier: str = ""


class StoredIntent(NamedTuple):
    """An intent that an earlier attempt stored."""

    attempt: str
    detail: Mapping[str, Any]  # empty: there is none


class Begun(NamedTuple):
    """A segment that an attempt has begun."""

    run: RunInfo
    is_first: bool  # there was no earlier attempt
    intents: Mapping[str, StoredIntent]  # calls that earlier attempts were about to run
    has_messages: bool  # a person has sent messages since the last segment
    queued_seconds: float | None = None  # how long the segment was queued; None: an earlier attempt began it


def begin_segment(connection: sa.Connection, run_id: str, segment: int, worker: str, attempt: str) -> Begun | None:
    """Marks the segment as running in this attempt. None: the run is over, waits, or has another segment."""
    change = sa.update(runs).where(runs.c.id == run_id, runs.c.segment == segment)
    # `look` is not used while it runs: it keeps when the segment was queued
    begins = change.values(
        status="running", worker=worker, attempt=attempt, updated=now(connection), look=runs.c.updated
    )
    for status in ("queued", "running"):  # a queued one has no earlier attempt, which saves a query
        found = begins.where(runs.c.status == status).returning(
            *COLUMNS, runs.c.look.label("queued_at"), has_messages(run_id).label("told")
        )
        row = connection.execute(found).one_or_none()
        if row is not None:
            is_first = status == "queued"
            earlier = {} if is_first else _list_intents(connection, run_id, segment)
            queued = max(0.0, row.updated - row.queued_at) if is_first else None
            return Begun(run_info(row), is_first, earlier, bool(row.told), queued)
    return None


def _list_intents(connection: sa.Connection, run_id: str, segment: int) -> dict[str, StoredIntent]:
    c = intents.c
    query = sa.select(c.call, c.attempt, c.detail).where(c.run == run_id, c.segment == segment)
    return {row.call: StoredIntent(row.attempt, row.detail or {}) for row in connection.execute(query)}


def record_intent(connection: sa.Connection, new: NewIntent) -> Intent:
    """Records that the attempt is about to run a call, if it still runs the segment and no other attempt was."""
    if new.earlier:
        return _renew_intent(connection, new)
    owned = sa.select(runs.c.id, runs.c.segment, sa.literal(new.call), runs.c.attempt, sa.literal(new.detail, Json))
    # the lock orders it with an attempt that takes over right now: either that one sees the intent, or this one is lost
    owned = owned.where(*_is_owned(new)).with_for_update(read=True)
    columns = [intents.c.run, intents.c.segment, intents.c.call, intents.c.attempt, intents.c.detail]
    added = insert_into(connection, intents).from_select(columns, owned)
    if connection.execute(added.on_conflict_do_nothing().returning(intents.c.call)).first() is not None:
        return "recorded"
    found: Any = connection.execute(sa.select(intents.c.attempt).where(*_is_call(new))).scalar()
    if found is None:
        return "lost"
    return "recorded" if found == new.attempt else "repeated"  # recorded before, if the connection broke at the commit


def _renew_intent(connection: sa.Connection, new: NewIntent) -> Intent:
    """Takes over the intent of an earlier attempt, whose call took no effect."""
    owned = sa.select(runs.c.id).where(*_is_owned(new)).with_for_update(read=True)
    if connection.execute(owned).first() is None:
        return "lost"
    mine = sa.update(intents).where(*_is_call(new), intents.c.attempt.in_([new.earlier, new.attempt]))
    changed = connection.execute(mine.values(attempt=new.attempt, detail=new.detail)).rowcount
    return "recorded" if changed else "repeated"


def _is_owned(new: NewIntent) -> tuple[sa.ColumnElement[bool], ...]:
    c = runs.c
    return c.id == new.run, c.segment == new.segment, c.attempt == new.attempt, c.status == "running"


def _is_call(new: NewIntent) -> tuple[sa.ColumnElement[bool], ...]:
    return intents.c.run == new.run, intents.c.segment == new.segment, intents.c.call == new.call


def is_lost(connection: sa.Connection, run_id: str, attempt: str) -> bool:
    """Returns whether another attempt runs the run's segment, or ran it. Lock the run first."""
    return bool(connection.execute(sa.select(runs.c.attempt).where(runs.c.id == run_id)).scalar_one() != attempt)
