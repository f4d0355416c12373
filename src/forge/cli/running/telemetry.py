"""Sets up OpenTelemetry for a command, as its own variables say, such as OTEL_EXPORTER_OTLP_ENDPOINT."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any

import click

COMMANDS = frozenset({"run", "worker", "serve", "console", "schedule", "runs"})  # those that run agents
_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
_PROTOCOLS = {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}
_INSTALL = "install opentelemetry-sdk and opentelemetry-exporter-otlp-proto-http into Forge's environment"


def start_telemetry(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> None:
    """Exports spans and metrics of this process if the variables of OpenTelemetry name an exporter.

    Does nothing if another program set it up, such as `opentelemetry-instrument`. A problem is printed; the command
    works without.
    """
    if not COMMANDS.intersection(arguments[:1]) or "opentelemetry.sdk" in sys.modules:
        return
    wanted = {kind: _exporters(kind, environment) for kind in ("traces", "metrics")}
    if not any(wanted.values()) or environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return
    try:
        _set_up_traces(wanted["traces"], environment)
        _set_up_metrics(wanted["metrics"], environment)
    except ImportError as error:
        _report(f"{error.name or error} is missing: {_INSTALL}")
    except Exception as error:  # whatever an exporter does with its variables
        _report(f"{type(error).__name__}: {error}")


def _exporters(kind: str, environment: Mapping[str, str]) -> list[str]:
    """Returns the names of the exporters; by default `otlp` where an endpoint is named."""
    own = f"OTEL_EXPORTER_OTLP_{kind.upper()}_ENDPOINT"
    default = "otlp" if environment.get(_ENDPOINT) or environment.get(own) else ""
    named = environment.get(f"OTEL_{kind.upper()}_EXPORTER") or default
    return [name.strip() for name in named.split(",") if name.strip() not in ("", "none")]


def _set_up_traces(names: Sequence[str], environment: Mapping[str, str]) -> None:
    if not names:
        return
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.trace import set_tracer_provider

    provider = TracerProvider(resource=_resource(environment))
    for name in names:
        provider.add_span_processor(BatchSpanProcessor(_load_exporter("traces", name, environment)))
    set_tracer_provider(provider)


def _set_up_metrics(names: Sequence[str], environment: Mapping[str, str]) -> None:
    if not names:
        return
    from opentelemetry.metrics import set_meter_provider
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    readers = [PeriodicExportingMetricReader(_load_exporter("metrics", name, environment)) for name in names]
    set_meter_provider(MeterProvider(readers, resource=_resource(environment)))


def _resource(environment: Mapping[str, str]) -> Any:
    from opentelemetry.sdk.resources import Resource

    named = environment.get("OTEL_SERVICE_NAME") or "service.name=" in environment.get("OTEL_RESOURCE_ATTRIBUTES", "")
    return Resource.create({} if named else {"service.name": "forge"})


def _load_exporter(kind: str, name: str, environment: Mapping[str, str]) -> Any:
    """Makes an exporter by its name, which its package registers. Raises `ImportError` if there is none."""
    protocol = environment.get(f"OTEL_EXPORTER_OTLP_{kind.upper()}_PROTOCOL") or environment.get(
        "OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"
    )
    wanted = _PROTOCOLS.get(protocol, protocol) if name == "otlp" else name
    for found in entry_points(group=f"opentelemetry_{kind}_exporter", name=wanted):
        return found.load()()
    raise ImportError(name=f"the exporter {wanted!r}")


def _report(problem: str) -> None:
    click.echo(f"forge: no OpenTelemetry data is sent: {problem}", err=True)
