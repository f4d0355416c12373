"""Writes the signatures of tools as Python stubs: a model reads them, and the type checker checks scripts with them."""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Mapping
from typing import Any

from forge.core.arguments.outline import flatten_schema
from forge.core.arguments.references import References
from forge.core.spec import JsonSchema, ToolSpec

DEEPEST_TYPE = 6  # levels of a type; what lies deeper is `Any`
MOST_LITERALS = 20  # values of an enum that are written; more of them are their type
MAX_SUMMARY = 120  # characters of a tool's summary

_PLAIN = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "null": "None",
    "array": "list[Any]",
    "object": "dict[str, Any]",
}


def function_name(name: str) -> str:
    """Returns a tool's name as Python spells it: `git-log` becomes `git_log`."""
    spelled = re.sub(r"\W", "_", name, flags=re.ASCII)
    return f"_{spelled}" if spelled[:1].isdigit() or keyword.iskeyword(spelled) else spelled


def parameter_names(spec: ToolSpec) -> list[str]:
    """Returns the parameters in the order of the signature: those that must be given come first."""
    schema = flatten_schema(spec.parameters)
    properties = schema.get("properties")
    required = [name for name in schema.get("required") or () if isinstance(name, str)]
    names = list(properties) if isinstance(properties, Mapping) else []
    return [*[name for name in names if name in required], *[name for name in names if name not in required]]


def write_signature(spec: ToolSpec, *, summary: bool = False) -> str:
    """Writes `async def add(a: int, b: int = 0) -> int: ...`, with the first line of the description if asked for."""
    schema = flatten_schema(spec.parameters)
    types = _TypeWriter(spec.parameters)
    required = set(schema.get("required") or ())
    properties = schema.get("properties") or {}
    written, others = [], False
    for name in parameter_names(spec):
        if not name.isidentifier() or keyword.iskeyword(name):
            others = True  # it can be given with ** alone
            continue
        default = "" if name in required else f" = {_default(properties[name])}"
        written.append(f"{name}: {types.write(properties[name], optional=default == ' = None')}{default}")
    if others or schema.get("additionalProperties") not in (None, False):
        written.append("**more: Any")
    returns = "str" if spec.returns is None else _TypeWriter(spec.returns).write(spec.returns)
    line = f"async def {function_name(spec.name)}({', '.join(written)}) -> {returns}: ..."
    return f"{line}  # {_summarise(spec.description)}" if summary and spec.description.strip() else line


def _summarise(description: str) -> str:
    line = " ".join(description.split())
    first = re.split(r"(?<=[.!?]) ", line, maxsplit=1)[0]
    return first if len(first) <= MAX_SUMMARY else f"{first[:MAX_SUMMARY]}…"


def _default(schema: Any) -> str:
    """Writes the default value; None where the schema has none, or a long one."""
    value = schema.get("default") if isinstance(schema, Mapping) else None
    written = repr(value) if isinstance(value, bool | int | float | str | None) else "None"
    return written if len(written) <= 40 else "None"


class _TypeWriter:
    def __init__(self, root: JsonSchema) -> None:
        self._references = References(root)

    def write(self, schema: Any, *, optional: bool = False, depth: int = 0) -> str:
        written = self._write(schema, depth)
        return f"{written} | None" if optional and "None" not in written and written != "Any" else written

    def _write(self, schema: Any, depth: int) -> str:
        if not isinstance(schema, Mapping) or depth > DEEPEST_TYPE:
            return "Any"
        if "$ref" in schema:
            targets = list(self._references.targets(schema))
            return self._write(targets[0], depth + 1) if len(targets) == 1 else "Any"
        if "const" in schema:
            return _literal([schema["const"]]) or "Any"
        if isinstance(schema.get("enum"), list):
            return _literal(schema["enum"]) or "Any"
        branches = schema.get("anyOf") or schema.get("oneOf")
        if isinstance(branches, list) and branches:
            return _join([self._write(one, depth + 1) for one in branches])
        kinds = schema.get("type")
        if isinstance(kinds, list):
            return _join([self._write({**schema, "type": kind}, depth) for kind in kinds])
        if kinds == "array" and isinstance(schema.get("items"), Mapping):
            return f"list[{self._write(schema['items'], depth + 1)}]"
        if kinds == "object" and isinstance(schema.get("additionalProperties"), Mapping):
            return f"dict[str, {self._write(schema['additionalProperties'], depth + 1)}]"
        return _PLAIN.get(kinds, "Any") if isinstance(kinds, str) else "Any"


def _literal(values: list[Any]) -> str:
    if not values or not all(isinstance(one, str | int | bool | None) for one in values):
        return ""
    if len(values) > MOST_LITERALS:
        return _join(sorted({type(one).__name__ if one is not None else "None" for one in values}))
    return f"Literal[{', '.join(repr(one) if not isinstance(one, str) else _quote(one) for one in values)}]"


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=True)


def _join(types: list[str]) -> str:
    return "Any" if "Any" in types else " | ".join(dict.fromkeys(types))
