"""Reads the text of a call: a JSON object, or a text that is not quite one and has only one meaning."""

from __future__ import annotations

import re
from typing import Any

from pydantic_core import from_json

from forge.core.arguments.json_text import MOST_PARTS, check_amount, make_not_object_error, make_unreadable_error
from forge.core.arguments.spellings import LONGEST_ALMOST_JSON, Scanned, load, scan
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
    found = scan(text, start)
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
