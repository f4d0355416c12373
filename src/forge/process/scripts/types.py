"""Parses types, as people write them in a script's header or a skill, into JSON Schema.

Names: str int float bool list dict any, None, and string integer number boolean array object null. In brackets what
they hold: list[str], dict[str, int], str[]. Choices: "a" | "b" | 3, and alternatives: str | None.
"""

from __future__ import annotations

import json
import re
from typing import Any

DEEPEST = 5  # brackets within brackets

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
        if depth > DEEPEST:
            raise ValueError(f"it is nested more than {DEEPEST} levels deep")
        items = [self._item(depth)]
        while self._take("|"):
            items.append(self._item(depth))
        return _join_schemas(items)

    def _item(self, depth: int) -> dict[str, Any]:
        found = self._single(depth)
        while self._take("[]"):
            depth += 1
            if depth > DEEPEST:
                raise ValueError(f"it is nested more than {DEEPEST} levels deep")
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
