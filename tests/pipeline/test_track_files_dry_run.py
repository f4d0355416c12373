"""Tracking files, and dry runs."""

import asyncio
from importlib import import_module

import pytest

from forge import Rate, Scope, ToolCall, rules, tool
from forge.permissions.gate import PolicyGate
from forge.pipeline import standard_steps
from forge.pipeline.dry_run import dry_run
from forge.pipeline.limit_calls import LimitRate
from forge.pipeline.track_files import TrackFiles
from forge.tools.file_read import FileRead
from forge.tools.file_write import FileWrite
from forge.workspace.history import tracking as seen_files
from forge.workspace.history.tracking import SessionState
from tests.pipeline.calling import call_once, executor_of


@pytest.fixture
def files(tmp_path):
    @tool(permissions={"write"}, target="path")
    def other_write(path: str, content: str) -> str:
        """Write, but a tool of somebody else."""
        (tmp_path / path).write_text(content)
        return "written"

    state = SessionState()
    executor = executor_of([FileRead(), FileWrite(), other_write], TrackFiles(state))

    def call(name, session="s", **arguments):
        scope = Scope(session_id=session, workspace=tmp_path)
        return asyncio.run(executor.execute(ToolCall(name, arguments), scope))

    return tmp_path, call, executor, state


def test_an_existing_file_must_be_read_before_it_is_written(files):
    folder, call, _, _ = files
    (folder / "a.txt").write_text("old")
    refused = call("write", path="a.txt", content="new")
    assert "was not read" in refused.for_llm
    assert (folder / "a.txt").read_text() == "old"
    call("read", path="a.txt")
    assert call("write", path="a.txt", content="new").success
    assert call("write", path="a.txt", content="newer").success, "its own write counts as seen"


def test_a_file_that_changed_since_is_not_overwritten(files):
    folder, call, _, _ = files
    (folder / "a.txt").write_text("old")
    call("read", path="a.txt")
    (folder / "a.txt").write_text("changed by somebody")
    assert "changed on disk" in call("write", path="a.txt", content="new").for_llm


def test_a_new_file_needs_no_read_and_links_are_the_same_file(files):
    folder, call, _, _ = files
    assert call("write", path="new.txt", content="1").success
    (folder / "link.txt").symlink_to("new.txt")
    assert call("write", path="link.txt", content="2").success
    assert (folder / "new.txt").read_text() == "2"
    assert (folder / "link.txt").is_symlink()


def test_another_session_has_seen_nothing_and_clear_state_forgets(files):
    _, call, executor, state = files
    call("write", path="a.txt", content="1")
    assert state.seen.files("s")
    assert call("write", session="t", path="a.txt", content="2").is_error
    executor.clear_state("s")
    assert call("write", path="a.txt", content="3").is_error


def test_tools_of_others_are_watched_but_not_stopped(files):
    folder, call, _, state = files
    (folder / "a.txt").write_text("old")
    assert call("other_write", path="a.txt", content="new").success
    assert list(state.seen.files("s")) == [str(folder / "a.txt")]


def test_without_the_step_nothing_is_checked(tmp_path):
    (tmp_path / "a.txt").write_text("old")
    executor = executor_of([FileWrite()])
    call = ToolCall("file_write", {"path": "a.txt", "content": "new"})
    assert asyncio.run(executor.execute(call, Scope(workspace=tmp_path))).success


def test_what_a_session_read_is_known_to_the_next_process(tmp_path):
    (tmp_path / "a.txt").write_text("old")
    for name, more in (("read", {}), ("write", {"content": "new"})):
        executor = executor_of([FileRead(), FileWrite()], TrackFiles(SessionState(tmp_path)))
        call = ToolCall(name, {"path": "a.txt", **more})
        assert asyncio.run(executor.execute(call, Scope(workspace=tmp_path))).success


def test_a_dry_run_says_what_would_happen_and_reads_are_run(files):
    ran: list = []

    @tool(permissions={"execute"}, target="service")
    def deploy(service: str) -> str:
        """Deploy."""
        ran.append(service)
        return "done"

    @tool(permissions={"read"})
    def status() -> str:
        """Status."""
        return "fine"

    would = call_once(deploy, dry_run(), service="web")
    assert would.data["dry_run"] is True
    assert 'deploy(service="web")' in would.for_llm
    assert ran == []
    assert call_once(status, dry_run()).for_llm == "fine"


def test_a_dry_run_shows_the_change_that_would_be_made(tmp_path):
    (tmp_path / "a.txt").write_text("old\n")
    gate = PolicyGate(rules("allow write"))
    executor = executor_of([FileRead(), FileWrite()], *standard_steps(gate, dry=True))
    scope = Scope(workspace=tmp_path)

    def call(name, **arguments):
        return asyncio.run(executor.execute(ToolCall(name, arguments), scope))

    unread = call("file_write", path="a.txt", content="new\n")
    assert "It would fail" in unread.for_llm
    assert "was not read" in unread.data["problem"]
    call("file_read", path="a.txt")
    would = call("file_write", path="a.txt", content="new\n")
    assert "-old\n+new\n" in would.for_user
    assert would.for_user in would.for_llm
    assert (tmp_path / "a.txt").read_text() == "old\n"


@pytest.mark.parametrize(
    ("decision", "words"),
    [
        ("allow", 'Would call deploy(services=["web"]), which needs execute on web.'),
        ("ask", "which needs execute on web; a person would be asked (the rule `ask execute web` (rule 1))."),
        ("deny", "Would not call deploy("),
        ("deny", "; it would be denied by the rule `deny execute web` (rule 1)."),
    ],
)
def test_a_dry_run_says_what_the_policy_would_say(decision, words):
    @tool(permissions={"execute"}, target="services")
    def deploy(services: list[str]) -> str:
        """Deploy."""
        return "done"

    async def nobody_is_asked(request):
        raise AssertionError

    gate = PolicyGate(rules(f"{decision} execute web"), nobody_is_asked)
    would = call_once(deploy, *standard_steps(gate, dry=True), services=["web"])
    assert words in would.for_llm
    assert would.data["decision"] == decision
    assert would.title == ("Would not call deploy" if decision == "deny" else "Would call deploy")
    too_many = call_once(deploy, *standard_steps(gate, dry=True), services=[str(n) for n in range(2_000)])
    assert "it would be denied: it names 2,000 targets" in too_many.for_llm


def test_the_ledger_forgets_what_was_seen_longest_ago(tmp_path, monkeypatch):
    monkeypatch.setattr(seen_files, "MOST_FILES", 3)
    monkeypatch.setattr(seen_files, "_TIDY", 1)
    ledger = seen_files.FileLedger()
    for name in "12134":
        ledger.note("s", name, tmp_path.stat())
    assert list(ledger.files("s")) == ["1", "3", "4"]


def test_the_counts_of_runs_forget_the_oldest_sessions(monkeypatch):
    monkeypatch.setattr(import_module("forge.pipeline.limit_calls"), "MOST_SESSIONS", 3)

    @tool(rate=Rate(max_calls=1))
    def once() -> str:
        """Once."""
        return "ok"

    executor = executor_of([once], LimitRate())

    def call(session: str) -> bool:
        return asyncio.run(executor.execute(ToolCall("once"), Scope(session_id=session))).success

    assert [call(session) for session in ("1", "2", "1", "3", "4", "1", "2")] == [
        True,
        True,
        False,
        True,
        True,
        False,
        True,
    ]


def test_a_step_is_left_out_by_name_and_an_unknown_name_is_refused():
    gate = PolicyGate()
    assert len(standard_steps(gate, without={"skip_repeats", "retry"})) == len(standard_steps(gate)) - 2
    with pytest.raises(ValueError, match="skip_repeat"):
        standard_steps(gate, without={"skip_repeat"})
