"""Events become lines: drawn and drawn again on a terminal, plain elsewhere."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

import pytest

import forge.cli.terminal.output
from forge.cli.terminal.exit_codes import Ending
from forge.cli.terminal.output import Output
from forge.cli.terminal.print_result import clip
from forge.cli.terminal.render import MOST_DRAWN, MOST_LINES, WHEEL, ForPeople, describe_call, format_seconds
from forge.core.errors import ErrorKind
from forge.core.events import (
    Event,
    PermissionAnswered,
    PermissionAsked,
    ReasoningDelta,
    Retrying,
    RunFinished,
    RunStarted,
    TextDelta,
    ToolArgumentsDelta,
    ToolCompleted,
    ToolFinished,
    ToolOutput,
    ToolProgress,
    ToolReconciled,
    ToolStarted,
    TurnFinished,
)
from forge.core.messages import ToolCall
from forge.core.result import Failure, ToolResult

CALL = ToolCall("csv_parse", '{"path": "sales.csv"}', "1")
ANSWER = ToolResult.text("[\nnorth 120\nsouth 80\n]")


def by(agent: str, *events: Event) -> tuple[Event, ...]:
    for event in events:
        event.agent = agent
    return events


def looks(written: str) -> list[str]:
    """What a terminal shows of it: lines are drawn over where the cursor was moved up."""
    lines, row, column = [""], 0, 0
    for part in re.findall(r"\x1b\[(?:\d+A|J)|\r\n?|\n|[^\x1b\r\n]+", written):
        if part == "\x1b[J":
            lines[row:] = [lines[row][:column]]
        elif part.startswith("\x1b"):
            row -= int(part[2:-1])
            assert row >= 0
        elif part == "\r":
            column = 0
        elif "\n" in part:
            row, column = row + 1, 0
            lines += [""] * (row + 1 - len(lines))
        else:
            lines[row] = lines[row][:column] + part
            column = len(lines[row])
    return lines


class Shown:
    """A view, and what it has written: in all, and to the standard error alone."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, live: bool) -> None:
        self.output = Output()
        self.output.live = self.output.out_is_terminal = live
        self.output.together = False
        self.view = ForPeople(self.output, lambda name, result: result.preview())
        self.out = self.err = self.both = ""
        monkeypatch.setattr(forge.cli.terminal.output, "_write", self.write)

    def write(self, file: int, text: str, encoding: str) -> None:
        self.out += text if file == 1 else ""
        self.err += text if file == 2 else ""
        self.both += text

    def show(self, *events: Event) -> str:
        """Returns what went to the standard output."""
        before = len(self.out)
        for event in events if events[0].agent else by("main", *events):
            self.view.show(event)
        return self.out[before:]

    @property
    def lines(self) -> list[str]:
        return looks(self.both)


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> Shown:
    return Shown(monkeypatch, live=False)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Shown:
    monkeypatch.setenv("COLUMNS", "40")
    return Shown(monkeypatch, live=True)


def test_a_tool_that_is_not_animated_has_no_wheel(drawn):
    drawn.view = ForPeople(drawn.output, lambda name, result: result.preview(), lambda name: name != CALL.name)
    drawn.show(ToolStarted(CALL), ToolProgress(CALL, "half way"))
    assert not drawn.view.is_moving
    drawn.view.tick()
    assert not set(WHEEL) & set(drawn.both)
    assert any("half way" in line for line in drawn.lines)
    drawn.show(ToolFinished(CALL, True, ANSWER, 0.25), ToolStarted(dataclasses.replace(CALL, name="other")))
    assert drawn.view.is_moving
    assert set(WHEEL) & set(drawn.both)


def test_words_go_to_the_output_and_deeds_beside_it(plain):
    said = plain.show(
        RunStarted("who?"),
        TextDelta("I loo"),
        TextDelta("k."),
        ToolStarted(CALL),
        ToolFinished(CALL, True, ANSWER, 0.25),
        TurnFinished(1, {"input": 7, "output": 2, "cached": 0}),
        TextDelta("North."),
        TurnFinished(2, {"input": 9, "output": 1, "cached": 4}),
        RunFinished("North.", "answer", 2),
    )
    assert said == "I look.\nNorth.\n"
    assert plain.err.splitlines() == [
        '→ csv_parse(path="sales.csv")',
        "✓ csv_parse  0.25 s",
        "  north 120",
        "  south 80",
        "  …",
    ]


def test_what_was_used_is_said_at_the_end_and_counted_anew(plain):
    turn = TurnFinished(1, {"input": 1_700, "output": 90, "cached": 800})
    plain.show(RunStarted("go"), ToolStarted(CALL), turn)
    plain.show(*by("main/general", ToolStarted(CALL), TurnFinished(1, {"input": 300, "output": 9, "cached": 0})))
    plain.view.finish(Ending(reason="answer", seconds=64.2, cost=0.01234))
    used = "1 turn · 2 calls · 2,000 tokens in (800 cached), 99 out · 1 min 04 s · cost 0.0123\n"
    assert plain.err.endswith(used)
    plain.view.finish(Ending(reason="answer", seconds=0.5))
    assert plain.err.endswith(f"{used}0 turns · 0 calls · 0.50 s\n")


@pytest.mark.parametrize("reason", ["task_completion", "question", "converse"])
def test_an_answer_that_a_tool_hands_over_is_printed(plain, reason):
    handing = ToolCall("task_completion", {"result": "Done."}, "9")
    said = plain.show(
        TextDelta("Almost"),
        ToolStarted(handing),
        ToolFinished(handing, True, ToolResult.text("Done."), 0.0),
        TurnFinished(1, {}),
        RunFinished("Done.", reason, 1),
    )
    assert (said, plain.err) == ("Almost\nDone.\n", "")


def test_an_answer_that_did_not_come_in_pieces_is_printed_once(plain):
    started = RunStarted("go")
    assert plain.show(started, TurnFinished(1, {}), RunFinished("Whole.", "answer", 1)) == "Whole.\n"
    pieces = (TextDelta("Wh"), TextDelta("ole."), TurnFinished(1, {}), RunFinished("Whole.", "answer", 1))
    plain.view.finish(Ending(reason="answer"))
    assert plain.show(RunStarted("go"), *pieces) == "Whole.\n"


def test_why_there_is_no_answer_is_said_beside_it(plain):
    failure = Failure("the model is gone", ErrorKind.SYSTEM, "Try later.")
    plain.view.finish(Ending(reason="error", text="…", error=failure))
    plain.view.finish(Ending(reason="max_turns"))
    assert plain.out == ""
    assert "Error: the model is gone\nTry later.\n" in plain.err
    assert "Stopped: the limit of turns was reached" in plain.err


def test_a_sub_agents_words_stay_out_of_the_answer_and_its_calls_are_set_in(plain):
    said = plain.show(*by("main/general", TextDelta("psst"), ToolStarted(CALL), ToolFinished(CALL, True, ANSWER, 0.0)))
    assert said == ""
    assert plain.err.splitlines() == ['  → csv_parse(path="sales.csv")', '  ✓ csv_parse(path="sales.csv")  0.00 s']


def test_plain_output_is_shown_line_by_line_and_not_without_end(plain):
    plain.show(
        ToolStarted(CALL), ToolProgress(CALL, "half"), ToolOutput(CALL, "a\nb"), ToolOutput(CALL, "c\n50%\r60%\n")
    )
    assert plain.err.splitlines()[1:] == ["  · half", "  │ a", "  │ bc", "  │ 60%"]
    plain.show(ToolOutput(CALL, "line\n" * 1_000), ToolOutput(CALL, "line\n"))
    assert plain.err.count("│ line") == MOST_LINES - 3
    assert plain.err.splitlines()[-1] == "  │ …"


def test_a_failed_call_says_why_in_full(drawn):
    why = "no such file, and this is a long explanation that does not fit into a narrow terminal"
    drawn.show(ToolStarted(CALL), ToolFinished(CALL, False, ToolResult.error(why, "not_found", "Look first."), 1.5))
    assert drawn.lines[0].startswith("✗ csv_parse(")
    assert f"Error: {why}" in " ".join(line.strip() for line in drawn.lines)  # broken between words
    assert "  Suggestion: Look first." in drawn.lines


def test_work_in_the_background_is_reported_when_it_is_over(plain):
    plain.show(ToolStarted(CALL), ToolFinished(CALL, True, ToolResult.started("Started."), 0.0))
    plain.show(ToolCompleted(CALL, ToolResult.text("indexed")))
    assert plain.err.splitlines()[1:] == [
        "… csv_parse  0.00 s",
        "  Started.",
        "✓ csv_parse  in the background",
        "  indexed",
    ]


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("done", "it took effect"),
        ("not_done", "it took no effect, and runs now"),
        ("unknown", "its state is unknown"),
    ],
)
def test_what_a_tool_says_about_a_call_of_a_lost_worker_is_a_line(plain, state, words):
    plain.show(ToolReconciled(CALL, state, "the bank says so"))
    assert plain.err.splitlines() == [f"↻ csv_parse, whose worker was lost: {words} (the bank says so)"]


def test_a_terminal_shows_what_goes_on_and_then_only_what_came_of_it(drawn):
    drawn.show(RunStarted("go"), TextDelta("I look."), ToolStarted(CALL), ToolProgress(CALL, "reading"))
    drawn.show(ToolOutput(CALL, "one\ntwo\nthree\nfour\nfive\nsi"))
    drawn.view.tick()
    drawn.show(ToolOutput(CALL, "x"))
    lines = drawn.lines
    assert lines[:2] == ["I look.", ""]
    assert lines[2].endswith('csv_parse(path="sales.csv")')
    assert [line.strip() for line in lines[3:]] == ["· reading", "│ three", "│ four", "│ five", "│ si", ""]
    drawn.show(ToolFinished(CALL, True, ANSWER, 2.0), TextDelta("North."), RunFinished("North.", "answer", 1))
    done = ["I look.", "", '✓ csv_parse(path="sales.csv")  2.0 s', "  north 120", "  south 80", "  …", "", "North.", ""]
    assert drawn.lines == done


def test_lines_that_are_drawn_again_never_wrap(drawn):
    wide = ToolCall("notes", {"text": "広い" * 30}, "2")
    drawn.show(ToolStarted(wide), ToolOutput(wide, "x" * 500), ToolProgress(wide, "\x1b[2J\x07bell"))
    drawn.view.tick()
    assert [line for line in drawn.lines if line != clip(line, 40)] == []
    assert "\x1b[2J" not in drawn.err
    assert "⟨U+001B⟩" in drawn.err


def test_many_calls_at_once_leave_room(drawn):
    calls = [ToolCall("uuid_generate", {}, str(number)) for number in range(MOST_DRAWN + 7)]
    drawn.show(*(ToolStarted(call) for call in calls))
    assert len(drawn.lines) == MOST_DRAWN + 2
    assert drawn.lines[MOST_DRAWN] == "… and 7 more"


def test_two_agents_may_use_the_same_id(drawn):
    drawn.show(ToolStarted(CALL))
    drawn.show(*by("main/general", ToolStarted(CALL), ToolFinished(CALL, True, ANSWER, 0.0)))
    assert drawn.view.is_moving
    drawn.show(*by("main", ToolFinished(CALL, True, ANSWER, 0.0)))
    assert not drawn.view.is_moving


def test_a_line_end_in_two_pieces_is_one_line_end(drawn):
    assert drawn.show(TextDelta("a\r"), TextDelta("\nb\x1b[31m")) == "a\nb⟨U+001B⟩[31m"


def test_programs_get_the_models_words_untouched(plain):
    assert plain.show(TextDelta("a\x1b[31m\tb")) == "a\x1b[31m\tb"


def test_while_the_model_thinks_the_terminal_says_so(drawn):
    assert not drawn.view.is_moving
    drawn.show(RunStarted("go"))
    assert drawn.view.is_moving
    drawn.view.tick()
    drawn.show(TextDelta("Hi."))
    assert not drawn.view.is_moving
    assert [line for line in drawn.lines if line] == ["Hi."]


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ('{"path": "a", "n": 1}', 't(path="a", n=1)'),
        ("", "t()"),
        ('{"path": "a', 't({"path": "a)'),
        ("[1]", "t([1])"),
        ({"text": "x" * 99}, f't(text="{"x" * 40}…")'),
        ("[" * 9_000, f"t({'[' * 80}…)"),
    ],
)
def test_a_call_is_spelled_shortly_whatever_was_sent(arguments, shown):
    assert describe_call(ToolCall("t", arguments, "1")) == shown


def test_times_are_short():
    assert [format_seconds(0.004), format_seconds(0.5), format_seconds(3.14), format_seconds(125)] == [
        "0.00 s",
        "0.50 s",
        "3.1 s",
        "2 min 05 s",
    ]


@pytest.mark.parametrize(
    ("text", "columns", "cut"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "ab…"),
        ("広い", 4, "広い"),
        ("広いx", 4, "広…"),
        ("e\u0301" * 3, 3, "e\u0301" * 3),
    ],
)
def test_a_line_is_cut_by_columns(text, columns, cut):
    assert clip(text, columns) == cut


def test_nothing_of_a_silent_result_is_shown(plain):
    plain.show(ToolStarted(CALL), ToolFinished(CALL, True, ToolResult.quiet("for the model alone"), 0.0))
    assert "for the model alone" not in plain.both
    plain.show(ToolStarted(CALL), ToolFinished(CALL, True, ToolResult.text("for everybody"), 0.0))
    assert "for everybody" in plain.both


@pytest.mark.parametrize("delivered", [True, False])
def test_a_message_to_whoever_sits_here_is_said_whole(plain, delivered):
    call = ToolCall("send_message", {"content": "1\n2\n3\n4\n5"})
    data = {"sent": True, "delivered": delivered}
    result = ToolResult(for_llm="Message sent.", for_user="1\n2\n3\n4\n5", silent=True, data=data)
    assert plain.show(ToolStarted(call), ToolFinished(call, True, result, 0.0)) == (
        "" if delivered else "1\n2\n3\n4\n5\n"
    )


def test_where_both_go_to_one_pipe_a_call_begins_a_line(plain):
    plain.output.together = True
    plain.show(RunStarted("who?"), TextDelta("I look."), ToolStarted(CALL), ToolFinished(CALL, True, ANSWER, 0.25))
    assert plain.both.splitlines()[:2] == ["I look.", '→ csv_parse(path="sales.csv")']


def test_reasoning_is_seen_while_the_model_thinks_and_goes_with_its_answer(drawn):
    drawn.show(RunStarted("who?"), ReasoningDelta("First line.\nI coun"), ReasoningDelta("t the words.\x1b[2J"))
    assert drawn.view.is_moving
    drawn.view.tick()
    shown = [line.strip() for line in drawn.lines if line.strip()]
    assert shown[-2:] == ["│ First line.", "│ I count the words.⟨U+001B⟩[2J"]
    drawn.show(TextDelta("Three."))
    assert "thinking" not in "\n".join(drawn.lines)
    assert drawn.out.endswith("Three.")


def test_a_file_is_seen_while_it_is_written(drawn):
    write = ToolCall("file_write", {}, "w1")
    pieces = ['{"path": "a.py", ', '"content": "one\\n', "two\\nthree\\n", 'fo\\"ur']
    drawn.show(RunStarted("write"), *(ToolArgumentsDelta(write, piece) for piece in pieces))
    drawn.view.tick()
    shown = [line.strip() for line in drawn.lines if line.strip()]
    assert shown[-5].startswith("⠙ writing file_write")
    assert shown[-3:] == ["│ two", "│ three", '│ fo"ur']
    drawn.show(ToolStarted(write))
    assert "writing" not in "\n".join(drawn.lines)


@pytest.mark.parametrize("view", ["plain", "drawn"])
def test_a_retry_is_said_with_its_wait_and_its_reason(view, request):
    shown = request.getfixturevalue(view)
    shown.show(RunStarted("x"), Retrying("HTTP 429: slow down", 1, 2.5, 429))
    assert any("↻ trying again in 2.5 s: HTTP" in line for line in shown.lines)


def test_reasoning_and_drafts_write_nothing_where_nothing_can_be_drawn(plain):
    plain.show(RunStarted("x"), ReasoningDelta("hm"), ToolArgumentsDelta(CALL, "{}"))
    assert not plain.both


@pytest.mark.parametrize("live", [False, True])
def test_the_time_of_a_call_is_without_that_of_its_question(live, monkeypatch):
    view = Shown(monkeypatch, live=live)
    asked, answered = PermissionAsked(CALL, "read", "sales.csv"), PermissionAnswered(CALL, "once")
    asked.at, answered.at = 100.0, 107.0
    view.show(ToolStarted(CALL), asked, answered, ToolFinished(CALL, True, ANSWER, 7.25))
    other = dataclasses.replace(CALL, id="2")
    view.show(ToolStarted(other), ToolFinished(other, True, ANSWER, 7.25))  # which was not asked about
    assert view.both.count("0.25 s") == 1
    assert view.both.count("7.2 s") == 1


@pytest.mark.parametrize("live", [False, True])
def test_a_question_about_a_host_may_end_after_its_call(live, monkeypatch):
    """The program ended before there was an answer."""
    view = Shown(monkeypatch, live=live)
    asked, answered = PermissionAsked(CALL, "network", "https://x.test"), PermissionAnswered(CALL, "no", "cancelled")
    view.show(ToolStarted(CALL), asked, ToolFinished(CALL, True, ANSWER, 0.25), answered)
    assert view.both.count("0.25 s") == 1
    assert "could not be shown" not in view.both


TASKS = [ToolCall("task", {"description": f"count the {name}", "prompt": "…"}, name) for name in ("apples", "pears")]


def work_for(task: str, *events: Event) -> Iterator[Event]:
    return (dataclasses.replace(event, agent="main/general", task=task) for event in events)


FIRST, SECOND = (ToolCall("csv_parse", {"path": name}, "same") for name in ("a.csv", "b.csv"))
ENDED = [
    "▸ general 2: count the pears",
    '  ✓ csv_parse(path="b.csv")  0.00 s',
    "▸ general 1: count the apples",
    '  ✓ csv_parse(path="a.csv")  0.00 s',
]


def begin_two_tasks(shown: Shown) -> None:
    shown.show(*(ToolStarted(task) for task in TASKS))
    shown.show(*work_for("apples", ToolStarted(FIRST)))
    shown.show(*work_for("pears", ToolStarted(SECOND)))


def end_their_calls(shown: Shown) -> None:
    shown.show(*work_for("pears", ToolFinished(SECOND, True, ANSWER, 0.0)))
    shown.show(*work_for("apples", ToolFinished(FIRST, True, ANSWER, 0.0)))


def test_the_calls_of_two_sub_agents_stand_under_their_numbers(drawn):
    begin_two_tasks(drawn)
    assert [line[:14] for line in drawn.lines if line] == [
        f"{WHEEL[0]} general 1: c",
        f"  {WHEEL[0]} csv_parse(",
        f"{WHEEL[0]} general 2: c",
        f"  {WHEEL[0]} csv_parse(",
    ]
    end_their_calls(drawn)
    assert [line for line in drawn.lines if "csv" in line or "▸" in line] == ENDED
    drawn.show(*work_for("apples", ToolStarted(FIRST), ToolFinished(FIRST, True, ANSWER, 0.0)))
    assert [line for line in drawn.lines if "csv" in line or "▸" in line] == [*ENDED, ENDED[-1]]  # no second name


def test_plain_lines_name_the_sub_agent_where_another_one_was_before(plain):
    begin_two_tasks(plain)
    end_their_calls(plain)
    assert plain.err.splitlines() == [
        "→ general: count the apples",
        "→ general 2: count the pears",
        "▸ general 1: count the apples",
        '  → csv_parse(path="a.csv")',
        "▸ general 2: count the pears",
        '  → csv_parse(path="b.csv")',
        *ENDED[1:],
    ]


def test_the_calls_of_one_sub_agent_need_no_second_name(plain):
    plain.show(ToolStarted(TASKS[0]))
    plain.show(*work_for("apples", ToolStarted(CALL), ToolFinished(CALL, True, ANSWER, 0.0), ToolStarted(CALL)))
    assert "▸" not in plain.err
