"""Holds messages to a run in progress until its next segment. Every function works in the caller's transaction."""

from __future__ import annotations

import sqlalchemy as sa

from forge.agent.inbox import SENT
from forge.agent.message_json import export_message
from forge.core.errors import ErrorKind
from forge.core.messages import Message
from forge.durable.store.find import INBOX, find_run
from forge.durable.store.rows import RunInfo
from forge.durable.store.tables import messages
from forge.workspace.state.store import StoreError

MOST = 100  # messages that wait for one run
LONGEST = 1024 * 1024  # characters of one message


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
    return run


def has_messages(connection: sa.Connection, run_id: str) -> bool:
    return connection.execute(sa.select(messages.c.position).where(*_of(run_id)).limit(1)).first() is not None


def move_messages(connection: sa.Connection, run_id: str, place: int) -> None:
    """Makes the waiting messages a part of the history, at a place that has no others yet."""
    connection.execute(sa.update(messages).where(*_of(run_id)).values(place=place))


def _of(run_id: str) -> tuple[sa.ColumnElement[bool], ...]:
    return messages.c.run == run_id, messages.c.place == INBOX
