"""The benchmarks that replay a session find the files that it reads."""

from __future__ import annotations

from benchmarks.context import SOURCE, TURNS, plan


def test_the_scripted_session_reads_files_that_exist() -> None:
    assert len(plan(SOURCE)) == TURNS - 1
