"""The example that `forge tool describe` shows is a call that works, once what it names is there."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from forge import Scope, ToolCall, ToolRegistry, rules
from forge.core.arguments.example import example_arguments
from forge.pipeline import standard_executor
from forge.tools import built_ins
from forge.tools.cli_execute import CliExecute
from forge.tools.test_runner import TestRunner

REGISTRY = ToolRegistry()
REGISTRY.add(*built_ins(REGISTRY))
REGISTRY.add(CliExecute(["cat"]), TestRunner(env_passthrough=["PYTEST_DISABLE_PLUGIN_AUTOLOAD"]), replace=True)
ELSEWHERE = {"bash_output", "bash_kill", "http_request", "web_fetch", "web_search", "webhook_call"}
"""They need a job or a server, and their own tests have one."""
OF_A_PROJECT = "memory_search memory_write schedule_history schedule_list schedule_set".split()
POLICY = rules("allow read", "allow write", "allow execute")


@pytest.mark.parametrize("name", sorted(set(REGISTRY) - ELSEWHERE))
def test_the_example_of_a_built_in_tool_works(name, tmp_path, monkeypatch):
    arguments = example_arguments(REGISTRY[name].spec.parameters)
    executor = standard_executor(REGISTRY, policy=POLICY)

    def call(tool: str, given: dict[str, Any]):
        return asyncio.run(executor.execute(ToolCall(tool, given), Scope(workspace=tmp_path)))

    if name in ("file_read", "file_edit"):
        (tmp_path / arguments["path"]).write_text(arguments.get("old_text", "Hello\n"))
        assert call("file_read", {"path": arguments["path"]}).success
        executor.clear_turn()
    if name == "test_runner":  # the Python on PATH may have no pytest
        monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.delenv("VIRTUAL_ENV", raising=False)
        # The sandbox hides the code of some plugins, ours among them. Which ones are installed depends on the machine.
        monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        (tmp_path / "pytest.ini").write_text("[pytest]\n")
        (tmp_path / "test_it.py").write_text("def test_it():\n    pass\n")
    result = call(name, arguments)
    assert result.success, result.for_llm


@pytest.mark.parametrize("name", OF_A_PROJECT)
def test_the_example_of_a_tool_of_a_project_works(name, bench):
    arguments = example_arguments(bench.registry[name].spec.parameters)
    result = bench.call(name, **arguments)
    assert result.success, result.for_llm
