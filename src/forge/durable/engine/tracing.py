"""Makes OpenTelemetry spans that continue across machines: the caller's, then the run's segments and model turns.

Nothing happens unless an application has imported OpenTelemetry. The names are those of the GenAI conventions, which
are still incubating; spans of tools are made by the pipeline.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from forge.agent.message_json import import_message
from forge.durable.store.rows import Outcome, RunInfo

AGENT = "invoke_agent"
CHAT = "chat"


def carrier() -> dict[str, str]:
    """Returns the current span, as the parent of a run; empty if there is none.

    Only the trace, in its own format: baggage may be private, and the resuming worker may use other formats.
    """
    found: dict[str, str] = {}
    if _telemetry() is not None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        TraceContextTextMapPropagator().inject(found)
    return found


@contextmanager
def segment_span(run: RunInfo, worker: str) -> Iterator[Callable[[Outcome], None]]:
    """Makes a span around the work on a segment; yields a function that records its outcome."""
    attributes = {
        "gen_ai.operation.name": AGENT,
        "gen_ai.agent.name": run.agent,
        "gen_ai.conversation.id": run.session or run.id,
        "forge.run.id": run.id,
        "forge.run.segment": run.segment,
        "forge.worker": worker,
    }
    with _span(f"{AGENT} {run.agent}", attributes, lambda: _parent(run.carrier)) as span:

        def tell(outcome: Outcome) -> None:
            if span is not None:
                span.set_attribute("forge.run.status", outcome.status)
                if outcome.status == "failed":
                    _mark_failed(span, str((outcome.result or {}).get("reason") or "error"))

        yield tell


@contextmanager
def chat_span(model: str) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Makes a span around a turn of the model; yields a function that records its message or error."""
    attributes = {"gen_ai.operation.name": CHAT, **({"gen_ai.request.model": model} if model else {})}
    with _span(f"{CHAT} {model}".rstrip(), attributes) as span:

        def tell(recorded: Mapping[str, Any]) -> None:
            if span is None:
                return
            if "error" in recorded:
                _mark_failed(span, recorded["error"]["kind"])
                return
            usage = import_message(recorded["message"]).usage
            span.set_attribute("gen_ai.usage.input_tokens", usage.input)
            span.set_attribute("gen_ai.usage.output_tokens", usage.output)

        yield tell


@contextmanager
def _span(name: str, attributes: Mapping[str, Any], parent: Callable[[], Any] = lambda: None) -> Iterator[Any]:
    telemetry = _telemetry()
    if telemetry is None:
        yield None
        return
    starting = telemetry.get_tracer("forge").start_as_current_span(
        name,
        context=parent(),
        attributes=attributes,
        record_exception=False,  # its text may hold an unmasked secret
        set_status_on_exception=False,
    )
    with starting as span:
        try:
            yield span
        except BaseException as error:
            _mark_failed(span, type(error).__name__)
            raise


def _parent(carried: Mapping[str, str]) -> Any:
    """Returns the caller's span, never one of the worker's own."""
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    words = {str(name): str(value) for name, value in carried.items()}
    return TraceContextTextMapPropagator().extract(words, Context())


def _mark_failed(span: Any, kind: str) -> None:
    telemetry = _telemetry()
    span.set_attribute("error.type", kind)
    span.set_status(telemetry.Status(telemetry.StatusCode.ERROR, kind))


def _telemetry() -> Any:
    """Returns OpenTelemetry if an application has imported it, else None."""
    return sys.modules.get("opentelemetry.trace")
