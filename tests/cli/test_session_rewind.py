"""`forge session rewind` and `fork --at`, and `/rewind` in a conversation."""

from __future__ import annotations

import pytest

from forge import SessionStore
from tests.cli.scripts import call, script
from tests.cli.test_terminal import talk

PROMPT = b"> "


@pytest.fixture
def written(workspace, here):
    """A session of two prompts that wrote files, and of a program that ran."""
    first = script(workspace, call("file_write", path="src/a.txt", content="one\n"), "First.", name="m1.json")
    assert here("run", "Write it.", "--session", "ada", "--model", first, "--yes").code == 0
    turns = [call("file_write", path="src/a.txt", content="two\n"), call("bash", command="touch made.txt"), "Second."]
    second = script(workspace, *turns, name="m2.json")
    assert here("run", "Write more.", "--session", "ada", "--model", second, "--yes").code == 0
    assert (workspace / "src/a.txt").read_text() == "two\n"
    return here


def prompts(workspace, name="ada"):
    with SessionStore.of(workspace) as store:
        return [one.text for one in store.show(name).messages if one.role == "user"]


def test_the_turns_are_listed_with_what_they_changed(written):
    listed = written("session", "rewind", "ada")
    assert listed.code == 0
    assert listed.out.splitlines()[:4] == [
        "   1  “Write it.” · file_write",
        "      files: src/a.txt",
        "   2  First.",
        "   3  “Write more.” · file_write",
    ]
    found = written("session", "rewind", "ada", "--json").json
    assert [(one["number"], one["files"]) for one in found["turns"]][:3] == [
        (1, ["src/a.txt"]),
        (2, []),
        (3, ["src/a.txt"]),
    ]


def test_without_a_yes_the_difference_is_shown_and_nothing_changes(workspace, written):
    shown = written("session", "rewind", "ada", "--to", "2")
    assert shown.code == 1
    assert shown.out.startswith("Conversation: removes 6 messages (3 turns).\nFiles: changes 1 file")
    assert "-two\n+one\n" in shown.out
    assert "--yes rewinds without a question" in shown.err
    assert written("session", "rewind", "ada", "--to", "2", "--json").json["is_done"] is False
    assert (workspace / "src/a.txt").read_text() == "two\n"
    assert prompts(workspace) == ["Write it.", "Write more."]


def test_a_session_is_rewound_and_the_rewind_is_taken_back(workspace, written):
    done = written("session", "rewind", "ada", "--to", "2", "--yes", "--json")
    assert done.code == 0
    assert done.json["is_done"] is True
    assert (workspace / "src/a.txt").read_text() == "one\n"
    assert prompts(workspace) == ["Write it."]
    assert written("session", "rewind", "ada", "--to", "0", "--yes").code == 0
    assert not (workspace / "src").exists()
    assert written("session", "rewind", "ada", "--back", "--yes").code == 0
    again = written("session", "rewind", "ada", "--back", "--yes")
    assert again.code == 0
    assert again.err == "ada is at turn 5. To take this back: forge session rewind ada --back\n"
    assert (workspace / "src/a.txt").read_text() == "two\n"
    assert prompts(workspace) == ["Write it.", "Write more."]


def test_what_a_trial_applied_is_rewound_and_what_a_program_did_outside_is_named(workspace, written):
    turn = written("session", "rewind", "ada", "--json").json["turns"][3]
    assert turn["calls"] == ["bash"]
    assert (turn["files"], turn["unrecorded"]) in ((["made.txt"], []), ([], ["bash: touch made.txt"]))
    done = written("session", "rewind", "ada", "--to", "3", "--yes", "--json").json
    assert (workspace / "made.txt").exists() == bool(turn["unrecorded"])
    assert bool(done["left"]) == bool(turn["unrecorded"])
    assert written("session", "rewind", "ada", "--back", "--yes").code == 0
    assert (workspace / "made.txt").exists()


def test_a_file_that_somebody_changed_is_named_and_nothing_is_rewound(workspace, written):
    (workspace / "src/a.txt").write_text("mine\n")
    refused = written("session", "rewind", "ada", "--to", "2", "--yes")
    assert refused.code == 1
    assert "Changed by someone else since:\n" in refused.out
    assert "nothing was changed" in refused.err
    assert "Both versions are kept." in refused.err
    assert written("session", "rewind", "ada", "--to", "2", "--yes", "--json").json["is_done"] is False
    assert (workspace / "src/a.txt").read_text() == "mine\n"
    assert prompts(workspace) == ["Write it.", "Write more."]


def test_what_a_policy_denies_stays(workspace, written):
    (workspace / "rules.txt").write_text("deny write src/**\n")
    assert written("session", "rewind", "ada", "--to", "2", "--yes", "--policy", "rules.txt").code == 1
    assert (workspace / "src/a.txt").read_text() == "two\n"
    assert written("session", "rewind", "ada", "--to", "2", "--yes").code == 0


def test_flags_that_do_not_fit_are_refused(written):
    assert written("session", "rewind", "ada", "--to", "1", "--back").code == 2
    assert written("session", "rewind", "adda", "--to", "1").code == 2
    assert written("session", "fork", "ada", "b", "A prompt.").code == 2
    assert written("session", "fork", "ada", "b", "--at", "3", "--upto", "1").code == 2
    assert "has 5 turns" in written("session", "fork", "ada", "b", "--at", "9").err
    assert written("session", "rewind", "ada", "--to", "9", "--yes").code == 1


def test_the_same_turn_again_with_another_model_or_prompt(workspace, written):
    model = script(workspace, "Another answer.", name="m3.json")
    again = written("session", "fork", "ada", "b", "--at", "3", "--model", model)
    assert again.code == 0, again.err
    assert "Another answer." in again.out
    assert "The files are as they are now" in again.err
    assert prompts(workspace, "b") == ["Write it.", "Write more."]
    other = written("session", "fork", "ada", "c", "Do something else.", "--at", "3", "--model", model)
    assert other.code == 0, other.err
    assert prompts(workspace, "c") == ["Write it.", "Do something else."]
    assert prompts(workspace) == ["Write it.", "Write more."]
    assert (workspace / "src/a.txt").read_text() == "two\n"


def test_a_fork_puts_the_files_back_only_if_asked(workspace, written):
    assert written("session", "fork", "ada", "b", "--at", "3", "--files").code == 1
    assert "b" not in [one["name"] for one in written("session", "list", "--json").json["sessions"]]
    assert (workspace / "src/a.txt").read_text() == "two\n"
    assert written("session", "fork", "ada", "b", "--at", "3", "--files", "--yes").code == 0
    assert (workspace / "src/a.txt").read_text() == "one\n"
    assert prompts(workspace, "b") == ["Write it."]
    assert prompts(workspace) == ["Write it.", "Write more."]


def test_a_turn_that_the_model_began_by_itself_needs_a_prompt(workspace, written):
    model = script(workspace, "Another answer.", name="m3.json")
    refused = written("session", "fork", "ada", "b", "--at", "4", "--model", model)
    assert refused.code == 2
    assert "without a prompt" in refused.err
    assert written("session", "fork", "ada", "b", "Say more.", "--at", "4", "--model", model).code == 0


def test_a_stored_run_that_is_not_over_refuses_a_rewind(workspace, here):
    model = script(workspace, call("file_write", path="a.txt", content="a"), "Done.")
    waiting = here("run", "--durable", "go", "--session", "d", "--model", model)
    assert waiting.code == 3
    with SessionStore.of(workspace) as store:
        store.open("d")
    refused = here("session", "rewind", "d", "--to", "0", "--yes")
    assert refused.code == 1
    assert "is waiting" in refused.err
    run = refused.err.split("the run ")[1].split(" ")[0]
    assert here("runs", "answer", run, "--yes").code == 0
    assert here("runs", "resume", run, "--model", model).code == 0
    assert (workspace / "a.txt").read_text() == "a"
    assert here("session", "rewind", "d", "--to", "0", "--yes").code == 0
    assert not (workspace / "a.txt").exists()
    assert prompts(workspace, "d") == []


def test_a_conversation_is_rewound_after_a_question(workspace, written):
    says = (
        (PROMPT, b"/rewind\n"),
        (PROMPT, b"/rewind 2\n"),
        (b"[y/N] ", b"n\n"),
        (PROMPT, b"/rewind 2\n"),
        (b"[y/N] ", b"y\n"),
        (PROMPT, b"/quit\n"),
    )
    flags = ("--session", "ada", "--model", script(workspace, "x"))
    code, shown = talk(workspace, "run", *flags, says=says, TERM="dumb")
    assert code == 0, shown
    assert "“Write more.” · file_write" in shown
    assert "Nothing was changed." in shown
    assert "This session is at turn 2." in shown
    assert prompts(workspace) == ["Write it."]
    assert (workspace / "src/a.txt").read_text() == "one\n"
