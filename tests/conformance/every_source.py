"""The same tool from every place that tools come from: `say(text, seconds, lines)`."""

from __future__ import annotations

import asyncio
import atexit
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from forge import Tool, ToolCall, ToolContext, tool
from forge.core.registry import ToolSource
from forge.mcp import Stdio, mcp
from forge.mcp.client.source import McpSource
from forge.openapi import openapi
from forge.scripts.folder import scripts
from forge.webhooks import webhook
from tests.network.serving import Asked, Reply, serving

SERVER = Path(__file__).with_name("say_server.py")


@dataclass(frozen=True)
class Source:
    """Where the tool comes from, what it is called there, and how it is called."""

    name: str
    tools: list[Tool] | ToolSource
    arguments: Callable[[Mapping[str, Any]], dict[str, Any]] = dict

    def call(self, **arguments: Any) -> ToolCall:
        return ToolCall(self.name, self.arguments(arguments))


def said(text: str, seconds: float = 0, lines: int = 0) -> str:
    return "\n".join([text] * lines) if lines else text


def begin(text: str) -> None:
    """Shows that a call is running, if its text is the path of a file: that is written."""
    if text.startswith("/"):
        Path(text).touch()


@tool(permissions={"execute"})
async def say(text: str, seconds: float = 0, lines: int = 0) -> str:
    """Say a text."""
    begin(text)
    await asyncio.sleep(seconds)
    return said(text, seconds, lines)


class Say(Tool, permissions={"execute"}):
    """Say a text."""

    def run(self, text: str, ctx: ToolContext, seconds: float = 0, lines: int = 0) -> str:
        import time

        begin(text)
        until = time.monotonic() + seconds
        while time.monotonic() < until and not ctx.cancelled:
            time.sleep(0.01)
        return said(text, seconds, lines)


@asynccontextmanager
async def a_function(folder: Path) -> AsyncIterator[Source]:
    yield Source("say", [say])


@asynccontextmanager
async def a_class(folder: Path) -> AsyncIterator[Source]:
    yield Source("say", [Say()])


@asynccontextmanager
async def a_script(folder: Path) -> AsyncIterator[Source]:
    (folder / "tools").mkdir(exist_ok=True)
    (folder / "tools" / "say.py").write_text(
        '''"""
Tool: say
Description: Say a text.

Input:
  text (str): What to say.
  seconds (float) = 0: After so long.
  lines (int) = 0: So many lines of it.
"""
import json, sys, time
given = json.load(sys.stdin)
if given["text"].startswith("/"):
    open(given["text"], "w").close()
time.sleep(given.get("seconds", 0))
lines = given.get("lines", 0)
print("\\\\n".join([given["text"]] * lines) if lines else given["text"])
'''.replace("\\\\n", "\\n")
    )
    yield Source("say", scripts(root=folder, watch=False))


def _program(folder: Path) -> McpSource:
    return mcp(Stdio(sys.executable, [str(SERVER), "stdio"], cwd=folder, roots=[SERVER.parent]), name="say")


@asynccontextmanager
async def mcp_over_stdio(folder: Path) -> AsyncIterator[Source]:
    yield Source("say__say", _program(folder))


@cache
def http_server() -> str:
    """The URL of a server that is shared, since its start is most of what a test takes; it ends with this process."""
    process = subprocess.Popen(
        [sys.executable, str(SERVER), "http"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    atexit.register(process.wait)
    atexit.register(process.kill)  # before it is waited for
    assert process.stdout is not None
    with process.stdout as output:
        return output.readline().strip()


@asynccontextmanager
async def mcp_over_http(folder: Path) -> AsyncIterator[Source]:
    yield Source("say__say", mcp(http_server(), name="say"))


def answer(asked: Asked) -> Reply:
    given = json.loads(asked.body)
    begin(given["text"])
    body = json.dumps({"said": said(**given)}).encode()
    return Reply([lambda: asyncio.sleep(given.get("seconds", 0)), body], headers=[("Content-Type", "application/json")])


DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "say", "version": "1"},
    "paths": {
        "/say": {
            "post": {
                "operationId": "say",
                "requestBody": {
                    "required": True,
                    "content": {
                        "application/json": {
                            "schema": {
                                "type": "object",
                                "required": ["text"],
                                "properties": {
                                    "text": {"type": "string"},
                                    "seconds": {"type": "number"},
                                    "lines": {"type": "integer"},
                                },
                            }
                        }
                    },
                },
                "responses": {"200": {"description": "What was said."}},
            }
        }
    },
}
PARAMETERS = DOCUMENT["paths"]["/say"]["post"]["requestBody"]["content"]["application/json"]["schema"]


@asynccontextmanager
async def an_openapi_document(folder: Path) -> AsyncIterator[Source]:
    async with serving(answer) as server:
        yield Source("say__say", openapi(DOCUMENT, name="say", server=server.url))


@asynccontextmanager
async def a_webhook(folder: Path) -> AsyncIterator[Source]:
    async with serving(answer) as server:
        yield Source("say", [webhook("say", f"{server.url}/say", "Say a text.", parameters=PARAMETERS)])


@asynccontextmanager
async def mcp_call(folder: Path) -> AsyncIterator[Source]:
    from forge.mcp.client.mcp_call import McpCall

    server = _program(folder)

    def arguments(given: Mapping[str, Any]) -> dict[str, Any]:
        return {"server": "say", "tool_name": "say", "arguments": dict(given)}

    yield Source("mcp_call", [McpCall({"say": server})], arguments)


@asynccontextmanager
async def openapi_call(folder: Path) -> AsyncIterator[Source]:
    from forge.openapi.openapi_call import OpenapiCall

    async with serving(answer) as server:
        document = openapi(DOCUMENT, name="say", server=server.url)

        def arguments(given: Mapping[str, Any]) -> dict[str, Any]:
            return {"spec": "say", "operation_id": "say", "params": dict(given)}

        yield Source("openapi_call", [OpenapiCall({"say": document})], arguments)


@asynccontextmanager
async def a_langchain_tool(folder: Path) -> AsyncIterator[Source]:
    from langchain_core.tools import StructuredTool

    from forge.frameworks.langchain import from_langchain

    async def theirs(text: str, seconds: float = 0, lines: int = 0) -> str:
        """Say a text."""
        begin(text)
        await asyncio.sleep(seconds)
        return said(text, seconds, lines)

    yield Source("say", [from_langchain(StructuredTool.from_function(coroutine=theirs, name="say"))])


@asynccontextmanager
async def a_pydantic_ai_tool(folder: Path) -> AsyncIterator[Source]:
    from forge.frameworks.pydantic_ai import from_pydantic_ai

    async def say(text: str, seconds: float = 0, lines: int = 0) -> str:
        """Say a text."""
        begin(text)
        await asyncio.sleep(seconds)
        return said(text, seconds, lines)

    yield Source("say", [from_pydantic_ai(say)])


SOURCES = (
    a_function,
    a_class,
    a_script,
    mcp_over_stdio,
    mcp_over_http,
    an_openapi_document,
    a_webhook,
    mcp_call,
    openapi_call,
    a_langchain_tool,
    a_pydantic_ai_tool,
)


async def opened(source: Source, stack: AsyncExitStack) -> list[Tool]:
    if isinstance(source.tools, list):
        return source.tools
    return list(await stack.enter_async_context(source.tools))
