"""Converts schemas of a document to self-contained JSON Schema 2020-12, with referenced schemas in `$defs`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from forge.core.untrusted import clean
from forge.openapi.document import BrokenOperation, Document

MOST_NODES = 2_000  # of one operation; the rest accepts anything
DEEPEST_SCHEMA = 30
LONGEST_TEXT = 400  # characters of the description of a property
LONGEST_EXAMPLE = 200

_COPIED = frozenset(
    [
        "format",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "uniqueItems",
        "minProperties",
        "maxProperties",
        "multipleOf",
        "const",
        "minimum",
        "maximum",
        "default",
        "required",
        "contentEncoding",
        "contentMediaType",
    ]
)
_ONE = ("items", "additionalProperties", "not", "propertyNames", "contains", "if", "then", "else")
_MANY = ("allOf", "anyOf", "oneOf", "prefixItems")
_NAMED = ("properties", "patternProperties", "dependentSchemas")
_INSIDE = frozenset({*_ONE, *_MANY, *_NAMED} - {"not"})
_TYPES = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")


class Schemas:
    """Converts the schemas of an operation and collects the schemas they refer to."""

    def __init__(self, document: Document, *, most: int = MOST_NODES, patterns: bool = True) -> None:
        self.document = document
        self.definitions: dict[str, Any] = {}
        self._names: dict[str, str] = {}  # reference -> name in $defs
        self._waiting: list[str] = []
        self._most = most
        self._patterns = patterns  # False: leave out patterns, which an engine may not support
        self._nodes = 0

    def convert(self, schema: Any, depth: int = 0) -> Any:
        """Converts a schema, without read-only properties."""
        if isinstance(schema, bool):
            return schema
        self._nodes += 1
        if not isinstance(schema, Mapping) or depth > DEEPEST_SCHEMA or self._nodes > self._most:
            return {}
        if "$ref" in schema:
            return self._convert_reference(schema, depth)
        made = self._convert_keywords(schema)
        for key in _ONE:
            if key in schema:
                made[key] = self.convert(schema[key], depth + 1)
        for key in _MANY:
            if isinstance(schema.get(key), list) and schema[key]:
                made[key] = [self.convert(one, depth + 1) for one in schema[key]]
        if "oneOf" in made and "anyOf" not in made:
            made["anyOf"] = made.pop(
                "oneOf"
            )  # documents are careless, and servers accept a value that fits two of them
        for key in _NAMED:
            if isinstance(schema.get(key), Mapping):
                made[key] = {str(name): self.convert(one, depth + 1) for name, one in self._limit_items(schema[key])}
        self._remove_read_only(schema, made)
        return self._apply_nullable(schema, made)

    def collect_definitions(self) -> dict[str, Any]:
        """Returns `$defs` for all converted schemas, within the bounds."""
        while self._waiting:
            reference = self._waiting.pop(0)
            self.definitions[self._names[reference]] = self.convert(self.document.at(reference), 1)
        return self.definitions

    def _limit_items(self, named: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
        """Returns as many as the bounds allow: properties that are left out are not checked, and may still be sent."""
        return islice(named.items(), max(0, self._most - self._nodes))

    def _convert_reference(self, schema: Mapping[str, Any], depth: int) -> Any:
        reference = schema["$ref"]
        target = self.document.at(reference)
        text = _text(schema)
        beside = {"description": text} if text else {}
        if isinstance(target, Mapping) and not _INSIDE & target.keys() and "$ref" not in target:
            found = self.convert(target, depth + 1)  # a simple value is shorter inline
            return {**found, **beside} if isinstance(found, dict) else found
        if reference not in self._names:
            self._names[reference] = self._name(reference)
            self._waiting.append(reference)
        return {"$ref": f"#/$defs/{self._names[reference]}", **beside}

    def _name(self, reference: str) -> str:
        name = base = _UNSAFE.sub("_", reference.rpartition("/")[2])[:60] or "schema"
        number = 2
        while name in self._names.values():
            name, number = f"{base}_{number}", number + 1
        return name

    def _convert_keywords(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Converts the keywords that hold no schema."""
        made: dict[str, Any] = {}
        kind = schema.get("type")
        if isinstance(kind, str) and kind in _TYPES:
            made["type"] = kind
        elif isinstance(kind, list) and (kinds := [one for one in kind if one in _TYPES]):
            made["type"] = kinds
        if text := _text(schema):
            made["description"] = text
        made |= {key: schema[key] for key in schema if key in _COPIED}
        if isinstance(schema.get("enum"), list) and schema["enum"]:
            made["enum"] = schema["enum"]
        if not isinstance(made.get("required", []), list):
            del made["required"]
        if self._patterns and isinstance(schema.get("pattern"), str):
            made["pattern"] = schema["pattern"]
        for exclusive, inclusive in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            limit = schema.get(exclusive)
            if limit is True and inclusive in made:  # the form of 3.0
                made[exclusive] = made.pop(inclusive)
            elif isinstance(limit, int | float) and not isinstance(limit, bool):
                made[exclusive] = limit
        if shown := _example(schema):
            made["examples"] = shown
        return made

    def _remove_read_only(self, schema: Mapping[str, Any], made: dict[str, Any]) -> None:
        properties = schema.get("properties")
        if not isinstance(properties, Mapping):
            return
        hidden = {name for name, one in properties.items() if isinstance(one, Mapping) and one.get("readOnly") is True}
        if hidden:
            made["properties"] = {name: one for name, one in made["properties"].items() if name not in hidden}
            if "required" in made:
                made["required"] = [name for name in made["required"] if name not in hidden]

    def _apply_nullable(self, schema: Mapping[str, Any], made: dict[str, Any]) -> Any:
        if schema.get("nullable") is not True or not self.document.is_old:
            return made
        if isinstance(made.get("type"), str):
            made["type"] = [made["type"], "null"]
            if "enum" in made and None not in made["enum"]:
                made["enum"] = [*made["enum"], None]
            return made
        text = {"description": made.pop("description")} if "description" in made else {}
        return {**text, "anyOf": [made, {"type": "null"}]} if made else text


def merge_object(document: Document, schema: Any, depth: int = 0) -> Mapping[str, Any] | None:
    """Merges a schema and its `allOf` into one object with `properties`; None for any other schema."""
    schema = document.resolve(schema)
    if depth > DEEPEST_SCHEMA or any(key in schema for key in ("oneOf", "anyOf", "not", "if", "patternProperties")):
        return None
    if schema.get("type", "object") != "object" or schema.get("additionalProperties", False) is not False:
        return None
    if schema.get("nullable") is True or int(bool(schema.get("minProperties"))):
        return None
    properties = schema.get("properties")
    merged: dict[str, Any] = dict(properties) if isinstance(properties, Mapping) else {}
    required = [*schema["required"]] if isinstance(schema.get("required"), list) else []
    for part in schema["allOf"] if isinstance(schema.get("allOf"), list) else ():
        found = merge_object(document, part, depth + 1)
        if found is None or set(found["properties"]) & set(merged):
            return None
        merged |= found["properties"]
        required += found["required"]
    return {"properties": merged, "required": required} if merged else None


def is_binary(document: Document, schema: Any) -> bool:
    """Returns whether a value of the schema is bytes, which are a text in JSON."""
    try:
        schema = document.resolve(schema)
    except BrokenOperation:
        return False
    return schema.get("format") == "binary" or (
        isinstance(schema.get("contentMediaType"), str) and schema.get("contentEncoding") is None
    )


def _text(schema: Mapping[str, Any]) -> str:
    return clean(schema.get("description"), LONGEST_TEXT)


def _example(schema: Mapping[str, Any]) -> list[Any]:
    """Returns one short example: models copy what they see."""
    examples = schema.get("examples")
    given = examples if isinstance(examples, list) else [schema["example"]] if "example" in schema else []
    short = [one for one in given if isinstance(one, str | int | float) and len(str(one)) <= LONGEST_EXAMPLE][:1]
    return [str(one) for one in short] if schema.get("type") == "string" else short
