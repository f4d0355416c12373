"""Reads the return type of a function: the JSON Schema of its data, where it has one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

from forge.core.arguments.signature import without_titles
from forge.core.arguments.typed_dicts import convert_typed_dicts
from forge.core.result import Attachment, ToolResult
from forge.core.spec import JsonSchema

_WITHOUT = (Any, object, str, type(None), ToolResult, Attachment, bytes, bytearray, memoryview)


def read_return_schema(function: Callable[..., Any]) -> JsonSchema | None:
    """Returns the schema of a function's declared return type. Never raises.

    None for text, nothing, a `ToolResult` or an attachment, for pieces that are yielded, and for types without a JSON
    form: a tool works without it.
    """
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return None
    try:
        hint = get_type_hints(function, include_extras=True).get("return", Any)
        if hint in _WITHOUT:
            return None  # most often seen: nothing heavy is imported for it
        from pydantic import TypeAdapter  # heavy: paid on first use

        adapter: Any = TypeAdapter(convert_typed_dicts(hint))
        schema = without_titles(adapter.json_schema(mode="serialization", by_alias=False))
    except Exception:  # names that are not there at run time, types without a JSON form: pydantic has no common class
        return None
    return schema if schema else None
