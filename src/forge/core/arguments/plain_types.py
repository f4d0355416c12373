"""Reads parameters of plain types, such as `int` or `list[str] | None`, without pydantic's own generators.

Most tools have no others. Pydantic takes longer to import than everything else of Forge together, and a millisecond
for each tool; its core, which does the checking, is quick to load. What is not known here is left to pydantic.
"""

from __future__ import annotations

import types
from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from forge.core.arguments.parameters import ParameterLimits

_UNIONS = (Union, types.UnionType)
_NULL = {"type": "null"}
_JSON_SCHEMAS: dict[Any, dict[str, Any]] = {  # by type, as models see it; below, as pydantic's core checks it
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    list: {"items": {}, "type": "array"},
    dict: {"additionalProperties": True, "type": "object"},
}
_CORE_SCHEMAS: dict[Any, dict[str, Any]] = {
    str: {"type": "str"},
    int: {"type": "int"},
    float: {"type": "float"},
    bool: {"type": "bool"},
    list: {"type": "list", "items_schema": {"type": "any"}},
    dict: {"type": "dict", "keys_schema": {"type": "any"}, "values_schema": {"type": "any"}},
}
_ON_NUMBERS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
_LIMITS = {
    "int": _ON_NUMBERS,
    "float": _ON_NUMBERS,
    "str": {"min_length": "minLength", "max_length": "maxLength"},
    "list": {"min_length": "minItems", "max_length": "maxItems"},
}


class _Simple(NamedTuple):
    """A type as pydantic's core schema and as the JSON Schema that pydantic would make of it."""

    checked: dict[str, Any]
    shown: dict[str, Any]


class SimpleArguments:
    """Arguments whose types are all plain; it replaces a `TypeAdapter` of their TypedDict."""

    def __init__(self, fields: Mapping[str, _Simple], optional: Collection[str]) -> None:
        self._fields = fields
        self._optional = optional

    @cached_property
    def core_schema(self) -> dict[str, Any]:
        fields = {
            key: {"type": "typed-dict-field", "schema": one.checked, "required": key not in self._optional}
            for key, one in self._fields.items()
        }
        config = {"title": "Arguments", "extra_fields_behavior": "forbid", "allow_inf_nan": False}
        return {"type": "typed-dict", "fields": fields, "extra_behavior": "forbid", "config": config}

    @cached_property
    def validator(self) -> Any:
        from pydantic_core import SchemaValidator  # heavy: paid at the first call

        return SchemaValidator(self.core_schema)

    def json_schema(self) -> dict[str, Any]:
        """Returns a new dictionary each time: its parameters are given texts and defaults."""
        schema: dict[str, Any] = {
            "additionalProperties": False,
            "properties": {key: dict(one.shown) for key, one in self._fields.items()},
        }
        if required := [key for key in self._fields if key not in self._optional]:
            schema["required"] = required
        return {**schema, "type": "object"}


def simple_arguments(hints: Mapping[str, Any], optional: Collection[str]) -> SimpleArguments | None:
    """Returns the arguments, or None where a type is not plain: pydantic reads all of them then."""
    fields = {}
    for key, hint in hints.items():
        read = _read(hint)
        if read is None:
            return None
        fields[key] = read
    return SimpleArguments(fields, optional)


def _read(hint: Any) -> _Simple | None:
    if type(hint) is type:
        return _Simple(_CORE_SCHEMAS[hint], _JSON_SCHEMAS[hint]) if hint in _JSON_SCHEMAS else None
    if hint is Any:
        return _Simple({"type": "any"}, {})
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _read_annotated(arguments[0], arguments[1:])
    if origin in _UNIONS:
        return _union(arguments)
    if origin is Literal:
        return _choice(arguments)
    if origin is list and len(arguments) == 1:
        return _list(_read(arguments[0]))
    if origin is dict and len(arguments) == 2 and arguments[0] is str:
        return _dictionary(_read(arguments[1]))
    return None


def _list(item: _Simple | None) -> _Simple | None:
    if item is None:
        return None
    return _Simple({"type": "list", "items_schema": item.checked}, {"items": item.shown, "type": "array"})


def _dictionary(value: _Simple | None) -> _Simple | None:
    if value is None:
        return None
    checked = {"type": "dict", "keys_schema": {"type": "str"}, "values_schema": value.checked}
    return _Simple(checked, {"additionalProperties": value.shown or True, "type": "object"})


def _choice(values: tuple[Any, ...]) -> _Simple | None:
    if not all(type(value) is str for value in values):
        return None
    shown = {"const": values[0]} if len(values) == 1 else {"enum": list(values)}
    return _Simple({"type": "literal", "expected": list(values)}, {**shown, "type": "string"})


def _union(members: tuple[Any, ...]) -> _Simple | None:
    choices = [_read(member) for member in members if member is not type(None)]
    known = [choice for choice in choices if choice is not None and choice.shown]
    shown = [choice.shown for choice in known]
    if len(known) < len(choices) or any("anyOf" in one or shown.count(one) > 1 for one in shown):
        return None  # pydantic merges members with the same schema
    checked = known[0].checked if len(known) == 1 else {"type": "union", "choices": [one.checked for one in known]}
    if len(known) < len(members):
        checked, shown = {"type": "nullable", "schema": checked}, [*shown, _NULL]
    return _Simple(checked, {"anyOf": shown})


def _read_annotated(hint: Any, extras: tuple[Any, ...]) -> _Simple | None:
    """Reads a type with texts, which `Signature` reads, and with `ParameterLimits`."""
    found = _read(hint)
    for extra in extras:
        if found is None or type(extra) is str:
            continue
        found = _apply_limits(found, extra) if type(extra) is ParameterLimits else None
    return found


def _apply_limits(one: _Simple, limits: ParameterLimits) -> _Simple | None:
    names = _LIMITS.get(one.checked["type"], {})
    if not limits.limits.keys() <= names.keys():
        return None
    shown = {**one.shown, **{names[key]: value for key, value in limits.limits.items()}}
    if limits.example is not None:
        shown["examples"] = [limits.example]
    return _Simple({**one.checked, **limits.limits}, dict(sorted(shown.items())))
