"""Text that others wrote, made fit to be shown to a model and on a terminal: bounded, with nothing unseen in it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from math import isfinite
from typing import Any

LONGEST = 2_000  # characters of a description
_FEW = 8  # so many characters are looked at for one that is kept: invisible ones are many and cheap to send
_ESCAPES = re.compile(  # what a terminal obeys: whole sequences, so that their letters and digits do not stay behind
    r"\x1b\[[0-?]*[ -/]*[@-~]?"
    r"|\x9b[0-?]*[ -/]*[@-~]?"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x9c|\x1b\\)?"
    r"|\x1b[ -/]*[0-~]?"
)
_BLANK_LINES = re.compile(r"\n(?:[ \t]*\n){2,}")
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"})
_UNSEEN_LETTERS = frozenset(  # of other categories, and yet nothing is seen
    [*map(chr, (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0))]
    + [chr(code) for first, last in ((0x180B, 0x180F), (0xFE00, 0xFE0F)) for code in range(first, last + 1)]
    + [chr(code) for code in range(0xE0100, 0xE01F0)]
)
_TEXTS = frozenset({"description", "title", "$comment"})  # of a schema: for reading only
_VALUES = frozenset({"enum", "const", "default", "examples", "example", "required", "pattern"})  # compared with data


def clean(text: object, limit: int = LONGEST) -> str:
    """The text without terminal sequences, control and invisible characters, in at most `limit` characters.

    Lines and tabs stay. What is no text becomes none. What is cut ends in `…`.
    """
    if not isinstance(text, str):
        return ""
    looked_at = text[: limit * _FEW]
    if not (looked_at.isascii() and looked_at.isprintable()):
        looked_at = "".join(map(_seen, _ESCAPES.sub("", looked_at.replace("\r\n", "\n"))))
        looked_at = _BLANK_LINES.sub("\n\n", looked_at)
    looked_at = looked_at.strip()
    is_whole = len(looked_at) <= limit and len(text) <= limit * _FEW
    return looked_at if is_whole else f"{looked_at[: max(limit - 1, 0)].rstrip()}…"


def one_line(text: object, limit: int = 200) -> str:
    """The same on a single line: for names, log lines and the middle of a sentence."""
    return clean(" ".join(clean(text, limit * 2).split()), limit)


def clean_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a JSON Schema whose texts are clean. The schema must not be deeper than `check_schema` allows.

    Names and values are compared with data and stay as they are; `ValueError` if one holds control characters, or is a
    number that JSON does not have (1e999 in a document), since one such tool would spoil the request for all of them.
    """
    kept = (one for one in schema.items() if one[0] != "default" or not _is_endless(one[1]))  # a hint: its loss is none
    return {_name(key): _cleaned(key, value) for key, value in kept}


def _cleaned(key: str, value: Any) -> Any:
    if key in _TEXTS and isinstance(value, str):
        return clean(value)
    if key in _VALUES and not isinstance(value, Mapping):
        return _checked(value)
    if isinstance(value, Mapping):
        return clean_schema(value)
    if isinstance(value, list | tuple):
        return [_cleaned("", item) for item in value]
    return _checked(value)


def _checked(value: Any) -> Any:
    if isinstance(value, str):
        return _name(value)
    if _is_endless(value):
        raise ValueError(f"{value} in its schema is no number that JSON has")
    if isinstance(value, list | tuple):
        return [_checked(item) for item in value]
    if isinstance(value, Mapping):
        return {_name(key): _checked(item) for key, item in value.items()}
    return value


def _is_endless(value: Any) -> bool:
    return isinstance(value, float) and not isfinite(value)


def _name(text: Any) -> str:
    written = str(text)
    if not written.isprintable() and any(map(_steers, written)):
        raise ValueError(f"{one_line(written, 60)!r} in its schema holds control characters")
    return written


def _steers(char: str) -> bool:
    return char not in "\n\r\t" and unicodedata.category(char) in ("Cc", "Cs")


def is_seen(char: str) -> bool:
    """Whether the character leaves a mark: no control character, nothing of zero width, no odd kind of space."""
    return char == " " or (unicodedata.category(char) not in _UNSEEN and char not in _UNSEEN_LETTERS)


def _seen(char: str) -> str:
    if char in "\n\t":
        return char
    if char in "\r\u2028\u2029":
        return "\n"
    if unicodedata.category(char) == "Zs":
        return " "
    return char if is_seen(char) else ""
