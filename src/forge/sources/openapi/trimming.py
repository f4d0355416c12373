"""Leaves out of an answer what the document does not describe: models pay for every word."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from forge.sources.openapi.document import Broken, Document

DEEPEST = 60
_OPEN = ("additionalProperties", "patternProperties", "unevaluatedProperties", "propertyNames", "not", "if")


class _Shape(NamedTuple):
    """What a schema says of a value: the properties of an object, the schemas of an array's items."""

    properties: Mapping[str, tuple[Any, ...]] | None  # None: any
    items: tuple[Any, ...]


_ANYTHING = _Shape(None, ())


class Trimmer:
    """Of one document; what a schema means is found out once."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._shapes: dict[tuple[int, ...], tuple[tuple[Any, ...], _Shape]] = {}  # holds the schemas: ids stay theirs

    def trimmed(self, value: Any, schema: Any) -> tuple[Any, int]:
        """The value, and how many properties were left out. Never raises."""
        return self._trimmed(value, (schema,), 0) if isinstance(schema, Mapping) else (value, 0)

    def _trimmed(self, value: Any, schemas: tuple[Any, ...], depth: int) -> tuple[Any, int]:
        if not schemas or depth > DEEPEST or not isinstance(value, dict | list):
            return value, 0
        shape = self._shape(schemas)
        if isinstance(value, list):
            if not shape.items:
                return value, 0
            parts = [self._trimmed(item, shape.items, depth + 1) for item in value]
            return [part for part, _ in parts], sum(left for _, left in parts)
        known = shape.properties
        if known is None or known.keys().isdisjoint(value):  # it is something else than was described
            return value, 0
        kept, left_out = {}, 0
        for key, item in value.items():
            if key not in known:
                left_out += 1
                continue
            kept[key], inside = (
                self._trimmed(item, known[key], depth + 1) if isinstance(item, dict | list) else (item, 0)
            )
            left_out += inside
        return kept, left_out

    def _shape(self, schemas: tuple[Any, ...]) -> _Shape:
        key = tuple(map(id, schemas))
        found = self._shapes.get(key)
        if found is None:
            try:
                shape = self._found(schemas)
            except Broken:
                shape = _ANYTHING
            found = self._shapes[key] = (schemas, shape)
        return found[1]

    def _found(self, schemas: tuple[Any, ...]) -> _Shape:
        """Several schemas of one value, as `allOf` and `oneOf` have them: what any of them describes is described."""
        properties: dict[str, tuple[Any, ...]] = {}
        items: list[Any] = []
        is_open = False
        waiting, seen = [*schemas], 0
        while waiting:
            seen += 1
            schema = self._document.resolved(waiting.pop(0))
            if seen > 500:
                return _ANYTHING
            branches = [one for name in ("allOf", "anyOf", "oneOf") for one in _listed(schema, name)]
            waiting += branches
            is_open |= any(schema.get(name, False) is not False for name in _OPEN)
            own = schema.get("properties")
            if isinstance(own, Mapping):
                for name, one in own.items():
                    properties[name] = (*properties.get(name, ()), one)
            elif not branches and schema.get("type", "object") in ("object", ["object"]):
                is_open = True  # an object of which nothing is said
            items += [schema["items"]] if isinstance(schema.get("items"), Mapping) else []
        return _Shape(None if is_open or not properties else properties, tuple(items))


def _listed(schema: Mapping[str, Any], name: str) -> list[Any]:
    found = schema.get(name)
    return found if isinstance(found, list) else []


def schema_for(document: Document, responses: Any, status: int) -> Any:
    """The schema of the JSON that a status comes with, if the document says it."""
    if not isinstance(responses, Mapping):
        return None
    for key in (str(status), f"{status // 100}XX", "default"):
        if key in responses:
            try:
                content = document.resolved(responses[key]).get("content")
            except Broken:
                return None
            for media, held in content.items() if isinstance(content, Mapping) else ():
                if "json" in str(media) and isinstance(held, Mapping):
                    return held.get("schema")
            return None
    return None
