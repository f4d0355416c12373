"""The tools that the tests of every export export."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any

from forge import Attachment, Tool, ToolContext, ToolError, ToolResult, tool

PIXEL = b"\x89PNG\r\n\x1a\n"
USER: ContextVar[str] = ContextVar("USER", default="nobody")


@tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


TAKEN = {"config": "a", "run_manager": "b", "self": "c", "kwargs": [1], "callbacks": "d", "name": "e", "ctx": "f"}
describe = Tool.from_schema(
    "describe",
    "Describe parameters whose names other frameworks use themselves.",
    {"type": "object", "properties": {name: {} for name in TAKEN}, "required": list(TAKEN)},
    lambda **arguments: arguments,
)


@tool
def broken(reason: str) -> str:
    """Fail for a reason."""
    raise ToolError(reason, suggestion="Try something else.")


@tool(permissions={"execute"}, target="service")
def deploy(service: str) -> str:
    """Deploy a service to production."""
    return f"{service} is live"


@tool
def draw() -> ToolResult:
    """Draw a picture."""
    return ToolResult(for_llm="a pixel", title="Pixel", attachments=(Attachment("image/png", PIXEL, "pixel.png"),))


@tool
async def where(ctx: ToolContext) -> dict[str, Any]:
    """Say who calls, and on which loop."""
    return {
        "session": ctx.scope.session_id,
        "turn": ctx.scope.message_id,
        "call": ctx.call.id,
        "user": USER.get(),
        "loop": id(asyncio.get_running_loop()),
    }


@tool(hidden=True)
def secret_door() -> str:
    """Open the secret door."""
    return "open"


def all_tools() -> list[Tool]:
    return [add, describe, broken, deploy, draw, where, secret_door]
