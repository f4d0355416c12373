"""Rewrites spellings of JSON Schema that most readers do not know: older drafts, and references to an `$id`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote, urldefrag, urljoin

from forge.core.arguments.references import BRANCHES, CONDITIONS, DEPENDENT
from forge.core.spec import JsonSchema

KeyPath = tuple[str | int, ...]

_DYNAMIC = ("$dynamicRef", "$recursiveRef")  # their targets depend on the way that leads there
_OLD = ("draft-03", "draft-04", "draft-06", "draft-07")  # here nothing beside a `$ref` counts, not even an `$id`

_SCHEMA_KEYWORDS = (  # keywords whose value is a schema
    *("not", *CONDITIONS, "items", "additionalItems", "contains", "unevaluatedItems"),
    *("additionalProperties", "unevaluatedProperties", "propertyNames"),
)
_LIST_KEYWORDS = ("allOf", *BRANCHES, "prefixItems", "items")  # … a list of schemas
NAMED_KEYWORDS = ("properties", "patternProperties", *DEPENDENT, "$defs", "definitions")  # … schemas by name


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
    for key in _SCHEMA_KEYWORDS:
        if isinstance(made.get(key), Mapping):
            made[key] = _modernise(made[key])
    for key in _LIST_KEYWORDS:
        if isinstance(made.get(key), list | tuple):
            made[key] = [_modernise(one) for one in made[key]]
    for key in NAMED_KEYWORDS:
        if isinstance(made.get(key), Mapping):
            made[key] = {name: _modernise(one) for name, one in made[key].items()}
    if isinstance(made.get("items"), list) and "prefixItems" not in made:
        made["prefixItems"] = made.pop("items")
        if "additionalItems" in made:
            made["items"] = made.pop("additionalItems")
    return made


def localise_references(schema: JsonSchema) -> JsonSchema:
    """Returns an equal schema without nested `$id`s; the schema itself if nothing in it needs that."""
    if not _has_ids(schema):
        return schema
    return _SchemaIds(schema).rewrite()


def _has_ids(schema: JsonSchema) -> bool:
    """Returns whether a reference leads to an `$id` or a part has one. False if one is dynamic."""
    found = False
    waiting: list[tuple[Any, bool]] = [(schema, True)]
    while waiting:
        node, is_root = waiting.pop()
        if isinstance(node, Mapping):
            if any(key in node for key in _DYNAMIC):
                return False
            if not is_root and isinstance(node.get("$schema"), str) and node["$schema"] != schema.get("$schema"):
                return False  # a part in another draft
            target, own = node.get("$ref"), node.get("$id")
            found |= isinstance(target, str) and not target.startswith("#")
            found |= not is_root and isinstance(own, str) and not own.startswith("#")
            waiting.extend((item, False) for item in node.values() if isinstance(item, Mapping | list | tuple))
        else:
            waiting.extend((item, False) for item in node if isinstance(item, Mapping | list | tuple))
    return found


class _SchemaIds:
    """The `$id`s and anchors of the parts of a schema."""

    def __init__(self, schema: JsonSchema) -> None:
        self._schema = schema
        draft = schema.get("$schema")
        self._is_old = isinstance(draft, str) and any(old in draft for old in _OLD)
        self._parts: dict[str, KeyPath] = {}  # by address, and by address with anchor
        self._bases: dict[KeyPath, str] = {}  # the address against which a part's references are resolved
        self._find(schema, (), "")

    def rewrite(self) -> JsonSchema:
        made: JsonSchema = self._rewrite(self._schema, ())
        return made

    def _find(self, node: Any, path: KeyPath, base: str) -> None:
        if not isinstance(node, Mapping):
            return
        if not path:
            self._parts[""] = path
        own = node.get("$id")
        if isinstance(own, str) and not (self._is_old and "$ref" in node):
            name, anchor = urldefrag(own)
            if name:
                base = urljoin(base, name)
                self._parts.setdefault(base, path)
            if anchor:
                self._parts.setdefault(f"{base}#{anchor}", path)
        if isinstance(node.get("$anchor"), str):
            self._parts.setdefault(f"{base}#{node['$anchor']}", path)
        self._bases[path] = base
        for part, inner in _parts_of(node):
            self._find(inner, (*path, *part), base)

    def _rewrite(self, node: Any, path: KeyPath) -> Any:
        if not isinstance(node, Mapping):
            return node
        made = {key: value for key, value in node.items() if key not in ("$id", "$anchor")}
        if isinstance(made.get("$ref"), str):
            made["$ref"] = self._localise(made["$ref"], self._bases[path])
        for part, inner in _parts_of(node):
            changed = self._rewrite(inner, (*path, *part))
            match part:
                case (key,):
                    made[key] = changed
                case (key, name):
                    if made[key] is node[key]:
                        made[key] = dict(node[key]) if isinstance(node[key], Mapping) else list(node[key])
                    made[key][name] = changed
        return made

    def _localise(self, reference: str, base: str) -> str:
        name, fragment = urldefrag(reference)
        address = urljoin(base, name) if name else base
        fragment = unquote(fragment)
        is_pointer = not fragment or fragment.startswith("/")
        found = self._parts.get(address if is_pointer else f"{address}#{fragment}")
        if found is None:
            return reference  # remote, or nothing: the check of the schema says which
        steps = [str(one).replace("~", "~0").replace("/", "~1") for one in found]
        return "#" + quote("".join(f"/{step}" for step in steps) + (fragment if is_pointer else ""), safe="/~$@:!")


def _parts_of(node: Mapping[str, Any]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Returns the schemas in a schema with their places. An example or an enum holds values, not schemas."""
    for key in _SCHEMA_KEYWORDS:
        if isinstance(node.get(key), Mapping):
            yield (key,), node[key]
    for key in _LIST_KEYWORDS:
        if isinstance(node.get(key), list | tuple):
            yield from (((key, at), one) for at, one in enumerate(node[key]))
    for key in NAMED_KEYWORDS:
        if isinstance(node.get(key), Mapping):
            yield from (((key, name), one) for name, one in node[key].items())
