"""A worker process for tests of tracing: `python _traced.py DATABASE DIRECTORY`.

It works until its run waits or is over, and writes down the spans that it ended.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from forge.agent.agent import Agent
from forge.core.messages import ToolCall
from forge.core.tool import tool
from tests.durable.working import rested, script, working

DIRECTORY = Path(sys.argv[2])


class File(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with (DIRECTORY / "spans").open("a") as file:
            for span in spans:
                about = span.get_span_context()
                assert about is not None
                row = {"name": span.name, "trace": about.trace_id, "id": about.span_id, "worker": sys.argv[3]}
                row["parent"] = span.parent.span_id if span.parent is not None else None
                file.write(json.dumps(row) + "\n")
        return SpanExportResult.SUCCESS


@tool(permissions={"write"})
def pay(name: str) -> str:
    """Pay something to somebody by name."""
    return f"paid {name}"


async def main() -> None:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(File()))
    trace.set_tracer_provider(provider)
    agent = Agent(script(ToolCall("pay", {"name": "Ada"}, "p"), "done"), tools=[pay])
    with provider.get_tracer("worker").start_as_current_span("the worker's own"):
        async with working(sys.argv[1], agent, DIRECTORY) as worker:
            await worker.engine.context.start_segment(worker.store.get("r"))
            await rested(worker)


asyncio.run(main())
