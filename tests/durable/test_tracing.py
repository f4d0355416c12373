"""Spans of a run belong to the trace of whoever asked, whichever machine works on it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from forge.agent.agent import Agent
from forge.core.messages import Message, ToolCall, Usage
from forge.core.provider import ModelRequest, ProviderError
from forge.core.tool import tool
from forge.durable.engine.tracing import carrier, segment_span
from forge.durable.store import RunStore
from forge.durable.store.rows import NewRun, Outcome
from tests import programs
from tests.durable.working import answered, begun, rested, script, working

telemetry = pytest.importorskip("opentelemetry.trace")
sdk = pytest.importorskip("opentelemetry.sdk.trace")
export = pytest.importorskip("opentelemetry.sdk.trace.export")
in_memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")

PROCESS = Path(__file__).with_name("_traced.py")
ROOT = Path(__file__).parents[2]

Spans = Callable[[], Sequence[Any]]


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Spans:
    exporter = in_memory.InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    monkeypatch.setattr(telemetry, "get_tracer", provider.get_tracer)
    found: Spans = exporter.get_finished_spans
    return found


@tool(permissions={"write"})
def pay(name: str) -> str:
    """Pay something to somebody by name."""
    return f"paid {name}"


PAY = ToolCall("pay", {"name": "Ada"}, "p")


async def test_segments_turns_and_calls_are_one_trace(sqlite: str, tmp_path: Path, spans: Spans) -> None:
    agent = Agent(script(PAY, "done"), tools=[pay])
    async with working(sqlite, agent, tmp_path) as worker:
        with telemetry.get_tracer("asker").start_as_current_span("the question") as asking:
            carried = carrier()
        await begun(worker, carrier=carried)
        await rested(worker)
        run = await answered(worker, {"kind": "once"})
        assert run.status == "finished"
    assert len({span.context.trace_id for span in spans()}) == 1
    segments = [span for span in spans() if span.name == "invoke_agent main"]
    assert [span.attributes["forge.run.segment"] for span in segments] == [1, 2]
    assert [span.attributes["forge.run.status"] for span in segments] == ["waiting", "finished"]
    assert {span.parent.span_id for span in segments} == {asking.get_span_context().span_id}
    within = {span.context.span_id: span.attributes["forge.run.segment"] for span in segments}
    inner = [
        (span.name, within[span.parent.span_id]) for span in spans() if span.parent and span.parent.span_id in within
    ]
    assert inner == [("chat", 1), ("execute_tool pay", 1), ("execute_tool pay", 2), ("chat", 2)]
    waited, paid = (span for span in spans() if span.name == "execute_tool pay")
    assert waited.attributes["forge.waits_for"] == "approval"
    assert waited.status.is_ok
    assert "forge.waits_for" not in paid.attributes


@pytest.mark.parametrize("content", [False, True])
async def test_content_is_in_the_spans_of_a_stored_run_only_on_request(
    sqlite: str, tmp_path: Path, spans: Spans, content: bool
) -> None:
    agent = Agent(script("done, sword-of-damocles"), secrets=["sword-of-damocles"], trace_content=content)
    async with working(sqlite, agent, tmp_path) as worker:
        await begun(worker)
        await rested(worker)
    (known,) = (dict(span.attributes) for span in spans() if span.name == "chat")
    assert ("gen_ai.input.messages" in known) is content
    if content:
        assert json.loads(known["gen_ai.output.messages"])[0]["parts"][0]["content"] == "done, [secret]"
        assert json.loads(known["gen_ai.input.messages"])[-1]["role"] == "user"


@pytest.mark.slow
def test_two_processes_go_on_with_the_trace_of_a_third(sqlite: str, tmp_path: Path, spans: Spans) -> None:
    with telemetry.get_tracer("asker").start_as_current_span("the question") as asking:
        carried = carrier()
    with RunStore(sqlite) as store:
        store.prepare()
        store.create(NewRun(id="r", version="0", prompt="go", messages=(Message("user", "go"),), carrier=carried))
        _worked(sqlite, tmp_path, "one")
        (question,) = store.questions("r")
        store.answer(question.id, {"kind": "once"}, "me")
        store.advance("r")
        _worked(sqlite, tmp_path, "two")
        assert store.get("r").status == "finished"
    rows = [json.loads(line) for line in (tmp_path / "spans").read_text().splitlines()]
    ours = [row for row in rows if row["trace"] == asking.get_span_context().trace_id]
    assert {row["name"] for row in rows if row not in ours} == {"the worker's own"}
    assert [(row["name"], row["worker"]) for row in ours if row["name"].startswith("invoke_agent")] == [
        ("invoke_agent main", "one"),
        ("invoke_agent main", "two"),
    ]
    known = {asking.get_span_context().span_id, *(row["id"] for row in ours)}
    assert all(row["parent"] in known for row in ours)
    assert {row["name"] for row in ours if row["worker"] == "two"} == {"invoke_agent main", "chat", "execute_tool pay"}


async def test_without_an_asker_a_run_has_a_trace_of_its_own(sqlite: str, tmp_path: Path, spans: Spans) -> None:
    with telemetry.get_tracer("worker").start_as_current_span("the worker's own"):
        async with working(sqlite, Agent(script("hi")), tmp_path) as worker:
            await begun(worker)
            await rested(worker)
    (segment,) = (span for span in spans() if span.name.startswith("invoke_agent"))
    assert segment.parent is None


async def test_a_model_that_fails_is_seen_without_its_words(sqlite: str, tmp_path: Path, spans: Spans) -> None:
    def turn(request: ModelRequest) -> object:
        raise ProviderError("the key hunter2 is not valid")

    async with working(sqlite, Agent(script(turn)), tmp_path) as worker:
        await begun(worker, carrier={"traceparent": "nonsense"})
        await rested(worker)
    chat, segment = spans()
    assert chat.attributes["error.type"].endswith("_error")
    assert not chat.status.is_ok
    assert segment.attributes["forge.run.status"] == "failed"
    assert not segment.status.is_ok
    assert "hunter2" not in "".join(span.to_json() for span in spans())


async def test_tokens_are_told(sqlite: str, tmp_path: Path, spans: Spans) -> None:
    said = Message("assistant", "Done.", usage=Usage(input=3, output=5))
    async with working(sqlite, Agent(script(lambda _: said)), tmp_path) as worker:
        await begun(worker)
        await rested(worker)
    told = dict(spans()[0].attributes)
    assert (told["gen_ai.usage.input_tokens"], told["gen_ai.usage.output_tokens"]) == (3, 5)


def test_nothing_is_carried_where_nobody_traces(monkeypatch: pytest.MonkeyPatch, sqlite: str) -> None:
    assert carrier() == {}  # no span is current
    monkeypatch.delitem(sys.modules, "opentelemetry.trace")
    assert carrier() == {}
    with RunStore(sqlite) as store:
        store.prepare()
        run = store.create(NewRun(id="r"))
    with segment_span(run, "w") as tell:
        tell(Outcome(status="failed", messages=(), spent={}))
    assert "opentelemetry.trace" not in sys.modules


def _worked(database: str, place: Path, name: str) -> None:
    command = [sys.executable, str(PROCESS), database, str(place), name]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    programs.run(command, timeout=120, check=True, env=environment)
