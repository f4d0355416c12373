"""Removes undescribed values from an answer, to save tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from forge.sources.openapi.document import BrokenOperation, Document

DEEPEST = 60
_OPEN = ("additionalProperties", "patternProperties", "unevaluatedProperties", "propertyNames", "not", "if")


class _Shape(NamedTuple):
    """The shape of a value: the properties of an object, the schemas of an array's items."""

    properties: Mapping[str, tuple[Any, ...]] | None  # None: any
    items: tuple[Any, ...]


_ANYTHING = _Shape(None, ())


class Trimmer:
    """Trims answers of one document; the shape of each schema is computed once."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._shapes: dict[
            tuple[int, ...], tuple[tuple[Any, ...], _Shape]
        ] = {}  # holds the schemas, so that their ids stay unique

    def trim(self, value: Any, schema: Any) -> tuple[Any, int]:
        """Returns the value, and how many properties were left out. Never raises."""
        return self._trim_value(value, (schema,), 0) if isinstance(schema, Mapping) else (value, 0)

    def _trim_value(self, value: Any, schemas: tuple[Any, ...], depth: int) -> tuple[Any, int]:
        if not schemas or depth > DEEPEST or not isinstance(value, dict | list):
            return value, 0
        shape = self._shape(schemas)
        if isinstance(value, list):
            if not shape.items:
                return value, 0
            parts = [self._trim_value(item, shape.items, depth + 1) for item in value]
            return [part for part, _ in parts], sum(left for _, left in parts)
        known = shape.properties
        if known is None or known.keys().isdisjoint(value):  # the value is not what the document describes
            return value, 0
        described, left_out = {}, 0
        for key, item in value.items():
            if key not in known:
                left_out += 1
                continue
            described[key], inside = (
                self._trim_value(item, known[key], depth + 1) if isinstance(item, dict | list) else (item, 0)
            )
            left_out += inside
        return described, left_out

    def _shape(self, schemas: tuple[Any, ...]) -> _Shape:
        key = tuple(map(id, schemas))
        found = self._shapes.get(key)
        if found is None:
            try:
                shape = self._merge_schemas(schemas)
            except BrokenOperation:
                shape = _ANYTHING
            found = self._shapes[key] = (schemas, shape)
        return found[1]

    def _merge_schemas(self, schemas: tuple[Any, ...]) -> _Shape:
        """Merges several schemas of one value, as in `allOf` and `oneOf`: a property of any of them counts."""
        properties: dict[str, tuple[Any, ...]] = {}
        items: list[Any] = []
        is_open = False
        waiting, seen = [*schemas], 0
        while waiting:
            seen += 1
            schema = self._document.resolve(waiting.pop(0))
            if seen > 500:
                return _ANYTHING
            branches = [one for name in ("allOf", "anyOf", "oneOf") for one in _as_list(schema, name)]
            waiting += branches
            is_open |= any(schema.get(name, False) is not False for name in _OPEN)
            own = schema.get("properties")
            if isinstance(own, Mapping):
                for name, one in own.items():
                    properties[name] = (*properties.get(name, ()), one)
            elif not branches and schema.get("type", "object") in ("object", ["object"]):
                is_open = True  # an object without a description
            items += [schema["items"]] if isinstance(schema.get("items"), Mapping) else []
        return _Shape(None if is_open or not properties else properties, tuple(items))


def _as_list(schema: Mapping[str, Any], name: str) -> list[Any]:
    found = schema.get(name)
    return found if isinstance(found, list) else []


def schema_for(document: Document, responses: Any, status: int) -> Any:
    """Returns the schema of the JSON for a status, if the document has one."""
    if not isinstance(responses, Mapping):
        return None
    for key in (str(status), f"{status // 100}XX", "default"):
        if key in responses:
            try:
                content = document.resolve(responses[key]).get("content")
            except BrokenOperation:
                return None
            for media, described_content in content.items() if isinstance(content, Mapping) else ():
                if "json" in str(media) and isinstance(described_content, Mapping):
                    return described_content.get("schema")
            return None
    return None
