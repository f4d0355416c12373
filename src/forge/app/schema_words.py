"""The words in which the schema of `forge.yaml` is written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Schema = dict[str, Any]

_BLANK = r"\t-\r\u001c-\u0020\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
TEXT: Schema = {"type": "string", "pattern": rf"^[^\u0000]*[^\u0000{_BLANK}][^\u0000]*$"}
NOT_BLANK = f"[^{_BLANK}]"
_VARIABLE: Schema = {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"}


def text(description: str, example: str) -> Schema:
    """Not empty."""
    return {**TEXT, "description": description, "examples": [example]}


def words(description: str, example: str) -> Schema:
    """Perhaps empty."""
    return {"type": "string", "pattern": r"^[^\u0000]*$", "description": description, "examples": [example]}


def texts(description: str, *example: str) -> Schema:
    """A list, or a single one."""
    return {"anyOf": [TEXT, {"type": "array", "items": TEXT}], "description": description, "examples": [[*example]]}


def variable(description: str, example: str) -> Schema:
    """The name of an environment variable, never a value."""
    return {**_VARIABLE, "description": description, "examples": [example]}


def flag(description: str, example: bool) -> Schema:
    return {"type": "boolean", "description": description, "examples": [example]}


def number(description: str, example: float) -> Schema:
    return {"type": "number", "description": description, "examples": [example]}


def whole(description: str, example: int, least: int = 0) -> Schema:
    bounds = {"minimum": least, "exclusiveMaximum": 10**15}
    return {"type": "integer", **bounds, "description": description, "examples": [example]}


def one_of(*choices: Any) -> Schema:
    return {"enum": [*choices]}


def either(*schemas: Schema) -> Schema:
    return {"anyOf": [*schemas]}


def listed(items: Schema, description: str, example: list[Any]) -> Schema:
    return {"type": "array", "items": items, "description": description, "examples": [example]}


def mapping(
    properties: dict[str, Schema], description: str = "", example: Any = None, *, required: Iterable[str] = ()
) -> Schema:
    """Of these keys and no others."""
    made: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        made["required"] = [*required]
    if description:
        made["description"] = description
    return made if example is None else {**made, "examples": [example]}


def named(entry: Schema, description: str, example: dict[str, Any], pattern: str = "") -> Schema:
    """A mapping of names to entries of one kind."""
    made: Schema = {"type": "object", "additionalProperties": entry, "description": description, "examples": [example]}
    return {**made, "propertyNames": {"pattern": pattern}} if pattern else made


def any_case(word: str) -> str:
    """A pattern that takes a word in upper and lower case."""
    return "".join(f"[{letter.upper()}{letter}]" for letter in word)
