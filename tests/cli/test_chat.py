"""`forge run` without a prompt: a conversation at a terminal, or line by line from a pipe."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import forge.cli.running.chat
from forge.agent.session import SessionStore
from forge.cli import perform as run
from forge.cli.running.chat import find_paths
from forge.core.errors import ToolError
from forge.core.messages import Message
from forge.doors.session_commands import join_messages, read_arguments
from forge.mcp.client.contents import PromptArgument, ServerPrompt
from tests.cli.scripts import call, script
from tests.cli.test_terminal import ASKED, talk
from tests.mcp import library

PROMPT, MORE = b"> ", "… ".encode()
DELEGATE = call("task", description="look", prompt="look around")


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("INPUTRC", os.devnull)


def said(workspace: Path) -> list[str]:
    """What was said in the only session, without the instructions."""
    with SessionStore.of(workspace) as store:
        (info,) = store.list()
        return [message.text for message in store.show(info.name).messages[1:]]


def test_a_conversation_goes_on_until_the_person_leaves(workspace):
    model = script(workspace, "Hello.", "Still here.")
    says = ((PROMPT, b"hi\r"), (b"Hello.", b""), (PROMPT, b"and now?\r"), (b"Still here.", b""), (PROMPT, b"/quit\r"))
    code, shown = talk(workspace, "run", "--model", model, says=says)
    assert code == 0
    assert f"{model} · " in shown
    assert "resume: forge run --session " in shown
    assert said(workspace) == ["hi", "Hello.", "and now?", "Still here."]


def test_the_end_of_the_input_leaves_and_an_unused_session_is_not_kept(workspace):
    code, shown = talk(workspace, "run", "--model", script(workspace, "x"), says=((PROMPT, b"\x04"),))
    assert code == 0
    assert "resume:" not in shown
    with SessionStore.of(workspace) as store:
        assert not store.list()


def test_several_lines_are_one_message_where_lines_cannot_be_edited(workspace):
    says = (
        (PROMPT, b"one \\\n"),
        (MORE, b"two\n"),
        (b"First.", b""),
        (PROMPT, b'"""three\n'),
        (MORE, b"\n"),
        (MORE, b'four"""\n'),
        (b"Second.", b""),
        (PROMPT, b"\x04"),
    )
    talk(workspace, "run", "--model", script(workspace, "First.", "Second."), says=says, TERM="dumb")
    assert said(workspace) == ["one \ntwo", "First.", "three\n\nfour", "Second."]


def test_lines_are_remembered_for_the_next_time(workspace):
    model = script(workspace, "Hello.")
    talk(workspace, "run", "--model", model, says=((PROMPT, b"remember this\r"), (b"Hello.", b""), (PROMPT, b"\x04")))
    history = workspace / ".forge" / "history"
    assert "remember this" in history.read_text()
    assert history.stat().st_mode & 0o077 == 0
    up = (PROMPT, b"\x1b[A\r")
    talk(workspace, "run", "--session", "two", "--model", model, says=(up, (b"Hello.", b""), (PROMPT, b"\x04")))
    with SessionStore.of(workspace) as store:
        assert store.show("two").messages[1].text == "remember this"


def test_commands_are_for_the_chat_and_not_for_the_model(workspace):
    says = (
        (PROMPT, b"/help\r"),
        (PROMPT, b"/tools\r"),
        (PROMPT, b"/session\r"),
        (PROMPT, b"/compact\r"),
        (PROMPT, b"/tols\r"),
        (PROMPT, b"/undo\r"),
        (PROMPT, b"/resume\r"),
        (PROMPT, b"/etc/hosts is a file\r"),
        (b"Indeed.", b""),
        (PROMPT, b"/quit\r"),
    )
    code, shown = talk(workspace, "run", "--model", script(workspace, "Indeed."), says=says)
    assert code == 0
    for words in (
        "/resume       resume the run that was stopped",
        "math_calculate",
        "This is 2",
        "nothing to summarise",
        "There is no command /tols. Did you mean /tools?",
        "there is nothing to undo",
        "Nothing was stopped",
    ):
        assert words in shown
    assert said(workspace) == ["/etc/hosts is a file", "Indeed."]
    assert all(len(line) <= 80 for line in shown.splitlines() if line.startswith(("math_", "task ")))


def test_tab_completes_commands_and_paths(workspace):
    (workspace / "notes").mkdir()
    (workspace / "notes" / "today.txt").write_text("")
    says = (
        (PROMPT, b"/he\t\r"),
        (b"this list", b""),
        (PROMPT, b"read @no\tto\t, please\r"),
        (b"Read.", b""),
        (PROMPT, b"/quit\r"),
    )
    code, _ = talk(workspace, "run", "--model", script(workspace, "Read."), says=says)
    assert code == 0
    assert said(workspace) == ["read @notes/today.txt, please", "Read."]


def test_only_paths_that_may_follow_are_offered(workspace):
    for name in (".hidden", "a b", "apple", "odd\x1bname"):
        (workspace / name).write_text("")
    (workspace / "app").mkdir()

    assert find_paths("", workspace) == ["a b", "app/", "apple"]
    assert find_paths(".h", workspace) == [".hidden"]
    assert find_paths("no/such/", workspace) == []
    assert find_paths(f"{workspace}/appl", workspace) == [f"{workspace}/apple"]


def test_the_status_adds_up_the_runs_of_a_conversation(workspace):
    says = ((PROMPT, b"hi\r"), (b" tokens in", b""), (PROMPT, b"more\r"), (b"in all ", b""), (PROMPT, b"/quit\r"))
    model = script(workspace, "Hello.", "Again.")
    code, shown = talk(workspace, "run", "--model", model, says=says, COLUMNS="120")
    assert code == 0
    first, second = (line for line in shown.splitlines() if "1 turn · 0 calls" in line)
    assert "scripted:script.json · " in first
    assert "in all" not in first
    assert " tokens" in second.partition("in all")[2]


def test_ctrl_c_stops_the_run_and_the_conversation_goes_on(workspace):
    """At a question of the gate, so that it is known where the run is: the next line is the chat's again."""
    says = (
        (PROMPT, b"look\r"),
        (ASKED, b"\x03"),
        (b"Stopped: interrupted.", b""),
        (PROMPT, b"never mind\r"),
        (b"Fine.", b""),
        (PROMPT, b"/quit\r"),
    )
    code, shown = talk(workspace, "run", "--model", script(workspace, DELEGATE, "Fine."), says=says)
    assert code == 0
    assert "Traceback" not in shown
    assert said(workspace)[-2:] == ["never mind", "Fine."]


class Fingers:
    """A keyboard on which these things happen, one after the other. (A signal to a real one may come too early.)"""

    is_terminal = True

    def __init__(self, *happens: str | type[BaseException] | None) -> None:
        self.happens = list(happens)

    def message(self, prompt: str = "") -> str | None:
        now = self.happens.pop(0)
        if isinstance(now, type):
            raise now
        return now


@pytest.mark.parametrize(
    ("happens", "heard"),
    [
        ([KeyboardInterrupt, "hi", KeyboardInterrupt, "ho", None], ["hi", "ho"]),
        (["hi", KeyboardInterrupt, KeyboardInterrupt], ["hi"]),
        (["", "hi", "/quit"], ["hi"]),
    ],
)
def test_ctrl_c_at_the_prompt_takes_back_the_line_and_twice_leaves(workspace, monkeypatch, happens, heard):
    monkeypatch.setattr(forge.cli.running.chat, "Keyboard", lambda: Fingers(*happens))
    assert run(["run", "--model", script(workspace, "One.", "Two.")]) == 0
    assert said(workspace)[::2] == heard


def test_what_was_stopped_is_resumed(workspace):
    broken = {"error": {"message": "the line is dead"}}
    says = ((PROMPT, b"go\r"), (b"line is dead", b""), (PROMPT, b"/resume\r"), (b"Back.", b""), (PROMPT, b"/quit\r"))
    code, _ = talk(workspace, "run", "--model", script(workspace, broken, "Back."), says=says)
    assert code == 0
    assert said(workspace) == ["go", "Back."]


def test_another_session_can_be_taken_up(workspace, here):
    here("run", "I am Ada", "--session", "first", "--model", script(workspace, "Hello Ada."))
    says = ((PROMPT, b"/resume first\r"), (PROMPT, b"who am I?\r"), (b"Ada.", b""), (PROMPT, b"/quit\r"))
    _, shown = talk(workspace, "run", "--model", script(workspace, "Ada."), says=says)
    assert "session first: 3 messages" in shown
    assert said(workspace) == ["I am Ada", "Hello Ada.", "who am I?", "Ada."]


def test_a_named_session_says_how_long_it_is(workspace, here):
    here("run", "hi", "--session", "first", "--model", script(workspace, "Hello."))
    model = script(workspace, "x")
    _, shown = talk(workspace, "run", "--session", "first", "--model", model, says=((PROMPT, b"\x04"),))
    assert "session first: 3 messages" in shown


def test_a_long_conversation_is_compacted_by_hand(workspace, here):
    for number in range(3):
        here("run", f"question {number}", "--session", "s", "--model", script(workspace, f"Answer {number}."))
    model = script(workspace, "Goals: three answers.", "Yes.")
    says = ((PROMPT, b"/compact\r"), (b"from now on", b""), (PROMPT, b"sure?\r"), (b"Yes.", b""), (PROMPT, b"/quit\r"))
    code, _ = talk(workspace, "run", "--session", "s", "--model", model, says=says)
    assert code == 0
    with SessionStore.of(workspace) as store:
        session = store.show("s")
        assert len(session.messages) == 9
        assert "Goals: three answers." in session.meta["summary"]["text"]


def test_a_question_of_the_model_is_answered_with_the_next_line(workspace):
    model = script(workspace, call("ask_question", question="Which?"), "Then b.")
    says = ((PROMPT, b"go\r"), (b"Which?", b""), (PROMPT, b"b\r"), (b"Then b.", b""), (PROMPT, b"/quit\r"))
    assert talk(workspace, "run", "--model", model, says=says)[0] == 0
    assert said(workspace)[-2:] == ["b", "Then b."]


def test_lines_of_a_pipe_are_messages(workspace, there):
    given = b'hi\n\n"""two\nlines"""\n'
    ended = there("run", "--model", script(workspace, "Hello.", "Indeed."), given=given)
    assert (ended.code, ended.out) == (0, "Hello.\nIndeed.\n")
    assert said(workspace) == ["hi", "Hello.", "two\nlines", "Indeed."]


def test_a_pipe_ends_like_its_last_run(workspace, there):
    assert there("run", "--model", script(workspace, "Hello."), given=b"hi\nmore\n").code == 1
    assert there("run", "--model", script(workspace, "Hello."), given=b"hi\n/quit\nmore\n").code == 0
    assert there("run", "--model", script(workspace, "Hello.")).code == 0


def test_json_of_a_conversation_is_one_run_after_the_other(workspace, there):
    ended = there("run", "--json", "--model", script(workspace, "Hello.", "Indeed."), given=b"hi\nmore\n")
    ends: list[Any] = [line["text"] for line in ended.lines if line["event"] == "run_finished"]
    assert (ended.code, ended.err, ends) == (0, "", ["Hello.", "Indeed."])
    assert json.loads(ended.out.splitlines()[-1])["event"] == "run_finished"


def test_bytes_that_are_no_text_do_not_end_the_conversation(workspace, there):
    ended = there("run", "--quiet", "--model", script(workspace, "Hello."), given=b"\xff\xfe\x00hi\n")
    assert (ended.code, ended.out) == (0, "Hello.\n")


def test_a_prompt_of_a_server_is_a_command_and_tab_completes_it(workspace):
    shutil.copy(library.HERE, workspace / "library.py")  # a server sees the workspace
    entry = {"command": sys.executable, "args": ["library.py", "old"]}
    (workspace / "forge.yaml").write_text(json.dumps({"mcpServers": {"docs": entry}}))
    model = script(workspace, "Reviewed.", "Greeted.")
    says = (
        (PROMPT, b"/docs:re\t"),
        (b"view", b"pa\t"),
        (b"page=", b"gu\t"),
        (b"guide", b"\r"),
        (b"Reviewed.", b""),
        (PROMPT, b"/docs:review style=short\r"),
        (b"it needs page", b""),
        (PROMPT, b"/docs:hello\r"),
        (b"Greeted.", b""),
        (PROMPT, b"/help\r"),
        (b"/docs:review", b""),
        (PROMPT, b"/quit\r"),
    )
    config = str(workspace / "forge.yaml")
    code, shown = talk(workspace, "run", "--model", model, "--config", config, says=says)
    assert code == 0, shown
    assert "Review a page. page=… [style=…]" in shown
    assert said(workspace) == ["Review guide (plain).", "Reviewed.", "Say hello.", "Greeted."]


def test_arguments_of_a_prompt_are_read_and_explained():
    one = ServerPrompt("ask", "", (PromptArgument("question", "", required=True),))
    assert read_arguments("/x:ask", one, "how are you?") == {"question": "how are you?"}
    assert read_arguments("/x:ask", one, "question='a b'") == {"question": "a b"}
    two = ServerPrompt("mix", "", (PromptArgument("a"), PromptArgument("b", "", required=True)))
    assert read_arguments("/x:mix", two, 'a=1 b="2 3"') == {"a": "1", "b": "2 3"}
    for rest in ("", "a=1", "b=1 c=2", "b=1 loose"):
        with pytest.raises(ToolError) as refused:
            read_arguments("/x:mix", two, rest)
        assert refused.value.suggestion == "Write /x:mix [a=…] b=…"


def test_messages_of_both_sides_name_who_speaks():
    assert join_messages([Message("user", "a"), Message("user", "b")]) == "a\n\nb"
    assert join_messages([Message("user", "a"), Message("assistant", "b")]) == "User: a\n\nAssistant: b"


def test_an_image_is_attached_by_its_name_and_other_names_stay_words(workspace, there):
    (workspace / "photo.png").write_bytes(b"\x89PNG\r\n\x1a\n\0")
    (workspace / "notes.md").write_text("Words.")
    (workspace / "inner").mkdir()
    (workspace / "inner" / "model.yaml").write_text("- A cat.\n- Fine.\n")
    (workspace / "inner" / "photo.png").write_bytes(b"\x89PNG\r\n\x1a\n\0")
    lines = b"What is @photo.png?\nAsk @ada about @notes.md and @../photo.png\n"
    workspace /= "inner"
    flags = ("--workspace", str(workspace), "--model", f"scripted:{workspace}/model.yaml")
    ended = there("run", *flags, given=lines)
    assert ended.code == 0
    assert "Attached: photo.png (image/png, 9 bytes)" in ended.err
    with SessionStore.of(workspace) as store:
        (info,) = store.list()
        messages = [one for one in store.show(info.name).messages if one.role == "user"]
    assert [(one.text, [file.name for file in one.attachments]) for one in messages] == [
        ("What is @photo.png?", ["photo.png"]),
        ("Ask @ada about @notes.md and @../photo.png", []),
    ]


def test_a_named_file_that_is_too_large_is_told_and_nothing_is_sent(workspace, there):
    too_large = 20 * 1024 * 1024 + 1
    for name, head in (
        ("photo.png", b"\x89PNG\r\n\x1a\n\0"),
        ("paper.pdf", b"%PDF-1.7\n\xff\0"),
        ("log.txt", b"words\n"),
    ):
        with (workspace / name).open("wb") as file:
            file.write(head * 1_000 if name == "log.txt" else head)
            file.truncate(too_large)
    (workspace / "model.yaml").write_text("- Fine.\n")
    lines = b"What is @photo.png?\nRead @paper.pdf.\nLook into @log.txt\n"
    ended = there("run", "--model", f"scripted:{workspace}/model.yaml", given=lines)
    assert ended.code == 0
    for name in ("photo.png", "paper.pdf"):
        assert f"{name} has {too_large:,} bytes, the limit is 20,971,520" in ended.err.replace('"', "").replace("'", "")
    with SessionStore.of(workspace) as store:
        (info,) = store.list()
        assert [one.text for one in store.show(info.name).messages if one.role == "user"] == ["Look into @log.txt"]
