"""The suites that take seconds and need nothing but what is installed: no score is worse than in docs/scores.md."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scores import shell, starters
from scores.report import Missing, find_drops, read_results

AGAIN = "a score dropped; if that is meant, `make scores SUITE=starters` writes the new one"


def test_programs_that_start_others_are_judged_as_well_as_before():
    known, now = read_results()["starters"], starters.run()
    assert find_drops({"starters": known}, {"starters": now}) == [], AGAIN

    better = [replace(row, passed=row.passed + 1, cases=row.cases + 1) for row in now.rows]
    drops = find_drops({"starters": replace(known, rows=better)}, {"starters": now})
    assert len(drops) == len(now.rows), "a score that is worse than the known one must be seen"


def test_without_the_data_set_the_row_about_its_lines_keeps_its_last_figure(monkeypatch):
    monkeypatch.delenv(shell.VARIABLE, raising=False)
    known = {row.measure: row for row in read_results()["shell"].rows}
    assert shell.judge_others("bubblewrap") == known[shell.EVERYDAY_OF_OTHERS]
    monkeypatch.setenv(shell.VARIABLE, "/nowhere")
    with pytest.raises(Missing, match="clone"):
        shell.judge_others("bubblewrap")
