"""The tables of peers: what is behind or missing is said."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from benchmarks.peer_behaviour import observe_behaviour, observe_repairs
from benchmarks.peer_systems import load
from benchmarks.peer_tables import FLOORS, write_behaviour, write_speeds
from benchmarks.peer_work import observe_work


def measured(factor: float, **cells: Any) -> dict[str, Any]:
    row = {"ours": factor, "floor": 1.0, "mark": "", "note": ""}
    rows = dict.fromkeys(FLOORS, row) | {"define a tool with 5 parameters": row | cells}
    return {"version": "1", "rows": rows, "first_use": 1}


def observed(**cells: Any) -> dict[str, Any]:
    words = {"behaviour": {"unknown tool": "explained"}, "repair": {"a trailing comma": "repaired"}, "work": {}}
    return {"version": "1", "packages": 1, "megabytes": 1, **words, **cells}


def test_a_row_where_a_peer_is_ahead_is_marked_and_named():
    text = write_speeds({"forge": measured(2.0), "llm": measured(3.0, ours=1.5)})
    assert "| 2.00 ▲ | 1.50 |" in text
    assert text.count("| 2.00 | 3.00 |") == len(FLOORS) - 1
    assert "Forge is not first in these rows, who is ahead in brackets: define a tool with 5 parameters (llm)." in text


def test_a_repair_that_only_a_peer_makes_is_marked_and_named():
    text = write_behaviour({"forge": observed(repair={"a trailing comma": "refused"}), "llm": observed()})
    assert "| a trailing comma | refused ▲ | repaired |" in text
    assert "a trailing comma (llm)" in text


def test_an_outcome_that_only_a_peer_has_is_marked_and_systems_without_tools_have_no_column():
    row = "the program ends: its conversation"
    ours, theirs = observed(work={row: "lost"}), observed(work={row: "stored"})
    text = write_behaviour({"forge": ours, "llm": observed(), "claude-agent-sdk": theirs})
    assert (
        f"| the agent's own tools | forge 1 | claude-agent-sdk 1 |\n| --- | --- | --- |\n| {row} | lost ▲ | stored |"
        in text
    )
    assert f"{row} (claude-agent-sdk)" in text


def test_a_smaller_install_is_marked_and_named():
    text = write_behaviour({"forge": observed(packages=20), "llm": observed(packages=17)})
    assert "| distributions installed | 20 ▲ | 17 |" in text


def test_without_a_row_behind_forge_is_first():
    assert "Forge is first in every row." in write_speeds({"forge": measured(2.0), "llm": measured(3.0)})


def test_a_peer_that_cannot_be_had_is_said_and_the_others_are_shown():
    text = write_speeds(
        {"forge": measured(2.0), "llm": {"reason": "cannot be installed: no index"}, "agno": measured(3.0)}
    )
    assert "- llm is not in the tables: cannot be installed: no index" in text
    assert "forge 1 | agno 1 |" in text


def test_a_row_that_was_cut_or_failed_says_so():
    text = write_speeds(
        {"forge": measured(2.0), "llm": measured(3.0, note="at 430"), "agno": measured(3.0, ours=None, note="fails")}
    )
    assert "| 2.00 | 3.00 at 430 | fails |" in text


def test_forge_behaves_as_the_table_says():
    behaviour = asyncio.run(observe_behaviour(load("forge")))
    behaviour.pop("three plain sleeps of 0.3 s")  # a matter of time, which a loaded machine has not
    assert behaviour.pop("a result of 1 MB") != "whole"
    assert behaviour.pop("twelve identical calls") == "5 ran, then run ends: loop"
    assert behaviour == {
        "unknown tool": "explained, with the names there are",
        "malformed JSON": "explained",
        "wrong type": "explained, with name and type",
        "a tool raises": "model gets the message",
        "three calls, one raises": "model gets 3 of 3",
        "a tool that a person must approve, nobody there": "not run, model gets the reason",
    }


def test_forge_repairs_what_the_table_says():
    repairs = asyncio.run(observe_repairs(load("forge")))
    repairs.pop("a trailing comma")
    assert set(repairs.values()) == {"repaired"}


@pytest.mark.slow  # a project for every row; programs start
def test_forge_works_as_the_table_says():
    work = asyncio.run(observe_work(load("forge")))
    assert work["a file to write, nobody there"] == "not run, model gets the reason"
    assert work["an edit with other indentation"] == "applied right"
    assert work["a file is written that somebody changed since it was read"] == "refused, their line is kept"
    assert work["a command prints an API key of the environment"] == "model does not get it"
    assert work["a task for a sub-agent"] == "its report is the result"
