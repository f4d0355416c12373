"""Repairs arguments where nothing is lost: `"5"` for 5, one item for a list, another spelling of a name, a wrapper."""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from forge.core.arguments.almost_json import is_written, read_sent, read_written
from forge.core.arguments.explain import (
    MOST_REPAIRED,
    ArgumentProblem,
    FlatProblems,
    Path,
    ProblemKind,
    ToolHelp,
    explain,
    limit_choices,
    render_path,
    share_parameters,
)
from forge.core.arguments.names import fold_name
from forge.core.arguments.read import check_amount, mark_repaired
from forge.core.errors import ErrorKind, ToolError
from forge.core.plain_values import brief
from forge.core.spec import REPAIRS, JsonSchema, ToolSpec

if TYPE_CHECKING:  # heavy, and needed only where something is wrong
    from pydantic_core import ValidationError

MOST_UNKNOWN = 100  # keys; with more, their meaning is not clear
MOST_NOTES = 20  # about what was repaired

_WHOLE = re.compile(r"[+-]?[0-9]{1,4000}(?:\.(?:00?|0{4,20}))?")  # 1.000 may be a thousand
_LONGEST_WHOLE = 10**1_000  # Python writes no longer ones
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
    """Repairs the calls of one tool. `schema` is flat: it has the parameters of the whole."""

    def __init__(self, spec: ToolSpec, schema: JsonSchema, check: Check) -> None:
        self._spec, self._check = spec, check
        self._allowed = spec.allowed_repairs
        self.help = ToolHelp(spec, schema)

    def finish(
        self, data: dict[str, Any], found: dict[str, Any] | list[ArgumentProblem], notes: list[str]
    ) -> dict[str, Any]:
        """Returns the arguments, after repairs of what `check` found wrong with the data. Raises `ToolError`.

        `notes` are repairs that were made before.
        """
        if isinstance(found, list) and not _WRAPPERS_AND_CALLS.isdisjoint(data) and "wrapping" in self._allowed:
            inside = unwrap(data, self.help.names.at(()).known, self._spec)
            if inside is not None:
                key, data = inside
                data = resolve_aliases(data, self._spec.argument_aliases)
                found, notes = self._check(data), [*notes, f"took the arguments out of {brief(key)}"]
        if isinstance(found, list):
            found = self._repair(data, found, notes)
            if isinstance(found, list):
                raise explain(found, self.help)
        return mark_repaired(found, notes) if notes else found

    def _repair(
        self, data: dict[str, Any], problems: list[ArgumentProblem], notes: list[str]
    ) -> dict[str, Any] | list[ArgumentProblem]:
        """Repairs problems without loss, and notes it. Returns the arguments, or the problems that are left."""
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
            return _note_name(path, meant)
        if value is None and len(path) == 1 and key not in self.help.names.at(()).required:
            del holder[key]
            return f"{render_path(path)}: null → the default"
        if new is None or value != sent:  # changed by an earlier repair
            return ""
        holder[key] = new
        return _note_value(path, value, new)

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


def _note_name(path: Path, meant: str) -> str:
    return f"{render_path(path)} → {meant}"


def _note_value(path: Path, value: Any, new: Any) -> str:
    return f"{render_path(path)}: {brief(value)} → {brief(new)}"


def _convert_values(problems: list[ArgumentProblem]) -> list[Any] | None:
    """Returns each problem's value as it should be, None where there is none; None if a problem is beyond repair."""
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
    return None if unknown > MOST_UNKNOWN or (missing and not unknown) else converted


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
        return _convert_text(value, wanted)
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


def _convert_text(text: str, expected: str) -> Any:
    if expected == "string":
        return None
    stripped = text.strip()
    if expected == "integer":
        is_likely = stripped[:1] in "+-0123456789"  # most texts need no pattern
        return int(stripped.partition(".")[0]) if is_likely and _WHOLE.fullmatch(stripped) else None
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


# Takes arguments out of a wrapper that is no parameter of the tool: `{"arguments": {…}}`, `{"input": {…}}`.


_WRAPPERS = [
    "arguments",
    "args",
    "parameters",
    "params",
    "input",
    "inputs",
    "kwargs",
    "tool_input",
    "function_args",
    "action_input",
    "toolInput",
    "functionArgs",
    "actionInput",
]
CALLS = frozenset({"function", "function_call", "tool_call", "functionCall", "toolCall"})  # around a name and arguments
WRAPPERS = frozenset((*_WRAPPERS, *map(str.capitalize, _WRAPPERS), *map(str.upper, _WRAPPERS)))
_WRAPPERS_AND_CALLS = WRAPPERS | CALLS
DEEPEST = 3  # wrappers inside each other
_TOOL_NAMES = frozenset({"name", "tool", "toolname", "function", "functionname", "action"})
_TOOL_KINDS = {"type": ("function", "tool_use", "function_call", "tool_call")}


def unwrap(
    data: Mapping[str, Any], known: Collection[str], spec: ToolSpec, deepest: int = DEEPEST
) -> tuple[str, dict[str, Any]] | None:
    """Returns the wrapper's key and the arguments in it; None where the data is no wrapper, or may be more than one.

    `known` are the tool's parameters. Beside the wrapper, only the name of this very tool may stand.
    """
    if len(data) > 3 or _WRAPPERS_AND_CALLS.isdisjoint(data):
        return None
    spellings = _fold_names((*known, *spec.argument_aliases))
    wrappers = [key for key, value in data.items() if _is_wrapper(key, value) and fold_name(key) not in spellings]
    if len(wrappers) != 1 or not all(_names_tool(key, data[key], spec) for key in data if key != wrappers[0]):
        return None
    inner = data[wrappers[0]]
    if isinstance(inner, str) and is_written(inner) and "encoding" in spec.allowed_repairs:
        inner = read_written(inner)
    if not isinstance(inner, dict):
        return None
    deeper = unwrap(inner, known, spec, deepest - 1) if deepest > 1 else None
    if deeper is not None or wrappers[0] in CALLS:
        return deeper
    return wrappers[0], inner


def _is_wrapper(key: str, value: Any) -> bool:
    return key in WRAPPERS or (key in CALLS and isinstance(value, dict))


def are_all_known(inner: Mapping[str, Any], known: Collection[str], spec: ToolSpec) -> bool:
    """Returns whether every key is a parameter of the tool, in whatever spelling."""
    spellings = _fold_names((*known, *spec.argument_aliases))
    return all(fold_name(key) in spellings for key in inner)


@lru_cache(maxsize=1_000)
def _fold_names(names: tuple[str, ...]) -> frozenset[str]:
    return frozenset(map(fold_name, names))


def _names_tool(key: str, value: Any, spec: ToolSpec) -> bool:
    folded = fold_name(key)
    if folded in _TOOL_KINDS:
        return value in _TOOL_KINDS[folded]
    return folded in _TOOL_NAMES and value in (spec.name, *spec.aliases)


# Reads the calls of a typed tool again that failed pydantic's strict pass.


_KINDS: dict[str, tuple[ProblemKind, tuple[str, ...]]] = {  # pydantic's name of an error -> ours, and the JSON type
    **dict.fromkeys(("int_type", "int_from_float", "int_parsing"), ("type", ("integer",))),
    **dict.fromkeys(("float_type", "float_parsing", "decimal_type"), ("type", ("number",))),
    **dict.fromkeys(("bool_type", "bool_parsing"), ("type", ("boolean",))),
    "string_type": ("type", ("string",)),
    **dict.fromkeys(("list_type", "tuple_type", "set_type", "frozen_set_type"), ("type", ("array",))),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type", "dataclass_type"), ("type", ("object",))),
    "none_required": ("type", ("null",)),
    **dict.fromkeys(("missing", "missing_argument"), ("missing", ())),
    **dict.fromkeys(("extra_forbidden", "unexpected_keyword_argument"), ("unknown", ())),
    **dict.fromkeys(("literal_error", "enum"), ("choice", ())),
}
_OTHER: tuple[ProblemKind, tuple[str, ...]] = ("other", ())
_TEXT = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""  # a text as Python writes it
_NOT_TEXT = frozenset({"integer", "number", "boolean"})
# a third of the price of calling the class: wrong calls make several
_make_problem: Callable[[tuple[Any, ...]], ArgumentProblem] = partial(tuple.__new__, ArgumentProblem)


class SecondReading:
    """Reads the calls of one typed tool that failed. `validate` is pydantic's `validate_json`.

    `is_plain`: the JSON Schema says all about the types; there are no validators of the tool's own.
    """

    def __init__(
        self, spec: ToolSpec, validate: Callable[..., dict[str, Any]], defaults: Mapping[str, Any], is_plain: bool
    ) -> None:
        self._spec, self._validate, self._defaults = spec, validate, defaults
        self._repairing = Repairing(spec, spec.parameters, self._check)
        self._names = self._repairing.help.names.at(())
        properties = spec.parameters["properties"] if is_plain and spec.allowed_repairs == REPAIRS else {}
        self._types: dict[str, str] = {name: one.get("type", "") for name, one in properties.items()}

    def read(self, text: str, failed: ValidationError | None) -> dict[str, Any]:
        """Returns the repaired arguments. Raises `ToolError`.

        `failed` is the error of the strict pass; None: the text has numbers that JSON does not have.
        """
        sent, notes = read_sent(text, self._spec)
        aliases = self._spec.argument_aliases
        data = resolve_aliases(sent, aliases) if aliases else sent
        if failed is None or notes or data is not sent:
            return self._repairing.finish(data, self._check(data), notes)
        repaired = self._repair_quickly(data)
        return repaired if repaired is not None else self._repairing.finish(data, _list_problems(failed, data), notes)

    def _repair_quickly(self, sent: dict[str, Any]) -> dict[str, Any] | None:
        """Repairs names and texts for numbers before pydantic is asked for its errors. None: `Repairing` decides.

        Pydantic's errors take longer than all the rest: such a call takes 11 times as long as a right one with pydantic
        alone, and 17 times without this function; the limit in `benchmarks/` is 14.
        """
        types = self._types
        if not types or not _WRAPPERS_AND_CALLS.isdisjoint(sent):
            return None
        data: dict[str, Any] = {}
        notes: list[str] = []
        for key, value in sent.items():
            name = key if key in types else self._names.find_meant(key, sent)
            if not name or name in data or len(notes) == MOST_NOTES:
                return None
            if name != key:
                notes.append(_note_name((key,), name))
            if type(value) is str and types[name] in _NOT_TEXT:
                new = _convert_text(value, types[name])
                if new is None:
                    return None
                notes.append(_note_value((name,), value, new))
                value = new
            data[name] = value
        found = self._check(data) if notes else None
        return mark_repaired(found, notes) if isinstance(found, dict) else None

    def _check(self, data: dict[str, Any]) -> dict[str, Any] | list[ArgumentProblem]:
        import pydantic_core

        try:
            values = self._validate(pydantic_core.to_json(data), strict=True)
        except pydantic_core.ValidationError as error:
            return _list_problems(error, data)
        return {**self._defaults, **values} if self._defaults else values


def _list_problems(failed: ValidationError, data: dict[str, Any]) -> list[ArgumentProblem]:
    """Translates pydantic's errors into problems."""
    problems = []
    is_flat = True
    for one in failed.errors(include_url=False)[: MOST_REPAIRED + 1]:
        path, message, (kind, expected) = one["loc"], "", _KINDS.get(one["type"], _OTHER)
        if len(path) != 1:  # the last part of an absent argument is not in the data
            path, is_flat = _find_real_path(path, data, absent=kind in ("missing", "unknown")), False
        if kind == "choice":
            expected = _read_choices(one["ctx"]["expected"])
        elif kind == "other":
            message = one["msg"].removeprefix("Value error, ").replace("Input should", "should", 1)[:120]
        problems.append(_make_problem((path, kind, expected, one["input"], message)))
    return FlatProblems(problems) if is_flat else problems


@lru_cache(maxsize=100)
def _read_choices(words: str) -> tuple[Any, ...]:
    """Returns the choices that pydantic lists in its words only, such as `'a', 'b or c' or 3`."""
    separated = re.sub(rf"({_TEXT})| or ", lambda found: found[1] or ", ", words)
    try:
        return tuple(literal_eval(f"({separated},)"))
    except (ValueError, SyntaxError):  # such as a member of an enum: `<Color.RED: 'red'>`
        return tuple(literal_eval(text) for text in re.findall(_TEXT, words))


def _find_real_path(location: tuple[int | str, ...], data: Any, *, absent: bool) -> Path:
    """Returns the path in the data, without the union branches that pydantic puts in between."""
    path: list[int | str] = []
    last = len(location) - 1
    for index, part in enumerate(location):
        if isinstance(data, dict) and (part in data or (absent and index == last)):
            data = data.get(part)
            path.append(part)
        elif isinstance(data, list) and isinstance(part, int) and (part < len(data) or (absent and index == last)):
            data = data[part] if part < len(data) else None
            path.append(part)
    return tuple(path)
