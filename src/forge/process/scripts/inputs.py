"""Parses a script's parameters, one a line, `name (type): text`, into JSON Schema.

Parameters of the forms `name (type, optional): text` and `name (type) = default: text` may be left out.
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
    """The message names the problem and the line."""


class InputLine(NamedTuple):
    number: int  # in the file, from 1
    text: str


class Inputs(NamedTuple):
    """The schema of all parameters, with their descriptions as written, and the default values."""

    parameters: Mapping[str, Any]
    defaults: Mapping[str, Any]


def read_inputs(lines: Sequence[InputLine]) -> Inputs:
    """Parses one parameter a line. Raises `InputError`."""
    properties: dict[str, Any] = {}
    required: list[str] = []
    defaults: dict[str, Any] = {}
    for line in lines:
        parameter = _parse_parameter(line)
        if parameter.name in properties:
            raise InputError(f"line {line.number}: {parameter.name} is declared twice")
        properties[parameter.name] = parameter.schema
        if parameter.required:
            required.append(parameter.name)
        if "default" in parameter.schema:
            defaults[parameter.name] = parameter.schema["default"]
    if len(properties) > MOST:
        raise InputError(f"it has {len(properties)} parameters; the limit is {MOST}")
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    _check_sendable(schema)
    return Inputs(schema, defaults)


def is_entry(text: str) -> bool:
    """Returns True if the text begins like a parameter."""
    return _ENTRY.match(text) is not None


def _check_sendable(schema: dict[str, Any]) -> None:
    """Raises `InputError` for a schema that cannot be sent to a model as JSON."""
    try:
        json.dumps(schema, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        raise InputError("Input: it contains half a character (a lone surrogate)") from None
    except ValueError:
        raise InputError("Input: it contains a number that JSON does not allow") from None


class _Parameter(NamedTuple):
    name: str
    schema: dict[str, Any]
    required: bool


def _parse_parameter(line: InputLine) -> _Parameter:
    entry = _ENTRY.match(line.text)
    if entry is None:
        raise InputError(f"line {line.number}: {_shorten(line.text)!r} is not a parameter; {_HOW}")
    name = entry[1]
    kind, rest = _split_parentheses(line, entry.end())
    kind, words = _split_flags(kind)
    try:
        schema = schema_of(kind)
    except (ValueError, RecursionError) as error:
        raise InputError(f"line {line.number}: {name}: the type {_shorten(kind)!r}: {error}") from None
    rest = rest.lstrip()
    has_default = rest.startswith("=")
    if has_default:
        schema["default"], rest = _parse_default(line, name, schema, rest[1:])
    if not rest.startswith(":"):
        raise InputError(f"line {line.number}: {name}: there is no : before its text; {_HOW}")
    if text := rest[1:].strip():
        schema["description"] = text
    return _Parameter(name, schema, not has_default and "optional" not in words)


def _split_parentheses(line: InputLine, start: int) -> tuple[str, str]:
    """Returns the text inside the parentheses and the rest; the first one is open already."""
    depth, quote = 1, ""
    for position in range(start, len(line.text)):
        letter = line.text[position]
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter in "()":
            depth += 1 if letter == "(" else -1
            if not depth:
                return line.text[start:position], line.text[position + 1 :]
    raise InputError(f"line {line.number}: a ) is missing; {_HOW}")


def _split_flags(kind: str) -> tuple[str, set[str]]:
    """Returns the type, and the words after it."""
    words: set[str] = set()
    while (parts := kind.rpartition(","))[2].strip().lower() in ("optional", "required") and parts[1]:
        words.add(parts[2].strip().lower())
        kind = parts[0]
    return kind, words


def _parse_default(line: InputLine, name: str, schema: Mapping[str, Any], text: str) -> tuple[Any, str]:
    """Parses a default as JSON, as a Python constant, or as bare words up to the colon; also returns the rest."""
    value, rest = _parse_json(text)
    if not rest.startswith(":"):
        word, rest = _parse_bare(text.strip())
        value = _PYTHON.get(word, word)
    import jsonschema_rs  # heavy: only for headers with defaults

    try:
        fits = jsonschema_rs.is_valid(dict(schema), value) and (not isinstance(value, float) or math.isfinite(value))
    except ValueError:  # a lone surrogate, or nested too deeply
        fits = False
    if not fits:
        shown = _shorten(json.dumps(value))
        raise InputError(f"line {line.number}: {name}: its default {shown} is not of its type")
    return value, rest


def _parse_bare(text: str) -> tuple[str, str]:
    """Returns the words up to the colon, or the text in single quotes; and the rest."""
    quoted, closed, after = text[1:].partition("'")
    if text[:1] == "'" and closed and after.lstrip()[:1] in ("", ":"):
        return quoted, after.lstrip()
    word, colon, after = text.partition(":")
    return word.rstrip(), colon + after


def _parse_json(text: str) -> tuple[Any, str]:
    stripped = text.lstrip()
    try:
        value, end = json.JSONDecoder().raw_decode(stripped)
    except (ValueError, RecursionError):
        return None, ""
    return value, stripped[end:].lstrip()


def _shorten(text: str) -> str:
    shown = " ".join(text.split())
    return shown if len(shown) <= 60 else f"{shown[:59]}…"
