"""`forge eval`: the table, the exit code, a recording, a comparison, and Ctrl-C."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import programs
from tests.cli.conftest import environment

CASES = """
cases:
  - name: reads the note
    prompt: What does notes.txt say?
    files: {notes.txt: Buy milk.}
    script:
      - {call: file_read, arguments: {path: notes.txt}}
      - It says that you should buy milk.
    expect: {calls: [{file_read: {path: notes.txt}}], result: {contains: milk}}
"""
WRITES = """
  - name: writes a note
    prompt: Write a note.
    script:
      - {call: file_write, arguments: {path: a.txt, content: hello}}
      - Done.
    expect: {files: {a.txt: hello}}
"""
WAITS = """
  - name: takes long
    prompt: Wait.
    script: [{call: bash, arguments: {command: sleep 600}}, Done.]
"""


@pytest.fixture
def cases(workspace: Path) -> Path:
    file = workspace / "cases.yaml"
    file.write_text(CASES)
    return file


def test_a_table_says_what_passed(here, cases):
    ended = here("eval", "cases.yaml", "--times", "2", "--junit", "report.xml")
    assert ended.code == 0
    lines = ended.out.splitlines()
    assert lines[0].split() == ["CASE", "PASSED", "TURNS", "TOKENS", "COST", "SECONDS"]
    assert lines[1].startswith("reads the note  2/2 100 %  2.0 ")
    assert 'tests="2" failures="0"' in Path("report.xml").read_text()


def test_too_few_that_pass_are_an_exit_code(here, cases):
    cases.write_text(CASES.replace("contains: milk", "contains: bread"))
    ended = here("eval", "cases.yaml")
    assert ended.code == 1
    assert 'reads the note, run 1: the answer does not contain "bread"' in ended.err
    assert here("eval", "cases.yaml", "--min-pass-rate", "0").code == 0


def test_calls_are_denied_unless_they_are_approved(here, cases):
    cases.write_text(CASES + WRITES)
    denied = here("eval", "cases.yaml", "--json")
    found = json.loads(denied.out)
    assert (denied.code, found["passed"], found["interrupted"]) == (1, False, False)
    assert [one["passed"] for one in found["runs"]] == [True, False]
    (_, said) = found["runs"][1]["failures"]
    assert said.startswith("file_write was denied: it needs an approval, and an evaluation has no one to ask.")
    assert "--yes" in said
    assert "`allow write a.txt`" in said
    approved = here("eval", "cases.yaml", "--yes")
    assert (approved.code, "was denied" in approved.err) == (0, False)
    assert here("eval", "cases.yaml", "--case", "reads the note").code == 0


def test_a_recording_replaces_the_model(here, cases):
    assert here("eval", "cases.yaml", "--record", "answers.ndjson").code == 0
    cases.write_text(CASES.replace("buy milk.\n    expect", "buy bread.\n    expect"))
    assert here("eval", "cases.yaml").code == 1
    assert here("eval", "cases.yaml", "--replay", "answers.ndjson").code == 0


def test_two_models_are_compared(here, cases, workspace):
    lines = [line for line in CASES.splitlines() if not line.startswith(("      - ", "    script:"))]
    cases.write_text("\n".join(lines))
    (workspace / "good.yaml").write_text("- {call: file_read, arguments: {path: notes.txt}}\n- milk\n")
    (workspace / "bad.yaml").write_text("- bread\n")
    ended = here("eval", "cases.yaml", "--model", "scripted:good.yaml", "--compare", "scripted:bad.yaml")
    assert ended.code == 0, "the first one counts"
    assert "scripted:bad.yaml compared with scripted:good.yaml: passed -100 points" in ended.out


def test_two_configurations_are_compared(here, cases, workspace):
    (workspace / "other.yaml").write_text("limits: {turns: 1}")
    ended = here("eval", "cases.yaml", "--compare", "other.yaml", "--json")
    found = json.loads(ended.out)
    assert [one["setup"] for one in found["setups"]] == ["the project", "other.yaml"]
    assert [one["passed"] for one in found["runs"]] == [True, False]
    assert "max_turns" in found["runs"][1]["failures"][0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["none.yaml"], "No such file"),
        (["cases.yaml", "--case", "other"], "there is no case 'other'"),
        (["cases.yaml", "--replay", "none.ndjson"], "reading the recording"),
        (["cases.yaml", "--replay", "a", "--model", "b"], "--replay replaces the model"),
        (["cases.yaml", "--record", "a", "--compare", "b"], "A recording is of one configuration"),
        (["cases.yaml", "--model", "nobody:nothing"], "nobody"),
        (["cases.yaml", "--policy", "cases.yaml"], "cases.yaml"),
    ],
)
def test_what_cannot_be_used_is_refused(here, cases, arguments, words):
    ended = here("eval", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert words in ended.err


def test_ctrl_c_prints_the_table_so_far(cases, workspace):
    cases.write_text(CASES + WAITS)
    words = [sys.executable, "-m", "forge", "eval", "cases.yaml", "--yes"]
    with programs.Popen(
        words, cwd=workspace, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stderr is not None
        assert process.stderr.read(1) == b"."
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "reads the note  1/1 100 %" in out.decode()
    assert "takes long      not run" in out.decode()
    assert "Interrupted" in err.decode()


def test_marked_runs_are_cases(here, workspace):
    pytest.importorskip("dbos")
    (workspace / "notes.txt").write_text("Buy milk.")
    (workspace / "script.json").write_text(
        json.dumps([{"call": "file_read", "arguments": {"path": "notes.txt"}}, "Buy milk."])
    )
    model = ("--model", "scripted:script.json")
    none = here("eval", "--from-marked", "any", *model)
    assert (none.code, "no run is marked" in none.err) == (2, True)
    assert here("run", "--durable", "What is in notes.txt?", *model).code == 0
    (run,) = here("runs", "list", "--json").json["runs"]
    here("runs", "mark", run["id"], "good")
    passed = here("eval", "--from-marked", "good", *model)
    assert (passed.code, run["id"] in passed.out) == (0, True)
    assert here("eval", "--from-marked", "bad", *model).code == 2
    here("runs", "mark", run["id"], "bad", "--note", "too short")
    failed = here("eval", "--from-marked", "any", *model)  # the same answer again
    assert (failed.code, "Buy milk." in failed.err) == (1, True)
    assert here("eval", *model).code == here("eval", "cases.yaml", "--from-marked", "any").code == 2


SCRIPT = '''"""
Tool: shout
Description: Say a word loudly.

Input:
  word (str): The word.
"""
import json, sys
open("said.txt", "w").write(json.load(sys.stdin)["word"].upper())
'''
USES_THE_SCRIPT = """
cases:
  - name: shouts
    prompt: Shout hello.
    workspace: .
    script: [{call: shout, arguments: {word: hello}}, Done.]
    expect: {files: {said.txt: HELLO}}
"""


@pytest.mark.parametrize("same", [True, False])
def test_a_copy_of_the_project_has_its_scripts_and_a_copy_of_another_has_not(here, workspace, same):
    rules = "permissions: {rules: [allow execute tools/shout.py]}\n"
    (workspace / "tools").mkdir()
    (workspace / "tools/shout.py").write_text(SCRIPT)
    (workspace / "forge.yaml").write_text(rules)
    (workspace / "cases.yaml").write_text(USES_THE_SCRIPT)
    (workspace / "other.yaml").write_text(rules)
    ended = here("eval", "cases.yaml", "--json", "--config", "forge.yaml" if same else "other.yaml")
    assert json.loads(ended.out)["passed"] is same
