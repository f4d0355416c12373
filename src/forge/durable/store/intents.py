"""Stores which attempt began a segment, and which calls it was about to run. Every function works inside the caller's
transaction.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import sqlalchemy as sa

from forge.durable.store.find import COLUMNS, insert_into, now, run_info
from forge.durable.store.rows import RunInfo
from forge.durable.store.tables import intents, runs

Intent = Literal["recorded", "repeated", "lost"]
"""The state of a call's intent: recorded for this attempt, recorded by an earlier attempt, or refused, because another
attempt runs the segment.
"""


class Begun(NamedTuple):
    """A segment that an attempt has begun."""

    run: RunInfo
    is_first: bool  # there was no earlier attempt
    intents: frozenset[str]  # calls that earlier attempts were about to run


def begin_segment(connection: sa.Connection, run_id: str, segment: int, worker: str, attempt: str) -> Begun | None:
    """Marks the segment as running in this attempt. None: the run is over, waits, or has another segment."""
    change = sa.update(runs).where(runs.c.id == run_id, runs.c.segment == segment)
    begins = change.values(status="running", worker=worker, attempt=attempt, updated=now(connection))
    for status in ("queued", "running"):  # a queued one has no earlier attempt, which saves a query
        row = connection.execute(begins.where(runs.c.status == status).returning(*COLUMNS)).one_or_none()
        if row is not None:
            is_first = status == "queued"
            earlier = frozenset[str]() if is_first else _list_intents(connection, run_id, segment)
            return Begun(run_info(row), is_first, earlier)
    return None


def _list_intents(connection: sa.Connection, run_id: str, segment: int) -> frozenset[str]:
    query = sa.select(intents.c.call).where(intents.c.run == run_id, intents.c.segment == segment)
    return frozenset(connection.execute(query).scalars())


def record_intent(connection: sa.Connection, run_id: str, segment: int, attempt: str, call: str) -> Intent:
    """Records that the attempt is about to run a call, if it still runs the segment and no other attempt was."""
    owned = sa.select(runs.c.id, runs.c.segment, sa.literal(call), runs.c.attempt).where(
        runs.c.id == run_id, runs.c.segment == segment, runs.c.attempt == attempt, runs.c.status == "running"
    )
    # the lock orders it with an attempt that takes over right now: either that one sees the intent, or this one is lost
    columns = [intents.c.run, intents.c.segment, intents.c.call, intents.c.attempt]
    new = insert_into(connection, intents).from_select(columns, owned.with_for_update(read=True))
    if connection.execute(new.on_conflict_do_nothing().returning(intents.c.call)).first() is not None:
        return "recorded"
    key = (intents.c.run == run_id, intents.c.segment == segment, intents.c.call == call)
    found: Any = connection.execute(sa.select(intents.c.attempt).where(*key)).scalar()
    if found is None:
        return "lost"
    return "recorded" if found == attempt else "repeated"  # recorded before, if the connection broke at the commit


def is_lost(connection: sa.Connection, run_id: str, attempt: str) -> bool:
    """Returns True if another attempt runs the run's segment, or ran it. Lock the run first."""
    return bool(connection.execute(sa.select(runs.c.attempt).where(runs.c.id == run_id)).scalar_one() != attempt)
