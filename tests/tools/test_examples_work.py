"""The example that `forge tool describe` shows is a call that works."""

import asyncio

import pytest

from forge import Scope, ToolCall, ToolRegistry, register_all
from forge.core.example import example_arguments
from forge.pipeline import standard_executor

REGISTRY = ToolRegistry()
register_all(REGISTRY)


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_the_example_of_a_built_in_tool_works(name, tmp_path):
    arguments = example_arguments(REGISTRY[name].spec.parameters)
    executor = standard_executor(REGISTRY)
    result = asyncio.run(executor.execute(ToolCall(name, arguments), Scope(workspace=tmp_path)))
    assert result.success, result.for_llm
