"""The built-in tools behind a real executor, with a gate that notes what it is asked."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from forge.core.context import Scope, ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.chain import Next
from forge.core.executor import ToolExecutor
from forge.core.messages import ToolCall
from forge.core.registry import ToolRegistry
from forge.core.result import ToolResult
from forge.core.spec import Permission
from forge.core.tool import Tool
from forge.project.assemble.knowledge import active_skills
from forge.project.assemble.sources import Sources
from forge.project.assemble.tools import own_tools
from forge.project.config import Configuration
from forge.project.config.knowledge import MemoryEntry
from forge.tools import built_ins
from forge.tools.cli_execute import CliExecute

settings.register_profile("steady", deadline=None, derandomize=True, database=None)  # the same verdict every time
settings.load_profile("steady")


class NotingGate:
    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.open = True

    async def require(self, ctx: ToolContext, permission: Permission, target: str) -> None:
        self.asked.append((str(permission), target))
        if not self.open:
            raise ToolError("refused", ErrorKind.PERMISSION)


def of_a_project(workspace: Path) -> list[Tool]:
    """The built-in tools that are made for a project."""
    configuration = Configuration(memory=MemoryEntry(enabled=True))
    sources, scope = Sources(configuration, workspace, watch=False), Scope(workspace=workspace)
    return own_tools(configuration, workspace, sources, lambda: active_skills(configuration, scope))


class Bench:
    """Tools on a bench: `bench.call("math_calculate", expression="1 + 1")`."""

    def __init__(self, workspace: Path) -> None:
        self.registry = ToolRegistry()
        self.registry.add(*built_ins(self.registry), *of_a_project(workspace))
        self.registry.add(CliExecute(["cat"]), replace=True)
        self.gate = NotingGate()
        (workspace / "here.txt").write_text("one")
        self.scope = Scope(session_id="bench", workspace=workspace)
        self.executor = ToolExecutor(self.registry, [self._guard])

    def call(self, tool: str, /, **arguments: Any) -> ToolResult:
        return self.send(tool, arguments)

    def send(self, tool: str, arguments: dict[str, Any] | str) -> ToolResult:
        return asyncio.run(self.executor.execute(ToolCall(tool, arguments), self.scope))

    async def _guard(self, ctx: ToolContext, proceed: Next) -> ToolResult:
        return await proceed(ctx.replace(gate=self.gate))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture(scope="session")
def shared_bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """For tests that only look."""
    return Bench(tmp_path_factory.mktemp("bench"))


@pytest.fixture
def value(shared_bench: Bench):
    """What the model reads after a call that must succeed."""

    def read(tool: str, /, **arguments: Any) -> str:
        result = shared_bench.call(tool, **arguments)
        assert result.success, result.for_llm
        return result.for_llm

    return read


@pytest.fixture
def refusal(shared_bench: Bench):
    """The failure of a call that must fail."""

    def read(tool: str, /, **arguments: Any):
        result = shared_bench.call(tool, **arguments)
        assert result.failure is not None, result.for_llm[:200]
        return result.failure

    return read
