"""Tracking files, dry runs, recordings, spans."""

import asyncio
import json

import pytest

from forge import Category, Scope, ToolCall, ToolError, tool
from forge.pipeline.dry_run import dry_run
from forge.pipeline.record import record, replay
from forge.pipeline.track_files import track_files
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


def test_a_recording_is_replayed_without_running(tmp_path):
    path = tmp_path / "calls.ndjson"
    runs: list = []

    @tool
    def roll(sides: int) -> int:
        """Roll a die."""
        runs.append(sides)
        return len(runs)

    assert [call_once(roll, record(path), sides=6).for_llm for _ in range(2)] == ["1", "2"]
    assert json.loads(path.read_text().splitlines()[0])["result"]["for_llm"] == "1"
    executor = executor_of([roll], replay(path))
    results = [asyncio.run(executor.execute(ToolCall("roll", {"sides": 6}), Scope())) for _ in range(3)]
    assert [result.for_llm for result in results[:2]] == ["1", "2"]
    assert "no (further) answer" in results[2].for_llm
    assert len(runs) == 2


def test_a_broken_recording_is_refused_with_its_line(tmp_path):
    path = tmp_path / "calls.ndjson"
    path.write_text('\n{"name": "x"}\n')
    with pytest.raises(ToolError, match="line 2"):
        replay(path)


def test_a_span_carries_the_genai_names():
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry import trace as telemetry
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from forge.pipeline.trace import trace

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    telemetry.set_tracer_provider(provider)

    @tool
    def fails() -> str:
        """Fail."""
        raise ToolError("no")

    call_once(fails, trace())
    [span] = exporter.get_finished_spans()
    assert span.name == "execute_tool fails"
    assert {**(span.attributes or {})}.items() >= {"gen_ai.tool.name": "fails", "error.type": "user_error"}.items()
