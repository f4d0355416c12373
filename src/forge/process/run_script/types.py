"""Parses a script's parameters, one a line, `name (type): text`, into JSON Schema.

Parameters of the forms `name (type, optional): text` and `name (type) = default: text` may be left out.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

MOST_PARAMETERS = 64  # parameters

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
    if len(properties) > MOST_PARAMETERS:
        raise InputError(f"it has {len(properties)} parameters; the limit is {MOST_PARAMETERS}")
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    _check_sendable(schema)
    return Inputs(schema, defaults)


def is_entry(text: str) -> bool:
    """Returns whether the text begins like a parameter."""
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


# Parses types, as people write them in a script's header or a skill, into JSON Schema.
#
# Names: str int float bool list dict any, None, and string integer number boolean array object null. In brackets what
# they hold: list[str], dict[str, int], str[]. Choices: "a" | "b" | 3, and alternatives: str | None.


DEEPEST_BRACKETS = 5  # brackets within brackets

_TOKEN = re.compile(r"""\s*(?:("(?:[^"\\]|\\.)*"|'[^'\\]*')|(-?\d+(?:\.\d+)?)|([A-Za-z_]\w*)|(\[\]|[\[\],|<>()]))""")
_NAMES = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "list": "array",
    "dict": "object",
    **{name: name for name in ("string", "integer", "number", "boolean", "array", "object", "null")},
    "none": "null",
    "any": "",
    "unknown": "",
}
KNOWN = 'str, int, float, bool, list, dict, any, list[str], dict[str, int], "a" | "b", str | None'


def schema_of(text: str) -> dict[str, Any]:
    """Returns the schema. Raises `ValueError` for an invalid type."""
    reading = _TypeReader(_tokens(text))
    found = reading.alternatives(0)
    if reading.left:
        raise ValueError(f"{reading.left[0][1]!r} is not expected there")
    return found


def _tokens(text: str) -> list[tuple[str, str]]:
    """Splits a type into tokens of four kinds: text, number, name, sign."""
    found = []
    position = 0
    while text[position:].strip():
        token = _TOKEN.match(text, position)
        if token is None:
            raise ValueError(f"{text[position:].strip()[:20]!r} cannot be read")
        kind = ("text", "number", "name", "sign")[(token.lastindex or 1) - 1]
        found.append((kind, token[token.lastindex or 1].replace("<", "[").replace(">", "]")))
        position = token.end()
    return found


class _TypeReader:
    """Parses the remaining tokens from the front."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self.left = tokens

    def alternatives(self, depth: int) -> dict[str, Any]:
        if depth > DEEPEST_BRACKETS:
            raise ValueError(f"it is nested more than {DEEPEST_BRACKETS} levels deep")
        items = [self._item(depth)]
        while self._take("|"):
            items.append(self._item(depth))
        return _join_schemas(items)

    def _item(self, depth: int) -> dict[str, Any]:
        found = self._single(depth)
        while self._take("[]"):
            depth += 1
            if depth > DEEPEST_BRACKETS:
                raise ValueError(f"it is nested more than {DEEPEST_BRACKETS} levels deep")
            found = {"type": "array", "items": found}
        return found

    def _single(self, depth: int) -> dict[str, Any]:
        if not self.left:
            raise ValueError("something is missing at its end")
        kind, text = self.left.pop(0)
        if kind == "text":
            return {"enum": [json.loads(text) if text[0] == '"' else text[1:-1]]}
        if kind == "number":
            return {"enum": [json.loads(text)]}
        if text == "(":
            found = self.alternatives(depth + 1)
            self._expect(")")
            return found
        if kind != "name":
            raise ValueError(f"{text!r} is not expected there")
        inside = self._inside(depth) if self._take("[") else []
        return _named_schema(text, inside)

    def _inside(self, depth: int) -> list[dict[str, Any]]:
        found = [self.alternatives(depth + 1)]
        while self._take(","):
            found.append(self.alternatives(depth + 1))
        self._expect("]")
        return found

    def _take(self, sign: str) -> bool:
        if self.left[:1] == [("sign", sign)]:
            self.left.pop(0)
            return True
        return False

    def _expect(self, sign: str) -> None:
        if not self._take(sign):
            raise ValueError(f"{sign!r} is missing")


def _named_schema(name: str, inside: list[dict[str, Any]]) -> dict[str, Any]:
    lower = name.lower()
    if lower == "literal" and inside:
        return _join_schemas(inside)
    if lower == "optional" and len(inside) == 1:
        return _join_schemas([*inside, {"type": "null"}])
    if lower == "record":
        lower = "dict"
    known = _NAMES.get(lower)
    if known is None:
        raise ValueError(f"unknown type {name!r}; known types: {KNOWN}")
    if not inside:
        return {"type": known} if known else {}
    if known == "array" and len(inside) == 1:
        return {"type": "array", "items": inside[0]}
    if known == "object" and len(inside) == 2:
        return {"type": "object", "additionalProperties": inside[1]}
    raise ValueError(f"{name} does not take {len(inside)} types in brackets")


def _join_schemas(items: list[dict[str, Any]]) -> dict[str, Any]:
    """Builds one schema for alternatives, as simple as possible: models read it, and values are repaired by it."""
    if len(items) == 1 or {} in items:
        return {} if {} in items else _choice(items[0])
    if all(set(item) == {"type"} for item in items):
        types: list[str] = []
        for item in items:
            types += [item["type"]] if isinstance(item["type"], str) else item["type"]
        return {"type": list(dict.fromkeys(types))}
    if all("enum" in item or item == {"type": "null"} for item in items):
        return _choice({"enum": [value for item in items for value in item.get("enum", [None])]})
    return {"anyOf": items}


def _choice(item: dict[str, Any]) -> dict[str, Any]:
    if "enum" in item and all(isinstance(value, str) for value in item["enum"]):
        return {"type": "string", "enum": item["enum"]}
    return item
