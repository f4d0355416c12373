"""OpenTelemetry spans that continue across machines: the asker's, then those of the run's segments and model turns.

Nothing happens unless an application has imported OpenTelemetry. The names are those of the GenAI conventions, which
are still incubating; spans of tools are made by the pipeline.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from forge.agent.wire import import_message
from forge.durable.store.rows import Outcome, RunInfo

AGENT = "invoke_agent"
CHAT = "chat"


def carrier() -> dict[str, str]:
    """The span that is current here, for a run to belong to; empty where there is none.

    Only the trace, in its own format: what an application calls baggage may be private, and whoever goes on with the
    run may have set up other formats.
    """
    found: dict[str, str] = {}
    if _telemetry() is not None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        TraceContextTextMapPropagator().inject(found)
    return found


@contextmanager
def segment_span(run: RunInfo, worker: str) -> Iterator[Callable[[Outcome], None]]:
    """Around the work on a segment, wherever it is done; told its outcome."""
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
    """Around a turn of the model; told what is recorded of it: its message, or the error that came instead."""
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
        record_exception=False,  # its text may hold a secret that nobody has masked
        set_status_on_exception=False,
    )
    with starting as span:
        try:
            yield span
        except BaseException as error:
            _mark_failed(span, type(error).__name__)
            raise


def _parent(carried: Mapping[str, str]) -> Any:
    """The asker's span, and never one of the worker's own: that is nobody's parent."""
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    words = {str(name): str(value) for name, value in carried.items()}
    return TraceContextTextMapPropagator().extract(words, Context())


def _mark_failed(span: Any, kind: str) -> None:
    telemetry = _telemetry()
    span.set_attribute("error.type", kind)
    span.set_status(telemetry.Status(telemetry.StatusCode.ERROR, kind))


def _telemetry() -> Any:
    """None: nobody has imported it, so nobody has set it up."""
    return sys.modules.get("opentelemetry.trace")
