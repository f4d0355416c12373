"""Diffs for people: what stands in a file is never taken for the head of a diff."""

from __future__ import annotations

import click

from forge.cli.terminal.print_result import colour_diff, summarise_diff
from forge.core.result import ToolResult

DIFF = "--- a/q.sql\n+++ b/q.sql\n@@ -1,3 +1,2 @@\n-- keep\n--- old remark\n+++ counter\n select 1\n"
OTHER = "--- a/gone.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-bye\n\\ No newline at end of file\n"


def test_lines_that_look_like_names_are_shown_where_they_are_content():
    assert summarise_diff(ToolResult(for_llm="", for_user=DIFF)) == [
        "@@ -1,3 +1,2 @@",
        "-- keep",
        "--- old remark",
        "+++ counter",
        " select 1",
    ]


def test_of_several_files_each_is_named_a_deleted_one_by_its_old_name():
    lines = summarise_diff(ToolResult(for_llm="", for_user=DIFF + OTHER))
    assert [line for line in lines if line.startswith(("--- a/", "+++ b/"))] == ["+++ b/q.sql", "--- a/gone.txt"]


def test_colours_tell_names_from_what_goes_and_comes():
    lines = colour_diff(DIFF).split("\n")
    assert lines[0] == click.style("--- a/q.sql", fg="bright_black")
    assert lines[4:6] == [click.style("--- old remark", fg="red"), click.style("+++ counter", fg="green")]
