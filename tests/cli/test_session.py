"""`forge session`: conversations listed, shown, copied, taken along, removed."""

from __future__ import annotations

import pytest

from tests.cli.scripts import call, script


@pytest.fixture
def talked(workspace, here):
    model = script(workspace, call("math_calculate", "Let me see.", expression="6 * 7"), "It is \x1b[31m42.")
    assert here("run", "how much?", "--session", "sum", "--model", model).code == 0
    return here


def test_sessions_are_listed_the_latest_first(workspace, talked):
    talked("run", "hello", "--session", "other", "--model", script(workspace, "Hi."))
    listed = talked("session", "list")
    assert [line.split()[0] for line in listed.out.splitlines()] == ["other", "sum"]
    assert listed.out.splitlines()[1].endswith("5 messages  how much?")
    found = talked("session", "list", "--json").json["sessions"]
    assert [(one["name"], one["messages"], one["turns"], one["title"]) for one in found] == [
        ("other", 3, 1, "hello"),
        ("sum", 5, 2, "how much?"),
    ]


def test_a_conversation_is_shown_without_harm(talked):
    shown = talked("session", "show", "sum")
    assert shown.code == 0
    lines = shown.out.splitlines()
    assert lines[lines.index("user:") :] == [
        "user:",
        "how much?",
        "assistant:",
        "Let me see.",
        '→ math_calculate(expression="6 * 7")',
        "  42",
        "assistant:",
        "It is ⟨U+001B⟩[31m42.",
    ]
    wire = talked("session", "show", "sum", "--json").json
    assert (wire["name"], wire["turns"]) == ("sum", 2)
    assert [message["role"] for message in wire["messages"]] == ["system", "user", "assistant", "tool", "assistant"]


def test_a_copy_goes_its_own_way(workspace, talked):
    assert "forge run --session copy" in talked("session", "fork", "sum", "copy", "--upto", "2").err
    talked("run", "again", "--session", "copy", "--model", script(workspace, "Again."))
    texts = [message["text"] for message in talked("session", "export", "copy").json["messages"]]
    assert texts[1:] == ["how much?", "again", "Again."]
    assert len(talked("session", "export", "sum", "--json").json["messages"]) == 5
    assert talked("session", "fork", "sum", "third", "--json").json["messages"] == 5


def test_a_session_gets_a_title_and_keeps_its_name(talked):
    renamed = talked("session", "rename", "sum", "A sum\x1b[2J\nof two", "--json")
    assert renamed.json == {"name": "sum", "title": "A sum [2J"}
    assert talked("session", "list", "--json").json["sessions"][0]["title"] == "A sum [2J"
    assert "sum: Six times seven" in talked("session", "rename", "sum", "Six times seven").err
    assert talked("session", "list").out.rstrip().endswith("Six times seven")
    assert talked("session", "rename", "sum", " ").code == 2


@pytest.mark.parametrize(("setting", "title"), [("true", "A sum of two"), ("false", "how much?")])
def test_the_model_titles_a_session_at_a_terminal(workspace, here, monkeypatch, setting, title):
    (workspace / "forge.yaml").write_text(f"agent: {{session_titles: {setting}}}\n")
    monkeypatch.setattr("forge.cli.running.chat_session.sys.stderr.isatty", lambda: True, raising=False)
    model = script(workspace, "It is 42.", {"title": "A sum of two"})
    done = here("run", "how much?", "--session", "sum", "--model", model, "--config", "forge.yaml", "--plain")
    assert done.code == 0, done.err
    assert here("session", "list", "--json").json["sessions"][0]["title"] == title
    log = (workspace / ".forge" / "audit.ndjson").read_text()
    assert log.count('"session_titled"') == (setting == "true")


def test_a_program_pays_for_no_title(workspace, here):
    model = script(workspace, "It is 42.", {"title": "A sum of two"})
    assert here("run", "how much?", "--session", "sum", "--model", model).code == 0
    assert here("session", "list", "--json").json["sessions"][0]["title"] == "how much?"


def test_a_session_is_removed_for_good(talked):
    assert talked("session", "delete", "sum", "--json").json == {"deleted": "sum"}
    assert talked("session", "show", "sum").code == 2
    assert talked("session", "list", "--json").json == {"sessions": []}


@pytest.mark.parametrize(
    "arguments", [["show", "smu"], ["fork", "smu", "x"], ["export", "smu"], ["rename", "smu", "x"], ["delete", "smu"]]
)
def test_an_unknown_session_is_exit_code_2(talked, arguments):
    ended = talked("session", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert "smu" in ended.err


def test_a_name_that_is_taken_is_refused(talked):
    assert talked("session", "fork", "sum", "sum").code == 2


def test_a_workspace_without_sessions_stays_as_it_is(workspace, here):
    ended = here("session", "list")
    assert (ended.code, ended.out, ended.err) == (0, "", "No session is stored here.\n")
    assert here("session", "list", "--json").json == {"sessions": []}
    assert here("session", "show", "any").code == 2
    assert list(workspace.iterdir()) == []
