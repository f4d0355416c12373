"""A run that is killed with -9 at any point goes on: nothing finished is repeated, nothing dangerous runs twice."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from forge.core.messages import Message
from forge.durable.store import RunStore
from forge.durable.store.rows import NewRun, RunInfo
from tests import programs

WORKER = Path(__file__).with_name("_killed.py")


def worked(database: str, place: Path, *arguments: str) -> int:
    command = [sys.executable, str(WORKER), database, arguments[0], str(place), *arguments[1:]]
    return programs.run(command, timeout=150, check=False).returncode


def run_of(database: str, place: Path, *deaths: str, prompt: str = "go") -> tuple[RunInfo, list[str]]:
    """One run through as many workers as die, and one more; what its tools and its model wrote down."""
    with RunStore(database) as store:
        store.prepare()
        store.create(NewRun(id="r", version="0", prompt=prompt, messages=(Message("user", prompt),)))
        for number, death in enumerate(deaths):
            (place / f"die-{death}").touch()
            assert worked(database, place, f"worker-{number}", *([f"worker-{number - 1}"] if number else [])) == -9
        last = f"worker-{len(deaths)}"
        assert worked(database, place, last, *([f"worker-{len(deaths) - 1}"] if deaths else [])) == 0
        return store.get("r"), (place / "log").read_text().splitlines()


def counted(log: list[str]) -> Counter[str]:
    return Counter(" ".join(line.split()[:2]) for line in log)


@pytest.mark.slow
def test_a_run_that_nobody_kills_does_everything_once(local_first: str, tmp_path: Path) -> None:
    run, log = run_of(local_first, tmp_path)
    assert run.status == "finished"
    assert run.result is not None
    assert run.result["text"] == "saw a | saw b | paid a | paid b | saw c"
    assert set(counted(log).values()) == {1}


def test_killed_while_the_model_answers_it_is_asked_again_and_nothing_else_is_repeated(
    local_first: str, tmp_path: Path
) -> None:
    run, log = run_of(local_first, tmp_path, "model-2")
    assert run.status == "finished"
    assert {what for what, times in counted(log).items() if times != 1} == {"model 2"}


def test_killed_in_a_call_that_may_be_repeated_it_runs_again(local_first: str, tmp_path: Path) -> None:
    run, log = run_of(local_first, tmp_path, "look-b")
    assert run.result is not None
    assert run.result["text"].startswith("saw a | saw b")
    assert counted(log)["look b"] == 2
    assert counted(log)["model 0"] == 1


def test_killed_in_a_call_that_must_not_be_repeated_its_state_is_unknown(shared_first: str, tmp_path: Path) -> None:
    run, log = run_of(shared_first, tmp_path, "pay-a")
    assert run.status == "finished"
    assert run.result is not None
    assert "its state is unknown" in run.result["text"]
    assert counted(log)["pay a"] == 1
    assert counted(log)["pay b"] == 1  # what comes later is not harmed


@pytest.mark.parametrize("death", ["look-c", pytest.param("model-1", marks=pytest.mark.slow)])
def test_background_work_that_a_killed_worker_had_begun_is_unknown_and_told_once(
    local_first: str, tmp_path: Path, death: str
) -> None:
    run, log = run_of(local_first, tmp_path, death, prompt="begin")
    assert run.result is not None
    begun, looked, lost = run.result["text"].split(" | ")
    assert (begun, looked) == ("it has begun", "saw c")
    assert "the background work of begin, call begin, is over" in lost
    assert "its state is unknown" in lost
    assert counted(log)["begin -"] == 1


@pytest.mark.slow
def test_background_work_that_nobody_kills_is_told_as_it_is(local_first: str, tmp_path: Path) -> None:
    run, _ = run_of(local_first, tmp_path, prompt="begin")
    assert run.result is not None
    assert run.result["text"].endswith("is over.]\nthe work is done")


@pytest.mark.slow
def test_an_intent_without_a_deed_is_unknown_too(local_first: str, tmp_path: Path) -> None:
    run, log = run_of(local_first, tmp_path, "before-a")
    assert run.result is not None
    assert "its state is unknown" in run.result["text"]
    assert counted(log)["pay a"] == 0


@pytest.mark.slow
def test_killed_again_and_again_it_still_ends_once(local_first: str, tmp_path: Path) -> None:
    run, log = run_of(local_first, tmp_path, "model-0", "look-a", "model-1", "model-3")
    assert run.status == "finished"
    assert counted(log)["pay a"] == counted(log)["pay b"] == 1


@pytest.mark.parametrize("name", ["a", "b"])
@pytest.mark.slow
def test_the_key_of_a_call_names_the_run_the_turn_and_the_call(local_first: str, tmp_path: Path, name: str) -> None:
    _, log = run_of(local_first, tmp_path, "model-1")
    turn = {"a": 2, "b": 3}[name]
    assert f"pay {name} r/r.{turn}/pay-{name}" in log


SEEN = [*(f"saw {name}" for name in "abcdefg"), "paid h", "saw i", "saw j"]


@pytest.mark.parametrize("death", [pytest.param(f"look-{name}", marks=pytest.mark.slow) for name in "abcdefgij"])
def test_a_script_that_is_killed_at_a_call_goes_on_with_the_same_outcome(
    local_first: str, tmp_path: Path, death: str
) -> None:
    run, log = run_of(local_first, tmp_path, death, prompt="script")
    assert run.status == "finished"
    assert run.result is not None
    *seen, _number, _clock = run.result["text"].split(", ")
    assert seen == SEEN
    assert {what for what, times in counted(log).items() if times != 1} == {death.replace("-", " ")}


@pytest.mark.slow
def test_a_script_killed_again_and_again_sees_one_clock_and_the_same_random_numbers(
    local_first: str, tmp_path: Path
) -> None:
    deaths = [f"look-{name}" for name in "adgj"]
    run, log = run_of(local_first, tmp_path, *deaths, prompt="script")
    assert run.result is not None
    assert run.result["text"].split(", ")[:-2] == SEEN
    assert {what for what, times in counted(log).items() if times != 1} == {one.replace("-", " ") for one in deaths}


@pytest.mark.slow
def test_a_script_killed_in_a_call_that_must_not_be_repeated_is_told_that_its_state_is_unknown(
    local_first: str, tmp_path: Path
) -> None:
    run, log = run_of(local_first, tmp_path, "pay-h", prompt="script")
    assert run.result is not None
    assert "its state is unknown" in run.result["text"]
    assert counted(log)["pay h"] == 1
    assert counted(log)["look i"] == 0  # the script ended with the exception
