"""Schedules under kill -9, a full disk, a damaged file and several processes at once."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import forge
from forge.core.errors import ToolError
from forge.schedules.schedule import ScheduleOutcome, Status
from forge.schedules.store import ScheduleStore
from forge.workspace.state.store import StoreError
from tests import programs

BUSY = """
import sys, time
from pathlib import Path
from forge.schedules.schedule import ScheduleOutcome, Status
from forge.schedules.store import ScheduleStore

offset = float(sys.argv[2])
later = offset / 1_000  # what an earlier victim had claimed is lost by now
store = ScheduleStore(Path(sys.argv[1]), lambda: time.time() + offset, lambda: time.monotonic() + later)
print("ready", flush=True)
number = 0
while True:
    number += 1
    store.set(cron="* * * * *", task=f"Task {number}", id=f"task-{number % 50}")
    offset += 60
    for claim in store.tick(sys.argv[2], 100).claims:
        print(claim.schedule.id, claim.run.due, flush=True)
        store.finish(claim.run.id, Status.COMPLETED, ScheduleOutcome(text="x" * 100), 0.1)
    if number % 7 == 0:
        store.delete(f"task-{number % 50}")
"""

CLAIM = """
import sys
from pathlib import Path
from forge.schedules.store import ScheduleStore

store = ScheduleStore(Path(sys.argv[1]), lambda: float(sys.argv[2]))
print("ready", flush=True)
sys.stdin.readline()
while found := store.tick(sys.argv[3], 7).claims:
    for claim in found:
        print(claim.schedule.id, flush=True)
"""

FULL = """
import resource, signal, sys
from pathlib import Path
from forge.schedules.schedule import ScheduleOutcome, Status
from forge.schedules.store import ScheduleStore
from forge.workspace.state.store import StoreError

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = ScheduleStore(Path(sys.argv[1]))
store.set(cron="@daily", task="first", id="first")
__import__("sys").dont_write_bytecode = True  # half a compiled module would be left for everybody
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
kept, error = 0, None
for number in range(1_000):
    try:
        store.set(cron="@daily", task="x" * 9_000, id=f"task-{number}")
        kept += 1
    except StoreError as failure:
        error = failure
        break
print(kept, len(store.list()), error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
store.set(cron="@daily", task="again", id="again")
print(len(store.list()))
"""


def started(code: str, *arguments: str) -> Any:
    environment = {**os.environ, "PYTHONPATH": str(Path(forge.__file__).parents[1])}
    pipe = subprocess.PIPE
    return programs.Popen(
        [sys.executable, "-c", code, *arguments], env=environment, text=True, stdin=pipe, stdout=pipe, stderr=pipe
    )


@pytest.mark.parametrize("rounds", [3, pytest.param(12, marks=pytest.mark.slow)])
def test_killed_at_any_moment_the_store_is_whole(path, rounds):
    chance = random.Random(rounds)
    for number in range(rounds):
        victim = started(BUSY, str(path), str(number * 1_000_000))
        assert victim.stdout.readline() == "ready\n"
        for _ in range(chance.randrange(200)):
            victim.stdout.readline()
        victim.send_signal(signal.SIGKILL)
        victim.communicate()
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        with ScheduleStore(path) as store:
            for one in store.list():
                assert one.task.startswith("Task ")
                assert one.next_fire is not None
            for run in store.history(limit=10_000):
                assert run.status in (Status.COMPLETED, Status.RUNNING, Status.LOST)
            active = [run for run in store.history(limit=10_000) if run.status is Status.RUNNING]
            assert len({run.schedule_id for run in active}) == len(active)


def test_what_a_killed_process_had_claimed_is_lost_in_the_end_and_never_run_twice(path, clocks):
    with ScheduleStore(path, lambda: clocks.wall, lambda: clocks.steady) as store:
        store.set(cron="* * * * *", task="Task", id="task", one_shot=True)
        clocks.pass_(60)
        assert store.tick("dead", 1).claims
        clocks.pass_(1_000)
        found = store.tick("next", 1)
        assert ([run.status for run in found.lost], found.claims) == ([Status.LOST], [])


def test_processes_that_claim_at_once_get_each_schedule_once(path, clocks):
    with ScheduleStore(path, lambda: clocks.wall) as store:
        for number in range(200):
            store.set(cron="* * * * *", task="Task", id=f"task-{number}")
    runners = [started(CLAIM, str(path), str(clocks.wall + 60), f"runner-{number}") for number in range(4)]
    for runner in runners:
        assert runner.stdout.readline() == "ready\n"
    for runner in runners:
        runner.stdin.write("\n")
        runner.stdin.flush()
    claimed = [line for runner in runners for line in runner.communicate()[0].split()]
    assert len(claimed) == len(set(claimed)) == 200


def test_a_full_disk_loses_nothing_and_says_so(path):
    done = started(FULL, str(path))
    out, err = done.communicate()
    assert done.returncode == 0, err
    kept, listed, error = out.splitlines()[0].split(maxsplit=2)
    assert int(kept) > 5
    assert int(listed) == int(kept) + 1
    assert "disk full" in error
    assert int(out.splitlines()[1]) == int(listed) + 1


def test_a_store_that_cannot_grow_claims_nothing(store, clocks):
    for number in range(20):
        store.set(cron="* * * * *", task="x" * 5_000, id=f"task-{number}")
    clocks.pass_(60)
    pages = store._store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._store._connection.execute(f"PRAGMA max_page_count = {pages}")

    def run_on() -> None:
        for _ in range(1_000):
            for claim in store.tick("one", 100).claims:
                store.finish(claim.run.id, Status.COMPLETED, ScheduleOutcome(text="x" * 4_000), 0.1)
            clocks.pass_(60)

    with pytest.raises(StoreError) as caught:
        run_on()
    assert "disk full" in caught.value.message
    assert len(store.list()) == 20


@pytest.mark.parametrize("damage", ["replaced", "overwritten in the middle"])
def test_a_damaged_store_is_set_aside_and_reported(path, damage):
    with ScheduleStore(path) as store:
        for number in range(200):
            store.set(cron="@daily", task="x" * 1_000, id=f"task-{number}")
    content = path.read_bytes()
    middle = content[:4_096] + b"\xff" * (len(content) - 4_096)
    path.write_bytes(b"nonsense" * 1_000 if damage == "replaced" else middle)
    with ScheduleStore(path) as store:
        with pytest.raises(StoreError) as caught:
            store.list()
        assert "set aside" in caught.value.message
        aside = list(path.parent.glob("state.db.corrupt-*"))
        assert aside
        assert store.list() == []
        assert store.set(cron="@daily", task="Begin again").enabled


def test_a_workspace_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / ".forge").write_text("in the way")
    with pytest.raises(ToolError) as caught:
        ScheduleStore.of(tmp_path)
    assert "cannot be written" in caught.value.message
    (tmp_path / ".forge").unlink()
    assert ScheduleStore.of(tmp_path).list() == []
