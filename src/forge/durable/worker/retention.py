"""Prunes the database at quiet times: a chore of every worker, done by one of them in an hour."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import sqlalchemy as sa

from forge.core.execution.threads import in_thread
from forge.durable.client.pruning import Retention, prune_kept
from forge.durable.engine.engine import Engine
from forge.durable.engine.queues import count_queued
from forge.durable.store import RunStore
from forge.durable.store.find import insert_into, now
from forge.durable.store.tables import versions

EVERY = 3600.0  # seconds between two passes over a database
LATEST = 86_400.0  # seconds after which a pass begins although there is work
PORTION = 5  # batches of one round, so that other chores get their turn
PART = "pruned"  # our row among the versions: the minute of the last pass

log = logging.getLogger("forge.durable")


class Pruning:
    """The chore. `before` is called first, such as to copy what must stay; files are removed from `workspace`, too."""

    def __init__(
        self, keep: Retention, workspace: Path | None = None, before: Callable[[RunStore], object] | None = None
    ) -> None:
        self._keep, self._workspace, self._before = keep, workspace, before
        self._next = 0.0  # when to look again
        self._late = time.monotonic() + LATEST
        self._batches: Iterator[int] | None = None  # of the pass in progress
        self._removed = 0

    async def __call__(self, engine: Engine) -> None:
        """Prunes some batches, if it is time and there is little else to do."""
        moment = time.monotonic()
        if moment < self._next or not (moment > self._late or await in_thread(lambda: _is_quiet(engine))):
            return
        if self._batches is None and not await in_thread(lambda: claim_pass(engine.store)):
            self._wait()
            return
        if await in_thread(lambda: self._prune_some(engine)):
            if self._removed:
                log.info("%d runs, events and files were pruned", self._removed)
            self._batches, self._removed = None, 0
            self._late = moment + LATEST
            self._wait()

    def _prune_some(self, engine: Engine) -> bool:
        """Prunes a few batches; returns True at the end of the pass."""
        if self._batches is None:
            if self._before is not None:
                self._before(engine.store)
            self._batches = prune_kept(engine.store, engine.starter.client, self._keep, self._workspace)
        for _ in range(PORTION):
            if (count := next(self._batches, None)) is None:
                return True
            self._removed += count
        return False

    def _wait(self) -> None:
        self._next = time.monotonic() + EVERY * random.uniform(0.5, 1.0)  # noqa: S311


def claim_pass(store: RunStore, every: float = EVERY) -> bool:
    """Returns True for one worker in so many seconds."""

    def claim(connection: sa.Connection) -> bool:
        minute = sa.cast(now(connection) / 60, sa.Integer)
        seed = insert_into(connection, versions).values(part=PART, version=0).on_conflict_do_nothing()
        connection.execute(seed)
        due = sa.and_(versions.c.part == PART, versions.c.version <= minute - int(every // 60))
        return connection.execute(sa.update(versions).where(due).values(version=minute)).rowcount > 0

    return store.database.write(claim, lasting=False)


def _is_quiet(engine: Engine) -> bool:
    return 2 * len(engine.list_running()) <= engine.concurrency and not count_queued(engine.store.database)
