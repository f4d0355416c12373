"""Delivers the answers of runs when they are over: by one worker, and again if it died."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import sqlalchemy as sa

from forge.core.errors import ToolError
from forge.core.execution.threads import in_thread
from forge.durable.engine.follow_up import log_fields
from forge.durable.engine.segment_context import WorkerContext
from forge.durable.store.database import Database
from forge.durable.store.find import find_run, now
from forge.durable.store.rows import OVER, RunInfo
from forge.durable.store.tables import Text, runs

LEASE = 120.0  # seconds for one try
TRIES = 5
MOST = 20  # at once

Deliver = Callable[[RunInfo, str, str], Awaitable[None]]
"""Sends a run's result to a channel and a target of it (or its default one). Raises `ToolError`."""

metadata = sa.MetaData()
table = sa.Table(
    "forge_deliveries",
    metadata,
    sa.Column("run", Text, primary_key=True),
    sa.Column("channel", Text, nullable=False),
    sa.Column("target", Text, nullable=False),
    sa.Column("tried", sa.Double),  # when the last try began
    sa.Column("tries", sa.Integer, nullable=False),
)

log = logging.getLogger("forge.durable")


def add(connection: sa.Connection, run: str, channel: str, target: str) -> None:
    connection.execute(sa.insert(table).values(run=run, channel=channel, target=target, tried=None, tries=0))


async def deliver_ended(context: WorkerContext, deliver: Deliver) -> int:
    """Delivers results that were not sent yet; returns the number sent here. Retries a failure later, up to `TRIES`
    times.

    Each arrives once, unless a worker dies between sending and recording it: then twice rather than never.
    """
    database, sent = context.store.database, 0
    if not await in_thread(lambda: database.read(_has_any)):  # mostly: one statement, and no transaction
        return 0
    for run, channel, target, tries in await in_thread(lambda: database.write(_claim)):
        try:
            await deliver(run, channel, target)
        except ToolError as error:
            words = "the answer of run %s was not delivered to %s: %s"
            log.error(words, run.id, channel, error.message, extra=log_fields(run))
            if tries < TRIES:
                continue
        else:
            sent += 1
        await in_thread(_remover(database, run.id))
    return sent


def _has_any(connection: sa.Connection) -> bool:
    return connection.execute(sa.select(table.c.run).limit(1)).first() is not None


def _claim(connection: sa.Connection) -> list[tuple[RunInfo, str, str, int]]:
    moment = now(connection)
    free = sa.or_(table.c.tried.is_(None), table.c.tried < moment - LEASE)
    query = (
        sa.select(table)
        .join(runs, runs.c.id == table.c.run)
        .where(runs.c.status.in_(OVER), free)
        .limit(MOST)
        .with_for_update(of=table, skip_locked=True)
    )
    rows = connection.execute(query).all()
    if rows:
        mine = table.c.run.in_([row.run for row in rows])
        connection.execute(sa.update(table).where(mine).values(tried=moment, tries=table.c.tries + 1))
    return [(find_run(connection, row.run), row.channel, row.target, row.tries + 1) for row in rows]


def _remover(database: Database, run: str) -> Callable[[], Any]:
    return lambda: database.write(lambda connection: connection.execute(sa.delete(table).where(table.c.run == run)))
