"""Runs a tool in a process of its own, which a time-out really kills."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import pickle
import signal
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from forge.core.context import Scope, ToolContext
from forge.core.errors import DefinitionError, ErrorKind, ToolError
from forge.core.messages import ToolCall
from forge.core.result import ToolResult
from forge.core.tool import FunctionTool, Tool

LONGEST_LINE = 512 * 1024 * 1024  # bytes of one message from the child
_PARENT_DIES = 1  # Linux: PR_SET_PDEATHSIG


async def run_isolated(tool: Tool, arguments: Mapping[str, Any], ctx: ToolContext) -> ToolResult:
    """Start a fresh interpreter, run the tool there, kill its whole group when this coroutine is cancelled."""
    work = _packed(tool, arguments, ctx)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", "from forge.process.isolated import child; child()"),
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
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(ConnectionError):
        process.stdin.write(work)
        await process.stdin.drain()
        process.stdin.close()
    while line := await process.stdout.readline():
        message = json.loads(line)
        match message["kind"]:
            case "output":
                ctx.output(message["text"])
            case "progress":
                ctx.progress(message["title"], **message["data"])
            case "result":
                return ToolResult.from_dict(message["result"])
    code = await process.wait()
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    raise ToolError(f"its process {how} before it gave a result", ErrorKind.SYSTEM, "See its error output.")


def child() -> None:
    """The other side: reads the work from standard input, writes messages to standard output."""
    _die_with_parent()
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the tool prints goes to the error output

    def send(kind: str, **message: Any) -> None:
        out.write(json.dumps({"kind": kind, **message}) + "\n")
        out.flush()

    work = json.loads(sys.stdin.buffer.read())
    result = asyncio.run(_work(work, send))
    send("result", result=result.to_dict())
    os._exit(0)  # whatever the tool left running ends with it


async def _work(work: dict[str, Any], send: Callable[..., None]) -> ToolResult:
    call = ToolCall(work["name"], work["arguments"], work["id"])
    try:
        tool = _found(work)
        scope = Scope(**{**work["scope"], "workspace": _path(work["scope"]["workspace"])})
        ctx = _ChildContext(call, tool, {}, scope)
        ctx.send = send
        return await tool.invoke(tool.parse(call.arguments), ctx)
    except BaseException as error:  # the parent gets a result, whatever happens here
        return ToolResult.failed(error, during=call.name)


class _ChildContext(ToolContext):
    __slots__ = ("send",)
    send: Callable[..., None]

    def output(self, text: str) -> None:
        self.send("output", text=text)

    def progress(self, title: str, **data: Any) -> None:
        self.send("progress", title=title, data=data)


def _packed(tool: Tool, arguments: Mapping[str, Any], ctx: ToolContext) -> bytes:
    from pydantic_core import to_json

    scope = {name: getattr(ctx.scope, name) for name in Scope.__dataclass_fields__}
    work = {"name": ctx.call.name, "id": ctx.call.id, "arguments": arguments, "scope": scope, **_reference(tool)}
    return to_json(work)


def _reference(tool: Tool) -> dict[str, str]:
    """How the other process finds the tool: by import for functions, by pickle for objects."""
    if isinstance(tool, FunctionTool):
        module, name = tool.run.__module__, tool.run.__qualname__
        return {"module": module, "file": getattr(sys.modules.get(module), "__file__", "") or "", "attribute": name}
    try:
        return {"pickle": b64encode(pickle.dumps(tool)).decode()}
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise DefinitionError(
            f"tool {tool.spec.name!r}: isolate=True needs an object that can be pickled: {error}"
        ) from None


def _found(work: dict[str, Any]) -> Tool:
    if "pickle" in work:
        made: Tool = pickle.loads(b64decode(work["pickle"]))  # noqa: S301 - it comes from our own parent process
        return made
    if work["module"] == "__main__":
        import runpy

        names = runpy.run_path(work["file"], run_name="__forge_isolated__")
        found: Any = names[work["attribute"].partition(".")[0]]
    else:
        found = getattr(import_module(work["module"]), work["attribute"].partition(".")[0])
    return found if isinstance(found, Tool) else FunctionTool(found, {"name": work["name"]})


def _path(text: str) -> Any:
    from pathlib import Path

    return Path(text)


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PARENT_DIES, signal.SIGKILL, 0, 0, 0)
