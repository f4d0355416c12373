"""Reads the text of a call that is not quite a JSON object, where it has only one meaning."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from pydantic_core import from_json

from forge.core.arguments.json_text import MOST_PARTS, check_amount, make_not_object_error, make_unreadable_error
from forge.core.errors import ErrorKind, ToolError
from forge.core.plain_values import brief, quote_json
from forge.core.spec import Permission, ToolSpec

DEEPEST_STRINGS = 2  # JSON strings inside each other

_FENCE = re.compile(r"`{3,}[ \t]*[A-Za-z0-9_+-]{0,20}\s*$")  # at the end of the text before the object
_FENCE_END = re.compile(r"^\s*`{3,}\s*")
_QUOTED_KEY = re.compile(r"""["'][^"']{0,100}["']\s{0,20}:""")
_NOTES = {
    "quotes": "read Python's spelling as JSON",
    "commas": "removed a comma after the last item",
    "fence": "removed a code fence",
    "encoding": "decoded JSON inside a JSON string",
    "closing": "added the missing closing brace",
    "prose": "ignored the comments in the JSON",
}


SentText = tuple[dict[str, Any], list[str]]
"""The arguments that a text spells, and notes on the repairs."""


def read_sent(text: str, spec: ToolSpec) -> SentText:
    """Reads the arguments as plain JSON data. Repairs the text where it has one reading. Raises `ToolError`."""
    if len(text) > MOST_PARTS:
        check_amount(text)
    try:
        data = from_json(text, allow_inf_nan=False) if text else {}
    except (ValueError, TypeError, RecursionError) as error:
        found = _read_object(text, spec)
        if found is None:
            raise make_unreadable_error(text, str(error)[:200]) from None
        return found
    if isinstance(data, dict):
        return data, []
    if isinstance(data, str) and (found := _read_inside(data, spec)) is not None:
        return found
    raise make_not_object_error(data)


def _read_object(text: str, spec: ToolSpec, depth: int = 0) -> SentText | None:
    """Returns the one object in the text; None where there is none, or where a repair is not allowed."""
    text = text.strip()
    start = text.find("{")
    allowed = spec.allowed_repairs
    if start < 0 or len(text) > LONGEST_ALMOST_JSON or not allowed:
        return None
    if text.startswith('{\\"', start):  # its quotes are escaped, as inside a JSON string
        inside = load(f'"{text}"')
        return _read_inside(inside, spec, depth) if isinstance(inside, str) else None
    found = _respell(text, start) or scan(text, start)
    if found is None:
        return None
    if found.missing:
        _check_completable(text, found, spec)
    data = load(found.json + found.missing)
    if not isinstance(data, dict) or not allowed.issuperset(found.kinds):
        return None
    notes = _read_around(text[:start], text[found.end :], allowed, data)
    return (data, [_NOTES[kind] for kind in sorted(found.kinds)] + notes) if notes is not None else None


def _read_inside(text: str, spec: ToolSpec, depth: int = 0) -> SentText | None:
    """Reads the object that a JSON string spells. `depth`: how many JSON strings it was inside."""
    if depth >= DEEPEST_STRINGS or "encoding" not in spec.allowed_repairs or "{" not in text[:LONGEST_ALMOST_JSON]:
        return None
    data = load(text)
    if isinstance(data, str):
        found = _read_inside(data, spec, depth + 1)
    elif data is None:
        found = _read_object(text, spec, depth + 1)
    else:
        found = (data, []) if isinstance(data, dict) else None
    return (found[0], [_NOTES["encoding"], *found[1]]) if found is not None else None


def _check_completable(text: str, found: Scanned, spec: ToolSpec) -> None:
    """Refuses to complete an object of which more than its last brace is missing, or whose tool changes things."""
    if found.missing != "}" or not found.ends_in_value or "closing" not in spec.allowed_repairs:
        raise _make_cut_error(text, "Send the whole call again.")
    if spec.confirm or (spec.permissions | spec.optional_permissions) - {Permission.READ}:
        raise _make_cut_error(
            text, "Only calls that read are completed; this tool may change something. Send the whole call again."
        )


def _read_around(before: str, after: str, allowed: frozenset[str], data: dict[str, Any]) -> list[str] | None:
    """Returns notes about the text around the object; None where it may be a part of the call."""
    if not before and not after:
        return []
    before, after, notes = before.strip(), after.strip(), list[str]()
    if before and (fence := _FENCE.search(before)):
        before, after = before[: fence.start()].strip(), _FENCE_END.sub("", after, count=1).strip()
        if "fence" not in allowed:
            return None
        notes.append(_NOTES["fence"])
    if after and not after.strip("}]"):
        if "closing" not in allowed:
            return None
        notes.append("removed brackets behind the object")
        after = ""
    if not before and not after:
        return notes
    if "prose" not in allowed:
        return None
    if before and (set(before) & set("[]}(") or _QUOTED_KEY.search(before)):
        return None
    if "{" in after:
        return _compare_second(after, data, notes)
    if "}" in after or after[:1] in (",", ":", "]") or _QUOTED_KEY.search(after):
        return None
    return [*notes, f"ignored the text around the JSON: {brief(before or after)}"]


def _compare_second(after: str, data: dict[str, Any], notes: list[str]) -> list[str] | None:
    """Reads the next object behind the first. The same object again changes nothing."""
    start = after.index("{")
    second = scan(after, start)
    other = load(second.json) if second is not None and not second.missing else None
    if second is None or not isinstance(other, dict):
        return None
    if other != data:
        message = f"the arguments have two readings: {brief(data)} or {brief(other)}"
        raise ToolError(message, ErrorKind.VALIDATION, "Send one JSON object; make two calls if you meant both.")
    if "{" in after[second.end :]:
        return _compare_second(after[second.end :], data, notes)
    return [*notes, "ignored a repetition of the object"]


def _make_cut_error(text: str, suggestion: str) -> ToolError:
    line = text.count("\n") + 1
    column = len(text) - (text.rfind("\n") + 1)
    message = "the call was cut: the arguments are not valid JSON, because the object is not closed"
    return ToolError(
        f"{message} at line {line} column {column}, near {quote_json(text[-30:])}", ErrorKind.VALIDATION, suggestion
    )


# Reads lists and objects that are almost JSON: Python's or JavaScript's spelling, comments, a comma too many.


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


def _respell(text: str, start: int) -> Scanned | None:
    """Does the work of `scan` without tokens, where that is enough: Python's quotes, a comma behind the last item.

    Such a call takes 9 times as long as a right one with pydantic alone, and 16 times with `scan`; the limit in
    `benchmarks/` is 14.
    """
    end = text.rfind("}") + 1
    inner, kinds = text[start:end], set[str]()
    body = inner[:-1].rstrip()
    if body[-1:] == "," and body[1:-1].strip():
        inner = f"{body[:-1]}}}"
        kinds.add("commas")
    if "'" in inner and '"' not in inner and "\\" not in inner:
        inner = inner.replace("'", '"')
        kinds.add("quotes")
    return Scanned(inner, end, "", True, kinds) if kinds and load(inner) is not None else None


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
