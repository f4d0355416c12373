"""Ordinary runs are traced and measured with the names of the GenAI conventions, where OpenTelemetry is set up."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from forge import Agent, AgentType, Image, Message, Scripted, ToolCall, Usage, load_project, tool
from forge.core.provider import ModelRequest, ProviderError
from forge.permissions.gate import approve_all
from forge.pipeline import trace as made

telemetry = pytest.importorskip("opentelemetry.trace")
sdk = pytest.importorskip("opentelemetry.sdk.trace")
export = pytest.importorskip("opentelemetry.sdk.trace.export")
in_memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
metrics = pytest.importorskip("opentelemetry.metrics")
measuring = pytest.importorskip("opentelemetry.sdk.metrics")
reading = pytest.importorskip("opentelemetry.sdk.metrics.export")

Spans = Callable[[], Sequence[Any]]


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Spans:
    exporter = in_memory.InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    monkeypatch.setattr(telemetry, "get_tracer", provider.get_tracer)
    found: Spans = exporter.get_finished_spans
    return found


@pytest.fixture
def points(monkeypatch: pytest.MonkeyPatch) -> Callable[[], dict[str, list[Any]]]:
    reader = reading.InMemoryMetricReader()
    provider = measuring.MeterProvider([reader])
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: provider)

    def read() -> dict[str, list[Any]]:
        (scope,) = reader.get_metrics_data().resource_metrics[0].scope_metrics
        return {one.name: list(one.data.data_points) for one in scope.metrics}

    return read


@tool
def stock(item: str) -> str:
    """Count an item."""
    return "three"


def model(*turns: Any) -> Scripted:
    made = Scripted(*turns)
    made.model, made.label = "small-1", "mistral"  # type: ignore[attr-defined]
    return made


def said(text: str) -> Message:
    return Message("assistant", text, usage=Usage(input=30, output=5), finish="stop")


def test_a_run_is_one_trace_of_its_agent_its_turns_and_its_calls(spans: Spans, points: Any) -> None:
    agent = Agent(model(ToolCall("stock", {"item": "cups"}), said("There are three.")), tools=[stock], name="clerk")
    assert agent.run_sync("How many?", session="s1").text == "There are three."
    first, call, second, whole = spans()
    assert [one.name for one in (first, call, second, whole)] == [
        "chat small-1",
        "execute_tool stock",
        "chat small-1",
        "invoke_agent clerk",
    ]
    assert {one.parent.span_id for one in (first, call, second)} == {whole.context.span_id}
    assert len({one.context.trace_id for one in spans()}) == 1
    assert second.kind is telemetry.SpanKind.CLIENT
    assert (
        dict(second.attributes).items()
        >= {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "mistral_ai",
            "gen_ai.request.model": "small-1",
            "gen_ai.usage.input_tokens": 30,
            "gen_ai.usage.output_tokens": 5,
            "gen_ai.response.finish_reasons": ("stop",),
        }.items()
    )
    told = dict(whole.attributes)
    assert (told["gen_ai.agent.name"], told["gen_ai.conversation.id"]) == ("clerk", "s1")
    assert told["forge.run.reason"] == "answer"
    found = points()
    kinds = {point.attributes["gen_ai.token.type"]: point.sum for point in found["gen_ai.client.token.usage"]}
    assert kinds["output"] >= 5
    durations = {
        point.attributes["gen_ai.operation.name"]: point.count for point in found["gen_ai.client.operation.duration"]
    }
    assert durations == {"chat": 2, "execute_tool": 1, "invoke_agent": 1}


def test_a_sub_agent_is_a_part_of_the_trace(spans: Spans) -> None:
    task = ToolCall("task", {"description": "look", "prompt": "Look.", "agent_type": "helper"})
    agent = Agent(
        model(task, "Done."),
        agents={"helper": AgentType(model=model(ToolCall("task_completion", {"result": "I looked."})))},
        approve=approve_all,
        name="main",
    )
    agent.run_sync("Go.")
    names = {one.context.span_id: one.name for one in spans()}
    parents = {one.name: names.get(one.parent.span_id) for one in spans() if one.parent is not None}
    assert parents["invoke_agent main/helper"] == "execute_tool task"
    assert len({one.context.trace_id for one in spans()}) == 1


def test_a_failure_is_seen_without_its_words(spans: Spans, points: Any) -> None:
    def turn(request: ModelRequest) -> object:
        raise ProviderError("the key hunter2 is not valid")

    assert Agent(model(turn)).run_sync("Go.").error is not None
    assert all(not one.status.is_ok for one in spans())
    assert "hunter2" not in "".join(one.to_json() for one in spans())
    assert all(
        point.attributes["error.type"].endswith("_error") for point in points()["gen_ai.client.operation.duration"]
    )


def test_a_cancelled_run_ends_its_spans(spans: Spans) -> None:
    async def main() -> None:
        waiting = asyncio.Event()

        @tool
        async def wait_long() -> str:
            """Wait."""
            waiting.set()
            await asyncio.Event().wait()
            return ""

        running = asyncio.ensure_future(Agent(model(ToolCall("wait_long", {})), tools=[wait_long]).run("Go."))
        await waiting.wait()
        running.cancel()
        await asyncio.wait([running])

    asyncio.run(main())
    assert [one.name.split()[0] for one in spans()] == ["chat", "execute_tool", "invoke_agent"]


def test_nothing_is_made_where_nobody_imported_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "opentelemetry.trace")
    monkeypatch.delitem(sys.modules, "opentelemetry.metrics")
    assert Agent(model("Hello.")).run_sync("Hi").text == "Hello."
    assert "opentelemetry.trace" not in sys.modules
    with made.chat_span(model("x")) as operation:
        assert not operation.is_traced


SECRET = "correct-horse-battery"


def attributes_of(spans: Spans, name: str) -> list[dict[str, Any]]:
    return [dict(one.attributes) for one in spans() if one.name == name]


@tool
def login(user: str, password: str) -> str:
    """Log in."""
    return f"{user} is in, with {SECRET} and {'x' * 100}"


def test_content_is_in_spans_only_on_request_and_without_secrets(spans: Spans) -> None:
    turns = (ToolCall("login", {"user": "ada", "password": "swordfish"}, "c1"), said(f"Done with {SECRET}."))
    plain = Agent(model(*turns), tools=[login], secrets=[SECRET], instructions="Be brief.")
    assert plain.run_sync(f"Log in, {SECRET}.").text
    everything = "".join(str(dict(one.attributes)) for one in spans())
    assert not [word for word in ("brief", "swordfish", "ada", "Done", "messages") if word in everything]

    traced = Agent(model(*turns), tools=[login], secrets=[SECRET], instructions="Be brief.", trace_content=True)
    assert traced.run_sync(f"Log in, {SECRET}.").text
    everything = "".join(str(dict(one.attributes)) for one in spans())
    assert SECRET not in everything
    assert "swordfish" not in everything  # under a key such as password, the whole value
    first, second = attributes_of(spans, "chat small-1")[2:]
    assert json.loads(first["gen_ai.input.messages"]) == [
        {"role": "user", "parts": [{"type": "text", "content": "Log in, [secret]."}]}
    ]
    (instructions,) = json.loads(first["gen_ai.system_instructions"])
    assert instructions["content"].startswith("Be brief.")
    (answer,) = json.loads(first["gen_ai.output.messages"])
    (part,) = answer["parts"]
    assert (answer["role"], part["type"], part["id"], part["name"]) == ("assistant", "tool_call", "c1", "login")
    assert (part["arguments"]["user"], part["arguments"]["password"]) == ("ada", "[secret]")
    response = json.loads(second["gen_ai.input.messages"])[-1]
    assert (response["role"], response["parts"][0]["type"], response["parts"][0]["id"]) == (
        *("tool", "tool_call_response", "c1"),
    )
    (last,) = json.loads(second["gen_ai.output.messages"])
    assert last == {
        "role": "assistant",
        "parts": [{"type": "text", "content": "Done with [secret]."}],
        "finish_reason": "stop",
    }
    *_, call = attributes_of(spans, "execute_tool login")
    assert json.loads(call["gen_ai.tool.call.arguments"])["user"] == "ada"
    assert call["gen_ai.tool.call.result"].startswith("ada is in, with [secret]")


def test_content_is_bounded_and_attachments_are_named_only(spans: Spans) -> None:
    history = [Message("user", f"{number} " + "word " * 1_000) for number in range(100)]
    agent = Agent(model(said("Fine.")), trace_content=True)
    agent.run_sync(["And now?", Image(b"\x89PNG\r\n\x1a\n" + b"\x00" * 50_000)], history=history)
    (chat,) = attributes_of(spans, "chat small-1")
    written = chat["gen_ai.input.messages"]
    assert len(written) < made.LARGEST_CONTENT + 1_000
    messages = json.loads(written)
    assert len(messages) + chat["forge.content.left_out"] == 101
    assert messages[-1]["parts"] == [
        {"type": "text", "content": "And now?"},
        {"type": "blob", "modality": "image", "mime_type": "image/png"},
    ]


def test_a_refused_call_and_steps_of_ones_own_have_content_too(spans: Spans) -> None:
    call = ToolCall("stock", {"item": 3.5}, "c1")
    agent = Agent(model(call, said("No.")), tools=[stock], trace_content=True, steps=lambda gate, secrets: [])
    agent.run_sync("Count.")
    (attributes,) = attributes_of(spans, "execute_tool stock")
    assert json.loads(attributes["gen_ai.tool.call.arguments"]) == {"item": 3.5}
    assert "gen_ai.tool.call.result" in attributes


@pytest.mark.parametrize("content", ["true", "false"])
def test_a_project_asks_for_content_in_its_file(spans: Spans, tmp_path: Path, content: str) -> None:
    (tmp_path / "forge.yaml").write_text(f"agent: {{trace_content: {content}}}")
    project = load_project(tmp_path, config=tmp_path / "forge.yaml")
    project.agent(model("Hello!")).run_sync("Hi.")
    (chat,) = attributes_of(spans, "chat small-1")
    assert ("gen_ai.input.messages" in chat) is (content == "true")
