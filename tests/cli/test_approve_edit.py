"""`e` at a question: the arguments in an editor, as YAML, at a real terminal."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from forge.cli.terminal.approve import EditError, read_document, write_document
from forge.core.context import Scope
from forge.core.messages import ToolCall
from forge.core.spec import ToolSpec
from forge.permissions.questions import PermissionRequest
from tests.cli.test_terminal import ASKED, talk

AGAIN = b"[b]ack\x1b[0m? "
EDITOR = """
import pathlib, sys
file = pathlib.Path(sys.argv[1])
seen = pathlib.Path("seen.txt")
seen.write_text((seen.read_text() if seen.exists() else "") + file.read_text() + "=====")
steps = pathlib.Path("steps.txt").read_text().split("@")
pathlib.Path("steps.txt").write_text("@".join(steps[1:]))
if steps[0] == "fail":
    sys.exit(3)
if steps[0] != "keep":
    file.write_text(steps[0])
"""


@pytest.fixture
def editing(workspace):
    """`editing("text", …)`: a call that asks, and an editor that leaves these texts, one each time."""
    (workspace / "ask.rules").write_text("ask tool:math_calculate\nask write\ndeny write secret*\n")
    (workspace / "editor.py").write_text(EDITOR)

    def command(tool: str, arguments: dict[str, Any], *steps: str, says: Any) -> tuple[int, str]:
        (workspace / "steps.txt").write_text("@".join(steps))
        call = ("tool", "call", tool, json.dumps(arguments), "--policy", "ask.rules")
        return talk(workspace, *call, says=says, EDITOR=f"{sys.executable} editor.py")

    return command


def seen(workspace: Path) -> list[str]:
    return (workspace / "seen.txt").read_text().split("=====")


def test_the_edited_arguments_run(workspace, editing):
    code, shown = editing("math_calculate", {"expression": "1 + 1"}, "expression: 6 * 7\n", says=((ASKED, b"e"),))
    assert code == 0
    assert "\n42\n" in shown
    document = seen(workspace)[0]
    assert "# The arguments of math_calculate." in document
    assert yaml.safe_load(document)["expression"] == "1 + 1"


def test_what_is_unchanged_goes_back_to_the_question(editing):
    says = ((ASKED, b"e"), (b"unchanged", b""), (ASKED, b"n"))
    assert editing("math_calculate", {"expression": "1 + 1"}, "keep", says=says)[0] == 1
    assert editing("math_calculate", {"expression": "1 + 1"}, "", says=says)[0] == 1


@pytest.mark.parametrize(
    ("wrong", "words"),
    [("expression: [", b"not valid YAML"), ("nonsense: 1", b"nonsense"), ("- 1", b"by their names")],
)
def test_what_does_not_fit_is_said_and_edited_again(workspace, editing, wrong, words):
    says = ((ASKED, b"e"), (words, b""), (AGAIN, b"e"))
    code, shown = editing("math_calculate", {"expression": "1 + 1"}, wrong, "expression: 2 + 3\n", says=says)
    assert code == 0
    assert "\n5\n" in shown
    second = seen(workspace)[1]
    assert "# Problem: " in second
    assert second.rstrip().endswith(wrong)


def test_what_does_not_fit_can_be_left(editing):
    says = ((ASKED, b"e"), (AGAIN, b"b"), (ASKED, b"y"))
    code, shown = editing("math_calculate", {"expression": "1 + 1"}, "expression: [", says=says)
    assert code == 0
    assert shown.rstrip().endswith("2")


def test_an_editor_that_fails_changes_nothing(editing):
    says = ((ASKED, b"e"), (b"ended with code 3", b""), (ASKED, b"y"))
    code, shown = editing("math_calculate", {"expression": "1 + 1"}, "fail", says=says)
    assert (code, shown.rstrip()[-1]) == (0, "2")


def test_the_rules_judge_what_was_edited(workspace, editing):
    arguments = {"path": "a.txt", "content": "hello\n"}
    edited = "path: {}\ncontent: |\n  other\n"
    assert editing("file_write", arguments, edited.format("b.txt"), says=((ASKED, b"e"),))[0] == 0
    assert (workspace / "b.txt").read_text() == "other\n"
    code, shown = editing("file_write", arguments, edited.format("secret.txt"), says=((ASKED, b"e"),))
    assert code == 1
    assert "permission_error" in shown
    assert not (workspace / "secret.txt").exists()
    assert not (workspace / "a.txt").exists()


def asks(**arguments: Any) -> PermissionRequest:
    open_schema = {"type": "object", "properties": {}, "additionalProperties": True}
    spec = ToolSpec(name="anything", description="", parameters=open_schema)
    return PermissionRequest(spec, ToolCall("anything", {}), arguments, None, "", Scope())


@pytest.mark.parametrize(
    "value",
    [
        "one\ntwo\n",
        "no newline\nat the end",
        "trailing \nspace",
        "# no comment",
        "yes",
        "1.10",
        "2026-01-01",
        "",
        "\x1b[31m\u202e",
        "広い",
        {"a": [1, 2.5, None, True, "x\ny"]},
        ["- a", "b: c"],
        "\tTab\n\tTab",
    ],
)
def test_any_value_reads_back_as_it_was(value):
    request = asks(value=value)
    document = write_document(request)
    assert read_document(document, request) is None
    assert "\x1b" not in document
    assert "\u202e" not in document
    assert read_document(write_document(request) + "more: 1\n", request) == {"value": value, "more": 1}


def test_a_date_is_text_and_what_json_lacks_is_refused():
    assert read_document("value: 2026-01-01\n", asks(value="x")) == {"value": "2026-01-01"}
    with pytest.raises(EditError, match="JSON"):
        read_document("value: .nan\n", asks(value="x"))
    with pytest.raises(EditError, match="aliases"):
        read_document("value: &a [1]\nother: *a\n", asks(value="x"))


def test_ctrl_c_in_the_editor_ends_the_command(workspace, editing):
    waiting = (
        "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('EDITING', flush=True)\nsignal.pause()\n"
    )
    (workspace / "editor.py").write_text(waiting)
    code, shown = editing("math_calculate", {"expression": "1"}, says=((ASKED, b"e"), (b"EDITING", b"\x03")))
    assert code == 130
    assert "Traceback" not in shown


def test_a_form_is_checked_by_its_own_schema():
    form = {
        "type": "object",
        "properties": {"age": {"type": "integer"}, "name": {"type": "string"}},
        "required": ["age"],
    }
    request = dataclasses.replace(asks(age=None, name=None), question="How old?", form=form)
    assert read_document("age: 7\nname: null\n", request) == {"age": 7, "name": None}
    with pytest.raises(EditError, match="age"):
        read_document("age: old\n", request)
