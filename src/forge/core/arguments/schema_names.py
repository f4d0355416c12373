"""Finds the names that a schema knows at a path inside the arguments."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

from forge.core.arguments.schema_references import References
from forge.core.spec import JsonSchema

_MOST_SCHEMAS = 1_000  # that describe one place


class Names(NamedTuple):
    """The keys of an object."""

    known: tuple[str, ...]
    required: tuple[str, ...]  # whichever branch holds


class NamesByPath:
    """The names of a schema by path, each looked up once."""

    def __init__(self, schema: JsonSchema) -> None:
        self._schema = schema
        self._found: dict[tuple[str | int, ...], Names] = {}

    def names(self, path: tuple[str | int, ...]) -> Names:
        """Returns the keys that an object at `path` may have."""
        path = tuple(path)
        if path not in self._found:
            self._found[path] = self._look(path)
        return self._found[path]

    @cached_property
    def _references(self) -> References:
        return References(self._schema)

    def _look(self, path: tuple[str | int, ...]) -> Names:
        here = self._references.same_place([self._schema], _MOST_SCHEMAS)
        for part in path:
            inside = [one for node in here for one in _schemas_inside(node, part)]
            here = self._references.same_place(inside, _MOST_SCHEMAS)
        objects = [node for node in here if isinstance(node.get("properties"), Mapping)]
        known = dict.fromkeys(name for node in objects for name in node["properties"])
        required = [name for name in known if all(name in (node.get("required") or ()) for node in objects)]
        return Names(tuple(known), tuple(required))


def _schemas_inside(node: Mapping[str, Any], part: str | int) -> list[Any]:
    """Returns the schemas of one key or item."""
    if isinstance(part, int):
        first = node.get("prefixItems")
        if isinstance(first, list | tuple) and part < len(first):
            return [first[part]]
        return [node.get("items")]
    properties = node.get("properties")
    if isinstance(properties, Mapping) and part in properties:
        return [properties[part]]
    return [node.get("additionalProperties")]
