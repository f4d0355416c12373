"""Workers are killed and paused by chance while runs go on: a short storm here, the long one is `python -m chaos`."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.storm import Plan, Report, storm


def weathered(database: str, place: Path, plan: Plan) -> Report:
    report = storm(database, place, plan, print)
    assert not report.problems, "\n".join([f"seed {plan.seed}", report.figures(), *report.problems])
    assert report.kills or report.pauses
    return report


@pytest.mark.timeout(300)
@pytest.mark.slow
def test_every_run_finishes_and_nothing_happens_twice_in_a_short_storm(postgres: str, tmp_path: Path) -> None:
    plan = Plan(seed=7, runs=15, calls=4, seconds=8.0, workers=2, blow=2.0, pauses=0.0, silent=3.0, longest=0.4)
    report = weathered(postgres, tmp_path, plan)
    assert report.calls >= 60


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_same_with_pauses_on_one_machine_with_a_file(sqlite: str, tmp_path: Path) -> None:
    weathered(sqlite, tmp_path, Plan(seed=8, runs=20, seconds=15.0, workers=2, pauses=0.4, silent=3.0, longest=0.4))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_hundred_runs_survive_a_minute_of_killing(postgres: str, tmp_path: Path) -> None:
    report = weathered(postgres, tmp_path, Plan(seed=9))
    assert report.kills >= 8
    assert report.calls >= 1_000
