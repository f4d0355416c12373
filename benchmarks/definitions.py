"""Defining tools, registering many, and handing a thousand definitions to a model."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import Any

import docstring_parser

from benchmarks.peer_floor import bare_definition
from benchmarks.peer_functions import search_files
from benchmarks.timing import Measure, per_call, side_by_side
from forge import Tool, ToolRegistry, tool


def our_definition() -> object:
    made = tool(search_files)
    made.parse('{"pattern": "a", "path": "b"}')
    return made.spec.to_function()


def named(number: int) -> Tool:
    return tool(name=f"search_{number}")(search_files)


def register(number: int) -> float:
    """Milliseconds to define and register so many tools, before any is used."""
    started = time.perf_counter()
    ToolRegistry([named(index) for index in range(number)])
    return (time.perf_counter() - started) * 1e3


def read_signatures(number: int) -> float:
    """Milliseconds to read a signature and its docstring so many times: what every definition checks at once."""
    started = time.perf_counter()
    for _ in range(number):
        inspect.signature(search_files)
        docstring_parser.parse(inspect.getdoc(search_files) or "", docstring_parser.DocstringStyle.GOOGLE)
    return (time.perf_counter() - started) * 1e3


async def measures() -> list[Measure]:
    define = side_by_side(lambda: per_call(bare_definition, 20), lambda: per_call(our_definition, 20))
    registry = ToolRegistry([named(index) for index in range(1_000)])
    built: list[dict[str, Any]] = registry.definitions()
    copy: Callable[[], object] = lambda: list(built)  # noqa: E731
    again = side_by_side(lambda: per_call(copy, 2_000), lambda: per_call(registry.definitions, 2_000))
    many = side_by_side(lambda: read_signatures(500), lambda: register(500))
    return [
        Measure("define a tool with 5 parameters", "pydantic model and schema", *define, "µs", 1.3),
        Measure("register 500 tools, unused", "their signatures and docstrings", *many, "ms", 2.5),
        Measure("1,000 definitions, second time", "copy of the list", *again, "µs", 2.0),
    ]
