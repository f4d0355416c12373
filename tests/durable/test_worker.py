"""A worker leaves in good order, stops what was cancelled, and wakes what is due."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from forge.core.messages import Message
from forge.durable.beats import Beats, listed
from forge.durable.database import Database
from forge.durable.engine import Engine, running_engine
from forge.durable.housekeeping import Housekeeping
from forge.durable.rows import NewRun, Outcome, Wait
from forge.durable.store import RunStore
from tests.durable.fleet import fleet_of, until


def test_told_to_leave_it_ends_the_turn_and_another_goes_on(local_first: str, tmp_path: Path) -> None:
    with fleet_of(local_first, tmp_path) as fleet:
        first = fleet.worker()
        fleet.submit("r", calls=4, seconds=0.3)
        until(lambda: len(fleet.begun("r")) >= 1, "the first call")
        first.signal(signal.SIGTERM)
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
        names = [fleet.submit(f"r{number}", tool="look", calls=1, seconds=20) for number in range(2)]
        until(lambda: all(fleet.begun(name) for name in names), "both to begin")
        first.signal(signal.SIGTERM)
        started = time.monotonic()
        assert first.last_word() == "left"
        second.signal(signal.SIGTERM)
        assert time.monotonic() - started < 15  # it did not wait for the call
        left = next(name for name in names if fleet.begun(name)[0][1] == first.pid)
        assert fleet.starter.client.retrieve_workflow(f"{left}.1").get_status().status == "ENQUEUED"


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
    async with Engine(sqlite, version="1", listen=False) as engine:
        store = engine.store
        for name, until_ in (("now", time.time() - 1), ("later", time.time() + 1000)):
            store.create(NewRun(id=name, version="1"))
            store.begin(name, 1, "somebody")
            waits = (Wait(kind="time", detail={"until": until_}),)
            store.close_segment(name, 1, Outcome(status="waiting", messages=(), spent={}, waits=waits))
        beats = Beats(sqlite, engine.worker)
        beats.start()
        await Housekeeping(engine, beats).round()
        assert (store.get("now").status, store.get("later").status) == ("queued", "waiting")
        beats.leave(handed=True)
        assert running_engine()


def test_exactly_one_declares_a_worker_dead_and_it_learns_so(database: str) -> None:
    with RunStore(database) as store:
        store.prepare()
    process = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    dead, one, other = (Beats(database, name, every=60) for name in ("dead", "one", "other"))
    for beats in (dead, one, other):
        beats.start()
    assert one.silent() == []
    assert not one.claim("dead")  # it has just beaten, and its process is this one
    _pretend_to_be(database, "dead", int(process.stdout))
    assert one.silent() == other.silent() == ["dead"]
    assert [one.claim("dead"), other.claim("dead")] == [True, False]
    assert not dead.beat()
    assert one.unhanded() == ["dead"]
    assert other.unhanded() == []  # the one who claimed it sees to it
    one.handed("dead")
    assert one.unhanded() == []
    assert one.beat()
    assert [worker.state for worker in listed(Database(database))] == ["gone", "working", "working"]
    for beats in (dead, one, other):
        beats.leave(handed=True)


def test_who_was_cut_off_itself_declares_nobody_dead(sqlite: str) -> None:
    with RunStore(sqlite) as store:
        store.prepare()
    quiet, judge = Beats(sqlite, "quiet", every=60), Beats(sqlite, "judge", every=60, silent=0.3)
    quiet.start()
    judge.start()
    judge.beat()
    time.sleep(0.4)
    judge.beat()  # the first after a pause: for all it knows, everybody was asleep
    assert judge.silent() == []
    until(lambda: judge.beat() and judge.silent() == ["quiet"], "it to be sure", 10)
    quiet.leave(handed=True)
    judge.leave(handed=True)


def _pretend_to_be(database: str, worker: str, pid: int) -> None:
    import sqlalchemy as sa

    from forge.durable.beats import workers

    change = sa.update(workers).where(workers.c.id == worker).values(pid=pid)
    Database(database).write(lambda connection: connection.execute(change))
