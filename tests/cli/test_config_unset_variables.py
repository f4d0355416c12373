"""A variable that is not set stops what needs it, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.scripts import script

LACKING = """
mcpServers: {docs: {url: 'https://docs.example.com/mcp', headers: {Authorization: 'Bearer ${NOBODY_SET_THIS}'}}}
webhooks: {notify: {url_env: NOR_THIS}}
tools: [{group: read}, math_calculate, 'docs__*', notify]
"""

CALL = ["tool", "call", "math_calculate", '{"expression": "6*7"}']


@pytest.fixture(autouse=True)
def _lacks(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NOBODY_SET_THIS", "NOR_THIS"):
        monkeypatch.delenv(name, raising=False)
    (workspace / "forge.yaml").write_text(LACKING)
    monkeypatch.setenv("FORGE_CONFIG", "forge.yaml")


@pytest.mark.parametrize(
    "arguments",
    [CALL, ["session", "list"], ["schedule", "list"], ["memory", "show"], ["audit"], ["skill", "list"],
     ["undo", "--list"], ["policy", "explain", "math_calculate", '{"expression": "1"}'], ["config", "show"]],
    ids=" ".join,
)  # fmt: skip
def test_what_needs_no_variable_does_without(here: Any, arguments: list[str]) -> None:
    ended = here(*arguments)
    assert "is not set" not in ended.err
    assert ended.code in (0, 1)


def test_a_list_of_tools_says_what_is_left_out(here: Any) -> None:
    ended = here("tool", "list", "--json")
    assert ended.code == 0
    assert "mcpServers.docs is left out: " in ended.err
    assert "the environment variable NOBODY_SET_THIS is not set. Set it before Forge starts" in ended.err
    assert "the environment variable NOR_THIS is not set" in ended.err


def test_what_needs_the_variable_is_refused(here: Any, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments in (
        ["tool", "call", "notify", "{}"],
        ["mcp", "list"],
        ["run", "go", "--model", script(workspace, "ok")],
    ):
        ended = here(*arguments)
        assert ended.code == 2, arguments
        assert "is not set" in ended.err
    monkeypatch.setenv("NOR_THIS", "https://hooks.example.com/x")
    assert "is not set" not in here("tool", "call", "notify", "{}", "--dry-run").err


def test_the_doctor_names_it(here: Any) -> None:
    checks = {one["check"]: one for one in here("doctor", "--json").json["checks"]}
    found = checks["mcpServers.docs"]
    assert found["status"] == "warning"
    assert "NOBODY_SET_THIS is not set" in found["detail"]
    assert "export NOBODY_SET_THIS=" in found["fix"]
