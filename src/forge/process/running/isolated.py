"""Runs a tool in its own process, which a time-out really kills."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from forge.core.context import Scope, ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.context_transfer import capture_context
from forge.core.executor import render_call
from forge.core.held_directories import check_held
from forge.core.result import ToolResult
from forge.core.tool import DeferredTool, Tool
from forge.process.running.run import signal_name
from forge.process.running.shipped_tool import pack_tool, pack_values
from forge.process.running.slots import slots
from forge.process.running.supervisor import Program, start

log = logging.getLogger("forge.tools")

LONGEST_LINE = 512 * 1024 * 1024  # bytes of one message from the child


async def run_isolated(tool: Tool, arguments: Mapping[str, Any], ctx: ToolContext) -> ToolResult:
    """Starts a fresh interpreter, runs the tool there, and kills all its processes when this coroutine ends."""
    work = _encode_work(tool._initialise_now() if isinstance(tool, DeferredTool) else tool, arguments, ctx)
    async with slots:
        program = start(
            [sys.executable, "-P", "-c", "from forge.process.running.isolated_child import run_child; run_child()"],
            cwd=Path.cwd(),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
            reads=True,
            errors=2,
        )
        child = _Child(program)
        try:
            await child.connect()
            return await _converse(child, work, ctx)
        finally:
            try:
                program.stop(0.0)
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.shield(child.ended)
            finally:
                child.close()


class _Child:
    """The child process as two streams, and a future of its exit code, negative for a signal."""

    def __init__(self, program: Program) -> None:
        self._loop = asyncio.get_running_loop()
        self._program = program
        self._transports: list[asyncio.BaseTransport] = []
        self.output = asyncio.StreamReader(limit=LONGEST_LINE)
        self.ended: asyncio.Future[int | None] = self._loop.create_future()
        self._loop.add_reader(program.keeper.fileno(), self._receive)

    async def connect(self) -> None:
        program, loop = self._program, self._loop
        output, program.output = os.fdopen(program.output, "rb", 0), -1  # the transports close them
        given, program.given = os.fdopen(program.given, "wb", 0), -1
        reading, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(self.output), output)
        self._transports.append(reading)
        protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader())
        writing, _ = await loop.connect_write_pipe(lambda: protocol, given)
        self._transports.append(writing)
        self._input = asyncio.StreamWriter(writing, protocol, None, loop)

    async def send(self, line: bytes) -> None:
        with contextlib.suppress(ConnectionError):  # the child is gone: its exit code is reported when its output ends
            self._input.write(line + b"\n")
            await self._input.drain()

    def close(self) -> None:
        self._loop.remove_reader(self._program.keeper.fileno())
        for one in self._transports:
            one.close()
        self._program.close()

    def _receive(self) -> None:
        message = self._program.receive()
        if message is not None and not self.ended.done():
            self._loop.remove_reader(self._program.keeper.fileno())
            self.ended.set_result(message[1] if message[0] == "ended" else None)


async def _converse(child: _Child, work: bytes, ctx: ToolContext) -> ToolResult:
    """Exchanges one JSON object a line: sends the work and answers, receives events, questions and the result."""
    await child.send(work)
    while line := await child.output.readline():
        message = json.loads(line)
        match message["kind"]:
            case "output":
                ctx.output(message["text"])
            case "progress":
                ctx.progress(message["title"], **message["data"])
            case "require":
                await child.send(json.dumps(await _ask_permission(ctx, message)).encode())
            case "result":
                return _decode_result(message)
            case "failed":
                return ToolResult.failed(_decode_error(message), during=render_call(ctx.call))
            case "broken":
                return _unexpected_failure(ctx, message)
    code = await child.ended
    how = f"ended with exit code {code}" if code is None or code >= 0 else f"was killed by {signal_name(-code)}"
    raise ToolError(f"its process {how} before it gave a result", ErrorKind.SYSTEM, "See its error output.")


async def _ask_permission(ctx: ToolContext, message: Mapping[str, Any]) -> dict[str, Any]:
    """Asks the gate, which lives in this process, for a permission."""
    try:
        await ctx.require(message["permission"], message["target"])
    except ToolError as error:
        return {"refused": {"message": error.message, "error_kind": error.kind, "suggestion": error.suggestion}}
    return {"refused": None}


def _decode_result(message: Mapping[str, Any]) -> ToolResult:
    result = ToolResult.from_dict(message["result"])
    if result.failure is not None:
        result.failure.passing = message["passing"]
    return result


def _decode_error(message: Mapping[str, Any]) -> ToolError:
    return ToolError(message["message"], message["error_kind"], message["suggestion"], passing=message["passing"])


def _unexpected_failure(ctx: ToolContext, message: Mapping[str, Any]) -> ToolResult:
    """Builds the result of an unexpected exception: as if raised here, or logged here and withheld."""
    kind = type(message["name"], (TimeoutError if message["is_timeout"] else Exception,), {})
    log_id = ""
    if not ctx.spec.expose_errors:
        log_id = uuid4().hex[:8]
        trace = ctx.activity.secrets.mask_all(message["trace"])
        log.error("error %s in %s, in its own process:\n%s", log_id, ctx.spec.name, trace)
    return ToolResult.failed(kind(message["words"]), during=render_call(ctx.call), log_id=log_id)


def _encode_work(tool: Tool, arguments: Mapping[str, Any], ctx: ToolContext) -> bytes:
    from pydantic_core import to_json

    defaults = tool._signature.defaults if hasattr(tool, "_signature") else {}
    sent = {key: value for key, value in arguments.items() if key not in defaults or value is not defaults[key]}
    check_held((ctx.scope.workspace, *(root.path for root in ctx.scope.roots)))  # its process gets only their paths
    scope = {name: getattr(ctx.scope, name) for name in Scope.__dataclass_fields__ if name != "deps"}
    work = {"name": ctx.call.name, "id": ctx.call.id, "scope": scope, "tool": pack_tool(tool)}
    work["context"] = pack_values(capture_context())  # such as the egress rules, which must hold there too
    try:
        return to_json({**work, "arguments": sent})
    except ValueError as error:
        raise ToolError(f"its arguments cannot be sent to its own process: {error}", ErrorKind.CONFIG) from None
