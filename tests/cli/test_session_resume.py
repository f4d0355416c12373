"""`forge session resume`."""

from __future__ import annotations

import json


def test_a_session_goes_on_where_it_ended(here, workspace):
    (workspace / "one.yaml").write_text("- First answer.\n")
    (workspace / "two.yaml").write_text("- Second answer.\n")
    assert here("run", "first", "--model", "scripted:one.yaml", "--session", "s", "--quiet").code == 0
    ended = here("session", "resume", "s", "second", "--model", "scripted:two.yaml", "--quiet")
    assert (ended.code, ended.out) == (0, "Second answer.\n")
    messages = json.loads(here("session", "export", "s").out)["messages"]
    assert [one["text"] for one in messages if one["role"] != "system"] == [
        "first",
        "First answer.",
        "second",
        "Second answer.",
    ]


def test_a_session_that_is_not_there_is_not_made(here, workspace):
    assert here("session", "resume", "s", "more").code == 2
    (workspace / "one.yaml").write_text("- Answer.\n")
    assert here("run", "first", "--model", "scripted:one.yaml", "--session", "nightly").code == 0
    ended = here("session", "resume", "nigthly", "more", "--model", "scripted:one.yaml")
    assert ended.code == 2
    assert "nightly" in ended.err


def test_its_help_shows_the_flags_of_a_run(here):
    shown = here("session", "resume", "--help")
    assert shown.code == 0
    assert "--max-turns" in shown.out
    assert "--session" not in shown.out.partition("Options:")[2]
