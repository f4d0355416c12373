"""Finds the parameters of a schema, wherever its root keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from forge.core.arguments.references import BRANCHES, CONDITIONS, DEPENDENT, REFERENCES, References
from forge.core.spec import JsonSchema

_COMPOSED = (*REFERENCES, "allOf", *BRANCHES, *CONDITIONS, *DEPENDENT, "dependentRequired")
_FURTHER_KEYS = ("additionalProperties", "unevaluatedProperties")
Branches = Literal["every", "first", "none"]

_MOST_FOLLOWED = 100  # references and branches that are followed


@dataclass(eq=False, repr=False)
class Outline:
    """The keys that a schema declares."""

    properties: dict[str, Any] = field(default_factory=dict)
    required: dict[str, None] = field(default_factory=dict)  # whichever branch holds; in the schema's order
    patterns: dict[str, Any] = field(default_factory=dict)  # patternProperties
    declares_more: bool = False  # it mentions further keys, and allows them

    def take(self, other: Outline) -> None:
        """Adds another outline that also holds."""
        for name, shown in other.properties.items():
            if self.properties.get(name) in (None, {}, True):
                self.properties[name] = shown
        self.required.update(other.required)
        self._open(other)

    def take_one(self, others: list[Outline]) -> None:
        """Adds outlines of which one holds."""
        for name in dict.fromkeys(name for other in others for name in other.properties):
            if self.properties.get(name) in (None, {}, True):
                self.properties[name] = _either([one.properties[name] for one in others if name in one.properties])
        always = [name for name in others[0].required if all(name in other.required for other in others)]
        self.required.update(dict.fromkeys(always))
        for other in others:
            self._open(other)

    def _open(self, other: Outline) -> None:
        self.patterns.update(other.patterns)
        self.declares_more |= other.declares_more


def is_flat(schema: JsonSchema) -> bool:
    """Returns whether the root's own `properties` and `required` are complete."""
    return not any(key in schema for key in _COMPOSED)


def outline(schema: JsonSchema, branches: Branches = "every") -> Outline:
    """Returns the keys that the root may hold: in any branch, in its first ones, or beside all branches."""
    return _OutlineWalk(schema, branches).of(schema)


def flatten_schema(schema: JsonSchema, branches: Branches = "every") -> JsonSchema:
    """Returns one flat object schema with the parameters of these branches; the schema itself if it is flat.

    It is for display, for examples and for the names that repairs know, never for checks: it allows more.
    """
    if is_flat(schema) and set(schema.get("required") or ()) <= (schema.get("properties") or {}).keys():
        return schema
    found = outline(schema, branches)
    rest = {key: value for key, value in schema.items() if key not in (*_COMPOSED, "$schema", "$id")}
    made = {"type": "object", **rest, "properties": found.properties, "required": list(found.required)}
    if not found.required:
        del made["required"]
    return made


class _OutlineWalk:
    def __init__(self, schema: JsonSchema, branches: Branches) -> None:
        self._schema = schema
        self._branches = branches
        self._known: dict[int, Outline] = {}

    @cached_property
    def _references(self) -> References:
        return References(self._schema)

    def of(self, node: Any, depth: int = 0) -> Outline:
        if not isinstance(node, Mapping) or depth > _MOST_FOLLOWED:
            return Outline()
        if id(node) in self._known:
            return self._known[id(node)]
        found = self._known[id(node)] = Outline()  # noted before its parts: a schema inside itself adds nothing
        properties, patterns = node.get("properties"), node.get("patternProperties")
        found.properties.update(properties if isinstance(properties, Mapping) else {})
        found.patterns.update(patterns if isinstance(patterns, Mapping) else {})
        found.declares_more = "propertyNames" in node or any(node.get(key, False) is not False for key in _FURTHER_KEYS)
        found.required.update(dict.fromkeys(_names(node.get("required"))))
        targets = self._references.targets(node) if any(key in node for key in REFERENCES) else ()
        for part in (*targets, *_list(node.get("allOf"))):
            found.take(self.of(part, depth + 1))
        for key in BRANCHES if self._branches != "none" else ():
            branches = [self.of(part, depth + 1) for part in _list(node.get(key)) if part is not False]
            if branches:
                found.take_one(branches[:1] if self._branches == "first" else branches)
        if self._branches == "every":
            self._take_conditions(node, found, depth + 1)
        for name in found.required:
            found.properties.setdefault(name, {})
        return found

    def _take_conditions(self, node: Mapping[str, Any], found: Outline, depth: int) -> None:
        conditions = [self.of(node[key], depth) for key in CONDITIONS if key in node]
        dependent = [node[key] for key in (*DEPENDENT, "dependentRequired") if isinstance(node.get(key), Mapping)]
        parts = [part for one in dependent for part in one.values()]
        conditions += [self.of(part, depth) for part in parts]
        named = [name for one in dependent for name in one] + [name for part in parts for name in _names(part)]
        for name in named:
            found.properties.setdefault(name, {})
        if conditions:
            found.take_one([*conditions, Outline()])  # maybe none of them holds


def _either(shown: list[Any]) -> Any:
    distinct = [one for at, one in enumerate(shown) if one not in shown[:at]]
    if len(distinct) == 1:
        return distinct[0]
    if all(isinstance(one, Mapping) and "const" in one for one in distinct):
        texts = {one.get("type") for one in distinct}
        kind = {"type": texts.pop()} if len(texts) == 1 and None not in texts else {}
        return {**kind, "enum": [one["const"] for one in distinct]}
    return {"anyOf": [dict(one) if isinstance(one, Mapping) else {} for one in distinct]}


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def _names(value: Any) -> list[str]:
    return [name for name in _list(value) if isinstance(name, str)]
