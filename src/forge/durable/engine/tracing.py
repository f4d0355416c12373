"""Continues traces across machines: the spans of a run's segments belong to the span in which the run was submitted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from forge.durable.store.rows import Outcome, RunInfo
from forge.pipeline.trace import AGENT, find_telemetry, run_operation


def carrier() -> dict[str, str]:
    """Returns the current span, as the parent of a run; empty if there is none.

    Only the trace, in its own format: baggage may be private, and the resuming worker may use other formats.
    """
    found: dict[str, str] = {}
    if find_telemetry() is not None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        TraceContextTextMapPropagator().inject(found)
    return found


@contextmanager
def segment_span(run: RunInfo, worker: str) -> Iterator[Callable[[Outcome], None]]:
    """Makes a span around the work on a segment; yields a function that records its outcome."""
    attributes = {
        "gen_ai.agent.name": run.agent,
        "gen_ai.conversation.id": run.session or run.id,
        "forge.run.id": run.id,
        "forge.run.segment": run.segment,
        "forge.worker": worker,
    }
    with run_operation(AGENT, run.agent, attributes, parent=lambda: _parent(run.carrier)) as operation:

        def record_outcome(outcome: Outcome) -> None:
            operation.set("forge.run.status", outcome.status)
            if outcome.status == "failed":
                operation.fail(str((outcome.result or {}).get("reason") or "error"))

        yield record_outcome


def _parent(carried: Mapping[str, str]) -> Any:
    """Returns the caller's span, never one of the worker's own."""
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    words = {str(name): str(value) for name, value in carried.items()}
    return TraceContextTextMapPropagator().extract(words, Context())
