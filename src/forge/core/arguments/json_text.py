"""The JSON text of arguments: writes it, limits its size, and reads one object strictly, without any repair."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from forge.core.errors import ErrorKind, ToolError
from forge.core.plain_values import article, json_type, quote_json

MOST_PARTS = 100_000  # lists and objects in the arguments of a call
_STRING = r'"[^"]*"?'  # in a text without escaped quotes; it matches at every quote, so the time is linear


def as_text(arguments: Mapping[str, Any] | str) -> str:
    """Returns the arguments as JSON text, which validators read fastest and judge alike."""
    if isinstance(arguments, str):
        return arguments
    import pydantic_core  # heavy: paid at the first call, not at import

    try:
        return pydantic_core.to_json(arguments, inf_nan_mode="constants", fallback=_encode_mapping).decode()
    except (ValueError, TypeError, RecursionError) as error:
        half = "surrogates not allowed" in str(error)
        problem = "half a surrogate pair is not a character" if half else str(error)[:200]
        message = f"the arguments cannot be written as JSON: {problem}"
        raise ToolError(message, ErrorKind.VALIDATION, "Send plain JSON values only.") from None


def check_amount(text: str) -> None:
    """Refuses JSON of very many small parts, which would block the event loop for seconds. Raises `ToolError`.

    What stands inside a string, such as the content of a file, is not counted.
    """
    if len(text) <= MOST_PARTS or text.count("[") + text.count("{") <= MOST_PARTS:
        return
    bare = re.sub(_STRING, "", text.replace("\\\\", "").replace('\\"', ""))
    parts = bare.count("[") + bare.count("{")
    if parts > MOST_PARTS:
        message = f"the arguments hold {parts:,} lists and objects; the limit is {MOST_PARTS:,}"
        raise ToolError(
            message, ErrorKind.VALIDATION, "Send less at once, or write the data to a file and name the file."
        )


def _encode_mapping(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not a JSON value")


def read_object(text: str) -> dict[str, Any]:
    """Reads the arguments as plain JSON data. Broken JSON is reported with its position, never run as `{}`."""
    import pydantic_core

    check_amount(text)
    try:
        data = pydantic_core.from_json(text, allow_inf_nan=False) if text else {}
    except (ValueError, TypeError, RecursionError) as error:
        raise make_unreadable_error(text, str(error)[:200]) from None
    if not isinstance(data, dict):
        raise make_not_object_error(data)
    return data


def is_readable(text: str) -> bool:
    """Returns whether the text is a JSON object without NaN and Infinity, which JSON does not have."""
    try:
        read_object(text)
    except ToolError:
        return False
    return True


def make_not_object_error(data: Any) -> ToolError:
    return ToolError(
        f"the arguments are {article(json_type(data))}, not an object",
        ErrorKind.VALIDATION,
        'Send one JSON object with the parameters by name, like {"name": "value"}.',
    )


def make_unreadable_error(text: str, words: str) -> ToolError:
    position = re.search(r"line (\d+) column (\d+)", words)
    near_it = ""
    if position:
        line = text.split("\n", int(position[1]))[int(position[1]) - 1]
        excerpt = line[max(0, int(position[2]) - 30) : int(position[2]) + 10]
        near_it = f", near {quote_json(excerpt)}" if excerpt else ""
    is_cut = "EOF while parsing" in words
    return ToolError(
        f"{'the call was cut: ' if is_cut else ''}the arguments are not valid JSON: {words}{near_it}",
        ErrorKind.VALIDATION,
        "Send one complete JSON object with the parameters by name.",
    )
