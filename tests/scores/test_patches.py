"""Changes as calls, their damages, and the judgement of the file afterwards, with a repository of our own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from scores import patches
from scores.patch_calls import DAMAGES, NONE, Change, make_change, render
from scores.patch_peers import Peer
from scores.report import Missing, NotGiven

BEFORE = "def first():\n    a = 1\n    say('one')\n\n    return a\n\n\ndef second():\n    return 2\n"
AFTER = BEFORE.replace("    return a\n", "    a += 1\n    return a\n")
CASE = patches.Case("ours a.py", ".py", BEFORE, AFTER)


def change() -> Change:
    made = make_change(BEFORE, AFTER, ".py")
    assert made is not None
    return made


def test_a_change_is_written_in_three_forms():
    edits = render(change(), "edit", "a.py")
    assert edits == [
        (
            "    a = 1\n    say('one')\n\n    return a\n\n\n",
            "    a = 1\n    say('one')\n\n    a += 1\n    return a\n\n\n",
        )
    ]
    diff, envelope = render(change(), "diff", "a.py"), render(change(), "envelope", "a.py")
    assert isinstance(diff, str)
    assert isinstance(envelope, str)
    assert diff.startswith("--- a/a.py\n+++ b/a.py\n@@ -2,6 +2,7 @@\n     a = 1\n")
    assert envelope.startswith("*** Begin Patch\n*** Update File: a.py\n@@\n     a = 1\n")
    assert "\n+    a += 1\n" in diff
    assert "\n+    a += 1\n" in envelope


def test_a_piece_gets_as_many_lines_as_it_needs_to_occur_once():
    block = "a\nb\nc\nd\ne\nf\ng\nh\n"
    changed = block.replace("d\n", "d\nnew\n")
    made = make_change(f"first\n{block}{block}", f"first\n{block}{changed}", ".py")
    assert made is not None
    assert len(made.hunks[0]) == 5 + 1 + 4  # with three lines around it, it would fit twice
    assert make_change("a\n" * 99, "a\n" * 50 + "b\n" + "a\n" * 49, ".py") is None
    assert make_change(BEFORE, BEFORE, ".py") is None


@pytest.mark.parametrize("name", [*DAMAGES])
def test_a_damage_changes_the_call_or_the_file_and_never_the_meaning(name):
    damaged = DAMAGES[name].make(change())
    assert damaged is not None
    form = DAMAGES[name].forms[0]
    seen = render(damaged, form, "a.py"), damaged.file_before()
    assert seen != (render(change(), form, "a.py"), change().file_before())
    [added] = [line for line in damaged.file_after().splitlines() if b"+=" in line]
    assert added == b"    a += 1"


def test_a_damage_that_makes_another_right_call_is_none():
    tabs = DAMAGES["tabs and spaces exchanged"].make
    new = make_change("def f(): pass\n", "def f():\n    return 1\n", ".py")
    assert new is not None
    assert tabs(new) is None, "the file has no indentation: the tabs are what the call says"
    deeper = make_change("def f():\n    return 1\n", "def f():\n    return 2\n", ".py")
    assert deeper is not None
    assert tabs(deeper) is not None


def test_every_outcome_is_told_apart(tmp_path):
    def no(path: Path, call: object) -> str:
        return "no"

    def too_much(path: Path, call: object) -> str:
        path.write_text("x")
        return ""

    others = [Peer("careful", "edit", no), Peer("rash", "edit", too_much)]
    tallies = patches.measure([CASE], others, tmp_path / "workspace")
    edit = tallies["edit"]
    assert edit[""].counts[NONE, "right"] == 1
    assert edit["careful"].counts[NONE, "refused"] == 1
    assert edit["rash"].counts[NONE, "wrong"] == 1
    assert sum(edit[""].counts.values()) == sum(edit["rash"].counts.values()) == 1 + 12
    assert all(not tally.wrong for form in tallies.values() for name, tally in form.items() if not name)
    right, applied, refused, wrong = patches.make_rows("edit", edit)
    assert (right.passed, right.cases, right.others) == (
        1,
        1,
        "Forge, the same files: 1 of 1, careful: 0 of 1, rash: 0 of 1",
    )
    assert applied.passed + refused.passed == applied.cases == 12
    assert (wrong.passed, wrong.cases, wrong.others.rpartition(", ")[2]) == (0, 13, "rash: 13 of 13")
    assert "| none | 1 / 0 / 0 | 1 / 0 / 0 | 0 / 1 / 0 | 0 / 0 / 1 |" in patches.make_table("edit", edit)


def git(folder: Path, *arguments: str) -> str:
    name = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
    argv = ["git", *name, "-C", str(folder), *arguments]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


def test_the_newest_commits_of_a_clone_are_read(tmp_path, monkeypatch):
    project = tmp_path / "ours"
    project.mkdir()
    git(project, "init", "-q")
    for text in (BEFORE, AFTER, f"{AFTER}no newline at the end"):
        (project / "a.py").write_text(text)
        git(project, "add", "a.py")
        git(project, "commit", "-qm", "change")
    head = git(project, "rev-parse", "HEAD")
    monkeypatch.setattr(patches, "PROJECTS", (("ours", head, "*.py"),))
    [case] = patches.read_commits(tmp_path)
    assert (case.before, case.after, case.suffix) == (BEFORE, AFTER, ".py")
    monkeypatch.setattr(patches, "PROJECTS", (("ours", "0" * 40, "*.py"),))
    with pytest.raises(Missing, match="git cat-file in"):
        patches.read_commits(tmp_path)
    monkeypatch.setattr(patches, "PROJECTS", (("theirs", head, "*.py"),))
    with pytest.raises(Missing, match="has no theirs: clone"):
        patches.read_commits(tmp_path)


def test_without_a_folder_it_says_how_to_get_one(monkeypatch):
    monkeypatch.delenv(patches.VARIABLE, raising=False)
    with pytest.raises(NotGiven, match=r"clone polyglot-benchmark, flask.*`FORGE_SCORES_REPOS=FOLDER make scores"):
        patches.run()
