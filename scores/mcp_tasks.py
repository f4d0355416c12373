"""Tools for the conformance kit that continue in the background, as tasks."""

from __future__ import annotations

import asyncio
from typing import Any

from forge import Tool, ToolContext, ToolError, ToolResult, tool
from scores.mcp_questions import NAME

CONFIRM = {"type": "object", "properties": {"confirm": {"type": "boolean"}}, "required": ["confirm"]}
BOTH = {"type": "object", "properties": {"name": {"type": "string"}, "confirm": {"type": "boolean"}}}


@tool
def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello, {name}!"


@tool
async def slow_compute(ctx: ToolContext, seconds: float = 1, label: str = "") -> ToolResult:
    """Compute for some seconds."""

    async def work() -> str:
        await asyncio.sleep(seconds)
        return f"{label} took {seconds:g} s"

    return ctx.background(work, "The computation has started.")


@tool
async def failing_job(ctx: ToolContext) -> ToolResult:
    """Fail after a second. Its client must follow tasks."""
    assert ctx.client is not None
    ctx.client.require("tasks")

    async def work() -> str:
        await asyncio.sleep(1)
        raise ToolError("The job failed, as it should.")

    return ctx.background(work, "The job has started.")


@tool
async def protocol_error_job(ctx: ToolContext) -> ToolResult:
    """Break after a moment."""

    async def work() -> str:
        await asyncio.sleep(0.2)
        raise RuntimeError("it broke")

    return ctx.background(work, "The job has started.")


@tool
async def confirm_delete(filename: str, ctx: ToolContext) -> ToolResult:
    """Ask, then pretend to delete a file."""

    async def work() -> str:
        answer = await ctx.ask(f"Delete {filename}?", CONFIRM)
        return f"{filename}: {'deleted' if answer and answer['confirm'] else 'kept'}"

    return ctx.background(work, "Waiting for an answer.")


@tool
async def multi_input(ctx: ToolContext) -> ToolResult:
    """Ask two questions at once."""

    async def work() -> str:
        answers = await asyncio.gather(ctx.ask("What is your name?", BOTH), ctx.ask("And the other one?", BOTH))
        return str(answers)

    return ctx.background(work, "Waiting for answers.")


@tool
async def test_tool_with_task(ctx: ToolContext) -> ToolResult:
    """Ask for a name, then continue as a task."""
    answer = await ctx.ask("What is your name?", NAME, key="user_name")

    async def work() -> str:
        await asyncio.sleep(0.2)
        return f"Hello, {answer['name'] if answer else 'nobody'}!"

    return ctx.background(work, "Greeting in the background.")


TOOLS: list[Tool | Any] = [
    greet,
    slow_compute,
    failing_job,
    protocol_error_job,
    confirm_delete,
    multi_input,
    test_tool_with_task,
]
