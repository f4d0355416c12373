"""Makes JSON Schemas of Python types: of pydantic models, which stand for the arguments, and of return types."""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints, is_typeddict

from forge.core.arguments.pydantic_private import make_closed_generator
from forge.core.errors import DefinitionError
from forge.core.result import Attachment, ToolResult
from forge.core.spec import JsonSchema


def is_model(schema: object) -> bool:
    """Returns whether it is the class of a pydantic model, without importing pydantic."""
    return isinstance(schema, type) and hasattr(schema, "model_json_schema") and hasattr(schema, "model_validate_json")


def schema_of(name: str, model: Any) -> dict[str, Any]:
    """Returns the JSON Schema of a model. Raises `DefinitionError` for a model with fields that JSON cannot hold."""
    try:
        schema = without_titles(model.model_json_schema(schema_generator=make_closed_generator()))
    except Exception as error:  # pydantic has no common class for "this type has no JSON form"
        raise DefinitionError(f"tool {name!r}: {model.__name__}: {str(error).splitlines()[0]}") from error
    return {"properties": {}, **{key: value for key, value in schema.items() if key != "description"}}


def field_name(model: Any, name: str) -> str:
    """Returns the field of a model that a property of its schema stands for: an alias is the property's name."""
    for key, field in model.model_fields.items():
        alias = field.validation_alias or field.alias or key
        choices = getattr(alias, "choices", (alias,))
        if name in [str(getattr(one, "path", (one,))[0]) for one in choices]:
            return str(key)
    return name


_WITHOUT = (Any, object, str, type(None), ToolResult, Attachment, bytes, bytearray, memoryview)


def read_return_schema(function: Callable[..., Any]) -> JsonSchema | None:
    """Returns the schema of a function's declared return type. Never raises.

    None for text, nothing, a `ToolResult` or an attachment, for pieces that are yielded, and for types without a JSON
    form: a tool works without it.
    """
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return None
    try:
        hint = get_type_hints(function, include_extras=True).get("return", Any)
        if hint in _WITHOUT:
            return None  # the most frequent types: nothing heavy is imported for them
        from pydantic import TypeAdapter  # heavy: paid on first use

        adapter: Any = TypeAdapter(convert_typed_dicts(hint))
        schema = without_titles(adapter.json_schema(mode="serialization", by_alias=False))
    except Exception:  # names that are not there at run time, types without a JSON form: pydantic has no common class
        return None
    return schema if schema else None


def without_titles(schema: Any) -> Any:
    """Removes the titles from pydantic's schema, which only cost tokens."""
    if isinstance(schema, list):
        return [without_titles(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: {name: without_titles(item) for name, item in value.items()}
        if key in ("properties", "$defs")
        else value
        if key in ("default", "const", "enum", "examples")
        else without_titles(value)
        for key, value in schema.items()
        if not (key == "title" and isinstance(value, str))
    }


# Makes `typing.TypedDict` classes readable to pydantic, which refuses them before Python 3.12.


def convert_typed_dicts(hint: Any) -> Any:
    """Returns the type with every TypedDict in it in the form that pydantic reads on this Python."""
    if sys.version_info >= (3, 12):
        return hint
    if is_typeddict(hint):
        return _rebuild(hint) if type(hint).__module__ == "typing" else hint
    origin, arguments = get_origin(hint), get_args(hint)
    if not arguments or not any(map(_holds_one, arguments)):
        return hint
    if origin is Annotated:
        return Annotated[(convert_typed_dicts(arguments[0]), *arguments[1:])]
    readable = tuple(map(convert_typed_dicts, arguments))
    return Union[readable] if origin in (Union, types.UnionType) else origin[readable]  # noqa: UP007


def _holds_one(hint: Any) -> bool:
    return is_typeddict(hint) or any(map(_holds_one, get_args(hint)))


@cache
def _rebuild(old: Any) -> Any:
    from typing_extensions import TypedDict

    hints = get_type_hints(old, include_extras=True)
    new: Any = TypedDict(old.__name__, {key: convert_typed_dicts(hint) for key, hint in hints.items()})  # type: ignore[misc]
    new.__required_keys__, new.__optional_keys__ = old.__required_keys__, old.__optional_keys__
    new.__doc__ = old.__doc__
    return new
