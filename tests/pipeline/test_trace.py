"""Spans: one a call, refused ones included, without any text of a failure."""

import asyncio

import pytest

from forge import Scope, ToolCall, ToolContext, ToolError, ToolResult, rules, tool
from forge.pipeline import standard_executor
from forge.pipeline.trace import TraceCalls
from tests.pipeline.calling import call_once, executor_of

telemetry = pytest.importorskip("opentelemetry.trace")
sdk = pytest.importorskip("opentelemetry.sdk.trace")
export = pytest.importorskip("opentelemetry.sdk.trace.export")
in_memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")


@pytest.fixture
def spans(monkeypatch):
    exporter = in_memory.InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    monkeypatch.setattr(telemetry, "get_tracer", provider.get_tracer)
    return exporter.get_finished_spans


@tool(permissions={"write"}, target="path")
async def save(path: str) -> str:
    """Save."""
    if path == "broken":
        raise ToolError("no")
    return path


def test_a_span_carries_the_genai_names(spans):
    @tool
    def fails() -> str:
        """Fail."""
        raise ToolError("no")

    call_once(fails, TraceCalls())
    [span] = spans()
    assert span.name == "execute_tool fails"
    assert {**(span.attributes or {})}.items() >= {"gen_ai.tool.name": "fails", "error.type": "user_error"}.items()


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"path": "a"}, None),
        ({"path": "broken"}, "user_error"),
        ({"path": "hunter2"}, "permission_error"),
        ({"path": 3.5}, "validation_error"),
        ("{", "validation_error"),
    ],
)
def test_every_call_has_one_span(spans, arguments, kind):
    executor = standard_executor([save], policy=rules("allow write", "deny write hunter2"))
    result = asyncio.run(executor.execute(ToolCall("save", arguments), Scope()))
    assert result.success is (kind is None)
    [span] = spans()
    assert span.attributes.get("error.type") == kind
    assert span.status.is_ok is (kind is None)


def test_no_text_of_an_exception_is_told(spans):
    async def broken(ctx, proceed):
        raise RuntimeError("the password is hunter2")

    call_once(save, TraceCalls(), broken, path="a")
    call_once(save, TraceCalls(), broken, path="b")
    assert len(spans()) == 2
    for span in spans():
        assert span.events == ()
        assert span.attributes["error.type"] == "system_error"
        assert "hunter2" not in span.to_json()


@pytest.mark.parametrize("number", [1, 13])
async def test_background_work_has_a_span_of_its_own_when_it_fails(spans, number):
    @tool
    async def later(ctx: ToolContext) -> ToolResult:
        """Later."""

        async def work() -> str:
            if number == 13:
                raise ToolError("unlucky")
            return "done"

        return ctx.background(work(), "started")

    executor = executor_of([later], TraceCalls())
    await executor.execute(ToolCall("later"), Scope())
    await executor.background.settled(10)
    await executor.background.settled(10)
    assert [span.attributes.get("error.type") for span in spans()] == [None, "user_error"][: 1 + (number == 13)]
