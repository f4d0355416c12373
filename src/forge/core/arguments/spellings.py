"""Reads lists and objects in other spellings than JSON's: Python's or JavaScript's, comments, a comma too many."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from pydantic_core import from_json

LONGEST_ALMOST_JSON = 100_000  # characters of almost-JSON; correct JSON of any length is read

# every token is read from where the last one ended, so the time is linear; there is nothing to go back to
_TOKEN = re.compile(
    r"""
    \s*(?:
    (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"
        |\u201c[^\u201c\u201d"\\]*\u201d|\u2018[^\u2018\u2019'\\]*\u2019)  # typographic quotes
    |(?P<word>true|false|null|True|False|None)(?![0-9A-Za-z_$'"])
    |(?P<number>[+-]?(?:[0-9][0-9._]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?![0-9A-Za-z_$'"])
    |(?P<mark>[\[\]{}:,])
    |(?P<key>[A-Za-z_$][0-9A-Za-z_$]{0,99})(?=\s{0,20}:)
    |(?P<comment>(?://|\#)[^\n]*\n|/\*(?:[^*]|\*(?!/))*\*/)
    |(?P<end>\Z)
    )
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\\": "\\", "'": "'", '"': '"', "\n": ""}
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
# Python's, and no number that JSON spells in the same way: 1_000, +1, .5, 5.
_PYTHON_NUMBER = re.compile(r"([+-]?)((?:0|[1-9][0-9]*(?:_[0-9]+)*)?)(?:(\.)([0-9]*))?((?:[eE][+-]?[0-9]+)?)")
_PYTHON = {"True": "true", "False": "false", "None": "null"}
_CLOSERS = {"{": "}", "[": "]"}


class Scanned(NamedTuple):
    """One list or object that a text spells, from its first bracket to its last."""

    json: str  # in JSON's spelling, without the missing brackets
    end: int  # the index behind it
    missing: str  # the brackets that would close it; "" where it is closed
    ends_in_value: bool  # the last token before the end completes a value
    kinds: set[str]  # of repairs: "closing", "commas", "prose", "quotes"


def scan(text: str, start: int = 0) -> Scanned | None:
    """Reads tokens from a bracket to the one that closes it. None if the text spells no list or object."""
    parts: list[str] = []
    closers: list[str] = []
    kinds: set[str] = set()
    at, most = start, start + LONGEST_ALMOST_JSON
    while (token := _TOKEN.match(text, at, most)) is not None:
        at, kind = token.end(), token.lastgroup
        shown = token[token.lastindex or 0]
        if kind == "mark":
            if shown in _CLOSERS:
                closers.append(_CLOSERS[shown])
            elif shown in "]}":
                if not closers or closers.pop() != shown:
                    return None
                if parts[-1] == "," and len(parts) > 1 and parts[-2] not in "[{,":
                    parts.pop()
                    kinds.add("commas")
            parts.append(shown)
            if not closers:
                return Scanned(" ".join(parts), at, "", True, kinds)
        elif kind == "end":
            break
        elif kind == "comment":
            kinds.add("prose")
        else:
            json_text = _to_json(kind, shown, kinds)
            if json_text is None:
                return None
            parts.append(json_text)
    if at != len(text):
        return None
    return Scanned(" ".join(parts), at, "".join(reversed(closers)), _ends_in_value(parts), kinds | {"closing"})


def is_written(text: str) -> bool:
    """Returns whether the text can only be meant as a list or an object."""
    return text.lstrip()[:1] in ("[", "{")


def read_written(text: str) -> Any:
    """Reads the list or object that the text spells, or None. Nothing is evaluated, and nothing is guessed."""
    if (data := load(text)) is not None:
        return data
    text = text.strip()
    found = scan(text)
    return load(found.json) if found is not None and found.end == len(text) and not found.missing else None


def load(json_text: str) -> Any:
    """Returns the value of a text that was respelt as JSON; None where it is none."""
    try:
        return from_json(json_text, allow_inf_nan=False)
    except (ValueError, TypeError, RecursionError):
        return None


def _to_json(kind: str | None, shown: str, kinds: set[str]) -> str | None:
    """Spells one token as JSON does. Notes the kind of repair; None: the token has no JSON form."""
    if kind == "number":
        return shown if _NUMBER.fullmatch(shown) else _respell_number(shown, kinds)
    if kind == "word":
        if shown in _PYTHON:
            kinds.add("quotes")
        return _PYTHON.get(shown, shown)
    if kind == "key":
        kinds.add("quotes")
        return f'"{shown}"'
    quote, inner = shown[0], shown[1:-1]
    if quote == '"' and load(shown) is not None:
        return shown
    kinds.add("quotes")
    if quote in "\u201c\u2018" or ("\\" not in inner and '"' not in inner):
        return json.dumps(inner)
    if quote == "'" and '"' not in shown and shown.count("\\'") > 1:
        return None  # two readings: quotes of either kind may have been meant inside
    try:
        return json.dumps(_ESCAPE.sub(_unescape, inner))
    except ValueError:
        return None


def _respell_number(shown: str, kinds: set[str]) -> str | None:
    """Spells Python's 1_000, +1, .5 and 5. as JSON does."""
    found = _PYTHON_NUMBER.fullmatch(shown)
    if found is None:
        return None
    sign, whole, point, fraction, exponent = found.groups()
    if not whole and not fraction:
        return None
    kinds.add("quotes")
    point = f".{fraction or '0'}" if point else ""
    return f"{sign.removeprefix('+')}{whole.replace('_', '') or '0'}{point}{exponent}"


def _ends_in_value(parts: list[str]) -> bool:
    return len(parts) > 1 and parts[-1] not in ("{", "[", ":", ",") and (parts[-2] in (":", "[") or parts[-1] in "]}")


def _unescape(escape: re.Match[str]) -> str:
    code = escape[1] or escape[2] or escape[3]
    if code:
        return chr(int(code, 16))  # raises ValueError above the last character
    try:
        return _ESCAPED[escape[4]]
    except KeyError:
        raise ValueError(f"unknown escape \\{escape[4]}") from None
