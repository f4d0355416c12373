"""Holds messages to a run in progress until its next segment. Every function works in the caller's transaction."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import sqlalchemy as sa

from forge.agent.inbox import SENT
from forge.agent.message_json import export_message
from forge.core.errors import ErrorKind
from forge.core.messages import Message
from forge.durable.store.find import INBOX, find_run
from forge.durable.store.notices import notify_message
from forge.durable.store.rows import RunInfo
from forge.durable.store.tables import messages, runs
from forge.workspace.state.store import StoreError

MOST = 100  # messages that wait for one run
LONGEST = 1024 * 1024  # characters of one message


class Called(NamedTuple):
    """Runs that somebody wants something of, by their ids."""

    cancelled: frozenset[str]  # or being cancelled
    told: frozenset[str]  # messages wait for them


def put_message(connection: sa.Connection, run_id: str, text: str) -> RunInfo:
    """Adds a message for a run that is not over. Raises `StoreError`."""
    run = find_run(connection, run_id, lock=True)
    if run.is_over:
        words = f"sending a message to run {run.id}: it is {run.status}"
        raise StoreError(words, ErrorKind.USER, f'Continue it with the message: forge runs resume {run.id} --say "…"')
    waiting, last = connection.execute(
        sa.select(sa.func.count(), sa.func.max(messages.c.position)).where(*_of(run.id))
    ).one()
    if waiting >= MOST or len(text) > LONGEST:
        words = f"sending a message to run {run.id}: at most {MOST} messages of {LONGEST:,} characters may wait"
        raise StoreError(words, ErrorKind.USER, "Wait until the run has received the earlier ones.")
    wire = export_message(Message("user", text, extra={SENT: True}))
    position = 0 if last is None else last + 1
    connection.execute(sa.insert(messages).values(run=run.id, place=INBOX, position=position, message=wire))
    notify_message(connection, run.id)
    return run


def has_messages(run_id: str) -> sa.ColumnElement[bool]:
    """Returns a condition: messages wait for the run."""
    return sa.exists().where(*_of(run_id))


def move_messages(connection: sa.Connection, run_id: str, place: int) -> bool:
    """Makes the waiting messages a part of the history, at a place that has no others yet. False: there are none."""
    return connection.execute(sa.update(messages).where(*_of(run_id)).values(place=place)).rowcount > 0


def find_called(connection: sa.Connection, run_ids: Collection[str]) -> Called:
    """Finds the cancelled runs, and those for which messages wait, in one query."""
    stopped = sa.or_(runs.c.cancelling, runs.c.status == "cancelled")
    cancelled = sa.select(runs.c.id, sa.true().label("ends")).where(runs.c.id.in_(list(run_ids)), stopped)
    told = sa.select(messages.c.run, sa.false()).where(messages.c.run.in_(list(run_ids)), messages.c.place == INBOX)
    rows = connection.execute(sa.union_all(cancelled, told)).all()
    return Called(frozenset(run for run, ends in rows if ends), frozenset(run for run, ends in rows if not ends))


def _of(run_id: str) -> tuple[sa.ColumnElement[bool], ...]:
    return messages.c.run == run_id, messages.c.place == INBOX
