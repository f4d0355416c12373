"""Compares what is sent with the types of a vendor's own SDK: unknown keys, missing keys and wrong types are errors."""

from __future__ import annotations

import collections.abc
import types
import typing
from typing import Any, get_args, get_origin

import typing_extensions
from typing_extensions import is_typeddict

_LISTS = (list, collections.abc.Iterable, collections.abc.Sequence, collections.abc.Collection)
_MAPS = (dict, collections.abc.Mapping)


def problems(value: Any, kind: Any, at: str = "") -> list[str]:
    """Returns what does not fit the type, each with its place; nothing if all of it fits."""
    if kind is Any or kind is object:
        return []
    if kind is None or kind is type(None):
        return [] if value is None else [f"{at}: {value!r} is not None"]
    origin = get_origin(kind)
    if origin in (typing.Annotated, typing_extensions.Required, typing_extensions.NotRequired):
        return problems(value, get_args(kind)[0], at)
    if origin in (typing.Union, types.UnionType):
        found = [problems(value, one, at) for one in get_args(kind)]
        best = min(found, key=lambda one: (len(one), -max((len(line) for line in one), default=0)))
        return [] if not all(found) else best
    if origin in (typing.Literal, typing_extensions.Literal):
        return [] if value in get_args(kind) else [f"{at}: {value!r} is none of {get_args(kind)}"]
    if origin in _LISTS:
        if not isinstance(value, list | tuple):
            return [f"{at}: {value!r} is no list"]
        (inner,) = get_args(kind) or (Any,)
        return [line for index, one in enumerate(value) for line in problems(one, inner, f"{at}[{index}]")]
    if origin in _MAPS:
        if not isinstance(value, dict):
            return [f"{at}: {value!r} is no object"]
        return [line for key, one in value.items() for line in problems(one, get_args(kind)[1], f"{at}.{key}")]
    if is_typeddict(kind):
        return _typed_dict(value, kind, at)
    if isinstance(kind, type):
        wanted = (int, float) if kind is float else (kind,)
        fits = isinstance(value, wanted) and not (isinstance(value, bool) and kind is not bool)
        return [] if fits else [f"{at}: {value!r} is no {kind.__name__}"]
    if hasattr(kind, "__value__"):  # type X = …
        return problems(value, kind.__value__, at)
    return []


def _typed_dict(value: Any, kind: Any, at: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{at}: {value!r} is no object"]
    hints = typing_extensions.get_type_hints(kind, include_extras=True)
    found = [f"{at}.{key}: unknown key of {kind.__name__}" for key in value if key not in hints]
    found += [f"{at}.{key} is missing" for key in kind.__required_keys__ if key not in value]
    for key, one in value.items():
        if key in hints:
            found += problems(one, hints[key], f"{at}.{key}")
    return found
