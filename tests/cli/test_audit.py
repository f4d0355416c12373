"""`forge audit`."""

from __future__ import annotations

import gzip
import json
import os
import signal
import time
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forge.project.audit import log_index as log_files
from forge.project.audit.log import OTHERS, Log, LogSummary
from forge.project.audit.log_events import EventFilter, parse_moment
from tests.cli.conftest import start

NOW = 1_700_000_000.0


def event(kind, at=NOW, tool="", session="s1", agent="main", **more):
    call = {"call": {"id": "c", "name": tool, "arguments": more.pop("arguments", {})}} if tool else {}
    return {"event": kind, "ts": at, "seq": 1, "session": session, "agent": agent, **call, **more}


def ended(tool, at=NOW, error="", error_type="", **more):
    result = {"is_error": bool(error_type), "error": error, **({"error_type": error_type} if error_type else {})}
    return event("tool_call_end", at, tool, success=not error_type, result=result, seconds=0.5, **more)


def line(one) -> bytes:
    return json.dumps(one, ensure_ascii=False).encode() + b"\n"


EVENTS = [
    event("run_started", NOW, prompt="tidy up"),
    event("tool_call_start", NOW + 1, "file_read", arguments='{"path": "a"}'),
    ended("file_read", NOW + 2, arguments='{"path": "a"}'),
    event("tool_call_start", NOW + 3, "bash"),
    event("permission_asked", NOW + 4, "bash", permission="execute", target="rm -r x", rule=""),
    event("permission_answered", NOW + 5, "bash", answer="no", by="person"),
    ended("bash", NOW + 6, "you said no", "permission_error"),
    ended("bash", NOW + 7, "it exploded", "system_error", session="s2", agent="helper"),
    event("tool_call_start", NOW + 8, "bash"),
    event("run_finished", NOW + 9, text="done", reason="answer", turns=3),
]


@pytest.fixture
def log(workspace):
    folder = workspace / ".forge"
    folder.mkdir(mode=0o700)
    path = folder / "audit.ndjson"
    path.write_bytes(b"".join(map(line, EVENTS)))
    return path


def kinds(ended_):
    return [one["event"] for one in ended_.lines]


def test_a_person_reads_a_line_for_everything_that_happened(here, log):
    shown = here("audit").out.splitlines()
    at = datetime.fromtimestamp(NOW).strftime("%Y-%m-%d %H:%M:%S")
    assert shown[0] == f"{at}  s1  ▶ tidy up"
    assert shown[1].endswith('s1  ✓ file_read  0.50 s  {"path": "a"}')
    assert "? bash wants to execute rm -r x" in shown[2]
    assert "! bash: no, by person" in shown[3]
    assert "⊘ bash: you said no" in shown[4]
    assert "s2/helper  ✗ bash: it exploded" in shown[5]
    assert "■ answer after 3 turns: done" in shown[6]
    assert len(shown) == 7


def test_a_program_gets_every_event_as_it_was_logged(here, log):
    shown = here("audit", "--json")
    assert shown.out.encode() == log.read_bytes()
    assert shown.code == 0


@pytest.mark.parametrize(
    ("flags", "found"),
    [
        (["--tool", "file_*"], ["tool_call_start", "tool_call_end"]),
        (["--session", "s2"], ["tool_call_end"]),
        (["--agent", "helper"], ["tool_call_end"]),
        (["--event", "run_*"], ["run_started", "run_finished"]),
        (["--denied"], ["permission_answered", "tool_call_end"]),
        (["--errors"], ["tool_call_end", "tool_call_end"]),
        (["--denied", "--session", "s2"], []),
        (["--last", "1"], ["run_finished"]),
        (["--event", "run_*", "--event", "permission_asked"], ["run_started", "permission_asked", "run_finished"]),
    ],
)
def test_what_is_asked_for_is_chosen(here, log, flags, found):
    assert kinds(here("audit", "--json", *flags)) == found


def test_a_time_chooses_too(here, log):
    def local(seconds):
        return datetime.fromtimestamp(NOW + seconds).isoformat()

    assert len(here("audit", "--json", "--since", local(8)).lines) == 2
    assert len(here("audit", "--json", "--until", local(8)).lines) == 8
    assert here("audit", "--json", "--since", "2030-01-01").out == ""


@pytest.mark.parametrize(
    ("text", "before"), [("90s", 90), ("30m", 1_800), ("2h", 7_200), ("3d", 259_200), ("1W", 604_800), ("1.5h", 5_400)]
)
def test_a_span_is_counted_from_now(text, before):
    assert parse_moment(text, NOW) == NOW - before


@pytest.mark.parametrize("flags", [["--since", "3x"], ["--until", "yesterdayish"], ["--follow", "--summary"]])
def test_what_cannot_be_meant_is_refused(here, log, flags):
    assert here("audit", *flags).code == 2


def test_the_summary_counts_by_tool(here, log):
    summary = here("audit", "--summary", "--json").json
    assert summary["tools"] == [
        {"tool": "bash", "calls": 2, "errors": 2, "denied": 1, "asked": 1, "unfinished": 0, "seconds": 1.0},
        {"tool": "file_read", "calls": 1, "errors": 0, "denied": 0, "asked": 0, "unfinished": 0, "seconds": 0.5},
    ]
    assert summary["total"]["calls"] == 3
    assert summary["runs"] == {"answer": 1}
    table = here("audit", "--summary").out.splitlines()
    assert table[0].split() == ["TOOL", "CALLS", "ERRORS", "DENIED", "ASKED", "UNFINISHED", "SECONDS"]
    assert table[1].split() == ["bash", "2", "2", "1", "1", "0", "1.00"]


def test_a_call_that_never_ended_is_counted(here, log):
    log.write_bytes(line(event("tool_call_start", tool="bash")))
    assert here("audit", "--summary", "--json").json["total"]["unfinished"] == 1


def test_names_that_a_model_makes_up_do_not_fill_the_memory():
    summary = LogSummary()
    for number in range(3_000):
        summary.add(ended(f"tool_{number}"))
    assert len(summary.tools) == 1_001
    assert summary.tools[OTHERS].calls == 2_000
    assert summary.total.calls == 3_000


def test_what_a_crash_left_of_a_line_hides_nothing_else(here, log):
    torn = line(EVENTS[0])[:60]
    log.write_bytes(torn + log.read_bytes() + torn)
    shown = here("audit", "--json")
    assert kinds(shown) == [one["event"] for one in EVENTS]
    assert "2 lines are damaged" in shown.err
    assert shown.code == 0


@pytest.mark.parametrize(
    "junk", [b"\0" * 300, b"[1, 2]", b'{"event": 5}', b"\xff\xfe{", b"[" * 5_000, b'{"event": "x"']
)
def test_lines_that_are_no_events_are_left_out(here, log, junk):
    log.write_bytes(junk + b"\n\n" + line(EVENTS[0]))
    shown = here("audit", "--json")
    assert kinds(shown) == ["run_started"]
    assert "1 line is damaged" in shown.err


def test_values_of_any_kind_are_told(here, log):
    strange = {"event": "tool_call_end", "ts": "soon", "session": 5, "call": [], "result": 7, "seconds": "x"}
    log.write_bytes(line(strange) + line({**strange, "ts": 1e300, "seconds": float("nan"), "call": {"name": None}}))
    shown = here("audit")
    assert len(shown.out.splitlines()) == 2
    assert here("audit", "--summary").code == 0


@given(st.lists(st.binary(max_size=60), max_size=8))
def test_no_content_breaks_it(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("log") / "audit.ndjson"
    path.write_bytes(b"\n".join(lines) + b"\n" + line(EVENTS[0]))
    assert [one.event for one in Log(path)] == [EVENTS[0]]


def test_a_line_without_an_end_takes_no_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(log_files, "LONGEST_LINE", 4_096)
    path = tmp_path / "audit.ndjson"
    path.write_bytes(b"x" * 1_000_000 + b"\n" + line(EVENTS[0]))
    log = Log(path)
    assert [one.event for one in log] == [EVENTS[0]]
    assert log.unreadable == 1
    with log_files.open_log(path) as stream:
        assert max(len(line) for _, line in log_files.lines_from(stream, path, 0)) <= 4_096


def test_what_is_invisible_is_shown(here, log):
    log.write_bytes(line(event("run_started", prompt="a\u202eb\x1b[31m\nforged line\u200b")))
    (shown,) = here("audit").out.splitlines()
    assert shown.endswith("a⟨U+202E⟩b⟨U+001B⟩[31m⟨U+000A⟩forged line⟨U+200B⟩")


def test_logs_that_were_rotated_are_read_first(here, log):
    for name, at, pack in (("audit.ndjson.1", 20, bytes), ("audit.ndjson-20260101.gz", 10, gzip.compress)):
        path = log.with_name(name)
        path.write_bytes(pack(line(event("run_started", prompt=name))))
        os.utime(path, (at, at))
    log.with_name("audit.ndjson.lock").write_text("not a log")
    prompts = [one["prompt"] for one in here("audit", "--json", "--event", "run_started").lines]
    assert prompts == ["audit.ndjson-20260101.gz", "audit.ndjson.1", "tidy up"]
    since = datetime.fromtimestamp(NOW).isoformat()
    assert len(here("audit", "--json", "--event", "run_started", "--since", since).lines) == 1


def test_a_damaged_rotation_is_an_error_in_words(here, log):
    log.with_name("audit.ndjson.1.gz").write_bytes(gzip.compress(b"x" * 10_000)[:40])
    shown = here("audit")
    assert shown.code == 2
    assert "cannot be read" in shown.err


def test_another_file_can_be_named(here, log, workspace):
    (workspace / "other").write_bytes(line(EVENTS[0]))
    (workspace / "link").symlink_to("other")
    assert kinds(here("audit", "--json", "--file", "other")) == ["run_started"]
    assert kinds(here("audit", "--json", "--file", "link")) == ["run_started"]
    missing = here("audit", "--file", "nothing")
    assert (missing.code, missing.out) == (2, "")


def test_where_nothing_is_logged_that_is_said(here, workspace):
    shown = here("audit")
    assert (shown.code, shown.out) == (0, "")
    assert "does not exist yet" in shown.err
    assert here("audit", "--summary", "--json").json["tools"] == []
    assert not (workspace / ".forge").exists()


def test_a_log_that_came_with_the_project_leads_nowhere_else(here, workspace, tmp_path_factory):
    secret = tmp_path_factory.mktemp("elsewhere") / "secret"
    secret.write_bytes(line(EVENTS[0]))
    (workspace / ".forge").mkdir()
    (workspace / ".forge/audit.ndjson").symlink_to(secret)
    shown = here("audit")
    assert (shown.code, shown.out) == (2, "")
    assert "it is a symbolic link" in shown.err


def test_a_pipe_in_its_place_keeps_nobody_waiting(here, workspace):
    (workspace / ".forge").mkdir()
    os.mkfifo(workspace / ".forge/audit.ndjson")
    shown = here("audit")
    assert shown.code == 2
    assert "not a regular file" in shown.err


def test_what_a_run_logged_is_read(here, workspace):
    assert here("tool", "call", "math_calculate", '{"expression": "1+1"}').code == 0
    assert "✓ math_calculate" in here("audit", "--session", "cli").out
    assert here("audit", "--summary", "--json", "--since", "1h").json["total"]["calls"] == 1


def followed(path, steps, last=10, wanted=None):
    """What is told, with one step done at each look."""
    left = iter(steps)

    def wait():
        step = next(left, None)
        if step is not None:
            step()
        return step is not None

    return [one.event["prompt"] for one in Log(path, wanted or EventFilter()).follow(wait, last)]


def said(prompt):
    return line(event("run_started", prompt=prompt))


def appended(path, content):
    def step():
        with path.open("ab") as file:
            file.write(content)

    return step


def test_following_begins_with_what_happened_last(tmp_path):
    path = tmp_path / "audit.ndjson"
    path.write_bytes(b"".join(said(f"{number}") for number in range(20)))
    assert followed(path, [appended(path, said("new"))], last=2) == ["18", "19", "new"]


def test_of_a_long_log_only_the_end_is_looked_at(tmp_path, monkeypatch):
    monkeypatch.setattr(log_files, "RECENT", 500)
    path = tmp_path / "audit.ndjson"
    path.write_bytes(b"".join(said(f"{number}") for number in range(1_000)))
    shown = followed(path, [], last=100)
    assert shown[-1] == "999"
    assert 1 <= len(shown) < 10


def test_a_line_that_comes_in_pieces_is_told_once_it_is_whole(tmp_path):
    path = tmp_path / "audit.ndjson"
    whole = said("pieces")
    assert followed(path, [appended(path, whole[:20]), appended(path, whole[20:]), appended(path, b"")]) == ["pieces"]


def test_a_log_that_comes_later_or_is_rotated_or_emptied_is_followed(tmp_path):
    path = tmp_path / "audit.ndjson"

    def rotated():
        appended(path, said("before"))()
        path.rename(tmp_path / "audit.ndjson.1")
        appended(path, said("after"))()

    def emptied():
        path.write_bytes(said("e"))

    steps = [lambda: None, appended(path, said("first one that is long")), rotated, emptied, appended(path, b"")]
    assert followed(path, steps) == ["first one that is long", "before", "after", "e"]


def test_following_goes_on_until_it_is_interrupted(workspace, log):
    process = start(workspace, "audit", "--follow", "--json", "--event", "run_started")
    assert process.stdout is not None
    with process:
        try:
            assert json.loads(process.stdout.readline())["prompt"] == "tidy up"
            appended(log, said("while it follows"))()
            assert json.loads(process.stdout.readline())["prompt"] == "while it follows"
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
        finally:
            process.kill()


def test_following_ends_when_nobody_reads_any_more(workspace, log):
    process = start(workspace, "audit", "--follow", "--json")
    assert process.stdout is not None
    with process:
        try:
            assert process.stdout.readline()
            process.stdout.close()
            assert process.wait(60) in (0, 1)
        finally:
            process.kill()


@pytest.mark.slow
def test_a_large_log_is_read_in_little_memory(there, log):
    one = line(ended("bash", arguments="x" * 4_000))
    with log.open("wb") as file:
        for _ in range(10_000):
            file.write(one)
    began = time.monotonic()
    shown = there("audit", "--summary", "--json")
    assert shown.json["total"]["calls"] == 10_000
    assert time.monotonic() - began < 45
