"""Spells values as a document wants them: in a path, a query, a header or a cookie."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import quote

from forge.core.errors import ErrorKind, ToolError
from forge.sources.openapi.plans import Parameter

Pairs = list[tuple[str, str]]
_Spell = Callable[[str], str]

_RESERVED = ":/?@!$'()*,;[]"  # without those that would end a value: # & = +
_DOTS = frozenset({"", ".", ".."})
_SEPARATORS = {"form": ",", "spaceDelimited": "%20", "pipeDelimited": "%7C", "tabDelimited": "%09"}
_DEEPEST = 20


def in_path(parameter: Parameter, value: Any) -> str:
    """One or more values as a part of the path, whatever they hold: a slash is no separator."""
    name, spell = quoted(parameter.name), quoted
    if parameter.media:
        return _checked(parameter, spell(as_json(value)))
    if parameter.style == "label":
        return "." + _joined(value, "." if parameter.explode else ",", parameter.explode, spell)
    if parameter.style == "matrix":
        if isinstance(value, Mapping) and parameter.explode:
            return "".join(f";{spell(key)}={spell(as_text(item))}" for key, item in value.items())
        if isinstance(value, list) and parameter.explode:
            return "".join(f";{name}={spell(as_text(item))}" for item in value)
        return f";{name}={_joined(value, ',', False, spell)}"
    return _checked(parameter, _joined(value, ",", parameter.explode, spell))


def in_query(parameter: Parameter, value: Any) -> list[str]:
    """As `name=value` parts, ready to be joined with `&`."""
    spell: _Spell = _reserved if parameter.reserved else quoted
    name = quoted(parameter.name)
    if parameter.media:
        return [f"{name}={spell(as_json(value))}"]
    if parameter.style == "deepObject":
        return [f"{quoted(key, '[]')}={spell(text)}" for key, text in deep(parameter.name, value)]
    if isinstance(value, Mapping):
        if parameter.explode:
            return [f"{quoted(key)}={spell(as_text(item))}" for key, item in value.items() if item is not None]
        value = [part for pair in value.items() for part in pair]
    if not isinstance(value, list):
        return [f"{name}={spell(as_text(value))}"]
    if parameter.explode:
        return [f"{name}={spell(as_text(item))}" for item in value]
    return [f"{name}={_SEPARATORS.get(parameter.style, ',').join(spell(as_text(item)) for item in value)}"]


def in_header(parameter: Parameter, value: Any) -> str:
    return as_json(value) if parameter.media else _joined(value, ",", parameter.explode, str)


def in_cookie(parameter: Parameter, value: Any) -> Pairs:
    """What would end a cookie is escaped."""
    name = quoted(parameter.name)
    if parameter.media:
        return [(name, quoted(as_json(value)))]
    if isinstance(value, Mapping) and parameter.explode:
        return [(quoted(key), quoted(as_text(item))) for key, item in value.items()]
    if isinstance(value, list) and parameter.explode:
        return [(name, quoted(as_text(item))) for item in value]
    return [(name, _joined(value, ",", False, quoted))]


def deep(name: str, value: Any, depth: int = 0) -> Iterable[tuple[str, str]]:
    """`name[key]`, and so on inside."""
    if depth < _DEEPEST and isinstance(value, Mapping):
        for key, item in value.items():
            yield from deep(f"{name}[{key}]", item, depth + 1)
    elif depth < _DEEPEST and isinstance(value, list):
        for number, item in enumerate(value):
            yield from deep(f"{name}[{number}]", item, depth + 1)
    elif value is not None:
        yield name, as_text(value)


def as_text(value: Any) -> str:
    """A single value as it stands in a URL."""
    return value if isinstance(value, str) else "" if value is None else as_json(value)


def as_json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        raise ToolError(
            "there is no such number in JSON", ErrorKind.VALIDATION, "Leave out NaN and Infinity."
        ) from None


def quoted(text: str, kept: str = "") -> str:
    try:
        return quote(text, safe=kept)
    except UnicodeEncodeError:
        raise ToolError("half a character (a lone surrogate)", ErrorKind.VALIDATION, "Leave it out.") from None


def _reserved(text: str) -> str:
    return quoted(text, _RESERVED)


def _joined(value: Any, separator: str, explode: bool, spell: _Spell) -> str:
    if isinstance(value, Mapping):
        pairs = ((spell(str(key)), spell(as_text(item))) for key, item in value.items())
        return separator.join(f"{key}={item}" if explode else f"{key},{item}" for key, item in pairs)
    if isinstance(value, list):
        return separator.join(spell(as_text(item)) for item in value)
    return spell(as_text(value))


def _checked(parameter: Parameter, spelled: str) -> str:
    """A segment of dots would name another path to some servers, however it is spelled; an empty one as well."""
    if spelled in _DOTS:
        raise ToolError(
            f"{parameter.argument}: {spelled!r} cannot stand in a path", ErrorKind.VALIDATION, "Give a real value."
        )
    return spelled
