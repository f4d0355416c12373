"""A storm of crashes around the calls of a tool that counts its effects; the long one is `python -m chaos.crashes`."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from chaos.crashes.injected import inject
from chaos.crashes.killed import Plan, count_outcomes, kill_workers
from chaos.crashes.score import Score
from chaos.crashes.systems import SYSTEMS
from chaos.crashes.systems.order import Order
from chaos.crashes.table import Results, Row
from chaos.processes import open_processes

FORGE = SYSTEMS[0]
LONGEST = 1_800  # seconds: all of this is CPU, and the machine may be busy

# work that never ends by itself, and cleans up when it is ended
COMMAND = """
import sys, time
from pathlib import Path
from chaos.processes import exit_when_terminated, open_processes

def work(name):
    Path(sys.argv[1], f"{name} began").touch()
    try:
        while True:
            time.sleep(0.02)
    finally:
        Path(sys.argv[1], f"{name} cleaned up").touch()

if __name__ == "__main__":
    exit_when_terminated()
    with open_processes(1) as submit:
        first, second = submit(work, "first"), submit(work, "second")
        first.result()
"""


async def test_no_crash_around_a_call_repeats_it_or_loses_it() -> None:
    found = await inject(25, seed=3)
    assert found.crashes >= 25
    assert (found.score.duplicates, found.score.lost, found.score.unknown) == (0, 0, 0)
    assert found.score.calls


@pytest.mark.slow
@pytest.mark.timeout(LONGEST)
async def test_without_reconcile_a_crash_repeats_nothing_and_some_calls_are_unknown() -> None:
    found = await inject(100, reconciles=False)
    assert (found.score.duplicates, found.score.lost) == (0, 0)
    assert found.score.unknown > 0


@pytest.mark.slow
@pytest.mark.timeout(LONGEST)
async def test_a_longer_storm_reaches_every_point() -> None:
    found = await inject(1_500)  # one crash in a thousand meets a tool that is asked
    assert (found.score.duplicates, found.score.lost, found.score.unknown) == (0, 0, 0)
    wanted = ("before the effect", "after the effect", "after a commit", "while the model answers")
    assert set(wanted) <= set(found.points)
    assert "while the tool is asked" in found.points


@pytest.mark.slow
@pytest.mark.timeout(LONGEST)
def test_killed_workers_repeat_nothing_and_lose_nothing(postgres: str) -> None:
    found = kill_workers(FORGE, sys.executable, postgres, Plan(6), lambda words: None)
    assert (found.score.duplicates, found.score.lost) == (0, 0)
    assert found.score.unknown <= 0.01 * found.score.calls


def test_a_run_that_did_not_begin_in_time_is_left_out_and_one_that_began_counts(tmp_path: Path) -> None:
    order = Order("", str(tmp_path), runs=3, calls=2)
    assert not order.leaves_out("run0", has_begun=False)  # it begins
    for number in (0, 1, 1):
        order.charge("run0", number)
    order.finish("run0")
    order.close()
    assert not order.leaves_out("run1", has_begun=True)
    assert order.leaves_out("run2", has_begun=False)
    assert count_outcomes(order) == Score(calls=4, duplicates=1, lost=2, unknown=0)  # run1 never ended


def test_the_table_has_a_row_for_each_storm_and_says_what_was_not_run() -> None:
    results = Results({})
    results.put(Row("DBOS", "3.3.0", "killed", 300, Score(1_000, 7, 0, 0), "it repeats"))
    results.put(Row("Other", "", "killed", 0, Score(), "no such\npackage | here"))
    results.put(Row("Forge", "this version", "injected", 10_000, Score(9_000, 0, 0, 9)))
    lines = [line for line in results.render().splitlines() if line.startswith("|")]
    assert lines[2:] == [
        "| Forge | this version | 10,000 injected | 9,000 | 0 | 0 | 9 (0.1 %) |  |",
        "| DBOS | 3.3.0 | 300 `kill -9` | 1,000 | 7 | 0 | 0 | it repeats |",
        "| Other | | | | | | | not run: no such package / here |",
    ]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_processes_of_a_storm_end_with_its_command(tmp_path: Path, number: signal.Signals) -> None:
    script, began = tmp_path / "command.py", tmp_path / "first began"
    script.write_text(COMMAND)
    with subprocess.Popen(
        [sys.executable, str(script), str(tmp_path)],
        env={"PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.PIPE,  # all processes of the storm hold its other end
        stderr=subprocess.STDOUT,
    ) as process:
        while process.poll() is None and not began.exists():
            time.sleep(0.01)
        process.send_signal(number)
        said, _ = process.communicate()  # until the last one has ended
    assert process.returncode != 0
    assert (tmp_path / "first cleaned up").exists(), said.decode()
    assert not (tmp_path / "second began").exists()


def test_the_processes_of_a_storm_return_what_their_work_returns() -> None:
    with open_processes(1) as submit:
        assert submit(divmod, 17, 5).result() == (3, 2)
