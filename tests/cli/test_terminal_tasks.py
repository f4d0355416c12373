"""Ten tasks of a person at a terminal, with their keys and screens, in windows of 80 and of 120 columns."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from forge.agent.session import SessionStore
from tests.cli.screens import ALT_ENTER, BACKTAB, ENTER, ESCAPE, UP, Terminal, control
from tests.cli.scripts import call, script

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")

READY = "Shift-Tab changes the mode"
BUSY = "Esc stops"
UNTRIED = ("--trial", "off")  # the question comes before the program, not after a trial of it
WAIT = "until test -e go; do sleep 0.05; done; echo waited"


@pytest.fixture(params=[80, 120])
def columns(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def begin(workspace: Path, columns: int) -> Any:
    """`begin("Hello.", …)`: a conversation with a model that says these things."""

    def begin(*turns: Any, flags: tuple[str, ...] = (), **changes: Any) -> Terminal:
        return Terminal(workspace, "run", "--model", script(workspace, *turns), *flags, columns=columns, **changes)

    return begin


def said(workspace: Path) -> list[str]:
    """What a person has said in the only session."""
    with SessionStore.of(workspace) as store:
        (info,) = store.list()
        return [one.text for one in store.show(info.name).messages if one.role == "user"]


def test_several_pasted_lines_are_one_message(workspace, begin):
    with begin("Read.") as terminal:
        terminal.wait(READY)
        terminal.paste("def add(a, b):\n    return a + b\n\x1b[31mred", workspace)
        shown = terminal.wait("return a + b", "red")
        assert "> def add(a, b):\n      return a + b\n" in shown
        assert "Read." not in shown
        shown = terminal.press(ENTER).wait("Read.", READY)
        assert shown.count("return a + b") == 1
        terminal.press(control("d"))
        assert terminal.wait_for_end() == 0
    assert said(workspace) == ["def add(a, b):\n    return a + b\n\x1b[31mred"]


def test_what_is_typed_during_a_run_is_queued_edited_and_withdrawn(workspace, begin):
    with begin(call("bash", command=WAIT), "Heard.", flags=("--yes",)) as terminal:
        terminal.wait(READY)
        terminal.press("go", ENTER).wait("until test -e go", BUSY)
        terminal.press("use tabs", ENTER).wait("queued: use tabs")
        terminal.press("and spaces", ENTER).wait("queued: use tabs\nqueued: and spaces\n")
        shown = terminal.press(UP).wait("> and spaces", without="queued: and spaces")
        assert "queued: use tabs" in shown
        terminal.press(control("u")).wait(without="and spaces")  # withdrawn
        shown = terminal.press(UP).wait("> use tabs", without="queued:")
        terminal.press(", please", ENTER).wait("queued: use tabs, please")
        (workspace / "go").touch()
        shown = terminal.wait("> use tabs, please", "Heard.", READY, without="queued")
        assert shown.index("> use tabs, please") < shown.index("Heard.")
        terminal.press("/quit", ENTER)
        assert terminal.wait_for_end() == 0
    assert said(workspace) == ["go", "use tabs, please"]


def test_esc_stops_the_run_and_loses_nothing_that_was_typed(workspace, begin):
    with begin(call("bash", command=WAIT), "Then this.", flags=("--yes",)) as terminal:
        terminal.wait(READY)
        terminal.press("go", ENTER).wait("until test -e go", BUSY)
        terminal.press("queued words", ENTER).wait("queued: queued words")
        terminal.press("half a sent").wait("> half a sent")
        shown = terminal.press(ESCAPE).wait("Stopped: interrupted.", READY, "> queued words\n  half a sent")
        assert "queued:" not in shown
        terminal.press("ence", ENTER).wait("Then this.", READY)
        terminal.press(control("c")).wait("Ctrl-C again leaves")
        terminal.press(control("c"))
        assert terminal.wait_for_end() == 0
    assert said(workspace) == ["go", "queued words\nhalf a sentence"]


def test_ctrl_c_stops_the_run_and_keeps_the_line(workspace, begin):
    with begin(call("bash", command=WAIT), "Then this.", flags=("--yes",)) as terminal:
        terminal.wait(READY)
        terminal.press("go", ENTER).wait("until test -e go", BUSY)
        terminal.press("half").wait("> half")
        terminal.press(control("c")).wait("Stopped: interrupted.", READY, "> half")
        terminal.press(" done", ENTER).wait("Then this.", READY)
        terminal.press(control("d"))
        assert terminal.wait_for_end() == 0
    assert said(workspace) == ["go", "half done"]


def test_a_message_steers_the_run_between_two_calls(workspace, begin):
    second = "until test -e go2; do sleep 0.05; done"
    turns = (call("bash", command=WAIT), call("bash", command=second), "Steered.")
    with begin(*turns, flags=("--yes",)) as terminal:
        terminal.wait(READY)
        terminal.press("go", ENTER).wait("until test -e go;", BUSY)
        terminal.press("line one", ALT_ENTER, "line two", control("j"), "line three", ENTER)
        terminal.wait("queued: line one")
        (workspace / "go").touch()
        shown = terminal.wait("> line one\n  line two\n  line three", "go2;", without="queued:")
        assert shown.index("> line one") > shown.index("waited")
        assert "Steered." not in shown
        (workspace / "go2").touch()
        terminal.wait("Steered.", READY)
        terminal.press(control("d"))
        assert terminal.wait_for_end() == 0
    assert said(workspace) == ["go", "line one\nline two\nline three"]


def test_a_stopped_run_is_resumed(workspace, begin):
    with begin({"error": {"message": "the line is dead"}}, "Back.") as terminal:
        terminal.wait(READY)
        terminal.press("go", ENTER).wait("the line is dead", READY)
        terminal.press("/res").wait("/resume", "resume the run that was stopped")  # the menu describes it
        terminal.press("ume", ENTER).wait("Back.", READY)
        terminal.press(control("d"))
        assert terminal.wait_for_end() == 0
    assert said(workspace) == ["go"]


def test_a_window_can_change_its_size(workspace, begin):
    with begin("Hello.") as terminal:
        terminal.wait(READY)
        text = "a text that is longer than the forty columns which the window has after the first change"
        terminal.press(text).wait("change\n")

        def is_drawn_once(shown: str) -> bool:
            whole = "".join(shown.split()).count("".join(text.split()))
            return whole == shown.count("Shift-Tab") == shown.count("> a text") == 1

        for width in (40, 60, 30, 100):
            terminal.resize(width).wait_until(is_drawn_once, f"the line once, at {width} columns")
        terminal.press(ENTER).wait("Hello.", READY)
        terminal.press(control("d"))
        assert terminal.wait_for_end() == 0
    assert said(workspace) == [text]


def test_earlier_messages_are_searched(workspace, begin):
    with begin("One.", "Two.", "Three.") as terminal:
        terminal.wait(READY)
        terminal.press("count the apples", ENTER).wait("One.", READY)
        terminal.press("sort the pears", ENTER).wait("Two.", READY)
        terminal.press(control("r"), "appl").wait("> count the apples\n")
        terminal.press(ENTER, ENTER).wait("Three.", READY)
        terminal.press(control("d"))
        assert terminal.wait_for_end() == 0
    assert said(workspace) == ["count the apples", "sort the pears", "count the apples"]
    assert (workspace / ".forge" / "history").stat().st_mode & 0o077 == 0


def test_a_large_diff_leaves_the_question_in_sight(workspace, begin):
    (workspace / "big.txt").write_text("".join(f"line {number}\n" for number in range(133)))
    new = "".join(f"LINE {number}\n\n" for number in range(133))
    turns = (call("file_read", path="big.txt"), call("file_write", path="big.txt", content=new), "Written.")
    with begin(*turns) as terminal:
        terminal.wait(READY)
        terminal.press("go", ENTER)
        shown = terminal.wait("[e]dit?")
        assert "file_write wants to write big.txt" in shown  # all of the question is on one screen
        assert "more lines: [d]etails shows all" in shown
        assert "file_write big.txt +266 −133\n[y]es" in shown
        terminal.press("d").wait("LINE 132", "file_write big.txt +266 −133\n[y]es")
        assert (workspace / "big.txt").read_text().startswith("line 0")
        shown = terminal.press("y").wait("Written.", READY)
        assert "✓ Overwrote big.txt" in shown
        terminal.press(control("d"))
        assert terminal.wait_for_end() == 0
    assert (workspace / "big.txt").read_text() == new


def test_a_call_is_refused_with_a_reason(workspace, begin):
    turns = (call("bash", command="touch a"), call("bash", command="touch b"), "Then not.")
    with begin(*turns, flags=UNTRIED) as terminal:
        terminal.wait(READY)
        terminal.press("go", ENTER).wait("│ touch a", "[e]dit?")
        terminal.press("x").wait("Press one of")
        terminal.press("r").wait("Reason for the model (optional):")
        terminal.press("it is too early", ENTER)
        terminal.wait("the person refused execute touch a: it is too early", "allow execute touch b\n[y]es")
        shown = terminal.press("y").wait("Then not.", READY)
        assert "✓ $ touch b" in shown  # what ran
        terminal.press(control("d"))
        assert terminal.wait_for_end() == 0
    assert [one.name for one in workspace.glob("[ab]")] == ["b"]


@pytest.mark.skipif(sys.platform != "linux", reason="trials need overlayfs")
def test_the_effects_of_a_trial_are_applied_or_discarded(workspace, begin):
    turns = (call("bash", command="echo 1 > a"), call("bash", command="echo 2 > b"), "Both.")
    with begin(*turns, flags=("--trial", "auto")) as terminal:
        terminal.wait(READY)
        shown = terminal.press("go", ENTER).wait("│ echo 1 > a", "│ +1\n[y]es [n]o, discard")
        assert "[e]dit" not in shown
        assert not (workspace / "a").exists()
        terminal.press("y").wait("│ echo 2 > b", "│ +2\n[y]es [n]o, discard")
        assert (workspace / "a").read_text() == "1\n"
        terminal.press("n").wait("Both.", READY)
        terminal.press(control("d"))
        assert terminal.wait_for_end() == 0
    assert (workspace / "a").exists()
    assert not (workspace / "b").exists()


def test_a_long_output_shows_its_end_and_the_rest_on_a_key(workspace, begin, columns):
    text = "Look:\n\n```python\nreturn 1\n```\n" + "some words " * 40
    turns = (
        call("bash", command="seq 5 9"),
        {"calls": [call("bash", command="seq 1 214"), call("bash", command="echo short")]},
        text,
    )
    with begin(*turns, flags=("--yes",)) as terminal:
        terminal.wait(READY)
        shown = terminal.press("go", ENTER).wait("return 1", READY)
        assert "  … 214 lines, Ctrl-O shows them\n  212\n  213\n  214\n" in shown
        assert "✓ $ seq 1 214" in shown
        assert "✓ $ echo short" in shown  # also among parallel calls
        lines = [line for line in shown.splitlines() if line.startswith("some words")]
        assert all(len(line) < columns and line.endswith(("some", "words")) for line in lines)
        terminal.press(control("o")).wait("  195\n", "  214\n")
        shown = terminal.press(control("o")).wait("▾ $ seq 5 9  5 lines\n  5\n  6\n  7\n  8\n  9\n")
        whole = terminal.everything()
        assert "▾ $ seq 1 214  214 lines\n  1\n  2\n  3\n" in whole
        terminal.press(control("d"))
        assert terminal.wait_for_end() == 0


def test_a_sub_agent_has_a_name_and_its_calls_stand_under_it(workspace, begin):
    (workspace / "notes.txt").write_text("apples\n")
    task = call("task", description="count the apples", prompt="Count.")
    with begin(task, call("grep_search", pattern="apples"), "Three.", "Done.", flags=("--yes",)) as terminal:
        terminal.wait(READY)
        shown = terminal.press("go", ENTER).wait("Done.", READY)
        assert "▸ general: count the apples\n  ✓ " in shown
        assert "\n✓ general: count the apples" in shown
        assert "  Three." in shown
        assert "task-" not in shown
        terminal.press(control("d"))
        assert terminal.wait_for_end() == 0


def test_a_locale_without_unicode_gets_ascii(workspace, begin):
    with begin(call("bash", command="touch a"), "Done…", flags=UNTRIED, LC_ALL="C") as terminal:
        terminal.wait(READY)
        terminal.press("go", ENTER).wait("| touch a", "[e]dit?")
        shown = terminal.press("y").wait("+ $ touch a", "Done...", READY)
        assert shown.isascii()
        terminal.press(control("d"))
        assert terminal.wait_for_end() == 0


def test_the_model_is_changed(workspace, begin):
    other = script(workspace, "The other one.", name="other.json")
    with begin("The first one.") as terminal:
        terminal.wait(READY)
        terminal.press("hi", ENTER).wait("The first one.", READY)
        terminal.press(f"/model {other}", ENTER).wait("from now on.", READY)
        terminal.press("hi again", ENTER).wait("The other one.", "scripted:other.json", READY)
        terminal.press("/model nonsense:x", ENTER).wait("nonsense", READY)
        terminal.press(control("d"))
        assert terminal.wait_for_end() == 0
    assert said(workspace) == ["hi", "hi again"]


def test_plan_mode_changes_nothing_until_it_is_left(workspace, begin):
    write = call("file_write", path="a.txt", content="a")
    turns = (call("bash", command="ls"), write, "My plan: write a.txt.", write, "Done.", write, "Asked.")
    with begin(*turns) as terminal:
        terminal.wait(READY)
        terminal.press(BACKTAB).wait("accept edits  Shift-Tab")
        terminal.press(BACKTAB).wait("plan mode  Shift-Tab")
        shown = terminal.press("plan it", ENTER).wait("My plan: write a.txt.", READY)
        assert "✓ $ ls" in shown
        assert "the person wants a plan before anything changes" in " ".join(shown.split())
        assert "[y]es" not in terminal.everything()
        assert not (workspace / "a.txt").exists()
        terminal.press(BACKTAB).wait("\nShift-Tab", without="plan mode  Shift-Tab")
        terminal.press(BACKTAB).wait("accept edits  Shift-Tab")
        terminal.press("do it", ENTER).wait("Done.", READY)
        assert "[y]es" not in terminal.everything()
        assert (workspace / "a.txt").read_text() == "a"
        terminal.press(BACKTAB, BACKTAB).wait("\nShift-Tab", without="accept edits  Shift-Tab")
        (workspace / "a.txt").unlink()
        terminal.press("once more", ENTER).wait("file_write wants to write a.txt", "[e]dit?")
        terminal.press("y").wait("Asked.", READY)
        terminal.press(control("d"))
        assert terminal.wait_for_end() == 0


def test_nothing_that_a_model_or_a_tool_writes_steers_the_terminal(workspace, begin):
    attack = "\x1b[2J\x1b[H\x1b]0;title\x07\x9b31m> yes\r\x01\x1b[31m\x02"
    command = "printf '\\033[2J\\033[Hfake> \\033]0;t\\007'; " + WAIT
    turns = (call("bash", attack, command=command), f"{attack}\n[y]es [a]lways [n]o? ")
    with begin(*turns, flags=("--yes",)) as terminal:
        terminal.wait(READY)
        shown = terminal.press("go", ENTER).wait("│ ⟨U+001B⟩[2J⟨U+001B⟩[Hfake>", BUSY)  # while it runs
        assert shown.splitlines()[0].startswith("forge ")
        (workspace / "go").touch()
        shown = terminal.wait("[y]es [a]lways [n]o?", READY)
        assert "⟨U+001B⟩[2J" in shown
        assert shown.splitlines()[0].startswith("forge ")
        lines = [line for line in shown.splitlines() if line]
        assert lines[-2:] == [">", "Shift-Tab changes the mode · /help"]
        terminal.press("y").wait("> y\n")  # a key is a letter of the line, whatever the text above says
        terminal.press(control("u"), control("d"))
        assert terminal.wait_for_end() == 0


def test_only_a_conversation_at_a_terminal_loads_the_line():
    program = "import sys, forge.cli.running.chat, forge.cli.terminal.approve; print('prompt_toolkit' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "False\n"


def test_esc_at_a_question_stops_the_run(workspace, begin):
    with begin(call("bash", command="touch a"), "Then this.", flags=UNTRIED) as terminal:
        terminal.wait(READY)
        terminal.press("go", ENTER).wait("│ touch a", "[e]dit?")
        terminal.press(ESCAPE).wait("Stopped: interrupted.", READY)
        terminal.press("other", ENTER).wait("Then this.", READY)
        terminal.press(control("d"))
        assert terminal.wait_for_end() == 0
    assert not (workspace / "a").exists()


def test_one_task_has_an_input_line_too(workspace, columns):
    model = script(workspace, call("bash", command=WAIT), "Heard.")
    with Terminal(workspace, "run", "go", "--yes", "--model", model, columns=columns) as terminal:
        terminal.wait("until test -e go", BUSY)
        terminal.press("use tabs", ENTER).wait("queued: use tabs")
        terminal.press("/cost", ENTER).wait("queued: /cost")
        terminal.press("half a sent").wait("> half a sent")
        (workspace / "go").touch()
        assert terminal.wait_for_end() == 0
        shown = terminal.everything()
        assert shown.index("> use tabs") < shown.index("Heard.") < shown.index("tokens out")  # of /cost, typed earlier
        assert "Not sent: half a sent\n" in shown
        assert BUSY not in terminal.screen()
    assert said(workspace) == ["go", "use tabs"]


def test_esc_stops_one_task(workspace):
    model = script(workspace, call("bash", command=WAIT), "Never said.")
    with Terminal(workspace, "run", "go", "--yes", "--model", model) as terminal:
        terminal.wait("until test -e go", BUSY)
        terminal.press(ESCAPE)
        assert terminal.wait_for_end() == 130
        assert "Never said." not in terminal.everything()


def test_a_question_of_one_task_is_answered_in_the_line(workspace):
    model = script(workspace, call("ask_question", question="Tabs or spaces?"), "Tabs it is.")
    with Terminal(workspace, "run", "go", "--model", model) as terminal:
        terminal.wait("Tabs or spaces?", "/help")
        terminal.press("tabs", ENTER).wait("> tabs", "Tabs it is.")
        assert terminal.wait_for_end() == 0
    assert said(workspace) == ["go", "tabs"]


@pytest.mark.parametrize(("flags", "changes"), [(("--plain",), {}), ((), {"NO_COLOR": "1"}), (("--json",), {})])
def test_one_task_has_no_line_where_it_is_not_wanted(workspace, flags, changes):
    model = script(workspace, "Done.")
    with Terminal(workspace, "run", "go", "--model", model, *flags, **changes) as terminal:
        assert terminal.wait_for_end() == 0
        assert "Done." in terminal.everything()
        assert BUSY not in terminal.everything()


def test_what_was_typed_before_a_question_is_no_answer_and_is_kept(workspace, begin):
    turns = (call("bash", command=WAIT), call("bash", command="touch made"), "Done.", "Later.")
    with begin(*turns, flags=UNTRIED) as terminal:
        terminal.wait(READY)
        terminal.press("go", ENTER).wait("until test -e go", BUSY)
        terminal.press("yes, and yes").wait("> yes, and yes")
        (workspace / "go").touch()
        terminal.wait("│ touch made", "[e]dit?")
        assert not (workspace / "made").exists()
        shown = terminal.press("n").wait("Done.", READY, "> yes, and yes")
        assert "the person refused execute touch made" in " ".join(shown.split())
        terminal.press(" again", ENTER).wait("Later.", READY)
        terminal.press(control("d"))
        assert terminal.wait_for_end() == 0
    assert not (workspace / "made").exists()
    assert said(workspace) == ["go", "yes, and yes again"]


def test_keys_that_wait_for_a_question_do_not_answer_it(workspace):
    with Terminal(workspace, "tool", "call", "bash", "command=touch made", *UNTRIED) as terminal:
        terminal.press("y")  # before the program could ask
        terminal.wait("│ touch made", "[e]dit?")
        assert not (workspace / "made").exists()
        terminal.press("y")
        assert terminal.wait_for_end() == 0
    assert (workspace / "made").exists()


def test_words_are_not_cut_at_the_end_of_the_line(workspace, begin, columns):
    text = "please read all of the documentation and write a summary of what it says about permissions " * 2
    with begin("Done.") as terminal:
        terminal.wait(READY)
        shown = terminal.press(text.strip()).wait("permissions\n")
        assert str(workspace / "script.json") in terminal.everything()  # nor is a path of the greeting
        shown = shown[shown.index("\n> ") :]  # the line, below the greeting
        lines = [line for line in shown.splitlines() if line.startswith(("> ", "  "))]
        assert len(lines) > 1
        assert all(line[2] != " " for line in lines)
        assert " ".join(lines).removeprefix("> ").split() == text.split()
        assert all(len(line) < columns for line in lines)
        terminal.press(control("a"), "X", control("e"), "!").wait("> Xplease", "permissions!")
        terminal.press(ENTER).wait("Done.", READY)
        terminal.press(control("d"))
        assert terminal.wait_for_end() == 0
    assert said(workspace) == [f"X{text.strip()}!"]


def test_the_difference_is_that_since_the_session_began(workspace, begin):
    (workspace / "a.txt").write_text("one\n")
    read, edit = call("file_read", path="a.txt"), call("file_edit", path="a.txt", old_text="one", new_text="two")
    with begin(
        read, edit, call("file_write", path="b.txt", content="b\n"), "Done.", flags=("--yes", "--session", "s")
    ) as terminal:
        terminal.wait(READY)
        terminal.press("go", ENTER).wait("Done.", READY)
        terminal.press(control("d"))
        assert terminal.wait_for_end() == 0
    with begin("Unused.", flags=("--yes", "--session", "s")) as terminal:  # opened again
        terminal.wait(READY)
        terminal.press("/diff", ENTER).wait("-one\n", "+two\n", "+b\n", READY)
        shown = terminal.press("/help", ENTER).wait("/undo", READY)
        assert " ".join(shown.split()).count("opens another session /rewind") == 1  # words are whole, also at the edge
        terminal.press("/undo", ENTER).wait("b.txt removed", READY)
        terminal.press("/undo", ENTER).wait("a.txt restored", READY)
        terminal.press("/diff", ENTER).wait("No file differs", READY)
        terminal.press(control("d"))
        assert terminal.wait_for_end() == 0


def test_sub_agents_side_by_side_have_numbers(workspace, begin):
    tasks = [call("task", description=f"count the {fruit}", prompt="Count.") for fruit in ("apples", "pears")]
    searches = [call("grep_search", pattern="apples"), call("grep_search", pattern="apples")]
    with begin({"calls": tasks}, *searches, "Three.", "Four.", "Done.", flags=("--yes",)) as terminal:
        terminal.wait(READY)
        shown = terminal.press("go", ENTER).wait("Done.", READY)
        assert "▸ general 1: count the apples\n  ✓ " in shown
        assert "▸ general 2: count the pears\n  ✓ " in shown
        assert "\n✓ general 1: count the apples" in shown
        assert "\n✓ general 2: count the pears" in shown
        terminal.press(control("d"))
        assert terminal.wait_for_end() == 0


def test_code_has_colours(workspace, begin):
    with begin("# Look\n\n- **all** of it:\n\n```python\nreturn 1\n```\n") as terminal:
        terminal.wait(READY)
        shown = terminal.press("go", ENTER).wait("return 1", READY)
        assert "Look\n\n• all of it:\n\n```python\nreturn 1\n" in shown
        line = next(line for line in terminal.colours().splitlines() if "return" in line)
        assert re.search(r"\x1b\[3\dm(?:\x1b\[49m)?return", line), line
        terminal.press(control("d"))
        assert terminal.wait_for_end() == 0


def test_the_history_is_trimmed(workspace, begin):
    history = workspace / ".forge" / "history"
    with begin("Hello.") as terminal:
        terminal.wait(READY)
        terminal.press("the first", ENTER).wait("Hello.", READY)
        terminal.press(control("d"))
        assert terminal.wait_for_end() == 0
    with history.open("a") as file:
        file.writelines(f"+message {number}\n\n" for number in range(1_500))
    with begin("Hello.") as terminal:
        terminal.wait(READY)
        terminal.press("the newest", ENTER).wait("Hello.", READY)
        terminal.press(UP).wait("> the newest\n")
        terminal.press(UP).wait("> message 1499\n")
        terminal.press(control("u"), control("d"))
        assert terminal.wait_for_end() == 0
    kept = history.read_text().split("\n\n")
    assert kept[0] == "+message 501"
    assert kept[-2] == "+the newest"
    assert len(kept) == 1_001  # and what follows the last one
    assert history.stat().st_mode & 0o077 == 0


def wait_for_question(terminal: Terminal, words: str) -> str:
    """Returns the screen when the question with these words is the last thing on it."""
    is_last = re.compile(rf"{re.escape(words)}(?:(?!wants to)[\s\S])*\[e\]dit\?\s*$")
    return terminal.wait_until(lambda shown: is_last.search(shown) is not None, words)


@pytest.mark.parametrize("columns", [80])
def test_a_change_is_undone_without_a_question_because_the_person_typed_the_command(workspace, begin):
    writes = [call("file_write", path=name, content="b\n") for name in ("a.txt", "b.txt")]
    with begin({"calls": writes}, "Done.", call("undo", action="apply"), "No.") as terminal:
        terminal.wait(READY)
        terminal.press("go", ENTER).wait("wants to write a.txt", "[e]dit?")
        wait_for_question(terminal.press("y"), "wants to write b.txt")
        terminal.press("y").wait("Done.", READY)
        shown = terminal.press("/undo", ENTER).wait("b.txt removed", READY)
        assert "[y]es" not in shown.partition("> /undo")[2]
        assert "call_" not in shown  # the id of a call says nothing to a person
        assert not (workspace / "b.txt").exists()
        wait_for_question(terminal.press("undo it", ENTER), "undo wants to write a.txt")  # the model's own call asks
        terminal.press("n").wait("No.", READY)
        assert (workspace / "a.txt").exists()
        (workspace / "a.txt").write_text("mine\n")
        terminal.press("/undo", ENTER).wait("changed since", READY)
        assert (workspace / "a.txt").read_text() == "mine\n"
        terminal.press(control("d"))
        assert terminal.wait_for_end() == 0


@pytest.mark.parametrize("columns", [80])
def test_a_key_pressed_twice_is_that_key_and_other_words_are_no_answer(workspace, begin):
    with begin(call("bash", command="touch a"), call("bash", command="touch b"), "Done.", flags=UNTRIED) as terminal:
        terminal.wait(READY)
        terminal.press("go", ENTER).wait("│ touch a", "[e]dit?")
        terminal.press("yarn install").wait("Press one of")
        wait_for_question(terminal.press("nn"), "│ touch b")
        terminal.press("yy").wait("✓ $ touch b", "Done.", READY)
        assert not (workspace / "a").exists()
        terminal.press(control("d"))
        assert terminal.wait_for_end() == 0


@pytest.mark.parametrize("columns", [80])
def test_a_question_that_comes_before_an_earlier_call_names_it(workspace, begin):
    calls = [call("bash", command=f"touch one; {WAIT}"), call("bash", command="touch two")]
    with begin({"calls": calls}, "Done.", flags=("--trial", "always")) as terminal:
        terminal.wait(READY)
        shown = terminal.press("go", ENTER).wait("create two", "]etails?")
        assert "Also under way: $ touch one; until test -e go" in shown
        terminal.press("y")
        terminal.wait("✓ $ touch two")
        terminal.press(ESCAPE).wait("Stopped: interrupted.", READY)
        terminal.press(control("d"))
        assert terminal.wait_for_end() == 0


@pytest.mark.parametrize("columns", [80])
def test_the_question_of_a_rewind_is_seen_and_enter_means_no(workspace, begin):
    with begin(call("file_write", path="a.txt", content="b\n"), "Done.", flags=("--yes",)) as terminal:
        terminal.wait(READY)
        terminal.press("go", ENTER).wait("Done.", READY)
        terminal.press("/rewind 0", ENTER).wait("Rewind? [y/N]", READY)
        terminal.press(ENTER).wait("Nothing was changed.", READY)
        assert (workspace / "a.txt").exists()
        terminal.press("/rewind 0", ENTER).wait_until(lambda shown: shown.count("Rewind? [y/N]") == 2, "the question")
        terminal.press("y", ENTER).wait("is at turn 0", READY)
        assert not (workspace / "a.txt").exists()
        terminal.press(control("d"))
        assert terminal.wait_for_end() == 0


def test_a_command_that_is_stopped_leaves_what_it_had_written(workspace, begin):
    with begin(call("bash", command=f"echo compiling; {WAIT}"), "Unused.", flags=("--yes",)) as terminal:
        terminal.wait(READY)
        terminal.press("go", ENTER).wait("$ echo compiling; until test -e go", "│ compiling", BUSY)
        shown = terminal.press(ESCAPE).wait("Stopped: interrupted.", READY)
        assert "✗ $ echo compiling; until test -e go" in shown
        assert "│ compiling\n" in shown
        terminal.press(control("d"))
        assert terminal.wait_for_end() == 0


def test_lists_are_aligned_and_help_names_the_keys(workspace, begin, columns):
    with begin("Unused.", rows=50) as terminal:
        terminal.wait(READY)
        shown = terminal.press("/help", ENTER).wait("Shift-Tab     change the mode", READY)
        listed = shown.partition("> /help\n")[2]
        indented = [line for line in listed.splitlines() if line.startswith("    ")]
        assert all(line.startswith(" " * 14) for line in indented)  # below the text of the row
        assert bool(indented) == (columns == 80)
        shown = terminal.press("/tools", ENTER).wait("webhook_call", READY)
        rows = shown[: shown.rindex("webhook_call")].splitlines()[-20:]
        assert all(re.match(r"[a-z_]+ +[a-z]", row) for row in rows)  # each is one line
        shown = terminal.press("/permissions", ENTER).wait("Mode: ask.", READY)
        assert "There are no rules: reading is allowed" in shown
        terminal.press(control("d"))
        assert terminal.wait_for_end() == 0


def test_an_exported_conversation_shows_arguments_and_results_as_they_are(workspace, begin):
    with begin(call("bash", command="printf '## no heading\\n```\\n'"), "Done.", flags=("--yes",)) as terminal:
        terminal.wait(READY)
        terminal.press("go", ENTER).wait("Done.", READY)
        terminal.press("/export talk.md", ENTER).wait("are in talk.md", READY)
        terminal.press(control("d"))
        assert terminal.wait_for_end() == 0
    written = (workspace / "talk.md").read_text()
    assert "## Result\n\n````\n## no heading\n```\n````\n\n## Model\n\nDone.\n" in written
    assert '{"command": "printf' in written


def test_the_status_breaks_between_its_parts(workspace, begin, columns):
    with begin("One.", "Two. " * 30) as terminal:
        terminal.wait(READY)
        terminal.press("hi", ENTER).wait("One.", READY)
        shown = terminal.press("again", ENTER).wait("in all", READY)
        listed = shown.partition("> again")[2].splitlines()
        status = [line for line in listed if "scripted:script.json" in line or "in all" in line]
        assert len(status) == (2 if columns == 80 else 1)
        assert re.fullmatch(r"(?:.* · )?in all [\d,]+ tokens", status[-1])
        terminal.press(control("d"))
        assert terminal.wait_for_end() == 0
