"""`tests.forking`: several processes run the tests of one collection, and nothing that happens to one is lost."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PASSES = """
import os, pathlib, pytest

@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    place = pathlib.Path(os.environ["PLACE"])
    yield tmp_path_factory.getbasetemp()
    (place / f"torn-down-{os.getpid()}").touch()

@pytest.mark.parametrize("number", range(40))
def test_it(number, shared, tmp_path):
    assert tmp_path.parent == shared
    print("a word")
    (pathlib.Path(os.environ["PLACE"]) / f"{number}-in-{os.getpid()}").touch()
"""
FAILS = """
import os, signal

def test_fails():
    print("said before it failed")
    assert 1 + 1 == 3

def test_dies():
    os.kill(os.getpid(), signal.SIGKILL)

def test_comes_after():
    pass
"""


def ran(folder: Path, *options: str, **files: str) -> subprocess.CompletedProcess[str]:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\n")
    own = {"PYTHONPATH": str(ROOT), "PLACE": str(folder), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-p", "tests.forking", *options]
    return subprocess.run(
        command, cwd=folder, env={**os.environ, **own}, capture_output=True, text=True, check=False, timeout=100
    )


def test_every_test_runs_once_in_one_of_the_processes(tmp_path: Path) -> None:
    done = ran(tmp_path, "--forks", "2", test_passes=PASSES)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "40 passed" in done.stdout
    assert "a word" not in done.stdout
    marks = [re.fullmatch(r"(\d+)-in-(\d+)", path.name) for path in tmp_path.iterdir()]
    assert sorted(int(mark[1]) for mark in marks if mark) == list(range(40))
    processes = {mark[2] for mark in marks if mark}
    assert 1 <= len(processes) <= 2
    assert {path.name for path in tmp_path.glob("torn-down-*")} == {f"torn-down-{process}" for process in processes}


def test_a_failure_is_shown_and_the_death_of_a_process_costs_one_test(tmp_path: Path) -> None:
    done = ran(tmp_path, "--forks", "2", test_fails=FAILS, test_passes=PASSES)
    assert done.returncode == 1
    assert "2 failed, 41 passed" in done.stdout
    assert "said before it failed" in done.stdout
    assert "assert (1 + 1) == 3" in done.stdout
    assert "test_dies" in done.stdout
    assert "the process that ran this test ended, with status 9" in done.stdout


@pytest.mark.parametrize(("options", "passed"), [(("--maxfail=1",), False), ((), True)])
def test_it_stops_where_it_is_told_to(tmp_path: Path, options: tuple[str, ...], passed: bool) -> None:
    done = ran(tmp_path, "--forks", "1", *options, test_b=FAILS, test_c=PASSES)
    assert done.returncode == 1
    assert ("41 passed" in done.stdout) == passed
