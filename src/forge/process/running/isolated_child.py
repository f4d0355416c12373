"""Runs in the child process of an isolated call: reads the work, runs the tool, writes events and the result."""

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

from forge.core.context import ProgramLimits, Root, Scope, ToolContext, Work
from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.threads import in_thread
from forge.core.messages import ToolCall
from forge.core.plain_values import plain, text_of
from forge.core.result import ToolResult
from forge.core.spec import Permission, PermissionName
from forge.process.running.isolated import Around, unpack_tool, unpack_values

_PARENT_DIES = 1  # Linux: PR_SET_PDEATHSIG


def run_child() -> None:
    """Serves one call and never returns: when the result is sent, everything the tool left running ends with this
    process.
    """
    _die_with_parent()
    asyncio.run(_serve(_Channel()))


class _Channel:
    """The pipes to the parent, hidden from the tool: it has no input, and its output goes to standard error."""

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
    """Sends events and questions to the parent, which has the gate and the person."""

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
        raise _not_available_error()

    def completion(self) -> Callable[[object], None]:
        raise _not_available_error()


async def _serve(channel: _Channel) -> NoReturn:
    work = channel.read()
    try:
        answer = _encode_result(await _run(work, channel))
    except BaseException as error:  # the parent receives every error
        answer = _encode_error(error)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    channel.send(**answer)
    os._exit(0)


async def _run(work: Mapping[str, Any], channel: _Channel) -> ToolResult:
    tool = unpack_tool(work["tool"])
    said = work["scope"]
    roots = tuple(Root(Path(path), writable) for path, writable in said["roots"])
    programs = ProgramLimits(*said["programs"])
    scope = Scope(**{**said, "workspace": Path(said["workspace"]), "roots": roots, "programs": programs})
    arguments = tool.parse(work["arguments"])
    ctx = _ChildContext(ToolCall(work["name"], work["arguments"], work["id"]), tool, arguments, scope)
    ctx.channel = channel
    around: Around = unpack_values(work["around"])
    with around():
        return await tool.invoke(arguments, ctx)


def _encode_result(result: ToolResult) -> dict[str, Any]:
    passing = result.failure is not None and result.failure.passing
    return {"kind": "result", "result": result.to_dict(whole=True), "passing": passing}


def _encode_error(error: BaseException) -> dict[str, Any]:
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


def _not_available_error() -> ToolError:
    return ToolError(
        "background work is not available in a tool with isolate=True: its process ends with the call",
        ErrorKind.CONFIG,
        "Return the result itself, or remove isolate=True.",
    )


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PARENT_DIES, signal.SIGKILL, 0, 0, 0)
