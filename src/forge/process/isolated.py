"""Runs a tool in a process of its own, which a time-out really kills."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from forge.core.context import Scope, ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.executor import readable
from forge.core.result import ToolResult
from forge.core.tool import DeferredTool, Tool
from forge.process._shipped import packed

log = logging.getLogger("forge.tools")

LONGEST_LINE = 512 * 1024 * 1024  # bytes of one message from the child


async def run_isolated(tool: Tool, arguments: Mapping[str, Any], ctx: ToolContext) -> ToolResult:
    """Start a fresh interpreter, run the tool there, kill its whole group when this coroutine is cancelled."""
    work = _work(tool._now() if isinstance(tool, DeferredTool) else tool, arguments, ctx)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", "from forge.process.child import child; child()"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
        limit=LONGEST_LINE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    try:
        return await _talk(process, work, ctx)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # the child leads its own group: its children go too
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(process.wait())


async def _talk(process: asyncio.subprocess.Process, work: bytes, ctx: ToolContext) -> ToolResult:
    """One JSON object a line: the work and answers go in, events, questions and the result come out."""
    assert process.stdin is not None
    assert process.stdout is not None
    await _say(process.stdin, work)
    while line := await process.stdout.readline():
        message = json.loads(line)
        match message["kind"]:
            case "output":
                ctx.output(message["text"])
            case "progress":
                ctx.progress(message["title"], **message["data"])
            case "require":
                await _say(process.stdin, json.dumps(await _permitted(ctx, message)).encode())
            case "result":
                return _result(message)
            case "failed":
                return ToolResult.failed(_tool_error(message), during=readable(ctx.call))
            case "broken":
                return _broken(ctx, message)
    code = await process.wait()
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    raise ToolError(f"its process {how} before it gave a result", ErrorKind.SYSTEM, "See its error output.")


async def _say(stream: asyncio.StreamWriter, line: bytes) -> None:
    with contextlib.suppress(ConnectionError):  # it is gone: its exit code is told when nothing more comes from it
        stream.write(line + b"\n")
        await stream.drain()


async def _permitted(ctx: ToolContext, message: Mapping[str, Any]) -> dict[str, Any]:
    """The gate is here, and so is whoever is asked."""
    try:
        await ctx.require(message["permission"], message["target"])
    except ToolError as error:
        return {"refused": {"message": error.message, "error_kind": error.kind, "suggestion": error.suggestion}}
    return {"refused": None}


def _result(message: Mapping[str, Any]) -> ToolResult:
    result = ToolResult.from_dict(message["result"])
    if result.failure is not None:
        result.failure.passing = message["passing"]
    return result


def _tool_error(message: Mapping[str, Any]) -> ToolError:
    return ToolError(message["message"], message["error_kind"], message["suggestion"], passing=message["passing"])


def _broken(ctx: ToolContext, message: Mapping[str, Any]) -> ToolResult:
    """An exception nobody expected: told as if it had been raised here, or logged here and withheld."""
    kind = type(message["name"], (TimeoutError if message["is_timeout"] else Exception,), {})
    log_id = ""
    if not ctx.spec.expose_errors:
        log_id = uuid4().hex[:8]
        trace = ctx.activity.secrets.mask_all(message["trace"])
        log.error("error %s in %s, in its own process:\n%s", log_id, ctx.spec.name, trace)
    return ToolResult.failed(kind(message["words"]), during=readable(ctx.call), log_id=log_id)


def _work(tool: Tool, arguments: Mapping[str, Any], ctx: ToolContext) -> bytes:
    from pydantic_core import to_json

    defaults = tool._signature.defaults if hasattr(tool, "_signature") else {}
    sent = {key: value for key, value in arguments.items() if key not in defaults or value is not defaults[key]}
    scope = {name: getattr(ctx.scope, name) for name in Scope.__dataclass_fields__}
    work = {"name": ctx.call.name, "id": ctx.call.id, "scope": scope, "tool": packed(tool)}
    try:
        return to_json({**work, "arguments": sent})
    except ValueError as error:
        raise ToolError(f"its arguments cannot be sent to its own process: {error}", ErrorKind.CONFIG) from None
