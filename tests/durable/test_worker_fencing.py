"""A worker that was paused and comes back does nothing again that was taken over meanwhile."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pytest

from forge.durable.store.heartbeats import list_workers
from tests.durable.fleet import fleet_of, until

QUICK = {"every": 0.3, "silent": 2.0}


def test_a_paused_worker_that_comes_back_runs_nothing_of_what_was_taken_over(shared_first: str, tmp_path: Path) -> None:
    with fleet_of(shared_first, tmp_path) as fleet:
        paused = fleet.worker(**QUICK)
        fleet.hold(2)
        names = [fleet.submit(f"r{number}", tool="note", calls=4, seconds=0.1) for number in range(4)]
        until(lambda: all(len(fleet.begun(name)) >= 2 for name in names), "all runs to be under way")
        fleet.pause(paused)
        fleet.release()
        other = fleet.worker(**QUICK)
        until(lambda: all(fleet.begun(name)[-1][1] == other.pid for name in names), "the other to go on")
        paused.signal(signal.SIGCONT)
        runs = fleet.over(*names)
        until(lambda: len(_here(fleet.store)) == 2, "the paused one to come back")
        for run in runs:
            assert run.status == "finished"
            assert run.worker == other.id
            ran = Counter(number for number, _ in fleet.begun(run.id))
            assert ran == {1: 1, 2: 1, 3: 1, 4: 1}
            assert run.result is not None
            assert run.result["text"] == "4 calls, 1 unknown"  # the call that was under way when it was paused


@pytest.mark.slow
def test_a_paused_worker_comes_back_under_another_id_and_works_again(sqlite: str, tmp_path: Path) -> None:
    with fleet_of(sqlite, tmp_path) as fleet:
        paused, other = fleet.worker(**QUICK), fleet.worker(**QUICK)
        fleet.pause(paused)
        until(lambda: _here(fleet.store) == [other.id], "the paused one to be given up")
        paused.signal(signal.SIGCONT)
        until(lambda: len(_here(fleet.store)) == 2, "the paused one to come back")
        assert paused.id not in _here(fleet.store)
        other.signal(signal.SIGTERM)
        assert other.last_word() == "drained"
        fleet.submit("r", calls=1)
        (run,) = fleet.over("r")
        assert run.status == "finished"
        assert fleet.begun("r") == [(1, paused.pid)]


@pytest.mark.slow
def test_a_worker_that_was_paused_for_a_moment_keeps_its_runs(sqlite: str, tmp_path: Path) -> None:
    with fleet_of(sqlite, tmp_path) as fleet:
        patient = {**QUICK, "silent": 20.0}
        paused = fleet.worker(**patient)
        fleet.submit("r", tool="look", calls=3, seconds=0.3)
        until(lambda: fleet.begun("r"), "the first call")
        fleet.pause(paused)
        fleet.worker(**patient)
        paused.signal(signal.SIGCONT)
        (run,) = fleet.over("r")
        assert run.worker == paused.id
        assert [number for number, _ in fleet.begun("r")] == [1, 2, 3]


def _here(store: object) -> list[str]:
    return [one.id for one in list_workers(store.database) if one.state != "gone"]  # type: ignore[attr-defined]
