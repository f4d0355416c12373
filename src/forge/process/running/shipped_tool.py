"""Sends a tool to another process: by reference if it can be imported there, by value if it is an object."""

from __future__ import annotations

import dataclasses
import pickle
import runpy
import sys
from base64 import b64decode, b64encode
from collections.abc import Mapping
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from io import BytesIO
from types import FunctionType, MethodType, ModuleType
from typing import Any

from forge.core.errors import ErrorKind, ToolError
from forge.core.plain_values import text_of
from forge.core.spec import LATE, ToolSpec
from forge.core.tool import FunctionTool, SchemaTool, Tool

_BOUND = ("parse", "invoke", "made_with")  # closures made at the first call, and attributes needed only here
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


def pack_values(values: Mapping[str, Any]) -> str:
    """Encodes plain data, and objects that can be imported there."""
    return b64encode(pickle.dumps(values)).decode()


def unpack_values(content: str) -> dict[str, Any]:
    values: dict[str, Any] = pickle.loads(b64decode(content))  # noqa: S301 - it comes from our own parent process
    return values


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
