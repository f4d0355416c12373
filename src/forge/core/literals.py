"""Lists and objects that a model wrote as text: as JSON, or as Python would show them."""

from __future__ import annotations

import json
import re
from typing import Any

LONGEST = 100_000  # characters of Python text; JSON of any length is read

# every token is read from where the last one ended, so the time is linear; there is nothing to go back to
_TOKEN = re.compile(
    r"""
    (?P<text>'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")
    |(?P<word>True|False|None)(?![0-9A-Za-z_'"])
    |(?P<number>-?[0-9][0-9.]*(?:[eE][+-]?[0-9]+)?)(?![0-9A-Za-z_'"])
    |(?P<mark>[\[\]{}:,])
    |(?P<space>\s+)
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\\": "\\", "'": "'", '"': '"', "\n": ""}
_WORDS = {"True": "true", "False": "false", "None": "null"}


def is_written(text: str) -> bool:
    """Whether the text can only be meant as a list or an object."""
    return text.lstrip()[:1] in ("[", "{")


def read_written(text: str) -> Any:
    """The list or object that the text spells, or None. Nothing is evaluated, and nothing is guessed."""
    import pydantic_core  # heavy: paid when something is wrong, not at import

    try:
        return pydantic_core.from_json(text, allow_inf_nan=False)
    except ValueError:
        pass
    try:
        return pydantic_core.from_json(_as_json(text), allow_inf_nan=False)
    except ValueError:
        return None


def _as_json(text: str) -> str:
    """Python's spelling as JSON's. Raises `ValueError` where it is neither."""
    if len(text) > LONGEST:
        raise ValueError("too long")
    parts: list[str] = []
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise ValueError(f"no value at {at}")
        at = token.end()
        kind, shown = token.lastgroup, token.group()
        if kind == "space":
            continue
        if kind == "text":
            shown = json.dumps(_ESCAPE.sub(_unescaped, shown[1:-1]))
        elif kind == "word":
            shown = _WORDS[shown]
        elif shown in "]}" and parts and parts[-1] == "," and len(parts) > 1 and parts[-2] not in "[{,":
            parts.pop()  # Python allows a comma after the last item
        parts.append(shown)
    return " ".join(parts)


def _unescaped(escape: re.Match[str]) -> str:
    code = escape[1] or escape[2] or escape[3]
    if code:
        return chr(int(code, 16))  # raises ValueError above the last character
    try:
        return _ESCAPED[escape[4]]
    except KeyError:
        raise ValueError(f"unknown escape \\{escape[4]}") from None
