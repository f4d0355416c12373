"""Reads the arguments of a call that were typed as `name=value`: each value as the parameter's schema wants it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from forge.core.arguments.explain import json_type, near
from forge.core.errors import ErrorKind, ToolError
from forge.core.spec import ToolSpec

DEEPEST = 10  # references and alternatives that are followed
_PAIR = re.compile(r"([^\W\d][\w.-]*)=(.*)", re.DOTALL)
_EXAMPLE = "Write either one JSON object, or only name=value pairs: count=3 text='to be'."


def are_pairs(given: Sequence[str]) -> bool:
    """Says whether these words are `name=value` pairs, and not JSON. Raises `ToolError` for a mixture."""
    matching = [word for word in given if _PAIR.fullmatch(word)]
    if not matching:
        if len(given) > 1:
            raise ToolError(f"{given[1][:60]!r} is no argument of the form name=value", ErrorKind.VALIDATION, _EXAMPLE)
        return False
    other = next((word for word in given if word not in matching), None)
    if other is not None:
        problem = f"{other[:60]!r} is not name=value, unlike {matching[0][:60]!r}"
        raise ToolError(problem, ErrorKind.VALIDATION, _EXAMPLE)
    return True


def parse_pairs(given: Sequence[str], spec: ToolSpec, read: Callable[[str], str] | None = None) -> dict[str, Any]:
    """Returns the arguments by name. A list takes several pairs of one name. Raises `ToolError`.

    `read` returns the text of a file: the value of `name=@path`. `name=@@text` is the text `@text`.
    """
    pairs: dict[str, list[str]] = {}
    for word in given:
        found = _PAIR.fullmatch(word)
        assert found is not None
        pairs.setdefault(found[1], []).append(_read_value(found[1], found[2], read))
    properties = spec.parameters.get("properties", {})
    _check_names(pairs, spec, properties)
    return {name: _parse_values(name, values, properties.get(name, {}), spec) for name, values in pairs.items()}


def _read_value(name: str, value: str, read: Callable[[str], str] | None) -> str:
    if read is None or not value.startswith("@"):
        return value
    if value.startswith("@@"):
        return value[1:]
    try:
        return read(value[1:])
    except ToolError as error:
        way = f"For a text that begins with @, write {name}=@{value[:60]}."
        raise ToolError(
            f"{name}={value[:200]}: {error.message}", error.kind, f"{error.suggestion} {way}".strip()
        ) from None


def _check_names(pairs: Mapping[str, Any], spec: ToolSpec, properties: Mapping[str, Any]) -> None:
    if spec.parameters.get("additionalProperties") or "patternProperties" in spec.parameters:
        return
    known = [*properties, *spec.argument_aliases]
    for name in pairs:
        if name in known:
            continue
        hint = near(name, known, 1)
        listed = f"Known are {', '.join(properties)}." if properties else "It takes no arguments."
        advice = f"Did you mean {hint[0]!r}?" if hint else listed
        raise ToolError(f"{spec.name} has no parameter {name!r}", ErrorKind.VALIDATION, advice)


def _parse_values(name: str, values: Sequence[str], schema: Any, spec: ToolSpec) -> Any:
    types = set(_types(schema, spec.parameters, DEEPEST))
    if "array" in types and not values[0].lstrip().startswith("["):
        items = set(_types(schema.get("items", {}), spec.parameters, DEEPEST))
        return [_parse_value(value, items) for value in values]
    if len(values) > 1:
        raise ToolError(f"{name} is given {len(values)} times", ErrorKind.VALIDATION, f"Write {name}= once.")
    return _parse_value(values[0], types)


def _parse_value(value: str, types: set[str]) -> Any:
    """Returns the value of one of these types; the text itself if it has another: the call then says what is wrong."""
    if not types - {"string", "null"}:
        return value
    try:
        parsed = json.loads(value.lower() if value.lower() in ("true", "false") else value)
    except (ValueError, RecursionError):
        return value
    kind = json_type(parsed)
    return parsed if kind in types or (kind == "integer" and "number" in types) else value


def _types(schema: Any, root: Mapping[str, Any], depth: int) -> Iterator[str]:
    """Yields the JSON types that a schema allows."""
    if not isinstance(schema, Mapping) or not depth:
        return
    named = schema.get("type")
    yield from [named] if isinstance(named, str) else named or ()
    if "type" not in schema:
        yield from (json_type(value) for value in schema.get("enum", ()))
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/"):
        target: Any = root
        for key in reference[2:].split("/"):
            target = target.get(key, {}) if isinstance(target, Mapping) else {}
        yield from _types(target, root, depth - 1)
    for way in ("anyOf", "oneOf", "allOf"):
        for alternative in schema.get(way, ()):
            yield from _types(alternative, root, depth - 1)
