"""A person at a terminal: a real one, made of a pseudo-terminal pair."""

from __future__ import annotations

import json
import os
import pty
import select
from pathlib import Path

import pytest
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.keys import Keys

from forge.cli.terminal.input_line import tell_alt_enter
from tests.cli.conftest import start

ASKED = b"[e]dit\x1b[0m? "  # one key answers
ASKED_LINE = b"[e]dit? "  # a line answers
LINES = {"TERM": "dumb"}  # a terminal that can only write lines


def talk(
    workspace: Path, /, *arguments: str, says: tuple[tuple[bytes, bytes], ...] = (), **changes: str | None
) -> tuple[int, str]:
    """Wait for each text, then type the answer to it. Returns the exit code and all that was shown."""
    terminal, its_end = pty.openpty()
    with start(workspace, *arguments, stream=its_end, **changes) as process:
        os.close(its_end)
        shown, seen = b"", 0
        for awaited, typed in says:
            while awaited not in shown[seen:]:
                try:
                    shown += _read(terminal)
                except (EOFError, TimeoutError) as error:
                    process.kill()
                    raise AssertionError(f"{awaited!r} does not come: {shown.decode()}") from error
            seen = shown.index(awaited, seen) + len(awaited)
            os.write(terminal, typed)
        try:
            while True:
                shown += _read(terminal)
        except EOFError:
            os.close(terminal)
        except TimeoutError as error:
            process.kill()
            raise AssertionError(f"the command does not end: {shown.decode()}") from error
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


def test_one_key_runs_what_was_shown(asking):
    code, shown = talk(*asking, says=((ASKED, b"y"),))
    assert code == 0
    assert "math_calculate wants to run" in shown
    assert "expression: │ 1 + 1" in shown
    assert shown.rstrip().endswith("2")


@pytest.mark.parametrize("typed", [b"o", b"once\n", b"yes\n"])
def test_words_of_the_line_based_way_are_understood(asking, typed):
    assert talk(*asking, says=((ASKED, typed),))[0] == 0


def test_one_key_says_no(asking):
    code, shown = talk(*asking, says=((ASKED, b"n"),))
    assert code == 1
    assert "Error (permission_error)" in shown


def test_a_key_that_is_no_answer_decides_nothing(asking):
    arrow, enter, pasted = b"\x1b[A", b"\n", b"yellow"
    code, shown = talk(*asking, says=((ASKED, arrow), (ASKED, enter), (ASKED, pasted), (ASKED, b"y")))
    assert code == 0
    assert shown.count("Press one of") == 3


def test_keys_before_the_question_do_not_answer_it(asking):
    code, _ = talk(*asking, says=((b"wants to", b"y"), (ASKED, b"n")))
    assert code == 1


def test_a_reason_reaches_the_model(asking):
    code, shown = talk(*asking, says=((ASKED, b"r"), (b"(optional): ", "zu früh\n".encode())))
    assert code == 1
    assert "Error (permission_error)" in shown
    assert "zu früh" in shown.rpartition("Error")[2]


def test_details_show_what_the_question_leaves_out(asking):
    code, shown = talk(*asking, says=((ASKED, b"d"), (ASKED, b"y")))
    assert code == 0
    question, _, details = shown.partition("? details")
    assert "forge.tools.math_calculate" not in question
    assert "math_calculate (forge.tools.math_calculate) wants to" in details


def test_without_a_capable_terminal_lines_answer(asking):
    says = ((ASKED_LINE, b"huh\n"), (ASKED_LINE, b"n\n"), (b"(optional): ", b"too early\n"))
    code, shown = talk(*asking, says=says, **LINES)
    assert code == 1
    assert "Type one of" in shown
    assert "too early" in shown.rpartition("Error")[2]
    assert "\x1b" not in shown
    code, shown = talk(*asking, says=((ASKED_LINE, b"once\n"),), **LINES)
    assert (code, shown.rstrip()[-1]) == (0, "2")


def test_without_colours_keys_answer(asking):
    code, shown = talk(*asking, says=((ASKED_LINE, b"y"),), NO_COLOR="1")
    assert code == 0
    assert "\x1b" not in shown


def test_a_line_of_json_edits_where_there_is_no_editor(asking):
    edit = (
        (ASKED_LINE, b"e\n"),
        (b"goes back): ", b"{nonsense\n"),
        (ASKED_LINE, b"e\n"),
        (b"goes back): ", b'{"expression": "6*7"}\n'),
    )
    code, shown = talk(*asking, says=edit, **LINES)
    assert code == 0
    assert "not valid JSON" in shown
    assert "42" in shown.rpartition("goes back")[2]


@pytest.mark.parametrize("terminal", [{}, LINES])
def test_the_end_of_the_input_means_no(asking, terminal):
    code, shown = talk(*asking, says=((b"[e]dit", b""), (b"? ", b"\x04")), **terminal)
    assert code == 1
    assert "permission_error" in shown


@pytest.mark.parametrize("terminal", [{}, LINES])
def test_ctrl_c_at_the_question_ends_the_command(asking, terminal):
    code, shown = talk(*asking, says=((b"[e]dit", b""), (b"? ", b"\x03")), **terminal)
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


def test_a_narrow_terminal_shows_names_whole_and_shortens_the_rest(workspace, here):
    names = [tool["name"] for tool in here("tool", "list", "--json").json["tools"]]
    _, shown = talk(workspace, "tool", "list", COLUMNS="50")
    assert set(names) <= {line.split()[0] for line in shown.splitlines()}
    assert all(len(line) <= 50 for line in shown.splitlines() if line.startswith("    "))
    assert "    Calculate an arithmetic expression instead" in shown


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_no_summary_of_the_help_is_cut(workspace, here, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    for group in ((), ("tool",), ("policy",), ("session",), ("runs",), ("schedule",), ("config",), ("mcp",)):
        listed = here(*group, "--help").out.partition("Commands:")[2].partition("Exit codes")[0]
        assert "..." not in listed
        assert "…" not in listed
    summary = here("session", "fork", "--help").out.split("\n\n")[1]
    assert " ".join(summary.split()).rstrip(".") in " ".join(here("session", "--help").out.split())


def test_a_line_typed_during_a_one_shot_run_reaches_the_agent(workspace):
    wait = "until test -e go; do sleep 0.05; done; echo waited"
    turns = [{"call": "bash", "arguments": {"command": wait}}, {"text": "Heard."}, {"text": "Heard later."}]
    (workspace / "model.json").write_text(json.dumps(turns))
    terminal, its_end = pty.openpty()
    run = ("run", "Format it.", "--model", "scripted:model.json", "--yes")
    with start(workspace, *run, stream=its_end) as process:
        os.close(its_end)
        shown = b""
        try:
            while b"until test" not in shown:  # the call runs
                shown += _read(terminal)
            os.write(terminal, b"Use tabs, please.\n")
            while b"Use tabs, please." not in shown:
                shown += _read(terminal)
            (workspace / "go").touch()
            while True:
                shown += _read(terminal)
        except EOFError:
            os.close(terminal)
        except TimeoutError as error:
            process.kill()
            raise AssertionError(f"the command does not end: {shown.decode()}") from error
    said = shown.decode()
    assert process.returncode == 0
    assert "Heard." in said[said.index("Use tabs, please.") :]


def test_a_silent_result_is_not_shown_to_the_person(workspace):
    (workspace / "quiet_tools.py").write_text(
        'from forge import ToolResult, tool\n\n\n@tool\ndef note(text: str) -> ToolResult:\n    "Note it."\n'
        "    return ToolResult(for_llm='the secret note', for_user='also hidden', silent=text == 'quiet')\n"
    )
    (workspace / "forge.yaml").write_text("tools: ['quiet_tools:note']\n")
    call = ("tool", "call", "note", "--config", "forge.yaml")
    code, shown = talk(workspace, *call, "text=quiet")
    assert code == 0, shown
    assert "secret" not in shown
    assert "hidden" not in shown
    assert "for the model alone; --json prints it" in shown
    assert "the secret note" in talk(workspace, *call, "text=quiet", "--json")[1]
    assert "also hidden" in talk(workspace, *call, "text=loud")[1]


def test_esc_and_then_enter_are_two_keys_and_alt_enter_is_a_line():
    pressed = []
    with create_pipe_input() as source:
        assert isinstance(source, Vt100Input)
        tell_alt_enter(source)
        for codes in ("\x1b", "\r", "\x1b\r", "a\x1b\rb", "\x1b[A"):  # each is read at once
            source.send_text(codes)
            pressed += source.read_keys()
        source.send_text("\r")  # the rest of an Alt-Enter that is read in two parts
        source.vt100_parser.feed("\x1b")
        pressed += source.flush_keys()
    keys = [one.key for one in pressed]
    assert keys == [Keys.Escape, Keys.Enter, Keys.ControlJ, "a", Keys.ControlJ, "b", Keys.Up, Keys.ControlJ]
