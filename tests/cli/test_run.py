"""`forge run` in a process of its own: what it prints where, what it keeps, how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import forge.agent.agent
from forge import SessionStore, ToolCall
from tests import programs
from tests.cli.conftest import Ended, environment, start
from tests.cli.scripts import call, script
from tests.cli.test_terminal import ASKED, LINES, talk
from tests.models.caching import CachingAnthropic
from tests.models.serving import Reply, refusal, serving

NO_MODEL = dict.fromkeys(
    (*(f"{name}_API_KEY" for name in ("ANTHROPIC", "OPENAI")), "ANTHROPIC_AUTH_TOKEN", "OPENAI_BASE_URL"), None
)
NOBODY_LISTENS = {f"{name}_BASE_URL": "http://127.0.0.1:9/v1" for name in ("OLLAMA", "LMSTUDIO", "LLAMACPP", "VLLM")}

SUM = call("math_calculate", "Let me see. ", expression="6 * 7")
DELEGATE = call("task", description="look", prompt="look around")
QUESTION = call("ask_question", question="Which one?", suggestions=["a", "b"])


def names(ended: Ended) -> list[str]:
    return [line["event"] for line in ended.lines]


def kept(command: Any) -> list[dict[str, Any]]:
    """The messages of the only session."""
    (session,) = command("session", "list", "--json").json["sessions"]
    messages: list[dict[str, Any]] = command("session", "show", session["name"], "--json").json["messages"]
    return messages


def test_words_are_the_output_and_deeds_the_error_output(workspace, here):
    ended = here("run", "how much?", "--model", script(workspace, SUM, "It is 42."))
    assert (ended.code, ended.out) == (0, "Let me see. \nIt is 42.\n")
    lines = ended.err.splitlines()
    assert lines[0] == '→ math_calculate(expression="6 * 7")'
    assert lines[1].startswith("✓ math_calculate  0.")
    assert lines[2] == "  42"
    assert lines[3].startswith("2 turns · 1 call · ")
    assert "tokens in" in lines[3]
    assert lines[4].startswith("session ")
    assert " · resume: forge run --session " in lines[4]


def test_an_answer_fits_a_schema(workspace, here):
    schema = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
    (workspace / "sum.json").write_text(json.dumps(schema))
    model = script(workspace, SUM, "It is 42.", call("final_answer", sum=42))
    ended = here("run", "how much?", "--quiet", "--output-schema", "sum.json", "--model", model)
    assert ended == (0, '{"sum": 42}\n', "")


@pytest.mark.parametrize(
    ("content", "arguments", "says"),
    [
        (None, ["x"], "No such file"),
        ("{", ["x"], "is not JSON"),
        ("[]", ["x"], "a schema is a JSON object"),
        ('{"type": 5}', ["x"], "reading --output-schema s.json"),
        ("{}", [], "is for one task"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused(workspace, here, content, arguments, says):
    if content is not None:
        (workspace / "s.json").write_text(content)
    ended = here("run", *arguments, "--output-schema", "s.json", "--model", script(workspace, "Hi"))
    assert ended.code == 2
    assert says in ended.err


def test_quiet_is_only_the_final_text(workspace, here):
    ended = here("run", "how much?", "--quiet", "--model", script(workspace, SUM, "It is 42."))
    assert ended == (0, "It is 42.\n", "")
    assert here("run", "x", "--quiet", "--model", script(workspace, QUESTION)) == (3, "Which one?\n\n1. a\n2. b\n", "")


def test_json_is_an_event_a_line_and_the_last_is_the_end(workspace, here):
    ended = here("run", "how much?", "--json", "--model", script(workspace, SUM, "It is 42."))
    assert (ended.code, ended.err) == (0, "")
    assert [name for name in names(ended) if name != "text_delta"] == (
        "run_started tool_call_start tool_call_end turn_finished turn_finished run_finished"
    ).split()
    assert ended.lines[0]["prompt"] == "how much?"
    assert "".join(line["text"] for line in ended.lines if line["event"] == "text_delta") == "Let me see. It is 42."
    last = ended.lines[-1]
    assert (last["text"], last["reason"], last["turns"]) == ("It is 42.", "answer", 2)
    assert last["usage"]["input"] > 0
    assert [line["seq"] for line in ended.lines] == list(range(1, len(ended.lines) + 1))
    assert len({line["session"] for line in ended.lines}) == 1


@pytest.mark.parametrize(
    ("turns", "flags", "code", "reason", "words"),
    [
        (["Hello."], [], 0, "answer", ""),
        ([call("task_completion", result="Done.")], [], 0, "task_completion", ""),
        ([call("converse", message="Hi.")], [], 0, "converse", ""),
        ([QUESTION], [], 3, "question", ""),
        ([SUM] * 3, ["--max-turns", "2"], 4, "max_turns", "Stopped: the limit of turns was reached; --max-turns"),
        ([{"error": {"message": "no money", "suggestion": "Pay."}}], [], 1, "error", "Error: no money\nPay.\n"),
        ([SUM], [], 1, "error", "the script has no turn left"),
        ([call("math_calculate", expression="1 +")] * 9, [], 1, "loop", "stopped: the same error"),
    ],
)
def test_every_end_has_its_exit_code(workspace, here, turns, flags, code, reason, words):
    ended = here("run", "go", "--model", script(workspace, *turns), *flags)
    assert ended.code == code
    assert words in ended.err
    ended = here("run", "go", "--json", "--model", script(workspace, *turns), *flags)
    assert (ended.code, ended.lines[-1]["event"], ended.lines[-1]["reason"]) == (code, "run_finished", reason)
    last = ended.lines[-1]
    assert last["error"] not in last["text"] if last.get("error") else last["text"], "an error is never the answer"


def test_a_sub_agent_speaks_to_its_agent_only(workspace, here):
    turns = (DELEGATE, SUM, call("task_completion", result="it is 42"), "They say 42.")
    ended = here("run", "go", "--yes", "--model", script(workspace, *turns))
    assert (ended.code, ended.out) == (0, "They say 42.\n")
    assert '  → math_calculate(expression="6 * 7")' in ended.err.splitlines()
    assert "  it is 42" in ended.err.splitlines()
    assert "Let me see" not in ended.out + ended.err


def test_without_a_terminal_nobody_says_yes(workspace, here):
    model = script(workspace, DELEGATE, "Then not.")
    ended = here("run", "go", "--model", model)
    assert (ended.code, ended.out) == (0, "Then not.\n")
    assert "there is no one to ask" in ended.err
    (workspace / "p.rules").write_text("deny execute\n")
    denied = here("run", "go", "--yes", "--policy", "p.rules", "--model", model)
    assert "✗ task" in denied.err
    (workspace / "p.rules").write_text("allow execute\n")
    allowed = here("run", "go", "--policy", "p.rules", "--model", script(workspace, DELEGATE, "Seen.", "All seen."))
    assert (allowed.code, allowed.out) == (0, "All seen.\n")


def test_without_a_model_it_says_what_to_set(there):
    ended = there("run", "go", **NO_MODEL, **NOBODY_LISTENS)
    assert (ended.code, ended.out) == (2, "")
    for command in ("export ANTHROPIC_API_KEY=…", "ollama run ", "forge demo"):
        assert f"\n  {command}" in ended.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["go", "--model", "scriptd:x"], "Did you mean scripted:"),
        (["go", "--model", "scripted:none.yaml"], "none.yaml"),
        (["go", "--model", "scripted:script.json", "--config", "none.yaml"], "none.yaml"),
        (["go", "--model", "scripted:script.json", "--policy", "none.rules"], "none.rules"),
        (["go", "--model", "scripted:script.json", "--workspace", "none"], "none"),
        (["go", "--model", "scripted:script.json", "--audit", "none/log"], "none/log"),
        (["go", "--max-turns", "0"], "--max-turns"),
        (["go", "--session", ""], "--session"),
        (["  "], "empty"),
        (["-"], "no prompt"),
    ],
)
def test_what_cannot_be_used_is_exit_code_2(workspace, here, arguments, words):
    script(workspace, "hi")
    ended = here("run", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert words in ended.err
    assert "Traceback" not in ended.err


def test_the_prompt_may_come_from_the_input(workspace, there):
    model = script(workspace, "Two lines.")
    assert there("run", "-", "--model", model, given=b"\xef\xbb\xbfone\ntwo\n").out == "Two lines.\n"
    assert kept(there)[1]["text"] == "one\ntwo"


def test_a_session_is_continued_by_its_name(workspace, here):
    first = here("run", "remember me", "--session", "my talk", "--model", script(workspace, "I do."))
    assert "resume: forge run --session 'my talk'" in first.err
    here("run", "who am I?", "--session", "my talk", "--model", script(workspace, "You are you."))
    assert [message["text"] for message in kept(here)[1:]] == ["remember me", "I do.", "who am I?", "You are you."]


def test_a_session_remembers_the_model_that_was_named_for_it(workspace, here):
    here("run", "one", "--session", "s", "--model", script(workspace, "first"))
    assert here("run", "two", "--session", "s").out == "first\n"
    assert here("run", "three", "--session", "s", "--model", script(workspace, "x", name="x.json")).out == "x\n"
    assert here("run", "four", "--session", "s").out == "x\n"
    assert here("run", "five", "--session", "other").code == 2, "another session has no model"


def test_runs_without_a_name_are_sessions_of_their_own(workspace, here):
    for _ in range(2):
        assert here("run", "go", "--model", script(workspace, "ok")).code == 0
    assert len(here("session", "list", "--json").json["sessions"]) == 2


def test_a_script_that_was_not_used_up_is_mentioned(workspace, here):
    ended = here("run", "go", "--model", script(workspace, "one", "two"))
    assert ended.code == 0
    assert "1 of the script's 2 turns were not used" in ended.err


def test_everything_is_logged_unless_unwanted(workspace, here):
    model = script(workspace, SUM, "ok")
    here("run", "go", "--no-audit", "--model", model)
    assert not (workspace / ".forge" / "audit.ndjson").exists()
    here("run", "go", "--model", model)
    log = [json.loads(line) for line in (workspace / ".forge" / "audit.ndjson").read_text().splitlines()]
    assert (log[0]["event"], log[-1]["event"]) == ("run_started", "run_finished")


def test_secrets_are_masked_in_events(workspace, here, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "correct horse battery")
    model = script(workspace, call("converse", message="it is correct horse battery"))
    ended = here("run", "go", "--json", "--model", model)
    assert "correct horse" not in ended.out


def test_a_workspace_that_cannot_be_written_keeps_nothing_and_says_so(workspace, there, tmp_path_factory):
    model = script(tmp_path_factory.mktemp("models"), "ok", "ok")
    (workspace / ".forge").write_text("a file is in the way, which stops even root")
    ended = there("run", "go", "--model", model)
    assert (ended.code, ended.out) == (0, "ok\n")
    assert "the session is not stored" in ended.err
    assert "no audit log" in ended.err
    named = there("run", "go", "--session", "s", "--model", model)
    assert (named.code, named.out) == (2, "")
    assert "cannot be written" in named.err


def test_neither_a_home_nor_a_path_is_needed(workspace, there):
    ended = there("run", "go", "--model", script(workspace, SUM, "ok"), HOME=None, PATH=None, XDG_CONFIG_HOME=None)
    assert (ended.code, ended.out) == (0, "Let me see. \nok\n")


def test_a_reader_that_leaves_ends_the_run_quietly(workspace, there):
    many = [
        call("math_calculate", f"{number} and more words to fill the pipe\n" * 2_000, expression="1")
        for number in range(9)
    ]
    for flags in ([], ["--json"], ["--quiet"]):
        process = start(workspace, "run", "go", *flags, "--model", script(workspace, *many, "end " * 50_000))
        assert process.stdout is not None
        process.stdout.close()
        _, err = process.communicate(timeout=150)
        assert process.returncode == 1
        assert b"Traceback" not in err
        assert b"should not happen" not in err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_said_with_what_to_do(workspace):
    with open("/dev/full", "wb") as full:
        done = programs.run(
            [sys.executable, "-m", "forge", "run", "go", "--quiet", "--model", script(workspace, "ok")],
            cwd=workspace,
            env=environment(),
            stdout=full,
            stderr=subprocess.PIPE,
        )
    assert done.returncode == 1
    assert done.stderr.decode().splitlines() == [
        "forge: writing the output failed: the disk is full",
        "Free some space, or write elsewhere, then run the command again.",
    ]


@pytest.mark.slow
def test_closed_streams_are_no_tracebacks(workspace):
    command = f"{sys.executable} -m forge run go --model {script(workspace, SUM, 'ok')}"
    for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
        done = subprocess.run(
            ["/bin/sh", "-c", f"{command} {closed}"], cwd=workspace, env=environment(), capture_output=True, text=True
        )
        assert done.returncode == 0
        assert "Traceback" not in done.stderr


def model_that_waits(*before: str) -> tuple[asyncio.Event, tuple[Reply, ...]]:
    """A server that says these things, and then nothing any more."""
    reached = asyncio.Event()

    async def wait() -> None:
        reached.set()
        await asyncio.Event().wait()

    chunks = [f"data: {chunk}\n\n".encode() for chunk in before]
    spoken = [Reply([*chunks, b"data: [DONE]\n\n"], headers={"content-type": "text/event-stream"})] if before else []
    return reached, (*spoken, Reply(before=wait))


CALLING = json.dumps(
    {
        "choices": [
            {
                "index": 0,
                "delta": {
                    "content": "One moment.",
                    "tool_calls": [
                        {"index": 0, "id": "c1", "type": "function",
                         "function": {"name": "math_calculate", "arguments": '{"expression": "1 + 1"}'}}
                    ],
                },
                "finish_reason": "tool_calls",
            }
        ]
    }
)  # fmt: skip


async def test_the_prompt_cache_is_explained(workspace, there):
    turns: list[str | ToolCall] = [ToolCall("math_calculate", {"expression": "6 * 7"}, "a"), "It is 42."]
    async with serving(CachingAnthropic(turns)) as server:
        given = {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "key"}
        flags = ("--model", "anthropic:claude-sonnet-5", "--explain-cache")
        ended = await asyncio.to_thread(there, "run", "how much?", *flags, **given)
    assert (ended.code, ended.out) == (0, "It is 42.\n")
    title, head, first, second, sums = ended.err.splitlines()[-5:]
    assert title == "prompt cache, in tokens:"
    assert head.split() == ["turn", "model", "sent", "cached", "written", "again", "cause", "of", "the", "break"]
    sent = first.split()[2]
    assert first.split() == ["1", "claude-sonnet-5", sent, "0", sent, "0"]
    assert second.split()[3] == sent  # the whole first request was read from the cache
    assert sums.endswith(" 0 again; 0 breaks")


@pytest.mark.parametrize(("rule", "offered"), [("allow network", True), ("deny tool:server_*", False)])
async def test_a_project_offers_tools_of_the_provider(workspace, there, rule, offered):
    settings = {
        "agent": {"server_tools": {"web_search": {"max_uses": 3}}},
        "tools": [],
        "permissions": {"rules": [rule]},
    }
    (workspace / "own.yaml").write_text(json.dumps(settings))
    async with serving(CachingAnthropic(["It is 42."])) as server:
        given = {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "key"}
        flags = ("--model", "anthropic:claude-sonnet-5", "--config", "own.yaml")
        ended = await asyncio.to_thread(there, "run", "how much?", *flags, **given)
    assert (ended.code, ended.out) == (0, "It is 42.\n")
    wanted = {
        "type": "web_search_20250305",
        "name": "web_search",
        "max_uses": 3,
        "cache_control": {"type": "ephemeral"},
    }
    assert (wanted in server.bodies[0]["tools"]) is offered


def test_an_unknown_tool_of_the_provider_is_refused(workspace, here):
    (workspace / "own.yaml").write_text("agent: {server_tools: {web_serch: {}}}\n")
    ended = here("run", "how much?", "--model", script(workspace, "It is 42."), "--config", "own.yaml")
    assert ended.code == 2
    assert "there is none of this kind; there are web_search" in ended.err


@pytest.mark.parametrize("flag", ["--durable", "--console"])
def test_the_prompt_cache_of_a_run_elsewhere_is_not_explained(here, flag):
    ended = here("run", "how much?", "--explain-cache", flag)
    assert ended.code == 2
    assert "--explain-cache is for runs in this process" in ended.err


async def interrupted(workspace: Path, *flags: str) -> tuple[int, str, str]:
    """A run that is stopped with Ctrl-C while the model is asked for the second time."""
    reached, replies = model_that_waits(CALLING)
    async with serving(refusal(404), *replies) as server:  # it is first asked whether it is llama.cpp
        os.environ["OPENAI_BASE_URL"] = server.url
        try:
            process = start(workspace, "run", "go", "--model", "openai:any", *flags)
        finally:
            del os.environ["OPENAI_BASE_URL"]
        await reached.wait()
        process.send_signal(signal.SIGINT)
        out, err = await asyncio.to_thread(process.communicate, timeout=150)
        return process.returncode, out.decode(), err.decode()


async def test_ctrl_c_stops_the_run_and_leaves_a_history_that_can_be_continued(workspace, there):
    code, out, err = await interrupted(workspace)
    assert (code, out) == (130, "One moment.\n")
    assert "Stopping; Ctrl-C again leaves at once." in err
    assert "Stopped: interrupted." in err
    assert "Traceback" not in err
    name = err.split()[-1]
    history = await asyncio.to_thread(kept, there)
    assert [message["role"] for message in history] == ["system", "user", "assistant", "tool"]
    assert history[-1]["text"] == "2"
    going_on = ("run", "go on", "--session", name, "--model", script(workspace, "Here I am."))
    ended = await asyncio.to_thread(there, *going_on)
    assert (ended.code, ended.out) == (0, "Here I am.\n")


async def test_ctrl_c_leaves_the_end_as_the_last_line_of_json(workspace):
    code, out, err = await interrupted(workspace, "--json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert (code, err) == (130, "")
    assert (lines[-1]["event"], lines[-1]["reason"]) == ("run_finished", "cancelled")
    assert [line["event"] for line in lines].count("run_finished") == 1


STUBBORN = """
import asyncio, os, signal, sys
import forge.agent.agent
from forge import SessionStore, ToolCall
from forge.cli import perform as run

class Stubborn:
    async def stream(self, request):
        while True:
            try:
                os.write(2, b"asked\\n")
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                pass
        yield

signal.signal(signal.SIGINT, signal.default_int_handler)
forge.agent.agent.find_model = lambda name: Stubborn()
sys.exit(run(["run", "go", "--model", "stubborn:any", *sys.argv[1:]]))
"""


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_ctrl_c_twice_ends_even_what_does_not_want_to_end(workspace, flags):
    process = programs.Popen(
        [sys.executable, "-c", STUBBORN, *flags],
        cwd=workspace,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    assert process.stdout is not None
    for _ in range(2):
        while process.stderr.readline() != b"asked\n":
            pass
        process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=150)
    assert process.returncode == 130
    assert b"Traceback" not in err
    if flags:
        last = json.loads(out.splitlines()[-1])
        assert (last["event"], last["reason"]) == ("run_finished", "cancelled")


def test_an_internal_error_is_the_end_of_the_run_too(here, workspace, monkeypatch):
    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("the wheel came off")

    monkeypatch.setattr(forge.agent.agent.Agent, "run", broken)
    ended = here("run", "go", "--json", "--model", script(workspace, "ok"))
    assert ended.code == 1
    assert (ended.lines[-1]["event"], ended.lines[-1]["reason"]) == ("run_finished", "error")
    assert "the wheel came off" in ended.lines[-1]["text"]
    assert ended.err.splitlines()[0] == "forge: this should not happen: RuntimeError: the wheel came off"


def test_a_terminal_shows_the_run_in_colour_and_asks_in_place(workspace):
    turns = (DELEGATE, "Seen.", "All seen.")
    code, shown = talk(workspace, "run", "go", "--model", script(workspace, *turns), says=((ASKED, b"y"),))
    assert code == 0
    assert "task (forge.agent.subagent) wants to execute" in shown
    assert "│ look" in shown
    assert shown.index("wants to") < shown.index("\x1b[32m✓\x1b[0m general: look") < shown.index("All seen.\n")
    assert "Seen.\n" not in shown.partition("All seen")[2]


def test_a_no_reaches_the_model_and_the_run_goes_on(workspace):
    says = ((ASKED, b"r"), (b"(optional): ", b"not today\n"))
    code, shown = talk(workspace, "run", "go", "--model", script(workspace, DELEGATE, "Then not."), says=says)
    assert code == 0
    assert "not today" in shown.rpartition("Error:")[2]
    assert "Then not." in shown


def test_ctrl_c_at_the_question_stops_the_run(workspace, there):
    model = script(workspace, DELEGATE, "never")
    code, shown = talk(workspace, "run", "go", "--model", model, says=((ASKED, b"\x03"),))
    assert code == 130
    assert "Traceback" not in shown
    assert [message["role"] for message in kept(there)] == ["system", "user", "assistant", "tool"]


@pytest.mark.parametrize(("enter", "changes"), [(b"\r", {}), (b"\n", LINES)])  # in the input line \n is Ctrl-J
def test_a_question_of_the_model_is_answered_in_place(workspace, there, enter, changes):
    model = script(workspace, QUESTION, "Then b.")
    says = ((b"2. b", b""), (b"> ", b"b, please" + enter))
    code, shown = talk(workspace, "run", "go", "--model", model, says=says, **changes)
    assert code == 0
    assert "Then b." in shown
    assert kept(there)[-2]["text"] == "b, please"
    code, _ = talk(workspace, "run", "go", "--model", model, says=((b"> ", b"\x04"),), **changes)
    assert code == 3


@pytest.mark.parametrize(("flags", "terminal"), [((), {"TERM": "dumb"}), (("--plain",), {})])
def test_plain_lines_where_the_terminal_can_no_more_or_shall_not(workspace, flags, terminal):
    model = script(workspace, SUM, "**ok**")
    code, shown = talk(workspace, "run", "go", "--model", model, *flags, **terminal)
    assert code == 0
    assert "\x1b" not in shown
    assert "→ math_calculate" in shown
    assert "**ok**\n" in shown


def test_markdown_is_rendered_at_a_terminal_and_untouched_in_a_pipe(workspace, there):
    model = script(workspace, "# Done\n\n- **all** of it\n\n```py\nx**2\n```")
    _, shown = talk(workspace, "run", "go", "--model", model)
    title, item = "\x1b[1;4mDone\x1b[0m\n", "• \x1b[1mall\x1b[0m of it\n"  # the input line may be drawn between
    assert -1 < shown.find(title) < shown.find(item)
    assert "x**2" in re.sub(r"\x1b\[[\d;]*m", "", shown)
    assert there("run", "go", "--model", model).out == "# Done\n\n- **all** of it\n\n```py\nx**2\n```\n"


def test_after_a_yes_the_diff_is_not_shown_again(workspace):
    model = script(workspace, call("file_write", path="a.txt", content="hello\n"), "Done.")
    code, shown = talk(workspace, "run", "go", "--model", model, says=((ASKED, b"y"),))
    assert code == 0
    assert shown.count("+hello") == 1
    (workspace / "a.txt").unlink()
    _, shown = talk(workspace, "run", "go", "--model", model, "--yes")
    assert shown.count("+hello") == 1


def test_a_narrow_terminal_shows_a_question_whole_and_behind_its_bar(workspace):
    command = "touch " + "word " * 20
    model = script(workspace, call("bash", command=command), "Done.")
    flags = ("--model", model, "--trial", "off")
    code, shown = talk(workspace, "run", "go", *flags, says=((ASKED, b"n"),), COLUMNS="50")
    assert code == 0
    question = re.sub(r"\x1b\[[\d;]*m", "", shown[shown.index("bash wants to") : shown.index("? no")])
    assert all(len(line) <= 50 for line in question.splitlines())
    assert question.count("word") == 40  # the line, and the rule that "always" would store
    assert all(line.startswith("  │ ") for line in question.splitlines() if "word" in line)


def test_what_the_model_says_cannot_steer_the_terminal(workspace):
    harmful = "\x1b]0;title\x07\x1b[2Jhello"
    model = script(workspace, call("converse", message=harmful), harmful)
    _, shown = talk(workspace, "run", "go", "--model", model)
    assert "\x1b]" not in shown
    assert "\x1b[2J" not in shown
    assert "⟨U+001B⟩[2Jhello" in shown


def test_the_demo_needs_nothing_and_leaves_nothing_behind(workspace):
    done = programs.run(
        [sys.executable, "-m", "forge", "demo"],
        cwd=workspace,
        env=environment(HOME=None, **NO_MODEL),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0
    assert "North sold most in the first quarter: 4,026" in done.stdout
    for words in ("  4026", "is never closed", "leads outside the workspace", "  ✓ csv_parse", "7 turns · 14 calls"):
        assert words in done.stderr
    assert "turns were not used" not in done.stderr
    assert list(workspace.iterdir()) == []


def test_the_help_says_how_it_ends(here):
    text = here("run", "--help").out
    for words in (
        "--max-turns",
        "else 50",
        "a new one",
        "--session",
        "Exit codes",
        "run_finished",
        "--durable",
        "--console",
    ):
        assert words in text
    assert "run" in here("--help").out


PNG = b"\x89PNG\r\n\x1a\n\0"


@pytest.mark.parametrize("more", [(), ("--durable",)])
def test_files_of_the_person_go_with_the_prompt(workspace, here, tmp_path_factory, more):
    outside = tmp_path_factory.mktemp("outside")
    (outside / "photo.png").write_bytes(PNG)  # the person may name any file, the agent only those of the workspace
    (workspace / "notes.txt").write_text("Words.")
    flags = ("--image", str(outside / "photo.png"), "--attach", str(workspace / "notes.txt"), "--session", "ada")
    ended = here("run", "What is this?", *flags, "--model", script(workspace, "A cat."), *more)
    assert ended.code == 0, ended.err
    with SessionStore.of(workspace) as store:
        message = next(one for one in store.show("ada").messages if one.role == "user")
    assert [(one.name, one.media_type, one.data) for one in message.attachments] == [
        ("photo.png", "image/png", PNG),
        ("notes.txt", "text/plain", b"Words."),
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("what?", "--image", "missing.png"), "reading --image missing.png: No such file"),
        (("what?", "--image", "notes.txt"), "the content is text"),
        (("what?", "--attach", "program"), "ELF program"),
        (("what?", "--image", "."), "not a regular file"),
        (("--image", "photo.png"), "--image needs a prompt"),
        (("what?", "--console", "--attach", "notes.txt"), "--attach is for runs at the terminal"),
    ],
)
def test_a_file_that_cannot_go_with_the_prompt_is_exit_code_2(workspace, here, arguments, words, monkeypatch):
    monkeypatch.chdir(workspace)
    (workspace / "photo.png").write_bytes(PNG)
    (workspace / "notes.txt").write_text("Words.")
    (workspace / "program").write_bytes(b"\x7fELF\xff\0")
    ended = here("run", *arguments, "--model", script(workspace, "never"))
    assert ended.code == 2
    assert words in ended.err
