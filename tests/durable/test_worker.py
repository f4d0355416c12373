"""A worker leaves in good order, stops what was cancelled, and wakes what is due."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.pool import Pool

from forge import Agent, ToolCall, tool
from forge.core.messages import Message
from forge.durable.engine.agents import prepare_for_worker
from forge.durable.engine.engine import BUSY_FOR, MOST_TRIES, Engine, running_engine
from forge.durable.store import RunStore
from forge.durable.store.database import Database
from forge.durable.store.heartbeats import Heartbeat, list_workers, workers
from forge.durable.store.rows import OVER, NewRun, Outcome
from forge.durable.store.tables import runs, segments
from forge.durable.store.waits import Wait
from forge.durable.worker import housekeeping
from forge.durable.worker.housekeeping import Housekeeping
from tests.durable.fleet import fleet_of, until
from tests.durable.working import begun, ended, engine_of, script, working


def test_told_to_leave_it_ends_the_turn_and_another_goes_on(local_first: str, tmp_path: Path) -> None:
    with fleet_of(local_first, tmp_path) as fleet:
        first = fleet.worker()
        fleet.hold()
        fleet.submit("r", calls=4, seconds=0.1)
        until(lambda: len(fleet.begun("r")) >= 1, "the first call")
        first.signal(signal.SIGTERM)
        fleet.release()
        assert first.last_word() == "drained"
        assert fleet.store.get("r").status == "queued"
        second = fleet.worker()
        (run,) = fleet.over("r")
        assert run.result is not None
        assert run.result["text"] == "4 calls, 0 unknown"
        assert [number for number, _ in fleet.begun("r")] == [1, 2, 3, 4]
        assert run.worker == second.id


@pytest.mark.slow
def test_what_does_not_end_in_time_is_left_to_others_at_once(sqlite: str, tmp_path: Path) -> None:
    with fleet_of(sqlite, tmp_path) as fleet:
        first, second = fleet.worker(grace=0.2, concurrency=1), fleet.worker(concurrency=1)
        names = [fleet.submit(f"r{number}", tool="look", calls=1, seconds=60) for number in range(2)]
        until(lambda: all(fleet.begun(name) for name in names), "both to begin")
        first.signal(signal.SIGTERM)
        started = time.monotonic()
        assert first.last_word() == "left"
        second.signal(signal.SIGTERM)
        assert time.monotonic() - started < 50  # it did not wait for the call
        left = next(name for name in names if fleet.begun(name)[0][1] == first.pid)
        with fleet.store.engine.connect() as connection:
            state = sa.select(segments.c.state).where(segments.c.run == left)
            assert connection.execute(state).scalar_one() == "queued"


@pytest.mark.slow
def test_a_run_that_is_cancelled_stops_where_it_is(sqlite: str, tmp_path: Path) -> None:
    with fleet_of(sqlite, tmp_path) as fleet:
        fleet.worker()
        fleet.submit("r", calls=3, seconds=50)
        until(lambda: fleet.begun("r"), "the first call")
        fleet.store.request_cancel("r")
        (run,) = fleet.over("r")
        assert run.status == "cancelled"
        assert len(fleet.begun("r")) == 1


@pytest.mark.slow
def test_what_was_stored_and_never_queued_is_found(sqlite: str, tmp_path: Path) -> None:
    with fleet_of(sqlite, tmp_path) as fleet:
        order = {"tool": "note", "calls": 1, "seconds": 0, "file": str(fleet.file), "name": "lost"}
        said = (Message("user", json.dumps(order)),)
        fleet.store.create(NewRun(id="lost", version="1", messages=said))  # who asked died here
        fleet.worker()
        (run,) = fleet.over("lost")
        assert run.status == "finished"


async def test_a_run_whose_time_has_come_is_queued_and_one_whose_time_has_not_is_left(sqlite: str) -> None:
    async with engine_of(sqlite, version="1", listen=False) as engine:
        store = engine.store
        for name, until_ in (("now", time.time() - 1), ("later", time.time() + 1000)):
            store.create(NewRun(id=name, version="1"))
            store.begin(name, 1, "somebody")
            waits = (Wait(kind="time", detail={"until": until_}),)
            store.close_segment(name, 1, Outcome(status="waiting", messages=(), spent={}, waits=waits))
        beats = Heartbeat(sqlite, engine.worker)
        beats.start()
        await Housekeeping(engine, beats).round()
        assert (store.get("now").status, store.get("later").status) == ("queued", "waiting")
        beats.leave(handed=True)
        assert running_engine()


async def test_a_run_whose_child_ended_just_when_it_began_to_wait_is_told(sqlite: str) -> None:
    async with engine_of(sqlite, version="1", listen=False) as engine:
        store, waits = engine.store, {"p": "p.c", "q": "elsewhere"}
        for parent, child in waits.items():
            store.create(NewRun(id=parent, version="1"))
            store.create(NewRun(id=f"{parent}.c", version="1", parent=parent))
            store.begin(parent, 1, "w")
            left = Outcome(status="waiting", messages=(), spent={}, waits=(Wait(kind="run", detail={"run": child}),))
            store.close_segment(parent, 1, left)
            store.begin(f"{parent}.c", 1, "w")
            store.close_segment(f"{parent}.c", 1, Outcome(status="finished", messages=(), spent={}))
        _look_now(store, "p.c", "q.c")
        beats = Heartbeat(sqlite, engine.worker)
        beats.start()
        keeping = Housekeeping(engine, beats)
        await keeping.round()
        assert [store.get(name).status for name in waits] == ["queued", "waiting"]
        assert keeping._find_ended_children(time.time() + 60) == []  # each is looked at once
        beats.leave(handed=True)


def _look_now(store: RunStore, *children: str) -> None:
    """Some seconds are over, and nobody was told: as if both sides had not seen each other."""
    with store.engine.begin() as connection:
        connection.execute(sa.update(runs).where(runs.c.id.in_(children)).values(look=1.0))
        connection.execute(sa.update(runs).where(runs.c.id.not_in(children)).values(look=None))


async def test_an_idle_worker_sends_few_statements(postgres: str, tmp_path: Path) -> None:
    """With its heartbeat, its housekeeping and the engine's own threads, as docs/scale.md says."""
    sent: list[float] = []
    rounds: list[float] = []
    done = asyncio.Event()

    def count(connection: sa.Connection, *_: object) -> None:
        sent.append(time.monotonic())

    def count_in_transaction(connection: sa.Connection, *_: object) -> None:
        if not getattr(connection.connection.dbapi_connection, "autocommit", False):  # else nothing is sent
            sent.append(time.monotonic())

    def count_ping(_: object, __: object, proxy: Any) -> None:
        sent.extend([time.monotonic()] * proxy._pool._pre_ping)

    async def look(_: Engine) -> None:
        rounds.append(time.monotonic())
        if rounds[-1] - rounds[0] > BUSY_FOR + 12:
            done.set()

    listeners: list[tuple[Any, str, Any]] = [
        (sa.Engine, "before_cursor_execute", count),
        (Pool, "checkout", count_ping),
    ]
    listeners += [(sa.Engine, name, count_in_transaction) for name in ("begin", "commit", "rollback")]
    for target, name, listener in listeners:
        sa.event.listen(target, name, listener)
    try:
        async with working(postgres, Agent(script("done")), tmp_path, chores=[look]):
            await asyncio.wait_for(done.wait(), 120)
    finally:
        for target, name, listener in listeners:
            sa.event.remove(target, name, listener)
    began = rounds[0] + BUSY_FOR + 2
    per_second = sum(began < moment < rounds[-1] for moment in sent) / (rounds[-1] - began)
    assert 5 < per_second < 30  # four of them poll the engine's own queue, which nothing keeps it from


def test_runs_that_wait_cost_a_round_nothing(sqlite: str) -> None:
    with RunStore(sqlite) as store:
        store.prepare()
        query = sa.select(runs.c.id).where(runs.c.status.in_(OVER), runs.c.look <= 1.0)
        explain = f"EXPLAIN QUERY PLAN {query.compile(store.engine, compile_kwargs={'literal_binds': True})}"
        plan = store.database.read(lambda connection: [row[3] for row in connection.exec_driver_sql(explain)])
    assert plan == ["SEARCH forge_runs USING INDEX forge_runs_look (status=? AND look<?)"]


async def test_a_worker_that_leaves_in_good_order_is_none_that_a_run_lost(sqlite: str, tmp_path: Path) -> None:
    begins = 0

    @tool(idempotent=True)
    async def look() -> str:
        """Look at something for longer than anybody waits."""
        nonlocal begins
        begins += 1
        await asyncio.sleep(3_600)
        return ""

    agent = Agent(script(ToolCall("look", {}, "l"), "done"), tools=[look])
    for number in range(1, 4):
        async with working(sqlite, agent, tmp_path) as worker:
            if number == 1:
                await begun(worker)
            while begins < number:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert _tries(worker.store) == 1
        assert _tries(worker.store) == 0
    async with engine_of(
        sqlite, prepare_for_worker(agent), worker="lost", version="0"
    ) as engine:  # and one that does not
        while begins < 4:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    async with engine_of(sqlite, version="0", listen=False) as engine:
        assert await asyncio.to_thread(engine.hand_back, "lost") == ["r.1"]
        assert _tries(engine.store) == 1


async def test_a_run_that_was_begun_too_often_fails_in_words(
    sqlite: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "LOST", 0.0)
    async with working(sqlite, Agent(script("hello")), tmp_path) as worker:
        store = worker.store
        for name, tries in (("last", MOST_TRIES - 1), ("late", MOST_TRIES)):
            run = store.create(NewRun(id=name, version="0", messages=(Message("user", "go"),)))
            store.begin(name, 1, "the dead one")
            worker.engine.set_claiming(False)
            await worker.engine.context.start_segment(run)
            _tries(store, name, tries)
        worker.engine.set_claiming(True)
        assert (await ended(worker, "last")).status == "finished"
        run = await ended(worker, "late")
        assert run.result is not None
        words = f"was started {MOST_TRIES} times, and its worker was lost each time, the last one was the dead one"
        assert words in run.result["error"]["message"]


def _tries(store: RunStore, run: str = "r", become: int | None = None) -> int:
    """How often the engine has counted that it was begun."""
    mine = segments.c.run == run
    with store.engine.begin() as connection:
        if become is not None:
            connection.execute(sa.update(segments).where(mine).values(tries=become))
        return int(connection.execute(sa.select(segments.c.tries).where(mine)).scalar_one())


def test_exactly_one_declares_a_worker_dead_and_it_learns_so(database: str) -> None:
    with RunStore(database) as store:
        store.prepare()
    process = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    dead, one, other = (Heartbeat(database, name, every=60) for name in ("dead", "one", "other"))
    for beats in (dead, one, other):
        beats.start()
    assert one.find_silent() == []
    assert not one.claim("dead")  # it has just beaten, and its process is this one
    _pretend_to_be(database, "dead", int(process.stdout))
    assert one.find_silent() == other.find_silent() == ["dead"]
    assert [one.claim("dead"), other.claim("dead")] == [True, False]
    assert not dead.beat()
    assert one.find_unhanded() == ["dead"]
    assert other.find_unhanded() == []  # the one who claimed it sees to it
    one.mark_handed("dead")
    assert one.find_unhanded() == []
    assert one.beat()
    assert [worker.state for worker in list_workers(Database(database))] == ["gone", "working", "working"]
    for beats in (dead, one, other):
        beats.leave(handed=True)


def test_who_was_cut_off_itself_declares_nobody_dead(sqlite: str) -> None:
    with RunStore(sqlite) as store:
        store.prepare()
    quiet, judge = Heartbeat(sqlite, "quiet", every=60), Heartbeat(sqlite, "judge", every=60, silent=0.3)
    quiet.start()
    judge.start()
    judge.beat()
    time.sleep(0.4)
    judge.beat()  # the first after a pause: for all it knows, everybody was asleep
    assert judge.find_silent() == []
    until(lambda: judge.beat() and judge.find_silent() == ["quiet"], "it to be sure", 10)
    quiet.leave(handed=True)
    judge.leave(handed=True)


def _pretend_to_be(database: str, worker: str, pid: int) -> None:
    change = sa.update(workers).where(workers.c.id == worker).values(pid=pid)
    Database(database).write(lambda connection: connection.execute(change))
