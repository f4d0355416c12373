"""Runs one call through chosen steps."""

import asyncio
from pathlib import Path

from forge import Scope, ToolCall, ToolRegistry, ToolResult
from forge.events import ActivityStream
from forge.pipeline import ToolExecutor

WORKSPACE = Path(__file__).parent


def executor_of(tools, *steps, activity=None) -> ToolExecutor:
    return ToolExecutor(ToolRegistry(tools), steps, activity)


def call_once(made, *steps, workspace=WORKSPACE, **arguments) -> ToolResult:
    """The result of one call through these steps alone."""
    executor = executor_of([made], *steps)
    return asyncio.run(executor.execute(ToolCall(made.spec.name, arguments), Scope(workspace=workspace)))


def events_of(executor: ToolExecutor) -> list:
    seen: list = []
    executor.activity.subscribe(seen.append)
    return seen


__all__ = ["ActivityStream", "call_once", "events_of", "executor_of"]
