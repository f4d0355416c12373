"""What a person is shown is what runs."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from forge.core.context import Scope
from forge.core.messages import ToolCall
from forge.core.result import Attachment, ToolResult
from forge.core.spec import Permission
from forge.permissions.policy import Decision, PermissionRequest, Ruling
from forge.permissions.questions import request_text, show_invisible
from forge.permissions.targets import Opaque
from tests.permissions.judging import NOWHERE, spec_of

INVISIBLE = {
    "escape": "\x1b",
    "backspace": "\b",
    "carriage return": "\r",
    "tab": "\t",
    "delete": "\x7f",
    "C1": "\x9b",
    "NUL": "\0",
    "right-to-left override": "\u202e",
    "isolate": "\u2066",
    "zero-width space": "\u200b",
    "joiner": "\u200d",
    "word joiner": "\u2060",
    "byte order mark": "\ufeff",
    "soft hyphen": "\u00ad",
    "tag": "\U000e0041",
    "variation selector": "\ufe0f",
    "second variation selector": "\U000e0100",
    "Hangul filler": "\u3164",
    "half-width filler": "\uffa0",
    "braille blank": "\u2800",
    "grapheme joiner": "\u034f",
    "no-break space": "\u00a0",
    "ideographic space": "\u3000",
    "line separator": "\u2028",
    "private use": "\ue000",
    "surrogate": "\ud800",
    "unassigned": "\U000e0fff",
    "musical": "\U0001d173",
}


@pytest.mark.parametrize("char", INVISIBLE.values(), ids=INVISIBLE)
def test_what_cannot_be_seen_is_shown(char):
    shown = show_invisible(f"rm {char}x")
    assert char not in shown
    assert shown == f"rm ⟨U+{ord(char):04X}⟩x"


@pytest.mark.parametrize("text", ["rm -rf x", "café: 名前, имя, 🚀", "a\nb\n\nc", "    indented", "x = {'a': \"b\"}"])
def test_what_can_be_seen_stays_as_it_is(text):
    assert show_invisible(text) == text


def test_marks_cannot_be_imitated():
    assert show_invisible("⟨U+200B⟩") == "⟨U+27E8⟩U+200B⟨U+27E9⟩"


def test_nothing_is_pushed_out_of_view():
    assert show_invisible("ls" + " " * 500 + "; rm x") == "ls⟨500 spaces⟩; rm x"
    assert show_invisible("ls\n" + "\n" * 300 + "rm x") == "ls\n⟨300 blank lines⟩\nrm x"
    assert show_invisible("ls" + "\n   " * 300 + "\nrm x") == "ls\n⟨300 blank lines⟩\nrm x"
    assert show_invisible("a\n\nb") == "a\n\nb"


def test_stacked_marks_cannot_paint_over_other_lines():
    assert "⟨U+0301⟩" in show_invisible("a" + "\u0301" * 50)
    assert show_invisible("a\u0301") == "a\u0301"


def test_a_long_text_shows_both_ends_and_says_what_is_missing():
    shown = show_invisible("a" * 10_000 + "rm x", limit=100)
    assert shown.endswith("rm x")
    assert "⟨9,905 characters left out⟩" in shown
    assert show_invisible("a" * 100, limit=100) == "a" * 100


def question(**fields) -> PermissionRequest:
    request = PermissionRequest(
        spec_of("bash", "execute", target="command", origin="forge.tools.bash"),
        ToolCall("bash"),
        {"command": "git push --force", "timeout": 30},
        Permission.EXECUTE,
        "git push --force",
        Scope(workspace=NOWHERE),
        Ruling(Decision.ASK, "the rule `ask execute git push *` (rule 1)", "ask execute git push *"),
    )
    return dataclasses.replace(request, **fields)


def test_the_question_says_everything():
    text = request_text(question())
    for part in (
        "bash (forge.tools.bash)",
        "execute git push --force",
        "`ask execute git push *`",
        "command: │ git push --force",
        "timeout: │ 30",
        "│ allow execute git push --force",
    ):
        assert part in text


def test_no_value_can_pass_for_a_line_of_the_question():
    arguments = {"command": "x\nWith these arguments:\n  command: harmless", "evil\nname": "v"}
    text = request_text(question(arguments=arguments, target=arguments["command"]))
    assert [line for line in text.split("\n") if line.startswith("With these arguments")] == ["With these arguments:"]
    assert not any(line.startswith("  command: harmless") for line in text.split("\n"))
    assert "evil⟨U+000A⟩name" in text


def test_the_question_has_no_invisible_character_left():
    hidden = "".join(INVISIBLE.values())
    spec = spec_of("bash", "execute", origin=f"x{hidden}")
    request = question(
        spec=spec,
        call=ToolCall("bash", server=f"s{hidden}"),
        arguments={f"a{hidden}": [hidden, {hidden: hidden}], "b": hidden.encode("utf-8", "replace")},
        target=hidden,
        ruling=Ruling(Decision.ASK, hidden),
        others=((Permission.WRITE, hidden),),
    )
    assert not set(request_text(request)) & set(INVISIBLE.values())
    result = ToolResult(for_llm=hidden, attachments=(Attachment(f"t{hidden}", b"x", f"n{hidden}"),))
    assert not set(request_text(dataclasses.replace(request, result=result))) & set(INVISIBLE.values())


def test_a_path_that_leads_elsewhere_says_so(tmp_path: Path):
    (tmp_path / "link").symlink_to("/etc")
    text = request_text(question(permission=Permission.WRITE, target="link/passwd", scope=Scope(workspace=tmp_path)))
    assert "resolves to /etc/passwd" in text
    plain = request_text(question(permission=Permission.WRITE, target="plain", scope=Scope(workspace=tmp_path)))
    assert "resolves to" not in plain
    out = request_text(question(permission=Permission.WRITE, target="../x", scope=Scope(workspace=tmp_path)))
    assert f"resolves to {tmp_path.parent}/x" in out


def test_many_arguments_and_targets_are_counted():
    request = question(
        arguments={f"a{n}": n for n in range(60)}, others=tuple((Permission.WRITE, f"f{n}") for n in range(60))
    )
    text = request_text(request)
    assert "⟨10 more arguments⟩" in text
    assert "⟨11 more targets⟩" in text


def test_other_questions_have_their_own_words():
    assert "May the model see this result?" in request_text(question(result=ToolResult.text("42")))
    assert "go on?" in request_text(question(question="the same call again; go on?", permission=None, target=""))
    assert question(result=ToolResult.text("42")).remember == ""
    assert question(question="go on?").remember == ""
    assert request_text(question(arguments={})).count("It has no arguments.") == 1


def test_a_question_while_the_tool_runs_says_that_nothing_can_be_changed():
    assert "The tool asks for this during its call, so its arguments can no longer be changed." in request_text(
        question(editable=False)
    )
    assert "already running" not in request_text(question(editable=False)), "nobody knows what it did so far"
    assert "can no longer be changed" not in request_text(question())


def test_a_target_that_is_no_text_is_shown_as_it_is():
    text = request_text(question(permission=Permission.WRITE, target=Opaque('{"path": "secret/x"}')))
    assert 'write {"path": "secret/x"}' in text
    assert "allow tool:bash with exactly these arguments" in text
