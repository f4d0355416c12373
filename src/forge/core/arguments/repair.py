"""Repairs arguments where nothing is lost: `"5"` for 5, `"a"` for a list, null for a default, another spelling."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from forge.core.arguments.checks import MOST_REPAIRED, FlatProblems, Path, Problem, Repaired, check_amount, render_path
from forge.core.arguments.schema_names import Names, NamesByPath
from forge.core.arguments.spelling import find_meant_name
from forge.core.plain_values import brief
from forge.core.spec import JsonSchema

MOST_UNKNOWN = 100  # keys; with more, their meaning is not clear
MOST_NOTES = 20  # about what was repaired

_WHOLE = re.compile(r"[+-]?[0-9]{1,4000}(?:\.0{1,20})?")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]{1,400}(?:\.[0-9]{0,400})?|\.[0-9]{1,400})(?:[eE][+-]?[0-9]{1,3})?")

Check = Callable[[dict[str, Any]], "dict[str, Any] | list[Problem]"]
"""Validated arguments, or what is wrong with them."""


def resolve_aliases(data: dict[str, Any], aliases: Mapping[str, str]) -> dict[str, Any]:
    """Returns the arguments under their canonical names. An alias beside its name stays."""
    named = dict(data)
    for key in data:
        right = aliases.get(key)
        if right is not None and right not in named:
            named[right] = named.pop(key)
    return named


def is_hopeless(problems: list[Problem]) -> bool:
    """Says whether some problem is beyond repair: then the call fails, and no repair is needed."""
    if len(problems) > MOST_REPAIRED:
        return True
    unknown, missing = 0, False
    contested: set[Path] | None = None
    for problem in problems:
        if problem.kind == "unknown":
            unknown += 1
            if unknown > MOST_UNKNOWN:
                return True
        elif problem.kind == "missing":
            missing = True
        elif problem.value is not None and _convert_value(problem) is None:  # null may stand for a default
            if contested is None:
                contested = set() if type(problems) is FlatProblems else _find_contested(problems)
            if problem.path not in contested:
                return True
    return missing and not unknown


def _find_contested(problems: list[Problem]) -> set[Path]:
    """Returns paths that several problems mention, inside or out: branches of a union, one of which may be repaired."""
    if len(problems) == 1:
        return set()
    seen: set[Path] = set()
    several: set[Path] = set()
    for problem in problems:
        path = problem.path
        while path:
            if path in seen:
                several.add(path)
            else:
                seen.add(path)
            path = path[:-1] if len(path) > 1 else ()
    return several


def repair(
    data: dict[str, Any], problems: list[Problem], check: Check, schema: JsonSchema, aliases: Mapping[str, str]
) -> Any:
    """Repairs problems without loss. Returns a `Repaired`, or the problems that are left.

    `schema` is flat: its `properties` and `required` are those of the whole.
    """
    repaired: list[str] = []
    left = problems
    by_path = NamesByPath(schema)
    for _ in range(3):  # a repaired value may show what is wrong inside it
        if is_hopeless(left):
            return left
        notes: dict[Path, str] = {}
        for problem in left:
            if problem.path not in notes and (note := _repair_problem(data, problem, schema, aliases, by_path)):
                notes[problem.path] = note  # once a place: of two branches that would fit, the first counts
        if not notes:
            return left
        repaired += notes.values()
        checked = check(data)
        if not isinstance(checked, list):
            return Repaired(checked, _limit_notes(repaired))
        left = checked
    return left


def _limit_notes(notes: list[str]) -> list[str]:
    return notes if len(notes) <= MOST_NOTES else [*notes[:MOST_NOTES], f"and {len(notes) - MOST_NOTES} more"]


def _repair_problem(
    data: dict[str, Any], problem: Problem, schema: JsonSchema, aliases: Mapping[str, str], by_path: NamesByPath
) -> str:
    """Repairs one problem in place. Returns a note about it, or nothing."""
    if problem.kind == "missing" or not problem.path:
        return ""
    holder: Any = data
    key = problem.path[-1]
    try:
        for part in problem.path[:-1]:
            holder = holder[part]
        value = holder[key]
    except (KeyError, IndexError, TypeError):  # moved by an earlier repair
        return ""
    where = render_path(problem.path)
    if problem.kind == "unknown":
        if len(problem.path) > 1:
            return _rename(holder, key, where, by_path.names(problem.path[:-1]), {})
        names = Names(tuple(schema.get("properties") or ()), tuple(schema.get("required") or ()))
        return _rename(holder, key, where, names, aliases)
    if value is None and len(problem.path) == 1 and key not in (schema.get("required") or ()):
        del holder[key]
        return f"{where}: null → the default"
    new = _convert_value(problem._replace(value=value))
    if new is None:
        return ""
    holder[key] = new
    return f"{where}: {brief(value)} → {brief(new)}"


def _rename(holder: Any, key: str | int, where: str, names: Names, aliases: Mapping[str, str]) -> str:
    """Renames a key that can only be another spelling of one name."""
    if not isinstance(key, str) or not isinstance(holder, dict):
        return ""
    right = find_meant_name(key, names.known, aliases, names.required, holder)
    if not right:
        return ""
    holder[right] = holder.pop(key)
    return f"{where} → {right}"


def _convert_value(problem: Problem) -> Any:
    """Converts the value to the expected type, or returns None where something would be lost."""
    value, expected = problem.value, problem.expected
    if problem.kind == "choice":  # "7" for one of 4, 7
        return int(value) if isinstance(value, str) and value.isdecimal() and value in expected.split(", ") else None
    if problem.kind != "type":
        return None
    if isinstance(value, str):
        return _convert_text(value, expected)
    if expected == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    if expected == "array" and isinstance(value, int | float) and not isinstance(value, bool):
        return [value]
    return None


def _convert_text(text: str, expected: str) -> Any:
    if expected == "string":
        return None
    stripped = text.strip()
    if expected == "integer":
        return int(stripped.partition(".")[0]) if _WHOLE.fullmatch(stripped) else None
    if expected == "number":
        return float(stripped) if _DECIMAL.fullmatch(stripped) else None
    if expected == "boolean":
        return {"true": True, "false": False}.get(stripped.lower())
    if expected == "array" and not is_written(stripped):
        return [text]
    if expected in ("array", "object") and is_written(stripped):
        check_amount(stripped)
        found = read_written(stripped)
        return found if isinstance(found, list if expected == "array" else dict) else None
    return None


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
    """Says whether the text can only be meant as a list or an object."""
    return text.lstrip()[:1] in ("[", "{")


def read_written(text: str) -> Any:
    """Reads the list or object that the text spells, or None. Nothing is evaluated, and nothing is guessed."""
    import pydantic_core  # heavy: paid when something is wrong, not at import

    try:
        return pydantic_core.from_json(text, allow_inf_nan=False)
    except ValueError:
        pass
    try:
        return pydantic_core.from_json(_to_json(text), allow_inf_nan=False)
    except ValueError:
        return None


def _to_json(text: str) -> str:
    """Turns Python's spelling into JSON's. Raises `ValueError` where it is neither."""
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
            shown = json.dumps(_ESCAPE.sub(_unescape, shown[1:-1]))
        elif kind == "word":
            shown = _WORDS[shown]
        elif shown in "]}" and parts and parts[-1] == "," and len(parts) > 1 and parts[-2] not in "[{,":
            parts.pop()  # Python allows a comma after the last item
        parts.append(shown)
    return " ".join(parts)


def _unescape(escape: re.Match[str]) -> str:
    code = escape[1] or escape[2] or escape[3]
    if code:
        return chr(int(code, 16))  # raises ValueError above the last character
    try:
        return _ESCAPED[escape[4]]
    except KeyError:
        raise ValueError(f"unknown escape \\{escape[4]}") from None
