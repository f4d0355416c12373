"""What a script takes, as people write it, a line a parameter: `name (type): text`, turned into JSON Schema.

`name (type, optional): text` may be left out, and so may `name (type) = default: text`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from forge.process.scripts.types import schema_of

MOST = 64  # parameters

_ENTRY = re.compile(r"(?:[-*]\s+)?([A-Za-z_][A-Za-z0-9_-]{0,63})\s*\(")
_PYTHON = {"True": True, "False": False, "None": None}
_HOW = 'write it as "name (type): text", "name (type, optional): text" or "name (type) = default: text"'


class InputError(ValueError):
    """The message says what is wrong, and in which line."""


class Line(NamedTuple):
    number: int  # in the file, from 1
    text: str


class Inputs(NamedTuple):
    """The schema of all of them, whose descriptions are as they were written, and the values of those left out."""

    parameters: Mapping[str, Any]
    defaults: Mapping[str, Any]


def read_inputs(lines: Sequence[Line]) -> Inputs:
    """Of one line a parameter. Raises `InputError`."""
    properties: dict[str, Any] = {}
    required: list[str] = []
    defaults: dict[str, Any] = {}
    for line in lines:
        parameter = _parameter(line)
        if parameter.name in properties:
            raise InputError(f"line {line.number}: {parameter.name} is there twice")
        properties[parameter.name] = parameter.schema
        if parameter.required:
            required.append(parameter.name)
        if "default" in parameter.schema:
            defaults[parameter.name] = parameter.schema["default"]
    if len(properties) > MOST:
        raise InputError(f"it has {len(properties)} parameters, and {MOST} are the most")
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    _check_sendable(schema)
    return Inputs(schema, defaults)


def is_entry(text: str) -> bool:
    """Whether it begins as a parameter does."""
    return _ENTRY.match(text) is not None


def _check_sendable(schema: dict[str, Any]) -> None:
    """Every model gets it as JSON: what cannot be written so must not be found out there."""
    try:
        json.dumps(schema, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        raise InputError("Input: it holds half a character (a lone surrogate)") from None
    except ValueError:
        raise InputError("Input: it holds a number that JSON does not have") from None


class _Parameter(NamedTuple):
    name: str
    schema: dict[str, Any]
    required: bool


def _parameter(line: Line) -> _Parameter:
    entry = _ENTRY.match(line.text)
    if entry is None:
        raise InputError(f"line {line.number}: {_short(line.text)!r} is no parameter; {_HOW}")
    name = entry[1]
    kind, rest = _in_parentheses(line, entry.end())
    kind, words = _flags(kind)
    try:
        schema = schema_of(kind)
    except (ValueError, RecursionError) as error:
        raise InputError(f"line {line.number}: {name}: the type {_short(kind)!r}: {error}") from None
    rest = rest.lstrip()
    has_default = rest.startswith("=")
    if has_default:
        schema["default"], rest = _default(line, name, schema, rest[1:])
    if not rest.startswith(":"):
        raise InputError(f"line {line.number}: {name}: there is no : before its text; {_HOW}")
    if text := rest[1:].strip():
        schema["description"] = text
    return _Parameter(name, schema, not has_default and "optional" not in words)


def _in_parentheses(line: Line, start: int) -> tuple[str, str]:
    """What is in them, and what follows; the first one is open already."""
    depth, quote = 1, ""
    for place in range(start, len(line.text)):
        letter = line.text[place]
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter in "()":
            depth += 1 if letter == "(" else -1
            if not depth:
                return line.text[start:place], line.text[place + 1 :]
    raise InputError(f"line {line.number}: a ) is missing; {_HOW}")


def _flags(kind: str) -> tuple[str, set[str]]:
    """The type, and the words after it."""
    words: set[str] = set()
    while (parts := kind.rpartition(","))[2].strip().lower() in ("optional", "required") and parts[1]:
        words.add(parts[2].strip().lower())
        kind = parts[0]
    return kind, words


def _default(line: Line, name: str, schema: Mapping[str, Any], text: str) -> tuple[Any, str]:
    """As JSON, as Python spells it, or as bare words up to the colon; and what follows."""
    value, rest = _written(text)
    if not rest.startswith(":"):
        word, rest = _bare(text.strip())
        value = _PYTHON.get(word, word)
    import jsonschema_rs  # heavy: only for headers with defaults

    try:
        fits = jsonschema_rs.is_valid(dict(schema), value) and (not isinstance(value, float) or math.isfinite(value))
    except ValueError:  # half a character, or nested too deeply
        fits = False
    if not fits:
        shown = _short(json.dumps(value))
        raise InputError(f"line {line.number}: {name}: its default {shown} is not of its type")
    return value, rest


def _bare(text: str) -> tuple[str, str]:
    """Words up to the colon, or what is in single quotes; and what follows."""
    quoted, closed, after = text[1:].partition("'")
    if text[:1] == "'" and closed and after.lstrip()[:1] in ("", ":"):
        return quoted, after.lstrip()
    word, colon, after = text.partition(":")
    return word.rstrip(), colon + after


def _written(text: str) -> tuple[Any, str]:
    stripped = text.lstrip()
    try:
        value, end = json.JSONDecoder().raw_decode(stripped)
    except (ValueError, RecursionError):
        return None, ""
    return value, stripped[end:].lstrip()


def _short(text: str) -> str:
    shown = " ".join(text.split())
    return shown if len(shown) <= 60 else f"{shown[:59]}…"
