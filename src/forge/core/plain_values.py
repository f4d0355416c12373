"""Turns any value into data that can be sent and shown: bounded and encodable."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from reprlib import Repr
from types import FunctionType, ModuleType
from typing import Any

LONGEST_NAME = 200  # characters of a tool's name or a call's id
LONGEST_MESSAGE = 2_000  # characters of an unexpected exception's text
DEEPEST_DATA = 100  # levels of data that are written out
MOST_VALUES = 100_000  # containers and objects of one value that are written out
_SHORT_NUMBER = 10**18
MOST_OBJECTS = 1_000  # of one value, whose attributes are written out

_STEERS = "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]"  # compiled at its first use
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]{4,16}>")


def sendable(text: str) -> str:
    """Removes lone surrogates, which no provider and no file accepts."""
    return text if is_sendable(text) else text.encode("utf-8", "replace").decode()


def is_sendable(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def clip_bytes(text: str, most_bytes: int) -> str:
    """Cuts the text to so many bytes, between characters, and marks the cut."""
    if len(text) * 4 <= most_bytes or (text.isascii() and len(text) <= most_bytes):
        return text
    raw = sendable(text).encode()
    return text if len(raw) <= most_bytes else f"{raw[: most_bytes - 3].decode(errors='ignore')}…"


def visible(text: str) -> str:
    """Writes out characters that would steer a screen or turn its direction, as in ⟨U+001B⟩. Lines stay lines."""
    one_line = text.replace("\n", "") if "\n" in text else text
    if one_line.isprintable():  # as most texts are: no pattern is needed
        return text
    return re.sub(_STEERS, lambda found: f"⟨U+{ord(found[0]):04X}⟩", text)


def short_name(name: str, most: int = LONGEST_NAME) -> str:
    """Shortens a tool's name or a call's id for display. A cut name has a digest that tells it from others."""
    if len(name) <= most and name.isprintable():
        return name
    from zlib import crc32

    shown = visible(name[:most]).replace("\n", "⟨U+000A⟩").replace("\r", "⟨U+000D⟩").replace("\t", "⟨U+0009⟩")
    if len(name) <= most and len(shown) <= most:
        return shown
    digest = crc32(name.encode("utf-8", "surrogatepass"))
    return f"{shown[: most - 50]}[… {len(name):,} characters, {digest:08x}]"


def text_of(error: BaseException) -> str:
    """Returns `ValueError: the words`, even if the exception's own `__str__` fails."""
    try:
        words = str(error)
    except BaseException as broken:  # an exception may lie about itself in any way
        words = f"(its text could not be read: {type(broken).__name__})"
    kind = type(error).__name__
    text = f"{kind}: {words}" if words else kind
    return sendable(text if len(text) <= LONGEST_MESSAGE else f"{text[:LONGEST_MESSAGE]}…")


def number(value: int) -> str:
    try:
        return str(value)
    except ValueError:  # past Python's limit of digits
        return hex(value)


def plain(value: object) -> Any:
    """Turns any value into data that JSON can hold, or into a description. Never raises."""
    import pydantic_core  # heavy: only for results that leave the process

    left = iter(range(MOST_OBJECTS))
    try:
        text = pydantic_core.to_json(
            value,
            fallback=lambda one: object_as_data(one) if next(left, None) is not None else describe_unreadable(one),
            inf_nan_mode="strings",
            bytes_mode="base64",
        )
        return pydantic_core.from_json(text)
    except BaseException:  # cyclic, too deep, lone surrogates, huge numbers, an object whose own serialiser fails
        return _describe(value, (), iter(range(MOST_VALUES)))


def is_flat(values: Mapping[str, Any]) -> bool:
    """Checks quickly whether these are texts, usual whole numbers, booleans and nulls: `plain` changes nothing then."""
    for name, value in values.items():
        kind = type(value)
        if kind is str:
            if not is_sendable(value):
                return False
        elif kind is int:
            if not -_SHORT_NUMBER < value < _SHORT_NUMBER:
                return False
        elif kind is not bool and value is not None:
            return False
        if not is_sendable(name):
            return False
    return True


def object_as_data(value: object) -> Any:
    """Turns an object that JSON does not know into its own words, its public attributes, or `unreadable`."""
    text = _represent(value, str)
    if not _ADDRESS.search(text[-LONGEST_MESSAGE:]):
        return sendable(text)
    names = [*getattr(value, "__dict__", ()), *(name for kind in type(value).__mro__ for name in _slots(kind))]
    public = [name for name in names if isinstance(name, str) and not name.startswith("_")]
    if not public or isinstance(value, FunctionType | ModuleType | type):
        return describe_unreadable(value)
    return {name: getattr(value, name) for name in public if hasattr(value, name)}


def describe_unreadable(value: object) -> str:
    """Describes an object that has neither words nor attributes: only its address would tell it from others."""
    return f"[{type(value).__name__} object]"


def _slots(kind: type) -> tuple[str, ...]:
    slots = vars(kind).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


_JSON_TYPES: dict[type, str] = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    tuple: "array",
    set: "array",
}


def json_type(value: Any) -> str:
    return _JSON_TYPES.get(type(value), "object")


def article(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeio" else f"a {noun}"


def brief(value: Any, depth: int = 0) -> str:
    """Renders a value as a person would write it, in a few words however large it is."""
    if type(value) is str:
        short = value if len(value) <= 40 else f"{value[:40]}…"
        if short.isprintable() and '"' not in short and "\\" not in short:
            return f'"{short}"'
        return quote_json(sendable(short))
    if type(value) is int and -_SHORT_NUMBER < value < _SHORT_NUMBER:
        return str(value)
    if isinstance(value, Mapping):
        inside = ", ".join(
            f"{brief(str(key))}: {brief(item, depth + 1)}" for key, item in _first_items(value.items(), depth)
        )
        return f"{{{inside}{', …' if len(value) > 3 and depth < 2 else ''}}}"
    if isinstance(value, list | tuple | set | frozenset):
        inside = ", ".join(brief(item, depth + 1) for item in _first_items(value, depth))
        return f"[{inside}{', …' if len(value) > 3 and depth < 2 else ''}]"
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 200:
        return f"a number of {value.bit_length()} bits"
    if value is None or isinstance(value, bool | int | float):
        return json.dumps(value)
    return quote_json(sendable(_represent(value)[:60]))


def quote_json(text: str) -> str:
    """Returns the text as JSON writes it."""

    return json.dumps(text, ensure_ascii=False)


def _first_items(items: Any, depth: int) -> list[Any]:
    return [item for item, _ in zip(items, range(3), strict=False)] if depth < 2 else []


def _describe(value: Any, above: tuple[int, ...], left: Iterator[int]) -> Any:
    """Describes a value. `above` has the ids of its holders; `left` counts values that may still be written."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return sendable(str(value))
    if isinstance(value, int):
        return int(value) if value.bit_length() < 10_000 else hex(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    if id(value) in above:
        return f"[the {type(value).__name__} above]"
    if len(above) > DEEPEST_DATA or next(left, None) is None:
        return "[nested too deeply to be shown]"
    within = (*above, id(value))
    try:
        if isinstance(value, Mapping):
            return {sendable(str(key)): _describe(item, within, left) for key, item in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [_describe(item, within, left) for item in value]
    except BaseException as error:  # a custom container
        return f"[{type(value).__name__} that cannot be read: {type(error).__name__}]"
    data = object_as_data(value)
    return _describe(data, within, left) if isinstance(data, dict) else data


def _represent(value: object, represent: Callable[[object], str] | None = None) -> str:
    try:
        return Repr().repr(value) if represent is None else represent(value)
    except BaseException as error:
        return f"({type(value).__name__} that cannot be shown: {type(error).__name__})"
