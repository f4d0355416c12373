"""Tracking files, and dry runs."""

import asyncio
from importlib import import_module

import pytest

from forge import Category, Rate, Scope, ToolCall, rules, tool
from forge.permissions.gate import PolicyGate
from forge.pipeline import standard_steps
from forge.pipeline.dry_run import dry_run
from forge.pipeline.limit_rate import limit_rate
from forge.pipeline.track_files import track_files
from forge.workspace import seen
from forge.workspace.seen import FileLedger
from tests.pipeline.calling import call_once, executor_of


@pytest.fixture
def files(tmp_path):
    @tool(permissions={"read"}, target="path", category=Category.BUILTIN)
    def read(path: str) -> str:
        """Read."""
        return (tmp_path / path).read_text()

    @tool(permissions={"write"}, target="path", category=Category.BUILTIN)
    def write(path: str, content: str) -> str:
        """Write."""
        (tmp_path / path).write_text(content)
        return "written"

    @tool(permissions={"write"}, target="path")
    def other_write(path: str, content: str) -> str:
        """Write, but a tool of somebody else."""
        (tmp_path / path).write_text(content)
        return "written"

    ledger = FileLedger()
    executor = executor_of([read, write, other_write], track_files(ledger))

    def call(name, session="s", **arguments):
        scope = Scope(session_id=session, workspace=tmp_path)
        return asyncio.run(executor.execute(ToolCall(name, arguments), scope))

    return tmp_path, call, executor, ledger


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


def test_another_session_has_seen_nothing_and_clear_state_forgets(files):
    _, call, executor, ledger = files
    call("write", path="a.txt", content="1")
    assert ledger.files("s")
    assert call("write", session="t", path="a.txt", content="2").is_error
    executor.clear_state("s")
    assert call("write", path="a.txt", content="3").is_error


def test_tools_of_others_are_watched_but_not_stopped(files):
    folder, call, _, _ = files
    (folder / "a.txt").write_text("old")
    assert call("other_write", path="a.txt", content="new").success


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


def test_the_ledger_and_the_counts_of_runs_forget_the_oldest_sessions(tmp_path, monkeypatch):
    monkeypatch.setattr(seen, "MOST_SESSIONS", 3)
    monkeypatch.setattr(import_module("forge.pipeline.limit_rate"), "MOST_SESSIONS", 3)
    file = tmp_path / "a"
    file.write_text("a")
    ledger = FileLedger()
    for session in ("1", "2", "1", "3", "4"):
        ledger.note(session, file, written=False)
    assert [bool(ledger.files(session)) for session in "1234"] == [True, False, True, True]

    @tool(rate=Rate(max_calls=1))
    def once() -> str:
        """Once."""
        return "ok"

    executor = executor_of([once], limit_rate())

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
