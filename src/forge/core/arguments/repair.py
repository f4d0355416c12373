"""Repairs arguments where nothing is lost: `"5"` for 5, one item for a list, another spelling of a name, a wrapper."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from forge.core.arguments.explain import (
    MOST_REPAIRED,
    ArgumentProblem,
    Path,
    ProblemKind,
    ToolHelp,
    explain,
    limit_choices,
    render_path,
    share_parameters,
)
from forge.core.arguments.json_text import check_amount
from forge.core.arguments.names import fold_name
from forge.core.arguments.spellings import is_written, read_written
from forge.core.arguments.wrappers import WRAPPERS_AND_CALLS, unwrap
from forge.core.errors import ErrorKind, ToolError
from forge.core.plain_values import brief
from forge.core.spec import JsonSchema, ToolSpec

MOST_RENAMED = 100  # keys; with more, their meaning is not clear
MOST_NOTES = 20  # about the repairs of one call

_WHOLE = re.compile(r"[+-]?[0-9]{1,4000}(?:\.(?:00?|0{4,20}))?")  # 1.000 may be a thousand
_LONGEST_WHOLE = 10**1_000  # far below the 4,300 digits from which Python refuses to write a number
_SEVERAL = re.compile(r"[,;\n]")  # may separate items
_DECIMAL = re.compile(r"[+-]?(?:[0-9]{1,400}(?:\.[0-9]{0,400})?|\.[0-9]{1,400})(?:[eE][+-]?[0-9]{1,3})?")

Check = Callable[[dict[str, Any]], "dict[str, Any] | list[ArgumentProblem]"]
"""Validated arguments, or what is wrong with them."""


def resolve_aliases(data: dict[str, Any], aliases: Mapping[str, str]) -> dict[str, Any]:
    """Returns the arguments under their canonical names. An alias beside its name stays."""
    if aliases.keys().isdisjoint(data):
        return data
    named = dict(data)
    for key in data:
        right = aliases.get(key)
        if right is not None and right not in named:
            named[right] = named.pop(key)
    return named


class Repairing:
    """Repairs the calls of one tool. `schema` is flat, as `flatten_schema` makes it."""

    def __init__(self, spec: ToolSpec, schema: JsonSchema, check: Check) -> None:
        self._spec, self._check = spec, check
        self._allowed = spec.allowed_repairs
        self.help = ToolHelp(spec, schema)

    def finish(
        self, data: dict[str, Any], found: dict[str, Any] | list[ArgumentProblem], notes: list[str]
    ) -> tuple[dict[str, Any], list[str]]:
        """Repairs what `check` found wrong with the data. Returns the arguments and all notes. Raises `ToolError`.

        `notes` are about repairs that were made before.
        """
        if isinstance(found, list) and not WRAPPERS_AND_CALLS.isdisjoint(data) and "wrapping" in self._allowed:
            inside = unwrap(data, self.help.names.at(()).known, self._spec)
            if inside is not None:
                key, data = inside
                data = resolve_aliases(data, self._spec.argument_aliases)
                found, notes = self._check(data), [*notes, f"took the arguments out of {brief(key)}"]
        if isinstance(found, list):
            found = self._repair(data, found, notes)
            if isinstance(found, list):
                raise explain(found, self.help)
        return found, notes

    def _repair(
        self, data: dict[str, Any], problems: list[ArgumentProblem], notes: list[str]
    ) -> dict[str, Any] | list[ArgumentProblem]:
        """Repairs problems without loss, and adds notes. Returns the arguments, or the problems that are left."""
        made: list[str] = []
        for _ in range(3):  # a repaired value may show what is wrong inside it
            converted = _convert_values(problems) if self._allowed else None
            if converted is None:
                return problems
            if share_parameters(problems):
                converted = self._settle_branches(data, problems, converted)
            repaired: dict[Path, str] = {}
            for problem, new in zip(problems, converted, strict=True):
                if problem.path not in repaired and (note := self._repair_problem(data, problem, new)):
                    repaired[problem.path] = note
            if not repaired:
                return problems
            made += repaired.values()
            found = self._check(data)
            if not isinstance(found, list):
                notes += made if len(made) <= MOST_NOTES else [*made[:MOST_NOTES], f"and {len(made) - MOST_NOTES} more"]
                return found
            problems = found
        return problems

    def _repair_problem(self, data: dict[str, Any], problem: ArgumentProblem, new: Any) -> str:
        """Repairs one problem in place. `new` is its value as it should be. Returns a note about it, or nothing."""
        path, kind, _, sent, _ = problem
        if kind == "missing" or not path or ("names" if kind == "unknown" else "values") not in self._allowed:
            return ""
        holder: Any = data
        key = path[-1]
        try:
            for part in path[:-1]:
                holder = holder[part]
            value = holder[key]
        except (KeyError, IndexError, TypeError):  # moved by an earlier repair
            return ""
        if kind == "unknown":
            meant = self.help.names.at(path[:-1]).find_meant(str(key), holder)
            if not meant:
                return ""
            holder[meant] = holder.pop(key)
            return note_name(path, meant)
        if value is None and len(path) == 1 and key not in self.help.names.at(()).required:
            del holder[key]
            return f"{render_path(path)}: null → the default"
        if new is None or value != sent:  # changed by an earlier repair
            return ""
        holder[key] = new
        return note_value(path, value, new)

    def _settle_branches(
        self, data: dict[str, Any], problems: list[ArgumentProblem], converted: list[Any]
    ) -> list[Any]:
        """Keeps the conversions that fit. Raises `ToolError` where two conversions of one value fit."""
        meanings: dict[Path, list[Any]] = {}
        for problem, new in zip(problems, converted, strict=True):
            several = meanings.setdefault(problem.path, [])
            if new is not None and new not in several:
                several.append(new)
        for path, several in meanings.items():
            if len(several) > 1 and path:
                fitting = [new for new in several if self._fits(data, path, new)]
                if len(fitting) > 1:
                    value = next(problem.value for problem in problems if problem.path == path)
                    raise _make_ambiguous_error(path, value, fitting)
                meanings[path] = fitting or several
        return [new if new in meanings[one.path] else None for one, new in zip(problems, converted, strict=True)]

    def _fits(self, data: dict[str, Any], path: Path, value: Any) -> bool:
        """Returns whether the value at the path would be right."""
        holder: Any = data
        try:
            for part in path[:-1]:
                holder = holder[part]
            before, holder[path[-1]] = holder[path[-1]], value
        except (KeyError, IndexError, TypeError):
            return False
        found = self._check(data)
        holder[path[-1]] = before
        return not isinstance(found, list) or not any(one.path[: len(path)] == path for one in found)


def note_name(path: Path, meant: str) -> str:
    return f"{render_path(path)} → {meant}"


def note_value(path: Path, value: Any, new: Any) -> str:
    return f"{render_path(path)}: {brief(value)} → {brief(new)}"


def _convert_values(problems: list[ArgumentProblem]) -> list[Any] | None:
    """Returns the converted value of each problem, or None for it. None alone: a problem cannot be repaired."""
    if len(problems) > MOST_REPAIRED:
        return None
    converted = []
    unknown = missing = 0
    contested: set[Path] | None = None
    for path, kind, expected, value, _ in problems:
        new = None
        if kind == "unknown":
            unknown += 1
        elif kind == "missing":
            missing += 1
        elif value is not None:  # null may stand for a default
            new = _convert(kind, value, expected)
            if new is None:
                if contested is None:
                    contested = _find_contested(problems) if share_parameters(problems) else set()
                if path not in contested:
                    return None
        converted.append(new)
    return None if unknown > MOST_RENAMED or (missing and not unknown) else converted


def _find_contested(problems: list[ArgumentProblem]) -> set[Path]:
    """Returns paths that several problems mention, inside or out: branches of a union, one of which may be repaired."""
    seen: set[Path] = set()
    several: set[Path] = set()
    for problem in problems:
        path = problem.path
        while path:
            (several if path in seen else seen).add(path)
            path = path[:-1]
    return several


def _make_ambiguous_error(path: Path, value: Any, meanings: list[Any]) -> ToolError:
    readings = " or ".join(map(brief, meanings[:3]))
    message = f"{render_path(path)}: {brief(value)} has two readings: {readings}"
    return ToolError(message, ErrorKind.VALIDATION, "Send the value that you mean, with its JSON type.")


def _convert(kind: ProblemKind, value: Any, expected: tuple[Any, ...]) -> Any:
    """Converts a value of a problem of this kind; None where something would be lost."""
    if kind == "choice":
        return _convert_choice(value, expected)
    if kind != "type":
        return None
    (wanted,) = expected
    if type(value) is str:
        return convert_text(value, wanted)
    if wanted == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    if wanted == "array" and isinstance(value, int | float) and not isinstance(value, bool):
        return [value]
    if wanted == "array" and isinstance(value, dict) and value:  # an empty one may mean an empty list
        return [value]
    if wanted == "string" and type(value) is int and abs(value) < _LONGEST_WHOLE:
        return str(value)  # not 1.5: it may have been written 1.50, which is another text
    return None


def _convert_choice(value: Any, choices: tuple[Any, ...]) -> Any:
    """Returns the one choice that the value spells: "7" for 7, "RED" for "red", true for "True"."""
    if not isinstance(value, str | bool | int):
        return None
    compared = limit_choices(choices)
    if type(value) is str and value.isdecimal():
        for choice in compared:
            if type(choice) is int and str(choice) == value:
                return choice
    if len(compared) < len(choices):
        return None
    spelt = fold_name(str(value).strip())
    meant = {choice for choice in choices if type(choice) is str and fold_name(choice) == spelt}
    return meant.pop() if len(meant) == 1 else None


def convert_text(text: str, expected: str) -> Any:
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
        return [text] if _SEVERAL.search(stripped) is None else None
    if expected in ("array", "object") and is_written(stripped):
        check_amount(stripped)
        found = read_written(stripped)
        return found if isinstance(found, list if expected == "array" else dict) else None
    return None
