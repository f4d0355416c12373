"""The other side of an isolated call: reads the work, runs the tool, writes what happens."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from traceback import format_exception
from typing import Any, NoReturn

from forge.core.context import Root, Scope, ToolContext, Work
from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.context_transfer import restore_context
from forge.core.execution.threads import in_thread
from forge.core.messages import ToolCall
from forge.core.plain_values import plain, text_of
from forge.core.result import ToolResult
from forge.core.spec import Permission, PermissionName
from forge.process.running.shipped_tool import unpacked, unpacked_values

_PARENT_DIES = 1  # Linux: PR_SET_PDEATHSIG


def child() -> None:
    """Never returns: when the result is sent, whatever the tool left running ends with this process."""
    _die_with_parent()
    asyncio.run(_serve(_Channel()))


class _Channel:
    """The pipes to the parent, out of the tool's way: it reads nothing, and what it prints is error output."""

    def __init__(self) -> None:
        self._answers = os.fdopen(os.dup(0), "rb")
        self._out = os.fdopen(os.dup(1), "wb")
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)
        self._writing = threading.Lock()
        self._asking = threading.Lock()

    def read(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self._answers.readline())
        return message

    def send(self, kind: str, **message: Any) -> None:
        line = json.dumps({"kind": kind, **message}).encode()
        with self._writing:
            self._out.write(line + b"\n")
            self._out.flush()

    def ask(self, kind: str, **message: Any) -> dict[str, Any]:
        with self._asking:  # one question at a time: answers come in order
            self.send(kind, **message)
            return self.read()


class _ChildContext(ToolContext):
    """Events and questions go to the parent, where the gate and the person are."""

    __slots__ = ("channel",)
    channel: _Channel

    def output(self, text: str) -> None:
        self.channel.send("output", text=text)

    def progress(self, title: str, **data: Any) -> None:
        self.channel.send("progress", title=title, data=plain(data))

    async def require(self, permission: Permission | PermissionName, target: str = "") -> None:
        wanted = str(Permission(permission))
        answer = await in_thread(lambda: self.channel.ask("require", permission=wanted, target=target))
        if refused := answer["refused"]:
            raise ToolError(refused["message"], refused["error_kind"], refused["suggestion"])

    def background(self, work: Work, note: str) -> ToolResult:
        if asyncio.iscoroutine(work):
            work.close()
        raise _not_here()

    def completion(self) -> Callable[[object], None]:
        raise _not_here()


async def _serve(channel: _Channel) -> NoReturn:
    work = channel.read()
    try:
        told = _told(await _run(work, channel))
    except BaseException as error:  # the parent hears of it, whatever it is
        told = _told_of(error)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    channel.send(**told)
    os._exit(0)


async def _run(work: Mapping[str, Any], channel: _Channel) -> ToolResult:
    restore_context(unpacked_values(work["context"]))
    tool = unpacked(work["tool"])
    said = work["scope"]
    roots = tuple(Root(Path(path), writable) for path, writable in said["roots"])
    scope = Scope(**{**said, "workspace": Path(said["workspace"]), "roots": roots})
    arguments = tool.parse(work["arguments"])
    ctx = _ChildContext(ToolCall(work["name"], work["arguments"], work["id"]), tool, arguments, scope)
    ctx.channel = channel
    return await tool.invoke(arguments, ctx)


def _told(result: ToolResult) -> dict[str, Any]:
    passing = result.failure is not None and result.failure.passing
    return {"kind": "result", "result": result.to_dict(whole=True), "passing": passing}


def _told_of(error: BaseException) -> dict[str, Any]:
    if isinstance(error, asyncio.CancelledError):
        error = ToolError("it cancelled itself", ErrorKind.CANCELLED)
    if isinstance(error, ToolError):
        words = {"message": error.message, "error_kind": error.kind, "suggestion": error.suggestion}
        return {"kind": "failed", **words, "passing": error.passing}
    name, _, said = text_of(error).partition(": ")
    trace = "".join(format_exception(error))
    return {
        "kind": "broken",
        "name": name,
        "words": said,
        "is_timeout": isinstance(error, TimeoutError),
        "trace": trace,
    }


def _not_here() -> ToolError:
    return ToolError(
        "background work is not available in a tool with isolate=True: its process ends with the call",
        ErrorKind.CONFIG,
        "Return the result itself, or leave out isolate=True.",
    )


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PARENT_DIES, signal.SIGKILL, 0, 0, 0)
