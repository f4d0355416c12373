"""Does what any worker does for all: requeues dead workers' runs, starts due ones, prunes, delivers answers."""

from __future__ import annotations

import logging
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from forge.agent.result import RunResult
from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.threads import in_thread
from forge.core.messages import Message, unanswered_calls
from forge.core.result import Failure
from forge.durable.client.pruning import Retention, prune_kept
from forge.durable.engine.engine import MOST_TRIES, Engine
from forge.durable.engine.follow_up import follow_up, log_fields, resume_run
from forge.durable.engine.held_work import report_lost
from forge.durable.engine.queues import count_queued
from forge.durable.engine.worker_context import WorkerContext
from forge.durable.store import RunStore
from forge.durable.store.carried import read_totals
from forge.durable.store.database import Database
from forge.durable.store.encoding import result_of
from forge.durable.store.find import COLUMNS, find_run, insert_into, now, run_info
from forge.durable.store.heartbeats import Heartbeat, describe_needed, list_workers, workers
from forge.durable.store.rows import OVER, Outcome, RunInfo
from forge.durable.store.tables import IS_BEGUN, AnyText, runs, segments, versions

LOST = 30.0  # seconds without a change before a running run is checked
MOST_RUNS = 100  # of each kind in one round
SHARE_OF_FULL_ROUNDS = 0.2  # share of the rounds that check all begun runs

TOO_OFTEN = "lost"
ENDED = ("failed", TOO_OFTEN)  # states of segments whose runs have no outcome

log = logging.getLogger("forge.durable")


class Housekeeping:
    """One round. Every part is idempotent and may be done by many workers at once."""

    def __init__(self, engine: Engine, beats: Heartbeat) -> None:
        self._engine = engine
        self._beats = beats
        self._context, self._store = engine.context, engine.store

    async def round(self) -> int:
        """Runs a round; returns the number of workers that share it."""
        around: tuple[float, int] = await in_thread(self._beats.look_around)
        now, sharing = around
        for run in await in_thread(lambda: self._store.due(now, MOST_RUNS)):
            await resume_run(self._context, run)
        await self._follow_up_children(now)
        missing, ended, queued = await in_thread(self._find_stranded)
        for run in missing:
            await self._context.start_segment(run)
        await in_thread(lambda: self._log_unattended(queued))
        for run, status in [*ended, *await in_thread(lambda: self._find_broken(now))]:
            await self._close(run, status)
        await report_lost(self._store, self._context.starter)
        if random.random() < SHARE_OF_FULL_ROUNDS:  # noqa: S311
            await self.hand_back_late_ones()
        return sharing

    async def take_over(self) -> None:
        """Requeues runs of dead workers, apart from the rest of the round, which may take a while."""
        for worker in await in_thread(self._beats.find_silent):
            await in_thread(_bind(self._beats.claim, worker))
        for worker in await in_thread(self._beats.find_unhanded):
            workflows = await in_thread(_bind(self._engine.hand_back, worker))
            await in_thread(_bind(self._beats.mark_handed, worker))
            self._context.counters.lost_workers += 1
            self._context.counters.requeued += len(workflows)
            log.warning("worker %s is gone: %d of its runs are queued again", worker, len(workflows))

    async def hand_back_late_ones(self) -> None:
        """Requeues runs that workers claimed after they were declared dead: they were paused and did not notice."""
        for worker in await in_thread(self._find_late):
            workflows = await in_thread(_bind(self._engine.hand_back, worker))
            log.warning(
                "worker %s claimed %d runs after it was declared dead: they are queued again", worker, len(workflows)
            )

    def _find_late(self) -> list[str]:
        gone = sa.select(workers.c.id).where(workers.c.gone.is_not(None), workers.c.handed)
        query = sa.select(segments.c.worker).distinct().where(IS_BEGUN, segments.c.worker.in_(gone))
        return self._store.database.read(lambda connection: list(connection.execute(query).scalars()))

    async def _follow_up_children(self, now: float) -> None:
        """Resumes parents of runs that ended some seconds ago: the process that ended them may have died before it did.
        Each is checked once, so that waiting runs cost nothing.
        """
        children = await in_thread(lambda: self._find_ended_children(now))
        if not children:
            return
        theirs = {parent for _, parent in children}
        for run in await in_thread(lambda: self._find_runs(runs.c.id.in_(theirs), runs.c.status == "waiting")):
            waits_for = {wait.run_id for wait in run.waits}
            if not waits_for.isdisjoint(child for child, _ in children):
                await resume_run(self._context, run)
        seen = sa.update(runs).where(runs.c.id.in_([child for child, _ in children]), runs.c.status.in_(OVER))
        database = self._store.database
        await in_thread(
            lambda: database.write(lambda connection: connection.execute(seen.values(look=None)), lasting=False)
        )

    def _find_ended_children(self, now: float) -> list[tuple[str, str]]:
        query = sa.select(runs.c.id, runs.c.parent).where(runs.c.status.in_(OVER), runs.c.look <= now).limit(MOST_RUNS)
        return self._store.database.read(lambda connection: [(row.id, row.parent) for row in connection.execute(query)])

    def _find_stranded(self) -> tuple[list[RunInfo], list[tuple[RunInfo, str]], list[RunInfo]]:
        """Returns runs that are not in a queue, those whose workflow ended, and those that wait for their turn."""
        some = self._store.claim_stranded()
        states = self._states(some)
        missing = [run for run in some if (run.id, run.segment) not in states]
        ended = _filter_ended(some, states)
        gone = {run.id for run, _ in ended} | {run.id for run in missing}
        return missing, ended, [run for run in some if run.id not in gone]

    def _log_unattended(self, queued: Sequence[RunInfo]) -> None:
        """Logs the kinds of queued runs that no running worker takes. Each run is looked at ever more rarely."""
        kinds = Counter((run.version, run.queue, run.agent) for run in queued)
        workers = list_workers(self._store.database) if kinds else []
        for kind, count in kinds.items():
            if not any(one.takes(*kind) for one in workers):
                runs, needed = f"{count} queued run{'s' if count > 1 else ''}", describe_needed(*kind)
                log.warning("%s: no running worker takes them; they wait for a worker %s", runs, needed)

    def _find_broken(self, now: float) -> list[tuple[RunInfo, str]]:
        """Returns running runs whose workflow has ended: it failed, or was begun too often."""
        some = self._find_runs(runs.c.status == "running", runs.c.updated < now - LOST)
        return _filter_ended(some, self._states(some))

    def _states(self, some: list[RunInfo]) -> dict[tuple[str, int], str]:
        """Returns the states of their segments, in one query."""
        if not some:
            return {}
        c = segments.c
        query = sa.select(c.run, c.segment, c.state).where(c.run.in_([run.id for run in some]))
        rows = self._store.database.read(lambda connection: connection.execute(query).all())
        return {(row.run, row.segment): row.state for row in rows}

    async def _close(self, run: RunInfo, status: str) -> None:
        message = f"segment {run.segment} of run {run.id} ended without an outcome on worker {run.worker}"
        if status == TOO_OFTEN:
            message = (
                f"segment {run.segment} of run {run.id} was started {MOST_TRIES} times, and its worker was lost each"
                " time"
            )
            message += f", the last one was {run.worker}" if run.worker else ""
        advice = "See that worker's log. The messages up to then are stored: `forge runs resume` continues from there."
        failure = Failure(message, ErrorKind.SYSTEM, advice)
        result = result_of(RunResult(text="", reason="error", turns=0, messages=[], error=failure))
        history = await in_thread(lambda: self._store.messages(run.id, run.segment))
        said = tuple(lost_messages(history)) if run.status == "running" else ()
        outcome = Outcome(status="failed", messages=said, spent=run.spent, result={**result, **read_totals(run.spent)})
        closed = await in_thread(lambda: self._store.close_segment(run.id, run.segment, outcome))
        self._context.counters.add_failure(run.agent)
        await follow_up(self._context, closed)

    def _find_runs(self, *conditions: sa.ColumnElement[bool], limit: int | None = MOST_RUNS) -> list[RunInfo]:
        # in random order, so that each gets its turn if there are too many
        query = sa.select(*COLUMNS).where(*conditions).order_by(sa.func.random()).limit(limit)
        rows = self._store.database.read(lambda connection: connection.execute(query).all())
        return [run_info(row) for row in rows]


def _filter_ended(some: Sequence[RunInfo], states: Mapping[tuple[str, int], str]) -> list[tuple[RunInfo, str]]:
    """Returns the runs whose workflow has ended, with the state of their segment."""
    found = [(run, states.get((run.id, run.segment), "")) for run in some]
    return [(run, how) for run, how in found if how in ENDED]


def lost_messages(history: Sequence[Message]) -> list[Message]:
    """Returns messages for a model that resumes after a lost segment: calls in it may have happened."""
    message = "its state is unknown: it may have taken effect. Check its effects before you repeat it."
    results = [
        Message("tool", f"{call.name}: {message}", call_id=call.id, is_error=True) for call in unanswered_calls(history)
    ]
    note = "[This is not from the person: the worker was lost, with everything that you wrote and did since then.]\n\
The state of that work is unknown. Check its effects before you repeat it."
    return [*results, Message("user", note)]


def _bind(function: Callable[[str], Any], worker: str) -> Callable[[], Any]:
    return lambda: function(worker)


# Prunes the database at quiet times: a chore of every worker, done by one of them in an hour.


EVERY = 3600.0  # seconds between two passes over a database
LATEST = 86_400.0  # seconds after which a pass begins although there is work
PORTION = 5  # batches of one round, so that other chores get their turn
PART = "pruned"  # our row among the versions: the minute of the last pass


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
        """Prunes a few batches; returns whether that is the end of the pass."""
        if self._batches is None:
            if self._before is not None:
                self._before(engine.store)
            self._batches = prune_kept(engine.store, engine.context.starter.client, self._keep, self._workspace)
        for _ in range(PORTION):
            if (count := next(self._batches, None)) is None:
                return True
            self._removed += count
        return False

    def _wait(self) -> None:
        self._next = time.monotonic() + EVERY * random.uniform(0.5, 1.0)  # noqa: S311


def claim_pass(store: RunStore, every: float = EVERY) -> bool:
    """Claims the pass that one worker makes in so many seconds. Returns whether this one makes it."""

    def claim(connection: sa.Connection) -> bool:
        minute = sa.cast(now(connection) / 60, sa.Integer)
        seed = insert_into(connection, versions).values(part=PART, version=0).on_conflict_do_nothing()
        connection.execute(seed)
        due = sa.and_(versions.c.part == PART, versions.c.version <= minute - int(every // 60))
        return connection.execute(sa.update(versions).where(due).values(version=minute)).rowcount > 0

    return store.database.write(claim, lasting=False)


def _is_quiet(engine: Engine) -> bool:
    return 2 * len(engine.list_running()) <= engine.concurrency and not count_queued(engine.store.database)


# Delivers the answers of runs when they are over: by one worker, and again if it died.


DELIVERY_LEASE = 120.0  # seconds for one try
DELIVERY_TRIES = 5
MOST_DELIVERIES = 20  # at once

Deliver = Callable[[RunInfo, str, str], Awaitable[None]]
"""Sends a run's result to a channel and a target of it (or its default one). Raises `ToolError`."""

delivery_metadata = sa.MetaData()
_deliveries = sa.Table(
    "forge_deliveries",
    delivery_metadata,
    sa.Column("run", AnyText, primary_key=True),
    sa.Column("channel", AnyText, nullable=False),
    sa.Column("target", AnyText, nullable=False),
    sa.Column("tried", sa.Double),  # when the last try began
    sa.Column("tries", sa.Integer, nullable=False),
)


def add_delivery(connection: sa.Connection, run: str, channel: str, target: str) -> None:
    connection.execute(sa.insert(_deliveries).values(run=run, channel=channel, target=target, tried=None, tries=0))


async def deliver_ended(context: WorkerContext, deliver: Deliver) -> int:
    """Delivers results that were not sent yet; returns the number sent here. Retries a failure later, some times.

    Each arrives once, unless a worker dies between sending and recording it: then twice rather than never.
    """
    database, sent = context.store.database, 0
    if not await in_thread(lambda: database.read(_has_deliveries)):  # mostly: one statement, and no transaction
        return 0
    for run, channel, target, tries in await in_thread(lambda: database.write(_claim_deliveries)):
        try:
            await deliver(run, channel, target)
        except ToolError as error:
            message = "the answer of run %s was not delivered to %s: %s"
            log.error(message, run.id, channel, error.message, extra=log_fields(run))
            if tries < DELIVERY_TRIES:
                continue
        else:
            sent += 1
        await in_thread(_remover(database, run.id))
    return sent


def _has_deliveries(connection: sa.Connection) -> bool:
    return connection.execute(sa.select(_deliveries.c.run).limit(1)).first() is not None


def _claim_deliveries(connection: sa.Connection) -> list[tuple[RunInfo, str, str, int]]:
    moment = now(connection)
    free = sa.or_(_deliveries.c.tried.is_(None), _deliveries.c.tried < moment - DELIVERY_LEASE)
    query = (
        sa.select(_deliveries)
        .join(runs, runs.c.id == _deliveries.c.run)
        .where(runs.c.status.in_(OVER), free)
        .limit(MOST_DELIVERIES)
        .with_for_update(of=_deliveries, skip_locked=True)
    )
    rows = connection.execute(query).all()
    if rows:
        mine = _deliveries.c.run.in_([row.run for row in rows])
        connection.execute(sa.update(_deliveries).where(mine).values(tried=moment, tries=_deliveries.c.tries + 1))
    return [(find_run(connection, row.run), row.channel, row.target, row.tries + 1) for row in rows]


def _remover(database: Database, run: str) -> Callable[[], Any]:
    return lambda: database.write(
        lambda connection: connection.execute(sa.delete(_deliveries).where(_deliveries.c.run == run))
    )
