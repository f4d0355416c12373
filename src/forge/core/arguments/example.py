"""Makes a correct call from a schema alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from forge.core.arguments.old_drafts import modernise_schema
from forge.core.arguments.outline import flatten_schema
from forge.core.arguments.references import find_reference
from forge.core.plain_values import clip_bytes
from forge.core.spec import JsonSchema

DEEPEST_EXAMPLE = 6
LONGEST_EXAMPLE = 400  # bytes
_FORMATS = {
    "date-time": "2025-01-31T12:00:00Z",
    "date": "2025-01-31",
    "time": "12:00:00Z",
    "duration": "PT1H",
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
    "email": "ada@example.com",
    "uri": "https://example.com/",
    "uri-reference": "/notes",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "json-pointer": "/notes",
    "path": "notes.txt",
}


def example(name: str, schema: JsonSchema) -> str:
    """Renders a call with every required parameter, and those that have an example, as a model would write it."""
    shown = (f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in example_arguments(schema).items())
    return clip_bytes(f"{name}({', '.join(shown)})", LONGEST_EXAMPLE)


def example_arguments(schema: JsonSchema) -> dict[str, Any]:
    needed_by = schema.get("dependentRequired")
    schema = flatten_schema(modernise_schema(schema), "first")
    properties = schema.get("properties") or {}
    shown = [key for key, one in properties.items() if isinstance(one, Mapping) and one.get("examples")]
    wanted = dict.fromkeys([*(schema.get("required") or ()), *shown]) or list(properties)[:1]
    if isinstance(needed_by, Mapping):
        wanted = dict.fromkeys([*wanted, *(need for key in wanted for need in needed_by.get(key) or ())])
    return {key: _value(properties.get(key, {}), schema, 0) for key in wanted}


def _value(schema: Any, root: JsonSchema, depth: int) -> Any:
    if not isinstance(schema, Mapping) or depth > DEEPEST_EXAMPLE:
        return "text"
    if isinstance(reference := schema.get("$ref"), str):
        return _value(find_reference(root, reference), root, depth + 1)
    if "const" in schema:
        return schema["const"]
    if schema.get("examples"):
        return schema["examples"][0]
    if "default" in schema:
        return schema["default"]
    if schema.get("enum"):
        return schema["enum"][0]
    for key in ("anyOf", "oneOf", "allOf"):
        if schema.get(key):
            return _value(schema[key][0], root, depth + 1)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = next(iter(kind), "string") if isinstance(kind, list | tuple) else kind
    return _OF_TYPE.get(kind, _text)(schema, root, depth)


def _object(schema: Mapping[str, Any], root: JsonSchema, depth: int) -> Any:
    properties = schema.get("properties") or {}
    return {key: _value(properties.get(key, {}), root, depth + 1) for key in schema.get("required", ())}


def _array(schema: Mapping[str, Any], root: JsonSchema, depth: int) -> Any:
    first = [_value(item, root, depth + 1) for item in schema.get("prefixItems", ())]
    least = int(min(schema.get("minItems", 1), 10))  # JSON Schema takes 2.0 for 2
    item = _value(schema.get("items", {}), root, depth + 1)
    made = first + [item] * max(0, least - len(first)) if first else [item] * max(1, least)
    if schema.get("uniqueItems"):
        made = [_vary(one, number) for number, one in enumerate(made)]
    return made[: int(min(schema.get("maxItems", len(made)), len(made)))]


def _vary(value: Any, number: int) -> Any:
    """Returns another value for each item of a list that may have none twice."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value + number if is_number else f"{value}{number}" if isinstance(value, str) and number else value


def _number(schema: Mapping[str, Any], root: JsonSchema, depth: int) -> Any:
    step = schema.get("multipleOf", 1)
    low = schema.get("minimum", schema["exclusiveMinimum"] + step if "exclusiveMinimum" in schema else None)
    high = schema.get("maximum", schema["exclusiveMaximum"] - step if "exclusiveMaximum" in schema else None)
    value = step if low is None or low <= step else low
    if high is not None and value > high:
        value = high
    if low is not None and high is not None and low > high:  # between two limits that are less than a step apart
        return (schema.get("exclusiveMinimum", low) + schema.get("exclusiveMaximum", high)) / 2
    return -(-value // step) * step if "multipleOf" in schema else value


def _text(schema: Mapping[str, Any], root: JsonSchema, depth: int) -> Any:
    text = _FORMATS.get(schema.get("format", ""), "text")
    shortest, longest = int(min(schema.get("minLength", 0), 200)), int(min(schema.get("maxLength", 200), 200))
    return (text + "t" * max(0, shortest - len(text)))[:longest]


_OF_TYPE = {
    "object": _object,
    "array": _array,
    "integer": _number,
    "number": _number,
    "boolean": lambda *_: True,
    "null": lambda *_: None,
    "string": _text,
}
