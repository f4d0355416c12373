"""Makes `typing.TypedDict` classes readable to pydantic, which refuses them before Python 3.12."""

from __future__ import annotations

import sys
import types
from functools import cache
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints, is_typeddict


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
