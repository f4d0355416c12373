"""A person at a terminal: a real one, made of a pseudo-terminal pair."""

from __future__ import annotations

import os
import pty
import select
from pathlib import Path

import pytest

from tests.cli.conftest import start

ASKED = b"[e]dit? "


def talk(workspace: Path, *arguments: str, says: tuple[tuple[bytes, bytes], ...] = ()) -> tuple[int, str]:
    """Wait for each text, then type the answer to it. Returns the exit code and all that was shown."""
    terminal, its_end = pty.openpty()
    with start(workspace, *arguments, stream=its_end) as process:
        os.close(its_end)
        shown, seen = b"", 0
        for awaited, typed in says:
            while awaited not in shown[seen:]:
                shown += _read(terminal)
            seen = shown.index(awaited, seen) + len(awaited)
            os.write(terminal, typed)
        try:
            while True:
                shown += _read(terminal)
        except EOFError:
            os.close(terminal)
    return process.returncode, shown.decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    if not select.select([terminal], [], [], 30)[0]:
        raise TimeoutError("the command says nothing")
    try:
        piece = os.read(terminal, 65_536)
    except OSError:  # Linux's way to say that the other side is closed
        piece = b""
    if not piece:
        raise EOFError
    return piece


@pytest.fixture
def asking(workspace):
    (workspace / "ask.rules").write_text("ask tool:math_calculate\n")
    return workspace, "tool", "call", "math_calculate", '{"expression": "1 + 1"}', "--policy", "ask.rules"


def test_once_runs_what_was_shown(asking):
    code, shown = talk(*asking, says=((ASKED, b"once\n"),))
    assert code == 0
    assert "math_calculate (forge.tools.math_calculate) wants to" in shown
    assert "expression: │ 1 + 1" in shown
    assert shown.rstrip().endswith("2")


def test_no_carries_its_reason(asking):
    code, shown = talk(*asking, says=((ASKED, b"huh\n"), (ASKED, b"n\n"), (b"nothing: ", "zu früh\n".encode())))
    assert code == 1
    assert "Type one of" in shown
    assert "Error (permission_error)" in shown
    assert "zu früh" in shown.rpartition("Error")[2]


def test_edited_arguments_run_instead(asking):
    edit = (
        (ASKED, b"e\n"),
        (b"go back: ", b"{nonsense\n"),
        (ASKED, b"e\n"),
        (b"go back: ", b'{"expression": "6*7"}\n'),
    )
    code, shown = talk(*asking, says=edit)
    assert code == 0
    assert "not valid JSON" in shown
    assert "42" in shown.rpartition("go back")[2]


def test_the_end_of_the_input_means_no(asking):
    code, shown = talk(*asking, says=((ASKED, b"\x04"),))
    assert code == 1
    assert "permission_error" in shown


def test_ctrl_c_at_the_question_ends_the_command(asking):
    code, shown = talk(*asking, says=((ASKED, b"\x03"),))
    assert code == 130
    assert "Traceback" not in shown


def test_yes_is_not_asked(asking):
    code, shown = talk(*asking, "--yes")
    assert (code, shown) == (0, "2\n")


def test_people_read_text_and_programs_json(workspace):
    call = ("tool", "call", "converse", '{"message": "one\\u001b[31m\\ntwo"}')
    assert talk(workspace, *call) == (0, "one⟨U+001B⟩[31m\ntwo\n")
    assert '"for_llm": "one\\u001b[31m\\ntwo"' in talk(workspace, *call, "--json")[1]


def test_the_list_ends_at_the_edge_of_the_terminal(workspace):
    code, shown = talk(workspace, "tool", "list")
    assert code == 0
    assert shown.startswith("\x1b[1mNAME")
    assert all(len(line) <= 80 for line in shown.splitlines()[1:])
