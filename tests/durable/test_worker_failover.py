"""Runs go on elsewhere when their worker dies, hangs or leaves; and only what that worker had is touched."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from forge.durable.store.heartbeats import list_workers
from tests.durable.fleet import fleet_of, until

QUICK = {"every": 0.3, "silent": 3.0}  # seconds; ten times as fast as in earnest


def test_a_run_goes_on_elsewhere_when_its_worker_is_killed(shared_first: str, tmp_path: Path) -> None:
    with fleet_of(shared_first, tmp_path) as fleet:
        workers = {one.pid: one for one in (fleet.worker(**QUICK), fleet.worker(**QUICK))}
        fleet.hold(2)
        fleet.submit("r", tool="look", calls=4)
        until(lambda: len(fleet.begun("r")) >= 2, "the second call")
        workers.pop(fleet.begun("r")[0][1]).signal(signal.SIGKILL)
        fleet.release()
        (second,) = workers.values()
        (run,) = fleet.over("r")
        assert run.status == "finished"
        assert run.result is not None
        assert run.result["text"] == "4 calls, 0 unknown"
        assert run.worker == second.id
        numbers = [number for number, _ in fleet.begun("r")]
        assert sorted(set(numbers)) == [1, 2, 3, 4]
        assert numbers.count(1) == 1  # it was over: a finished call is not run again


@pytest.mark.slow
def test_a_call_that_must_not_be_repeated_is_not_and_the_model_is_told(database: str, tmp_path: Path) -> None:
    with fleet_of(database, tmp_path) as fleet:
        first = fleet.worker(**QUICK)
        fleet.hold(2)
        fleet.submit("r", tool="note", calls=3)
        until(lambda: len(fleet.begun("r")) >= 2, "the second call")
        first.signal(signal.SIGKILL)
        fleet.release()
        fleet.worker(**QUICK)
        (run,) = fleet.over("r")
        assert run.status == "finished"
        assert run.result is not None
        assert run.result["text"] == "3 calls, 1 unknown"
        assert [number for number, _ in fleet.begun("r")] == [1, 2, 3]


@pytest.mark.slow
def test_the_runs_of_a_worker_that_lives_stay_with_it(sqlite: str, tmp_path: Path) -> None:
    with fleet_of(sqlite, tmp_path) as fleet:
        killed, lives = fleet.worker(concurrency=1, **QUICK), fleet.worker(concurrency=1, **QUICK)
        fleet.submit("a", tool="look", calls=6, seconds=0.4)
        fleet.submit("b", tool="look", calls=6, seconds=0.4)
        until(lambda: fleet.begun("a") and fleet.begun("b"), "both to begin")
        stays = "a" if fleet.begun("a")[0][1] == lives.pid else "b"
        killed.signal(signal.SIGKILL)
        fleet.over("a", "b")
        assert {pid for _, pid in fleet.begun(stays)} == {lives.pid}
        assert len(fleet.begun(stays)) == 6


@pytest.mark.slow
def test_a_worker_whose_loop_is_blocked_is_not_taken_for_dead(sqlite: str, tmp_path: Path) -> None:
    with fleet_of(sqlite, tmp_path) as fleet:
        blocked = fleet.worker(**QUICK)
        fleet.submit("r", tool="block", calls=1, seconds=5.0)  # longer than it may be silent
        until(lambda: fleet.begun("r"), "the call")
        fleet.worker(**QUICK)
        (run,) = fleet.over("r")
        assert run.worker == blocked.id
        assert len(fleet.begun("r")) == 1


@pytest.mark.slow
def test_a_worker_that_nobody_took_over_is_listed_as_it_is(sqlite: str, tmp_path: Path) -> None:
    with fleet_of(sqlite, tmp_path) as fleet:
        first = fleet.worker(queues=["default", "slow"], offers=["gpu"], concurrency=3)
        (info,) = list_workers(fleet.store.database)
        assert (info.id, info.pid, info.state) == (first.id, first.pid, "working")
        assert (info.queues, info.offers, info.concurrency) == (("default", "slow", "on:gpu"), ("gpu",), 3)
        first.signal(signal.SIGTERM)
        assert first.last_word() == "drained"
        assert [one.state for one in list_workers(fleet.store.database)] == ["gone"]
