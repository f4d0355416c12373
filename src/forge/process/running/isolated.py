"""Runs a tool in its own process, which a time-out really kills."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
import os
import pickle
import runpy
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from io import BytesIO
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import Any
from uuid import uuid4

from forge.core.context import Scope, ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.files import check_held
from forge.core.messages import render_call
from forge.core.plain_values import text_of
from forge.core.result import ToolResult
from forge.core.spec import LATE, ToolSpec
from forge.core.tool import FunctionTool, SchemaTool, Tool
from forge.process.running.run import signal_name, slots
from forge.process.running.supervisor import Program, start

log = logging.getLogger("forge.tools")

LONGEST_LINE = 512 * 1024 * 1024  # bytes of one message from the child
Around = Callable[[], contextlib.AbstractContextManager[object]]

_STAYS = ("deps", "client", "budget", "unsaved")  # objects of a scope that another process does not get


async def run_isolated(tool: Tool, arguments: Mapping[str, Any], ctx: ToolContext, around: Around) -> ToolResult:
    """Starts a fresh interpreter, runs the tool there, and kills all its processes when this coroutine ends.

    `around` is entered there, around the call. It must be picklable.
    """
    work = _encode_work(*tool._unwrap(arguments), ctx, around)
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


def _encode_work(tool: Tool, arguments: Mapping[str, Any], ctx: ToolContext, around: Around) -> bytes:
    from pydantic_core import to_json

    defaults = tool.argument_defaults()
    sent = {key: value for key, value in arguments.items() if key not in defaults or value is not defaults[key]}
    check_held((ctx.scope.workspace, *(root.path for root in ctx.scope.roots)))  # its process gets only their paths
    scope = {name: getattr(ctx.scope, name) for name in Scope.__dataclass_fields__ if name not in _STAYS}
    work = {"name": ctx.call.name, "id": ctx.call.id, "scope": scope, "tool": pack_tool(tool)}
    work["around"] = pack_values(around)
    try:
        return to_json({**work, "arguments": sent})
    except ValueError as error:
        raise ToolError(f"its arguments cannot be sent to its own process: {error}", ErrorKind.CONFIG) from None


# Sends a tool to another process: by reference if it can be imported there, by value if it is an object.


_BOUND = ("parse", "invoke", "init_args")  # closures made at the first call, and attributes needed only here
_MAIN = "__forge_isolated__"  # the main program's name there, so that its `if __name__` block is skipped


def pack_tool(tool: Tool) -> dict[str, Any]:
    """Encodes a tool for `unpack_tool` in another process. Raises `ToolError` if that is impossible."""
    content = BytesIO()
    packer = _Packer(content)
    try:
        packer.dump(tool)
    except Exception as error:  # pickling may raise anything
        raise ToolError(
            f"isolate=True cannot send it to another process: {text_of(error)}",
            ErrorKind.CONFIG,
            "Define it at module level with picklable objects only, or remove isolate=True.",
        ) from None
    return {"pickle": b64encode(content.getvalue()).decode(), "modules": packer.modules, "main": packer.main}


def unpack_tool(shipment: Mapping[str, Any]) -> Tool:
    """Decodes a tool in this process."""
    if shipment["main"]:
        _run_main(**shipment["main"])
    for name, file in shipment["modules"].items():
        _import(name, file)
    made: Tool = pickle.loads(b64decode(shipment["pickle"]))  # noqa: S301 - it comes from our own parent process
    return made


def pack_values(values: Any) -> str:
    """Encodes plain data, and objects that can be imported there."""
    return b64encode(pickle.dumps(values)).decode()


def unpack_values(content: str) -> Any:
    return pickle.loads(b64decode(content))  # noqa: S301 - it comes from our own parent process


class _Packer(pickle.Pickler):
    """Pickles what pickle cannot: tools, functions that became tools, specs that are computed late."""

    def __init__(self, file: BytesIO) -> None:
        super().__init__(file)
        self.modules: dict[str, str] = {}  # name -> file
        self.main: dict[str, str] = {}

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Tool):
            return _reduce_tool(value)
        if isinstance(value, ToolSpec):
            return _make_spec, (_fields_of(value) | {name: getattr(value, name) for name in LATE},)
        if isinstance(value, MethodType):
            return _load_method, (value.__self__, value.__name__)
        if isinstance(value, FunctionType | type):
            self._note_module(value.__module__)
        if isinstance(value, FunctionType) and value.__module__ != __name__:
            return _load_function, _import_path(value)
        return NotImplemented

    def _note_module(self, module: str) -> None:
        loaded = sys.modules.get(module)
        file = getattr(loaded, "__file__", None) or ""
        if module != "__main__":
            if file:
                self.modules[module] = file
            return
        spec = getattr(loaded, "__spec__", None)  # `python -m name` has one
        self.main = {"name": spec.name if spec else "", "file": file}
        if not any(self.main.values()):
            raise pickle.PicklingError("the main program is not a file that another process could import")


def _reduce_tool(tool: Tool) -> Any:
    if type(tool) is FunctionTool:
        return _make_function_tool, (tool.run, tool.options, _fields_of(tool.spec))
    if type(tool) is SchemaTool:
        return SchemaTool, (tool.spec, tool.run, tool.model)
    reduced = tool.__reduce_ex__(pickle.DEFAULT_PROTOCOL)
    if isinstance(reduced, tuple) and len(reduced) > 2 and isinstance(reduced[2], dict):
        state = {key: value for key, value in reduced[2].items() if key not in _BOUND}
        return (*reduced[:2], state, *reduced[3:])
    return reduced


def _import_path(function: FunctionType) -> tuple[str, str]:
    module, name = function.__module__, function.__qualname__
    if "<" in name:
        raise pickle.PicklingError(f"{name} is defined inside a function")
    if _load_function(module, name) is not function:
        raise pickle.PicklingError(f"{module}.{name} is not this function")
    return module, name


def _load_function(module: str, name: str) -> Any:
    found: Any = import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found.run if isinstance(found, FunctionTool) else found


def _load_method(owner: Any, name: str) -> Any:
    found = getattr(owner, name)
    return found.run if isinstance(found, FunctionTool) else found


def _make_function_tool(function: Any, options: Any, fields: dict[str, Any]) -> FunctionTool[..., Any]:
    made: FunctionTool[..., Any] = FunctionTool(function, options)
    made.spec = made.spec.changed(**fields)  # a project may have changed some of them
    return made


def _fields_of(spec: ToolSpec) -> dict[str, Any]:
    """Returns the fields for another process. `reconcile` stays: the worker itself asks it."""
    return {f.name: getattr(spec, f.name) for f in dataclasses.fields(spec) if f.name not in (*LATE, "reconcile")}


def _make_spec(fields: dict[str, Any]) -> ToolSpec:
    return ToolSpec(**fields)


def _run_main(name: str, file: str) -> None:
    """Runs the main program's definitions and registers them under its name in this process."""
    names = runpy.run_module(name, run_name=_MAIN, alter_sys=True) if name else runpy.run_path(file, run_name=_MAIN)
    main = ModuleType(_MAIN)
    main.__dict__.update(names)
    sys.modules["__main__"] = sys.modules[_MAIN] = main


def _import(name: str, file: str) -> None:
    """Imports a module by name; from its file if it was loaded under another name."""
    try:
        import_module(name)
    except ModuleNotFoundError as error:
        spec = spec_from_file_location(name, file)
        if spec is None or spec.loader is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        module = sys.modules[name] = module_from_spec(spec)
        spec.loader.exec_module(module)
