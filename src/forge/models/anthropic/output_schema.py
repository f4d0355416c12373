"""Writes the schema of a structured answer within the limits of the Messages API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MOST_UNIONS = 16  # the API takes no more parameters with several types
_UNKNOWN = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "maxItems", "pattern")


def fits_output(schema: Mapping[str, Any]) -> bool:
    """Says whether the API takes a schema: one that does not contain itself, with few unions."""
    return not _is_recursive(schema, schema.get("$defs", {}), ()) and _count_unions(schema) <= MOST_UNIONS


def write_output(response_format: Any) -> dict[str, Any]:
    """Returns OpenAI's option for answers in JSON as an entry of `output_config`; empty for another option."""
    given = response_format.get("json_schema") if isinstance(response_format, Mapping) else None
    if not isinstance(given, Mapping) or not isinstance(given.get("schema"), Mapping):
        return {}
    return {"format": {"type": "json_schema", "schema": _write(given["schema"])}}


def _write(schema: Any, *, names: bool = False) -> Any:
    """Leaves out bounds, which the API refuses; Forge checks them. `names`: the keys are names, not keywords."""
    if isinstance(schema, list):
        return [_write(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        key: _write(value, names=not names and key in ("properties", "$defs"))
        if key not in ("enum", "const", "required") or names
        else value
        for key, value in schema.items()
        if names or not (key in _UNKNOWN or (key == "minItems" and value not in (0, 1)))
    }


def _is_recursive(schema: Any, shelf: Mapping[str, Any], inside: tuple[str, ...]) -> bool:
    if isinstance(schema, list):
        return any(_is_recursive(one, shelf, inside) for one in schema)
    if not isinstance(schema, Mapping):
        return False
    name = schema.get("$ref")
    if isinstance(name, str):
        if name in inside:
            return True
        if _is_recursive(shelf.get(name.rpartition("/")[2], {}), shelf, (*inside, name)):
            return True
    return any(_is_recursive(value, shelf, inside) for key, value in schema.items() if key != "$defs")


def _count_unions(schema: Any) -> int:
    if isinstance(schema, list):
        return sum(map(_count_unions, schema))
    if not isinstance(schema, Mapping):
        return 0
    return ("anyOf" in schema) + isinstance(schema.get("type"), list) + sum(map(_count_unions, schema.values()))
