"""The database goes away and comes back: runs under way finish, nothing is lost and nothing happens twice."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
import sqlalchemy as sa

from forge.core.errors import ErrorKind
from forge.durable.client import Runs
from forge.durable.store.rows import RunInfo
from forge.durable.store.tables import segments
from forge.workspace.state.store import StoreError
from tests.durable._proxy import proxied
from tests.durable.fleet import Fleet, fleet_of, until

QUICK = {"every": 0.3, "silent": 3.0}  # seconds; ten times as fast as in earnest


def away(postgres: str, place: Path, seconds: float) -> tuple[Fleet, list[RunInfo], list[str]]:
    """Two workers with runs under way lose their database for so long; what they look like in the end."""
    with proxied(postgres) as proxy, fleet_of(postgres, place) as fleet:
        fleet.database = proxy.url  # for the workers; this test sees the database all the time
        workers = [fleet.worker(**QUICK), fleet.worker(**QUICK)]
        names = [fleet.submit(f"r{number}", tool="note", calls=4, seconds=0.4) for number in range(4)]
        names += [fleet.submit(f"l{number}", tool="look", calls=4, seconds=0.4) for number in range(2)]
        until(lambda: all(fleet.begun(name) for name in names), "all runs to be under way")
        proxy.cut()
        time.sleep(seconds)
        proxy.mend()
        later = fleet.submit("later", calls=1)
        runs = fleet.over(*names, later)
        assert all(worker.process.poll() is None for worker in workers)
        return fleet, runs, names


def judged(fleet: Fleet, runs: list[RunInfo]) -> None:
    for run in runs:
        assert run.status == "finished", run.result
        ran = Counter(number for number, _ in fleet.begun(run.id))
        calls = 1 if run.id == "later" else 4
        assert sorted(ran) == list(range(1, calls + 1))
        assert max(ran.values()) == 1  # also what may be repeated: its worker was there all the time
        assert run.result is not None
        assert run.result["text"] == f"{calls} calls, 0 unknown"


@pytest.mark.slow
def test_runs_under_way_finish_when_the_database_was_away_for_a_moment(postgres: str, tmp_path: Path) -> None:
    fleet, runs, _ = away(postgres, tmp_path, 1.0)
    judged(fleet, runs)


@pytest.mark.slow
def test_runs_under_way_finish_when_the_database_was_away_for_ten_seconds(postgres: str, tmp_path: Path) -> None:
    fleet, runs, _ = away(postgres, tmp_path, 10.0)
    judged(fleet, runs)


def test_who_submits_meanwhile_waits_for_it(postgres: str) -> None:
    with proxied(postgres) as proxy, Runs(proxy.url) as runs:
        runs.submit("before", run_id="before")
        proxy.cut()
        submitting = threading.Thread(target=runs.submit, args=("meanwhile",), kwargs={"run_id": "meanwhile"})
        submitting.start()
        submitting.join(0.5)
        assert submitting.is_alive()
        proxy.mend()
        submitting.join(60)
        assert not submitting.is_alive()
        assert runs.get("meanwhile").status == "queued"
        assert _queued(postgres) == {"before", "meanwhile"}


def test_who_never_reached_it_is_told_at_once_what_to_do(postgres: str) -> None:
    with proxied(postgres) as proxy:
        proxy.cut()
        with Runs(proxy.url) as runs, pytest.raises(StoreError) as caught:
            runs.submit("hello")
    assert "cannot be reached" in caught.value.message
    assert "server is running" in caught.value.suggestion
    assert caught.value.kind is ErrorKind.SYSTEM


def _queued(url: str) -> set[str]:
    with Runs(url) as runs:
        query = sa.select(segments.c.run)
        return runs.store.database.read(lambda connection: set(connection.execute(query).scalars()))


def test_what_was_given_to_a_worker_that_never_heard_of_it_is_queued_again(local_first: str, tmp_path: Path) -> None:
    with fleet_of(local_first, tmp_path) as fleet:
        fleet.submit("r", calls=2)
        worker = fleet.worker(queues=["other"], **QUICK)
        _change(fleet, "state = 'begun', starts = 1, tries = 1, queue = 'other', worker = ", worker.id)
        (run,) = fleet.over("r")
        assert run.status == "finished"
        assert [number for number, _ in fleet.begun("r")] == [1, 2]


@pytest.mark.slow
def test_what_a_worker_took_after_it_had_gone_is_queued_again(database: str, tmp_path: Path) -> None:
    with fleet_of(database, tmp_path) as fleet:
        gone = fleet.worker(queues=["other"], **QUICK)
        gone.signal(signal.SIGTERM)
        assert gone.last_word() == "drained"
        fleet.submit("r", calls=2)
        _change(fleet, "state = 'begun', starts = 1, tries = 1, worker = ", gone.id)
        fleet.worker(**QUICK)
        (run,) = fleet.over("r")
        assert run.status == "finished"
        assert [number for number, _ in fleet.begun("r")] == [1, 2]


@pytest.mark.slow
def test_what_a_worker_runs_is_not_taken_from_it(sqlite: str, tmp_path: Path) -> None:
    with fleet_of(sqlite, tmp_path) as fleet:
        fleet.worker(**QUICK)
        fleet.submit("r", tool="look", calls=1, seconds=5.0)  # longer than two looks for what was forgotten
        (run,) = fleet.over("r")
        assert run.status == "finished"
        assert len(fleet.begun("r")) == 1


@pytest.mark.parametrize("table", ["forge_runs", "forge_segments"])
def test_a_client_that_stands_still_inside_a_transaction_keeps_nothing_from_the_others(
    postgres: str, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forge.durable.store.database.HOLDS", 1.0)
    with Runs(postgres) as runs, Runs(postgres) as paused:
        runs.submit("hello", run_id="r")
        held, over = threading.Event(), threading.Event()

        def stand_still(connection: sa.Connection) -> None:
            connection.execute(sa.text(f"UPDATE {table} SET priority = priority"))
            held.set()
            over.wait(100)

        thread = threading.Thread(target=paused.store.database.write, args=(stand_still,))
        thread.start()
        held.wait(60)
        started = time.monotonic()
        runs.store.database.write(lambda connection: connection.execute(sa.text(f"UPDATE {table} SET priority = 1")))
        assert time.monotonic() - started < 50
        over.set()
        thread.join(60)  # it tries again, and gets through
        assert not thread.is_alive()


def _change(fleet: Fleet, values: str, worker: str) -> None:
    change = sa.text(f"UPDATE forge_segments SET {values} :worker")
    fleet.store.database.write(lambda connection: connection.execute(change, {"worker": worker}))
