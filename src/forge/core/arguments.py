"""What a model sent, made right: read, mended where nothing is lost, explained where something is wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from forge.core.errors import ErrorKind, ToolError
from forge.core.plain import brief, clipped
from forge.core.spec import JsonSchema

MOST_PROBLEMS = 10  # listed in an error
MOST_MENDED = 50_000  # places in one call
MOST_NOTES = 20  # about what was mended
LONGEST_PROBLEM = 160
_VALIDATION = ErrorKind.VALIDATION  # looking up an enum member costs more than the rest of the line
LONGEST_ERROR = 1_000  # bytes, so that an error with its call and its example stays under 2 kB

Path = tuple[str | int, ...]
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
_WHOLE = re.compile(r"[+-]?[0-9]{1,4000}(?:\.0{1,20})?")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]{1,400}(?:\.[0-9]{0,400})?|\.[0-9]{1,400})(?:[eE][+-]?[0-9]{1,3})?")


class Problem(NamedTuple):
    """One thing that is wrong with the arguments, in no validator's own terms."""

    path: Path
    kind: str  # type, missing, unknown, choice, or "" for whatever `message` says
    expected: str = ""  # for a type: its JSON name; for a choice: the choices
    value: Any = None
    message: str = ""


class Mended(dict[str, Any]):
    """Validated arguments that were not quite what was sent."""

    __slots__ = ("ignored", "mended")

    def __init__(self, values: Mapping[str, Any], mended: list[str], ignored: list[str]) -> None:
        super().__init__(values)
        self.mended = mended
        self.ignored = ignored


Check = Callable[[dict[str, Any]], "dict[str, Any] | list[Problem]"]
"""Validated arguments, or what is wrong with them."""


def as_text(arguments: Mapping[str, Any] | str) -> str:
    """The arguments as JSON text, which is what validators read fastest and judge alike."""
    if isinstance(arguments, str):
        return arguments
    import pydantic_core  # heavy: paid at the first call, not at import

    try:
        return pydantic_core.to_json(arguments, inf_nan_mode="constants", fallback=_mapping).decode()
    except (ValueError, TypeError, RecursionError) as error:
        words = f"the arguments cannot be written as JSON: {str(error)[:200]}"
        raise ToolError(words, ErrorKind.VALIDATION, "Send plain JSON values only.") from None


def _mapping(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no JSON value")


def read(text: str) -> dict[str, Any]:
    """The arguments as plain JSON data. Broken JSON is reported with its position, never run as `{}`."""
    import pydantic_core

    try:
        data = pydantic_core.from_json(text, allow_inf_nan=False) if text else {}
    except (ValueError, TypeError, RecursionError) as error:
        raise _unreadable(text, str(error)[:200]) from None
    if not isinstance(data, dict):
        raise ToolError(
            f"the arguments are {article(json_type(data))}, not an object",
            ErrorKind.VALIDATION,
            'Send one JSON object with the parameters by name, like {"name": "value"}.',
        )
    return data


def unaliased(data: dict[str, Any], aliases: Mapping[str, str]) -> dict[str, Any]:
    """The arguments under their canonical names: an alias is as good as the name itself, but not beside it."""
    named = dict(data)
    for key in data:
        right = aliases.get(key)
        if right is not None and right not in named:
            named[right] = named.pop(key)
    return named


def hopeless(problems: list[Problem]) -> bool:
    """Whether some problem is beyond repair: then nothing will be run, and nothing need be mended."""
    if len(problems) > MOST_MENDED:
        return True
    unknown = missing = False
    contested: set[Path] | None = None
    for problem in problems:
        if problem.kind == "unknown":
            unknown = True
        elif problem.kind == "missing":
            missing = True
        elif problem.value is not None and _repaired(problem) is None:  # null may stand for a default
            if contested is None:
                contested = _contested(problems)
            if problem.path not in contested:
                return True
    return missing and not unknown


def _contested(problems: list[Problem]) -> set[Path]:
    """Places that several problems speak of, or of their inside: branches of a union, one of which may be mended."""
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


def repair(data: dict[str, Any], problems: list[Problem], check: Check, schema: JsonSchema) -> Any:
    """Mend what only needs a lossless repair; a `Mended`, or the problems that are left."""
    mended: list[str] = []
    left = problems
    for _ in range(3):  # a mended value may show what is wrong inside it
        if hopeless(left):
            return left
        notes: dict[Path, str] = {}
        for problem in left:
            if problem.path not in notes and (note := _mend(data, problem, schema)):
                notes[problem.path] = note  # once a place: of two branches that would fit, the first counts
        if not notes:
            return left
        mended += notes.values()
        checked = check(data)
        if not isinstance(checked, list):
            return Mended(checked, _shortened(mended), [])
        left = checked
    return left


def _shortened(notes: list[str]) -> list[str]:
    return notes if len(notes) <= MOST_NOTES else [*notes[:MOST_NOTES], f"and {len(notes) - MOST_NOTES} more"]


class Help(NamedTuple):
    """What an explanation says of a tool: made once, when its first call goes wrong."""

    names: tuple[str, ...]  # of its parameters
    listed: str
    aliases: Mapping[str, str]
    suggestion: str  # a call that is right


def help_for(schema: JsonSchema, aliases: Mapping[str, str], shown_example: str) -> Help:
    names = tuple(schema.get("properties") or ())
    return Help(names, ", ".join(names) or "none", aliases, f"Example: {shown_example}")


def explain(problems: list[Problem], known: Help) -> ToolError:
    """Every wrong field with its path, near names and choices; then a call that is right."""
    wrong = _merged(problems)
    shown = [_line(problem, known)[:LONGEST_PROBLEM] for problem in wrong[:MOST_PROBLEMS]]
    if len(wrong) > len(shown):
        shown.append(f"and {len(wrong) - len(shown)} more")
    return ToolError(clipped("; ".join(shown), LONGEST_ERROR), _VALIDATION, known.suggestion)


def json_type(value: Any) -> str:
    return _JSON_TYPES.get(type(value), "object")


def article(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeio" else f"a {noun}"


def near(name: str, names: Iterable[str], most: int = 3) -> list[str]:
    """The names that someone who wrote `name` may have meant."""
    return _near(name[:100], tuple(names), most)


@lru_cache(maxsize=1_000)  # models repeat their mistakes
def _near(name: str, names: tuple[str, ...], most: int) -> list[str]:
    wanted = name.casefold()
    letters = set(wanted)
    folded = {known.casefold(): known for known in names}
    likely = [known for known in folded if 2 * len(letters & set(known)) > len(letters)]
    if not likely:
        return []
    from difflib import get_close_matches  # only where something is wrong

    return [folded[hit] for hit in get_close_matches(wanted, likely, n=most, cutoff=0.6)]


def shown_path(path: Path) -> str:
    """`tags[1].name`"""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text[:80] or "arguments"


def _unreadable(text: str, words: str) -> ToolError:
    place = re.search(r"line (\d+) column (\d+)", words)
    excerpt = ""
    if place:
        line = text.split("\n", int(place[1]))[int(place[1]) - 1]
        excerpt = line[max(0, int(place[2]) - 30) : int(place[2]) + 10]
    near_it = f", near {json.dumps(excerpt, ensure_ascii=False)}" if excerpt else ""
    return ToolError(
        f"the arguments are not valid JSON: {words}{near_it}",
        ErrorKind.VALIDATION,
        "Send one complete JSON object with the parameters by name.",
    )


def _mend(data: dict[str, Any], problem: Problem, schema: JsonSchema) -> str:
    """Repair one problem in place; what was done, or nothing."""
    if problem.kind == "unknown":
        return _rename(data, problem, schema)
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
    where = shown_path(problem.path)
    if value is None and len(problem.path) == 1 and key not in (schema.get("required") or ()):
        del holder[key]
        return f"{where}: null → the default"
    new = _repaired(problem._replace(value=value))
    if new is None:
        return ""
    holder[key] = new
    return f"{where}: {brief(value)} → {brief(new)}"


def _rename(data: dict[str, Any], problem: Problem, schema: JsonSchema) -> str:
    """A key in the wrong case."""
    key = str(problem.path[0])
    if len(problem.path) != 1 or key not in data:
        return ""
    right = next((known for known in schema.get("properties") or () if known.casefold() == key.casefold()), "")
    if not right or right in data:
        return ""
    data[right] = data.pop(key)
    return f"{key} → {right}"


def _repaired(problem: Problem) -> Any:
    """The same value as it was expected, or None where something would be lost."""
    value, expected = problem.value, problem.expected
    if problem.kind == "choice":  # "7" for one of 4, 7
        return int(value) if isinstance(value, str) and value.isdecimal() and value in expected.split(", ") else None
    if problem.kind != "type":
        return None
    if isinstance(value, str):
        return _from_text(value, expected)
    if expected == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    if expected == "array" and isinstance(value, int | float) and not isinstance(value, bool):
        return [value]
    return None


def _from_text(text: str, expected: str) -> Any:
    if expected == "string":
        return None
    stripped = text.strip()
    if expected == "integer":
        return int(stripped.partition(".")[0]) if _WHOLE.fullmatch(stripped) else None
    if expected == "number":
        return float(stripped) if _DECIMAL.fullmatch(stripped) else None
    if expected == "boolean":
        return {"true": True, "false": False}.get(stripped.lower())
    if expected == "array":
        parsed = _parsed(stripped, "[")
        return parsed if isinstance(parsed, list) else [text]
    if expected == "object":
        parsed = _parsed(stripped, "{")
        return parsed if isinstance(parsed, dict) else None
    return None


def _parsed(text: str, opening: str) -> Any:
    if not text.startswith(opening):
        return None
    import pydantic_core

    try:
        return pydantic_core.from_json(text, allow_inf_nan=False)
    except ValueError:
        return None


def _merged(problems: list[Problem]) -> list[Problem]:
    """Type problems of one place become one: a union reports every branch it tried."""
    paths = set()
    nested = False
    for problem in problems:
        paths.add(problem.path)
        nested |= len(problem.path) != 1
    if not nested and len(paths) == len(problems):
        return problems
    inside = {problem.path[:end] for problem in problems for end in range(1, len(problem.path))}
    by_path: dict[tuple[Path, str], Problem] = {}
    for problem in problems:
        if problem.kind == "type" and problem.path in inside:
            continue  # another branch of the union got further: what it says is more to the point
        key = (problem.path, problem.kind or problem.message)
        known = by_path.get(key)
        if known and known.kind == "type" and problem.expected not in known.expected.split(" or "):
            problem = known._replace(expected=f"{known.expected} or {problem.expected}")
        by_path[key] = problem
    return list(by_path.values())


def _line(problem: Problem, known: Help) -> str:
    path, kind, _, value, _ = problem
    where = str(path[0])[:80] if len(path) == 1 else shown_path(path)
    if kind == "type":
        return f"{where}: expected {problem.expected}, got {_JSON_TYPES.get(type(value), 'object')} {brief(value)}"
    if kind == "missing":
        return f"{where}: required, but missing"
    if kind == "choice":
        hint = near(value, re.findall(r"'([^']*)'", problem.expected), 1) if isinstance(value, str) else []
        meant = f'; did you mean "{hint[0]}"?' if hint else ""
        return f"{where}: {brief(value)} is not one of {problem.expected}{meant}"
    if kind == "unknown":
        return f"{where}: unknown argument{_meant(path, known)}"
    return f"{where}: {problem.message}" if value is None else f"{where}: {problem.message}, got {brief(value)}"


def _meant(path: Path, known: Help) -> str:
    if len(path) != 1:
        return ""
    hint = _near(str(path[0])[:100], (*known.names, *known.aliases) if known.aliases else known.names, 1)
    return f'; did you mean "{known.aliases.get(hint[0], hint[0])}"?' if hint else f"; known are {known.listed}"
