"""The variables of OpenTelemetry set up what a command exports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.cli.conftest import start
from tests.cli.scripts import call, script


def run(workspace: Path, **variables: Any) -> tuple[int, str, str]:
    model = script(workspace, call("math_calculate", expression="6*7"), "42")
    process = start(workspace, "run", "What is six times seven?", "--model", model, "--quiet", **variables)
    out, err = process.communicate(timeout=60)
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
