"""The variables of OpenTelemetry set up what a command exports."""

from __future__ import annotations

import gzip
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.cli.conftest import start
from tests.cli.scripts import call, script


def run(workspace: Path, **variables: Any) -> tuple[int, str, str]:
    model = script(workspace, call("math_calculate", expression="6*7"), "42")
    process = start(workspace, "run", "What is six times seven?", "--model", model, "--quiet", **variables)
    out, err = process.communicate(timeout=150)
    return process.returncode, out.decode(), err.decode()


def test_a_run_exports_its_spans(workspace: Path) -> None:
    code, out, _ = run(workspace, OTEL_TRACES_EXPORTER="console", OTEL_SERVICE_NAME="shop")
    assert code == 0
    for part in ('"name": "invoke_agent', '"name": "execute_tool math_calculate"', '"service.name": "shop"'):
        assert part in out


def test_an_exporter_that_is_missing_is_said_and_the_command_works(workspace: Path) -> None:
    code, out, err = run(workspace, OTEL_TRACES_EXPORTER="nowhere")
    assert (code, out) == (0, "42\n")
    assert "no OpenTelemetry data is sent: the exporter 'nowhere' is missing: install" in err


def test_it_can_be_switched_off(workspace: Path, here: Any) -> None:
    code, out, err = run(workspace, OTEL_TRACES_EXPORTER="console", OTEL_SDK_DISABLED="true")
    assert (code, out, err) == (0, "42\n", "")


class _Collector(BaseHTTPRequestHandler):
    """Keeps what is posted, by path."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
        kept: Any = self.server
        kept.posted.append((self.path, self.headers["x-team"], body))
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


def test_a_run_sends_its_spans_and_metrics_to_a_collector(workspace: Path) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    with ThreadingHTTPServer(("127.0.0.1", 0), _Collector) as collector:
        posted: list[tuple[str, str, bytes]] = []
        vars(collector)["posted"] = posted
        thread = Thread(target=collector.serve_forever, daemon=True)
        thread.start()
        endpoint = f"http://127.0.0.1:{collector.server_port}"
        code, out, err = run(
            workspace,
            OTEL_EXPORTER_OTLP_ENDPOINT=endpoint,
            OTEL_EXPORTER_OTLP_HEADERS="x-team=shop",
            OTEL_SERVICE_NAME="shop",
        )
        collector.shutdown()
        thread.join()
    assert (code, out, err) == (0, "42\n", "")
    sent = {path: b"".join(body for one, _, body in posted if one == path) for path, _, _ in posted}
    assert sent.keys() == {"/v1/traces", "/v1/metrics"}
    assert {team for _, team, _ in posted} == {"shop"}
    for word in (b"invoke_agent", b"execute_tool math_calculate", b"service.name", b"shop"):
        assert word in sent["/v1/traces"], word
    assert b"gen_ai.client.operation.duration" in sent["/v1/metrics"]
    assert b"six times seven" not in sent["/v1/traces"], "prompts stay here"
