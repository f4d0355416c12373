"""Encodes values as a document requires: in a path, a query, a header or a cookie."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import quote

from forge.core.errors import ErrorKind, ToolError
from forge.sources.openapi.plans import Parameter

Pairs = list[tuple[str, str]]
_Spell = Callable[[str], str]

_RESERVED = ":/?@!$'()*,;[]"  # without the characters that end a value: # & = +
_DOTS = frozenset({"", ".", ".."})
_SEPARATORS = {"form": ",", "spaceDelimited": "%20", "pipeDelimited": "%7C", "tabDelimited": "%09"}
_DEEPEST = 20


def encode_in_path(parameter: Parameter, value: Any) -> str:
    """Encodes one or more values as a part of the path; a slash in a value is not a separator."""
    name, spell = quote_text(parameter.name), quote_text
    if parameter.media:
        return _check_segment(parameter, spell(as_json(value)))
    if parameter.style == "label":
        return "." + _join_values(value, "." if parameter.explode else ",", parameter.explode, spell)
    if parameter.style == "matrix":
        if isinstance(value, Mapping) and parameter.explode:
            return "".join(f";{spell(key)}={spell(as_text(item))}" for key, item in value.items())
        if isinstance(value, list) and parameter.explode:
            return "".join(f";{name}={spell(as_text(item))}" for item in value)
        return f";{name}={_join_values(value, ',', False, spell)}"
    return _check_segment(parameter, _join_values(value, ",", parameter.explode, spell))


def encode_in_query(parameter: Parameter, value: Any) -> list[str]:
    """Returns `name=value` parts, to be joined with `&`."""
    spell: _Spell = _quote_reserved if parameter.reserved else quote_text
    name = quote_text(parameter.name)
    if parameter.media:
        return [f"{name}={spell(as_json(value))}"]
    if parameter.style == "deepObject":
        return [f"{quote_text(key, '[]')}={spell(text)}" for key, text in flatten_value(parameter.name, value)]
    if isinstance(value, Mapping):
        if parameter.explode:
            return [f"{quote_text(key)}={spell(as_text(item))}" for key, item in value.items() if item is not None]
        value = [part for pair in value.items() for part in pair]
    if not isinstance(value, list):
        return [f"{name}={spell(as_text(value))}"]
    if parameter.explode:
        return [f"{name}={spell(as_text(item))}" for item in value]
    return [f"{name}={_SEPARATORS.get(parameter.style, ',').join(spell(as_text(item)) for item in value)}"]


def encode_in_header(parameter: Parameter, value: Any) -> str:
    return as_json(value) if parameter.media else _join_values(value, ",", parameter.explode, str)


def encode_in_cookie(parameter: Parameter, value: Any) -> Pairs:
    """Returns cookies; characters that end a cookie are escaped."""
    name = quote_text(parameter.name)
    if parameter.media:
        return [(name, quote_text(as_json(value)))]
    if isinstance(value, Mapping) and parameter.explode:
        return [(quote_text(key), quote_text(as_text(item))) for key, item in value.items()]
    if isinstance(value, list) and parameter.explode:
        return [(name, quote_text(as_text(item))) for item in value]
    return [(name, _join_values(value, ",", False, quote_text))]


def flatten_value(name: str, value: Any, depth: int = 0) -> Iterable[tuple[str, str]]:
    """Yields `name[key]` pairs for nested values."""
    if depth < _DEEPEST and isinstance(value, Mapping):
        for key, item in value.items():
            yield from flatten_value(f"{name}[{key}]", item, depth + 1)
    elif depth < _DEEPEST and isinstance(value, list):
        for number, item in enumerate(value):
            yield from flatten_value(f"{name}[{number}]", item, depth + 1)
    elif value is not None:
        yield name, as_text(value)


def as_text(value: Any) -> str:
    """Returns a single value as text for a URL."""
    return value if isinstance(value, str) else "" if value is None else as_json(value)


def as_json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        raise ToolError("JSON has no such number", ErrorKind.VALIDATION, "Remove NaN and Infinity.") from None


def quote_text(text: str, safe: str = "") -> str:
    try:
        return quote(text, safe=safe)
    except UnicodeEncodeError:
        raise ToolError("an invalid character (a lone surrogate)", ErrorKind.VALIDATION, "Remove it.") from None


def _quote_reserved(text: str) -> str:
    return quote_text(text, _RESERVED)


def _join_values(value: Any, separator: str, explode: bool, spell: _Spell) -> str:
    if isinstance(value, Mapping):
        pairs = ((spell(str(key)), spell(as_text(item))) for key, item in value.items())
        return separator.join(f"{key}={item}" if explode else f"{key},{item}" for key, item in pairs)
    if isinstance(value, list):
        return separator.join(spell(as_text(item)) for item in value)
    return spell(as_text(value))


def _check_segment(parameter: Parameter, spelled: str) -> str:
    """Refuses an empty segment or one of dots: some servers read it as another path, even if it is encoded."""
    if spelled in _DOTS:
        raise ToolError(
            f"{parameter.argument}: {spelled!r} cannot be part of a path",
            ErrorKind.VALIDATION,
            'Send a non-empty value that is not "." or "..".',
        )
    return spelled
