"""The worst days: everybody dies at once, the disk is full or may not be written, a clock is an hour off."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from forge.agent.agent import Agent
from forge.core.messages import ToolCall
from forge.durable.client import Runs
from forge.durable.store.heartbeats import list_workers
from forge.permissions.questions import approve_all
from forge.workspace.state.store import StoreError
from tests.durable import conftest
from tests.durable.fleet import Fleet, fleet_of, until
from tests.durable.working import begun, ended, script, working

QUICK = {"every": 0.3, "silent": 3.0}
HOUR = 3_600
CLOCK = Path(__file__).with_name("_clock.py")
ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_when_all_processes_die_at_once_the_next_one_goes_on_with_everything(database: str, tmp_path: Path) -> None:
    with fleet_of(database, tmp_path) as fleet:
        workers = [fleet.worker(**QUICK) for _ in range(2)]
        names = [fleet.submit(f"r{number}", tool="note", calls=3, seconds=0.4) for number in range(4)]
        until(lambda: all(fleet.begun(name) for name in names), "all runs to be under way")
        for worker in workers:
            worker.signal(signal.SIGKILL)
        for worker in workers:
            worker.process.wait()
        fleet.worker(**QUICK)
        for run in fleet.over(*names):
            assert run.status == "finished"
            assert max(Counter(number for number, _ in fleet.begun(run.id)).values()) == 1


@pytest.mark.parametrize("off", [HOUR, -HOUR], ids=["ahead", "behind"])
@pytest.mark.slow
def test_a_worker_whose_clock_is_an_hour_off_is_one_like_the_others(
    postgres: str, tmp_path: Path, off: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with fleet_of(postgres, tmp_path) as fleet:
        right = fleet.worker(**QUICK)
        wrong = _with_wrong_clock(fleet, off)
        names = [fleet.submit(f"r{number}", tool="note", calls=4, seconds=0.3) for number in range(6)]
        runs = fleet.over(*names)
        assert {run.status for run in runs} == {"finished"}
        assert {one.id: one.state for one in list_workers(fleet.store.database)} == {
            right.id: "working",
            wrong: "working",
        }
        assert all(abs(run.updated - time.time()) < 300 for run in runs)  # by the database's clock
        for run in runs:
            assert Counter(number for number, _ in fleet.begun(run.id)) == {1: 1, 2: 1, 3: 1, 4: 1}


@pytest.mark.slow
async def test_a_fast_clock_ends_no_wait_early_and_does_not_spin(
    postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + HOUR)
    agent = Agent(script(ToolCall("wait", {"seconds": 2}, "w"), "done"), approve=approve_all)
    async with working(postgres, agent, tmp_path) as worker:
        started = time.monotonic()
        await begun(worker)
        run = await ended(worker)
        assert time.monotonic() - started >= 2
        assert run.status == "finished"
        assert run.segment == 2  # it waited once


async def test_nothing_that_happened_goes_untold_on_a_machine_that_is_very_busy(
    sqlite: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forge.core.activity.SLOW", -1.0)  # every plain listener is too slow, and goes to a thread
    async with working(sqlite, Agent(script("hello back")), tmp_path) as worker:
        await begun(worker)
        await ended(worker)
        told = [event["event"] for _, event in worker.store.events("r")]
        assert (told[0], told[-1]) == ("run_started", "run_finished")


def _with_wrong_clock(fleet: Fleet, off: int) -> str:
    process = fleet.worker(program=(str(CLOCK), str(off)), **QUICK)
    return process.id


@contextmanager
def small_disk(place: Path, size: str = "4m") -> Iterator[Path]:
    place.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], capture_output=True)
    if made.returncode:
        words = "A FULL DISK IS NOT TESTED: needs root and a machine that mounts a tmpfs"
        conftest._skipped.append(words)
        pytest.skip(words)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.slow
def test_runs_go_on_when_a_full_disk_has_room_again(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk, fleet_of(f"sqlite:///{disk}/durable.db", tmp_path) as fleet:
        worker = fleet.worker(**QUICK)
        names = [fleet.submit(f"r{number}", tool="note", calls=4, seconds=0.4) for number in range(2)]
        until(lambda: all(fleet.begun(name) for name in names), "both runs to be under way")
        _fill(disk)
        with pytest.raises(StoreError) as caught:
            _submit_many(fleet)
        assert "is the disk full?" in caught.value.message
        assert "Free some space" in caught.value.suggestion
        until(lambda: list_workers(fleet.store.database)[0].age > 1, "heartbeats that do not fit on the disk")
        (disk / "full").unlink()
        for run in fleet.over(*names):
            assert run.status == "finished", run.result
            assert max(Counter(number for number, _ in fleet.begun(run.id)).values()) == 1
        assert worker.process.poll() is None


def test_a_database_that_may_not_be_written_is_said_in_three_parts(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        with Runs(f"sqlite:///{disk}/durable.db") as runs:
            runs.submit("hello", run_id="r")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        with Runs(f"sqlite:///{disk}/durable.db") as runs, pytest.raises(StoreError) as caught:
            runs.submit("again")
        assert str(disk) in caught.value.message
        assert "permissions" in caught.value.suggestion
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
        with Runs(f"sqlite:///{disk}/durable.db") as runs:
            assert runs.get("r").status == "queued"


def _submit_many(fleet: Fleet) -> None:
    for number in range(1_000):
        fleet.submit(f"more-{number}", calls=1)


def _fill(disk: Path) -> None:
    handle = os.open(disk / "full", os.O_WRONLY | os.O_CREAT)
    try:
        while True:
            os.write(handle, bytes(4_096))
    except OSError:
        return
    finally:
        os.close(handle)
