"""Reads older spellings of JSON Schema as today's: a list of `items` is `prefixItems`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_ONE = (
    *("not", "if", "then", "else", "items", "additionalItems", "contains", "unevaluatedItems"),
    *("additionalProperties", "unevaluatedProperties", "propertyNames"),
)
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_NAMED = ("properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions")


def modernise_schema(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Spells every list of `items` as 2020-12 does; returns the schema itself where there is none."""
    return _modernise(schema) if _has_list(schema) else schema


def _has_list(schema: Mapping[str, Any]) -> bool:
    waiting: list[Any] = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Mapping):
            if isinstance(node.get("items"), list | tuple):
                return True
            waiting += [item for item in node.values() if isinstance(item, Mapping | list | tuple)]
        else:
            waiting += [item for item in node if isinstance(item, Mapping | list | tuple)]
    return False


def _modernise(schema: Any) -> Any:
    """Changes only schemas: a property called `items`, or an example, is not a keyword."""
    if not isinstance(schema, Mapping):
        return schema
    made = dict(schema)
    for key in _ONE:
        if isinstance(made.get(key), Mapping):
            made[key] = _modernise(made[key])
    for key in _LISTS:
        if isinstance(made.get(key), list | tuple):
            made[key] = [_modernise(one) for one in made[key]]
    for key in _NAMED:
        if isinstance(made.get(key), Mapping):
            made[key] = {name: _modernise(one) for name, one in made[key].items()}
    if isinstance(made.get("items"), list) and "prefixItems" not in made:
        made["prefixItems"] = made.pop("items")
        if "additionalItems" in made:
            made["items"] = made.pop("additionalItems")
    return made
