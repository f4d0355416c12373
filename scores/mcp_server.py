"""The MCP server that the conformance kit tests: Forge's own server with the tools the kit asks for.

Started as `python -m scores.mcp_server PORT`. Everything here uses only the public API.
"""

from __future__ import annotations

import asyncio
import sys
from base64 import b64decode
from socket import socket
from typing import Any

from forge import Attachment, Scope, Tool, ToolContext, ToolError, ToolResult, tool
from forge.mcp.server import ElicitingApprover, mcp_app
from forge.network.serve import serve_app
from forge.pipeline import standard_executor
from scores.mcp_data import PROMPTS, RESOURCES, red_pixel, test_trigger_prompt_change
from scores.mcp_questions import TOOLS as QUESTIONS
from scores.mcp_tasks import TOOLS as TASKS

TOKEN = "conformance"
# the smallest wave file: a header, and no samples
WAVE = b64decode("UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=")
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


@tool
def test_simple_text() -> str:
    """Return a text."""
    return "This is a simple text response for testing."


@tool
def test_image_content() -> ToolResult:
    """Return an image."""
    return ToolResult(for_llm="", attachments=(Attachment("image/png", red_pixel(), "pixel.png"),))


@tool
def test_audio_content() -> ToolResult:
    """Return a sound."""
    return ToolResult(for_llm="", attachments=(Attachment("audio/wav", WAVE, "silence.wav"),))


@tool
def test_embedded_resource() -> ToolResult:
    """Return a file."""
    content = b"This is an embedded resource content."
    return ToolResult(for_llm="", attachments=(Attachment("text/plain", content, "embedded.txt"),))


@tool
def test_multiple_content_types() -> ToolResult:
    """Return a text, an image and a file."""
    image = Attachment("image/png", red_pixel(), "pixel.png")
    file = Attachment("application/json", b'{"test": "data", "value": 123}', "mixed.json")
    return ToolResult(for_llm="Multiple content types test:", attachments=(image, file))


@tool
def test_error_handling() -> str:
    """Fail."""
    raise ToolError("This tool intentionally returns an error for testing")


@tool
async def test_tool_with_progress(ctx: ToolContext) -> str:
    """Report progress three times."""
    for done in (0, 50, 100):
        ctx.progress(f"{done} of 100", done=done, total=100)
        await asyncio.sleep(0.05)
    return "done"


@tool
async def test_tool_with_logging(ctx: ToolContext) -> str:
    """Log three lines."""
    for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        ctx.log(line)
        await asyncio.sleep(0.05)
    return "done"


@tool
def add_numbers(a: float, b: float) -> str:
    """Add two numbers."""
    return f"{a + b:g}"


HEADERS = {
    "type": "object",
    "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
    "required": ["region"],
}


@tool
def test_logging_tool(ctx: ToolContext) -> str:
    """Log a line."""
    ctx.log("A line for the log")
    return "done"


async def main(port: int) -> None:
    tools: list[Any] = [
        test_simple_text,
        test_image_content,
        test_audio_content,
        test_embedded_resource,
        test_multiple_content_types,
        test_error_handling,
        test_tool_with_progress,
        test_tool_with_logging,
        add_numbers,
        Tool.from_schema("json_schema_2020_12_tool", "A tool with a schema of draft 2020-12.", SCHEMA, str),
        Tool.from_schema("test_custom_headers", "A tool with a parameter in a header.", HEADERS, str),
        test_logging_tool,
        test_trigger_prompt_change,
        *QUESTIONS,
        *TASKS,
    ]
    executor = standard_executor(tools, approve=ElicitingApprover())

    @tool
    def test_trigger_tool_change() -> str:
        """Add a tool, or remove the one that was added."""
        if "added_tool" in executor.registry:
            executor.registry.remove("added_tool")
            return "removed"
        executor.registry.add(Tool.from_schema("added_tool", "A tool that was added.", {"type": "object"}, str))
        return "added"

    executor.registry.add(test_trigger_tool_change)
    application = mcp_app(executor, Scope(), TOKEN, version="scores", resources=RESOURCES, prompts=PROMPTS)

    async def with_token(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            scope["headers"] = [*scope["headers"], (b"authorization", f"Bearer {TOKEN}".encode())]
        await application(scope, receive, send)

    with socket() as listening:
        listening.bind(("127.0.0.1", port))
        listening.listen()
        ready = f"listening on {listening.getsockname()[1]}"
        await serve_app(with_token, listening, lambda: print(ready, flush=True), lifespan="on")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
