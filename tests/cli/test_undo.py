"""`forge undo`, and how changes of files look to people and programs."""

from __future__ import annotations

import json

import pytest

from tests.cli.scripts import call, script
from tests.cli.test_terminal import talk


@pytest.fixture
def edited(workspace, here):
    """A file that `forge tool call` has changed, in two commands of one session."""
    (workspace / "a.txt").write_text("alpha\nbeta\n")
    assert here("tool", "call", "file_read", '{"path": "a.txt"}').code == 0
    change = json.dumps({"path": "a.txt", "old_text": "beta", "new_text": "gamma"})
    assert here("tool", "call", "file_edit", change, "--yes").code == 0
    assert (workspace / "a.txt").read_text() == "alpha\ngamma\n"
    return here


def test_a_read_and_an_edit_in_two_commands_belong_together_and_sessions_do_not(workspace, edited):
    change = json.dumps({"path": "a.txt", "old_text": "alpha", "new_text": "omega"})
    refused = edited("tool", "call", "file_edit", change, "--yes", "--session", "other")
    assert refused.code == 1
    assert "was not read in this session" in refused.json["error"]
    assert edited("tool", "call", "file_edit", change, "--yes").code == 0


def test_the_last_change_is_taken_back_and_put_back(workspace, edited):
    listed = edited("undo", "--list").json["data"]["entries"]
    assert [one["tool"] for one in listed] == ["file_edit"]
    undone = edited("undo", "--yes")
    assert undone.code == 0
    assert (workspace / "a.txt").read_text() == "alpha\nbeta\n"
    again = edited("undo", "--yes", "--call", undone.json["id"])
    assert again.code == 0, again.out
    assert (workspace / "a.txt").read_text() == "alpha\ngamma\n"


def test_without_a_yes_nothing_is_taken_back(workspace, edited):
    refused = edited("undo")
    assert refused.code == 1
    assert refused.json["error_type"] == "permission_error"
    assert (workspace / "a.txt").read_text() == "alpha\ngamma\n"


def test_a_file_that_was_changed_since_is_left_alone(workspace, edited):
    (workspace / "a.txt").write_text("mine\n")
    refused = edited("undo", "--yes")
    assert refused.code == 1
    assert "changed" in refused.json["error"]
    assert (workspace / "a.txt").read_text() == "mine\n"


def test_nothing_to_undo_is_said(here):
    assert here("undo", "--list").code == 0
    refused = here("undo", "--yes")
    assert refused.code == 1
    assert refused.json["error_type"] == "not_found"
    assert here("undo", "--call", "x", "--turn", "y").code == 2


def test_a_person_sees_the_diff_before_they_answer(workspace, edited):
    code, shown = talk(workspace, "undo", says=((b"[y]es", b""), (b"? ", b"y")))
    assert code == 0
    question = shown[: shown.index("[y]es")]
    assert "-gamma" in question
    assert "+beta" in question
    assert "\x1b[32m" in question, "in colour"
    assert (workspace / "a.txt").read_text() == "alpha\nbeta\n"


def test_the_question_about_a_change_shows_its_diff(workspace, here):
    (workspace / "a.txt").write_text("one\n")
    assert here("tool", "call", "file_read", '{"path": "a.txt"}').code == 0
    change = '{"path": "a.txt", "content": "two\\n"}'
    code, shown = talk(workspace, "tool", "call", "file_write", change, says=((b"[y]es", b""), (b"? ", b"n")))
    assert code == 1
    question = shown[: shown.index("[y]es")]
    assert "-one" in question
    assert "+two" in question
    assert (workspace / "a.txt").read_text() == "one\n"


def test_a_change_that_cannot_be_made_asks_nobody(workspace, here):
    (workspace / "a.txt").write_text("one\n")
    code, shown = talk(workspace, "tool", "call", "file_write", '{"path": "a.txt", "content": "two"}')
    assert code == 1
    assert "was not read" in shown
    assert "[y]es" not in shown


def test_a_run_shows_what_it_changes(workspace, here):
    (workspace / "a.txt").write_text("one\ntwo\n")
    model = script(
        workspace,
        call("file_read", path="a.txt"),
        call("file_edit", path="a.txt", old_text="two", new_text="three"),
        "Done.",
    )
    ended = here("run", "change it", "--yes", "--session", "s", "--model", model)
    assert ended.code == 0, ended.err
    assert "-two" in ended.err
    assert "+three" in ended.err
    assert "+++" not in ended.err
    assert here("undo", "--yes").code == 0
    assert (workspace / "a.txt").read_text() == "one\ntwo\n"
    assert here("session", "delete", "s").code == 0
    assert here("undo", "--list").json["data"]["total"] == 0


def test_protected_files_stay_refused_with_yes_and_a_rule_lifts_it(workspace, here):
    change = '{"path": ".git/config", "content": "[core]"}'
    refused = here("tool", "call", "file_write", change, "--yes")
    assert refused.code == 1
    assert refused.json["error_type"] == "permission_error"
    assert not (workspace / ".git").exists()
    (workspace / "rules.txt").write_text("allow write .git/config\n")
    assert here("tool", "call", "file_write", change, "--yes", "--policy", "rules.txt").code == 0
    assert (workspace / ".git/config").read_text() == "[core]"


def test_the_project_declares_further_directories_and_may_switch_writing_off(workspace, here, tmp_path_factory):
    library = tmp_path_factory.mktemp("library")
    (library / "a.txt").write_text("from the library")
    (workspace / "forge.yaml").write_text(f"workspace: {{roots: [{{path: {library}, access: read}}]}}\n")
    path = json.dumps({"path": str(library / "a.txt")})
    assert here("tool", "call", "file_read", path).code == 1
    assert "from the library" in here("tool", "call", "file_read", path, "--config", "forge.yaml").out
    change = json.dumps({"path": str(library / "b.txt"), "content": "x"})
    refused = here("tool", "call", "file_write", change, "--yes", "--config", "forge.yaml")
    assert "read-only" in refused.json["error"]
    (workspace / "forge.yaml").write_text("workspace: {writes: false}\n")
    refused = here("tool", "call", "file_write", '{"path": "b", "content": "x"}', "--yes", "--config", "forge.yaml")
    assert refused.json["error_type"] == "permission_error"
    (workspace / "forge.yaml").write_text("workspace: {roots: [{path: missing}]}\n")
    refused = here("tool", "call", "file_read", path, "--config", "forge.yaml")
    assert refused.code == 2
    assert "workspace.roots[0].path" in refused.err


def test_folders_that_a_write_made_are_removed_with_it_unless_something_else_is_in_them(workspace, here):
    for path in ("one/two/a.txt", "three/b.txt"):
        assert here("tool", "call", "file_write", json.dumps({"path": path, "content": "x"}), "--yes").code == 0
    (workspace / "three" / "mine.txt").write_text("mine")
    assert here("undo", "--yes").code == 0
    assert here("undo", "--yes").code == 0
    assert not (workspace / "one").exists()
    assert [one.name for one in (workspace / "three").iterdir()] == ["mine.txt"]
