"""The example that `forge tool describe` shows is a call that works, once what it names is there."""

from __future__ import annotations

import asyncio

import pytest

from forge import Scope, ToolCall, ToolRegistry, rules
from forge.core.example import example_arguments
from forge.pipeline import standard_executor
from forge.tools import built_ins

REGISTRY = ToolRegistry()
REGISTRY.add(*built_ins(REGISTRY))
NEEDS_A_JOB = {"bash_output", "bash_kill"}
POLICY = rules("allow read", "allow write", "allow execute")


@pytest.mark.parametrize("name", sorted(set(REGISTRY) - NEEDS_A_JOB))
def test_the_example_of_a_built_in_tool_works(name, tmp_path):
    arguments = example_arguments(REGISTRY[name].spec.parameters)
    executor = standard_executor(REGISTRY, policy=POLICY)

    def call(tool: str, given: object):
        return asyncio.run(executor.execute(ToolCall(tool, given), Scope(workspace=tmp_path)))

    if name in ("file_read", "file_edit"):
        (tmp_path / arguments["path"]).write_text(arguments.get("old_text", "Hello\n"))
        assert call("file_read", {"path": arguments["path"]}).success
        executor.clear_turn()
    result = call(name, arguments)
    assert result.success, result.for_llm
