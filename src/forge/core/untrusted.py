"""Cleans untrusted text for models and terminals: bounded, without invisible characters."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from math import isfinite
from typing import Any

from forge.core.plain_values import sendable

LONGEST_DESCRIPTION = 2_000  # characters of a description
LONGEST_TITLE = 60  # characters of a title
_FEW = 8  # characters read per character that stays: invisible ones are many and cheap to send
_ESCAPES = re.compile(  # terminal commands: whole sequences, so that their letters and digits do not stay behind
    r"\x1b\[[0-?]*[ -/]*[@-~]?"
    r"|\x9b[0-?]*[ -/]*[@-~]?"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x9c|\x1b\\)?"
    r"|\x1b[ -/]*[0-~]?"
)
_BLANK_LINES = re.compile(r"\n(?:[ \t]*\n){2,}")
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"})
_UNSEEN_LETTERS = frozenset(  # invisible, though of other categories
    [*map(chr, (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0))]
    + [chr(code) for first, last in ((0x180B, 0x180F), (0xFE00, 0xFE0F)) for code in range(first, last + 1)]
    + [chr(code) for code in range(0xE0100, 0xE01F0)]
)
_TEXTS = frozenset({"description", "title", "$comment"})  # of a schema: for reading only
_VALUES = frozenset({"enum", "const", "default", "examples", "example", "required", "pattern"})  # compared with data


def clean(text: object, limit: int = LONGEST_DESCRIPTION) -> str:
    """Returns the text without terminal sequences, control and invisible characters, cut to `limit` characters.

    Lines and tabs stay. A value that is not a string becomes "". A text that is cut ends in `…`.
    """
    if not isinstance(text, str):
        return ""
    beginning = text[: limit * _FEW]
    if not (beginning.isascii() and beginning.isprintable()):
        beginning = "".join(map(_visible, _ESCAPES.sub("", beginning.replace("\r\n", "\n"))))
        beginning = _BLANK_LINES.sub("\n\n", beginning)
    beginning = beginning.strip()
    is_whole = len(beginning) <= limit and len(text) <= limit * _FEW
    return beginning if is_whole else f"{beginning[: max(limit - 1, 0)].rstrip()}…"


def show_both_ends(text: str, limit: int, of: str = "") -> str:
    """Cleans a text that a person judges: of a longer one the beginning and the end, with what is not shown between."""
    if len(text) <= limit:
        return clean(text, limit)
    beginning, end = text[: limit // 2], text[len(text) - limit // 2 :]
    hidden = len(text) - len(beginning) - len(end)
    return f"{clean(beginning, limit)}\n[{hidden:,} characters{of} are not shown here]\n{clean(end, limit)}"


def one_line(text: object, limit: int = 200) -> str:
    """Cleans a text and puts it on one line: for names, log lines and the middle of a sentence."""
    return clean(" ".join(clean(text, limit * 2).split()), limit)


def clean_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a copy of a JSON Schema with clean texts. The schema must not be deeper than `check_schema` allows.

    Names and values are compared with data and stay unchanged. Raises `ValueError` if one holds control characters, or
    is a number that JSON does not have (1e999 in a document), since one such tool would break the request for all.
    """
    entries = (
        one for one in schema.items() if one[0] != "default" or not _is_endless(one[1])
    )  # a default is only a hint
    return {_check_name(key): _clean_value(key, value) for key, value in entries}


def _clean_value(key: str, value: Any) -> Any:
    if key in _TEXTS and isinstance(value, str):
        return clean(value)
    if key in _VALUES and not isinstance(value, Mapping):
        return _check_value(value)
    if isinstance(value, Mapping):
        return clean_schema(value)
    if isinstance(value, list | tuple):
        return [_clean_value("", item) for item in value]
    return _check_value(value)


def _check_value(value: Any) -> Any:
    if isinstance(value, str):
        return _check_name(value)
    if _is_endless(value):
        raise ValueError(f"{value} in its schema is not a valid JSON number")
    if isinstance(value, list | tuple):
        return [_check_value(item) for item in value]
    if isinstance(value, Mapping):
        return {_check_name(key): _check_value(item) for key, item in value.items()}
    return value


def _is_endless(value: Any) -> bool:
    return isinstance(value, float) and not isfinite(value)


def _check_name(text: Any) -> str:
    name = str(text)
    if not name.isprintable() and any(map(_is_control, name)):
        raise ValueError(f"{one_line(name, 60)!r} in its schema contains control characters")
    return name


def _is_control(char: str) -> bool:
    return char not in "\n\r\t" and unicodedata.category(char) in ("Cc", "Cs")


def is_visible(char: str) -> bool:
    """Returns whether the character is visible: no control character, nothing of zero width, no odd kind of space."""
    return char == " " or (unicodedata.category(char) not in _UNSEEN and char not in _UNSEEN_LETTERS)


def _visible(char: str) -> str:
    if char in "\n\t":
        return char
    if char in "\r\u2028\u2029":
        return "\n"
    if unicodedata.category(char) == "Zs":
        return " "
    return char if is_visible(char) else ""


def has_too_many_values(raw: bytes, most: int) -> bool:
    """Returns whether JSON has more than so many values, without reading it: in memory, they take gigabytes."""
    if _count_marks(raw) <= most:
        return False
    raw = raw.replace(rb"\\", b"").replace(rb"\"", b"")  # a long text may have many commas: strings do not count
    if raw.count(b'"') > 4 * most:  # each value has at most one string, and one as its key
        return True
    return _count_marks(b"".join(raw.split(b'"')[::2])) > most


def _count_marks(raw: bytes) -> int:
    return raw.count(b",") + raw.count(b"[") + raw.count(b"{")


def clean_title(text: str) -> str:
    """Returns a foreign text as a title: its first line without control characters, of at most 60 characters."""
    first = next((line for line in sendable(text[:10_000]).splitlines() if line.strip()), "")
    seen = "".join(" " if unicodedata.category(letter) in ("Cc", "Cf", "Zl", "Zp") else letter for letter in first)
    words = " ".join(seen.split())
    return words if len(words) <= LONGEST_TITLE else f"{words[: LONGEST_TITLE - 1].rstrip()}…"
