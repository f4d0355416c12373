"""Finds the parameters of a schema, wherever its root keeps them, and follows its references within bounds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal
from urllib.parse import unquote

from forge.core.arguments.names import Names
from forge.core.spec import JsonSchema

# The keywords of JSON Schema that hold schemas for the same value; `old_drafts` uses them, too.


REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
BRANCHES = ("anyOf", "oneOf")
CONDITIONS = ("if", "then", "else")
DEPENDENT = ("dependentSchemas", "dependencies")  # … by the name of a key


# Follows the local references of a schema, and counts the cost of following them all.


_BESIDE_ONE = ("not", *CONDITIONS)
_BESIDE_LISTS = ("allOf", *BRANCHES)
_ANCHORS = ("$anchor", "$dynamicAnchor")


class References:
    """The parts of a schema that its references name."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._nodes: dict[int, Mapping[str, Any]] = {}
        self._bases: dict[int, Mapping[str, Any]] = {}  # the node at which a node's pointers begin
        # several: an example may hold the same name, to hide the part that the validator finds
        self._anchors: dict[str, list[Mapping[str, Any]]] = {}
        self._look(schema)

    def targets(self, node: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """Returns the schemas that this one refers to."""
        found = [one for key in REFERENCES if key in node for one in self._at(node, node[key])]
        return [one for one in found if isinstance(one, Mapping)]

    def same_place(self, nodes: Iterable[Any], most: int) -> list[Mapping[str, Any]]:
        """Returns all schemas that check the same value: behind references, in branches. At most `most`."""
        found: dict[int, Mapping[str, Any]] = {}
        waiting = [node for node in nodes if isinstance(node, Mapping)]
        while waiting and len(found) < most:
            node = waiting.pop()
            if id(node) not in found:
                found[id(node)] = node
                waiting.extend(self._beside(node))
        return list(found.values())

    def exceeds(self, most: int) -> bool:
        """Returns whether some value would be checked more than `most` times. A schema inside itself counts once.

        A few lines can ask for billions of checks; a validator makes them all, and nothing else runs meanwhile.
        """
        costs: dict[int, int] = {}
        for start in self._nodes.values():
            path = [(start, self._beside(start))] if id(start) not in costs else []
            is_open = {id(start)}
            costs.setdefault(id(start), 1)
            while path:
                node, others = path[-1]
                other = next(others, None)
                if other is None:
                    path.pop()
                    is_open.discard(id(node))
                    if path:
                        costs[id(path[-1][0])] += costs[id(node)]
                elif id(other) in costs:
                    costs[id(node)] += 1 if id(other) in is_open else costs[id(other)]
                else:
                    costs[id(other)] = 1
                    is_open.add(id(other))
                    path.append((other, self._beside(other)))
                if costs[id(node)] > most:
                    return True
        return False

    def _look(self, schema: Mapping[str, Any]) -> None:
        waiting: list[tuple[Any, Mapping[str, Any]]] = [(schema, schema)]
        while waiting:
            node, base = waiting.pop()
            if isinstance(node, Mapping):
                named = node.get("$id")
                if isinstance(named, str) and named.startswith("#"):  # how drafts 6 and 7 spell an anchor
                    self._anchors.setdefault(named[1:], []).append(node)
                elif isinstance(named, str):
                    base = node
                self._nodes[id(node)], self._bases[id(node)] = node, base
                for key in _ANCHORS:
                    if isinstance(node.get(key), str):
                        self._anchors.setdefault(node[key], []).append(node)
                waiting.extend((item, base) for item in node.values())
            elif isinstance(node, list | tuple):
                waiting.extend((item, base) for item in node)

    def _beside(self, node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """Returns the schemas that check the same value as this one."""
        found: list[Any] = [*self.targets(node)]
        found += [node.get(key) for key in _BESIDE_ONE]
        found += [one for key in _BESIDE_LISTS if isinstance(node.get(key), list | tuple) for one in node[key]]
        found += [one for key in DEPENDENT if isinstance(node.get(key), Mapping) for one in node[key].values()]
        return (one for one in found if isinstance(one, Mapping))

    def _at(self, node: Mapping[str, Any], reference: Any) -> Sequence[Any]:
        if not isinstance(reference, str):
            return ()
        pointer = _read_pointer(reference)
        if pointer and not pointer.startswith("/"):
            return self._anchors.get(pointer, ())
        try:
            return (_follow(self._bases[id(node)], pointer),)
        except LookupError:
            return ()  # the validator reports it


def find_reference(root: JsonSchema, reference: str) -> Any:
    """Returns what a reference such as `#/$defs/Address` points to; `{}`, which allows anything, if it is not there."""
    try:
        return _follow(root, _read_pointer(reference))
    except LookupError:
        return {}


def _read_pointer(reference: str) -> str:
    pointer = reference.removeprefix("#")
    if "%" in pointer:
        return unquote(pointer)
    return pointer


def _follow(root: Any, pointer: str) -> Any:
    """Follows a JSON pointer. Raises `LookupError`."""
    found = root
    for part in pointer.split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        try:
            found = found[int(part)] if isinstance(found, list | tuple) else found[part]
        except (ValueError, TypeError) as error:
            raise LookupError(pointer) from error
    return found


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


# Finds the names that a schema knows at a path inside the arguments.


_MOST_SCHEMAS = 1_000  # that describe one place


class NamesByPath:
    """The names of a schema by path, each looked up once. `aliases` are other names at the top."""

    def __init__(self, schema: JsonSchema, aliases: Mapping[str, str]) -> None:
        self._schema = schema
        self._aliases = aliases
        self._found: dict[tuple[str | int, ...], Names] = {}

    def at(self, path: tuple[str | int, ...]) -> Names:
        """Returns the keys that an object at `path` may have."""
        found = self._found.get(path)
        if found is None:
            found = self._found[path] = self._look(path)
        return found

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
        return Names(tuple(known), tuple(required), {} if path else self._aliases)


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
