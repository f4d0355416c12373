"""Repairs arguments where nothing is lost: `"5"` for 5, one item for a list, another spelling of a name, a wrapper."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from forge.core.arguments.example import example
from forge.core.arguments.explain import (
    LONGEST_CHOICES,
    MOST_REPAIRED,
    ArgumentHelp,
    ArgumentProblem,
    FlatProblems,
    Names,
    NamesByPath,
    Path,
    Repaired,
    check_amount,
    explain,
    find_meant_name,
    fold_name,
    list_choices,
    make_help,
    mark_repaired,
    render_path,
    separate_choices,
)
from forge.core.arguments.read import is_written, read_sent, read_written, respell
from forge.core.errors import ErrorKind, ToolError
from forge.core.plain_values import brief
from forge.core.spec import REPAIRS, JsonSchema, ToolSpec

if TYPE_CHECKING:  # heavy, and needed only where something is wrong
    from pydantic_core import ValidationError

MOST_UNKNOWN = 100  # keys; with more, their meaning is not clear
MOST_NOTES = 20  # about what was repaired

_WHOLE = re.compile(r"[+-]?[0-9]{1,4000}(?:\.(?:00?|0{4,20}))?")  # 1.000 may be a thousand
_LONGEST_WHOLE = 10**1_000  # Python writes no longer ones
_STARTS_NUMBER = frozenset("+-0123456789")
_SEVERAL = re.compile(r"[,;\n]")  # may separate items
_NOT_TEXT = ("integer", "number", "boolean")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]{1,400}(?:\.[0-9]{0,400})?|\.[0-9]{1,400})(?:[eE][+-]?[0-9]{1,3})?")

Check = Callable[[dict[str, Any]], "dict[str, Any] | list[ArgumentProblem]"]
"""Validated arguments, or what is wrong with them."""


def resolve_aliases(data: dict[str, Any], aliases: Mapping[str, str]) -> dict[str, Any]:
    """Returns the arguments under their canonical names. An alias beside its name stays."""
    named = dict(data)
    for key in data:
        right = aliases.get(key)
        if right is not None and right not in named:
            named[right] = named.pop(key)
    return named


def is_hopeless(problems: list[ArgumentProblem]) -> bool:
    """Returns whether some problem is beyond repair: then the call fails, and no repair is needed."""
    if len(problems) > MOST_REPAIRED:
        return True
    unknown, missing = 0, False
    contested: set[Path] | None = None
    for path, kind, expected, value, _ in problems:
        if kind == "unknown":
            unknown += 1
            if unknown > MOST_UNKNOWN:
                return True
        elif kind == "missing":
            missing = True
        elif value is not None and convert(kind, value, expected) is None:  # null may stand for a default
            if type(problems) is FlatProblems:
                return True
            if contested is None:
                contested = _find_contested(problems)
            if path not in contested:
                return True
    return missing and not unknown


def _find_contested(problems: list[ArgumentProblem]) -> set[Path]:
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


class Repairing:
    """Repairs the calls of one tool. `schema` is flat: it has the parameters of the whole."""

    __slots__ = (
        "_is_quick",
        "_plain_types",
        "_renamed",
        "_spellings",
        "allowed",
        "check",
        "names",
        "names_by_path",
        "schema",
        "spec",
    )  # they are read several times in each wrong call

    def __init__(self, spec: ToolSpec, schema: JsonSchema, check: Check) -> None:
        self.spec, self.schema, self.check = spec, schema, check
        self.allowed = spec.allowed_repairs
        self.names = Names(tuple(schema.get("properties") or ()), tuple(schema.get("required") or ()))
        self.names_by_path = NamesByPath(schema)
        self._is_quick = self.allowed == REPAIRS
        self._renamed = {*spec.argument_aliases, *(WRAPPERS | CALLS if "wrapping" in self.allowed else ())}
        self._plain_types = _find_plain_types(schema.get("properties") or {})
        self._spellings = _find_spellings(self.names.known, spec.argument_aliases)

    def has_chance(self, problems: list[ArgumentProblem], sent: Mapping[str, Any]) -> bool:
        """Returns whether a repair may succeed: no problem is beyond it, or the arguments are under another key."""
        return self.is_renamed(sent) or (bool(self.allowed) and not is_hopeless(problems))

    def is_renamed(self, sent: Mapping[str, Any]) -> bool:
        """Returns whether the arguments may be under another key: an alias, or a wrapper."""
        return not self._renamed.isdisjoint(sent)

    def repair_quickly(self, sent: dict[str, Any]) -> dict[str, Any] | None:
        """Repairs the common slips without asking the validator for its errors: other spellings, numbers as text.

        None: it is another case, and `repair` decides. Without this way such a call costs 18 times a right one with
        pydantic alone, instead of 10; the limit in `benchmarks/` is 14.
        """
        if not self._is_quick or len(sent) > MOST_UNKNOWN:
            return None
        if not self._renamed.isdisjoint(sent):
            return None if self.spec.argument_aliases else self._unwrap_quickly(sent)
        types = self._plain_types
        repaired: dict[str, Any] = {}
        notes: list[str] = []
        for key, value in sent.items():
            expected = types.get(key)
            if expected is None:
                name = self._spellings.get(fold_name(key))
                if name is None or name in sent or name in repaired:
                    return None
                notes.append(f"{key[:80]} → {name}")
                key, expected = name, types[name]
            if type(value) is str and expected in _NOT_TEXT:
                if expected == "integer" and _is_short_number(value):
                    new: Any = int(value)
                    notes.append(f'{key}: "{value}" → {new}')
                else:
                    new = _convert_text(value, expected)
                    if new is None:
                        return None
                    notes.append(f"{key}: {brief(value)} → {brief(new)}")
                value = new
            repaired[key] = value
        found = self.check(repaired) if 0 < len(notes) <= MOST_NOTES else None
        return mark_repaired(found, notes) if type(found) is dict else None

    def _unwrap_quickly(self, sent: dict[str, Any]) -> dict[str, Any] | None:
        inside = unwrap(sent, self.names.known, self.spec)
        found = self.check(inside[1]) if inside is not None else None
        return mark_repaired(found, [_note_wrapper(inside[0])]) if inside and isinstance(found, dict) else None

    def repair(self, data: dict[str, Any], found: dict[str, Any] | list[ArgumentProblem], notes: list[str]) -> Any:
        """Repairs what `check` found wrong with the data. Returns the arguments, or the problems that are left.

        `notes` are repairs that were made before.
        """
        if isinstance(found, list) and "wrapping" in self.allowed:
            inside = unwrap(data, self.names.known, self.spec)
            if inside is not None:
                key, data = inside
                data = resolve_aliases(data, self.spec.argument_aliases)
                found, notes = self.check(data), [*notes, _note_wrapper(key)]
        if isinstance(found, list) and self.allowed:
            found = self._repair_problems(data, found)
        if isinstance(found, list) or not notes:
            return found
        return mark_repaired(found, notes + (found.repaired if isinstance(found, Repaired) else []))

    def _repair_problems(self, data: dict[str, Any], problems: list[ArgumentProblem]) -> Any:
        """Repairs problems without loss. Returns a `Repaired`, or the problems that are left."""
        repaired: list[str] = []
        left = problems
        for _ in range(3):  # a repaired value may show what is wrong inside it
            if is_hopeless(left):
                return left
            if type(left) is not FlatProblems:
                left = self._settle_branches(data, left)
            notes: dict[Path, str] = {}
            for problem in left:
                if problem.path not in notes and (note := _repair_problem(data, problem, self)):
                    notes[problem.path] = note
            if not notes:
                return left
            repaired += notes.values()
            checked = self.check(data)
            if not isinstance(checked, list):
                return mark_repaired(checked, _limit_notes(repaired))
            left = checked
        return left

    def _settle_branches(self, data: dict[str, Any], problems: list[ArgumentProblem]) -> list[ArgumentProblem]:
        """Keeps the conversion of a value that fits. Raises `ToolError` where two conversions of one value fit."""
        by_path: dict[Path, list[ArgumentProblem]] = {}
        for problem in problems:
            if problem.path and problem.kind in ("type", "choice") and _convert_value(problem) is not None:
                by_path.setdefault(problem.path, []).append(problem)
        dropped: list[ArgumentProblem] = []
        for path, several in by_path.items():
            different = [one for n, one in enumerate(several) if _convert_value(one) not in _converted(several[:n])]
            if len(different) > 1:
                fitting = [one for one in different if self._fits(data, path, _convert_value(one))]
                if len(fitting) > 1:
                    raise _make_ambiguous_error(path, fitting)
                dropped += [one for one in several if fitting and one not in fitting]
        return [one for one in problems if one not in dropped] if dropped else problems

    def _fits(self, data: dict[str, Any], path: Path, value: Any) -> bool:
        """Returns whether the value at the path would be right."""
        holder: Any = data
        try:
            for part in path[:-1]:
                holder = holder[part]
            before, holder[path[-1]] = holder[path[-1]], value
        except (KeyError, IndexError, TypeError):
            return False
        found = self.check(data)
        holder[path[-1]] = before
        return not isinstance(found, list) or not any(one.path[: len(path)] == path for one in found)


def _find_plain_types(properties: Mapping[str, Any]) -> dict[str, str]:
    """Returns the JSON type of each parameter that has exactly one; "" for the others."""
    types = {name: one.get("type") if isinstance(one, Mapping) else None for name, one in properties.items()}
    return {name: one if isinstance(one, str) else "" for name, one in types.items()}


def _find_spellings(names: Sequence[str], aliases: Mapping[str, str]) -> dict[str, str]:
    """Returns the parameters by their folded name; a spelling of two of them is none."""
    meant: dict[str, set[str]] = {}
    for spelt, name in [*((name, name) for name in names), *aliases.items()]:
        meant.setdefault(fold_name(spelt), set()).add(name)
    return {fold_name(name): name for name in names if len(meant[fold_name(name)]) == 1}


def _converted(problems: list[ArgumentProblem]) -> list[Any]:
    return [_convert_value(one) for one in problems]


def _make_ambiguous_error(path: Path, problems: list[ArgumentProblem]) -> ToolError:
    readings = " or ".join(brief(one) for one in _converted(problems[:3]))
    message = f"{render_path(path)}: {brief(problems[0].value)} has two readings: {readings}"
    return ToolError(message, ErrorKind.VALIDATION, "Send the value that you mean, with its JSON type.")


def _note_wrapper(key: str) -> str:
    return f"took the arguments out of {brief(key)}"


def _limit_notes(notes: list[str]) -> list[str]:
    return notes if len(notes) <= MOST_NOTES else [*notes[:MOST_NOTES], f"and {len(notes) - MOST_NOTES} more"]


def _repair_problem(data: dict[str, Any], problem: ArgumentProblem, tool: Repairing) -> str:
    """Repairs one problem in place. Returns a note about it, or nothing."""
    if problem.kind == "missing" or not problem.path:
        return ""
    is_name = problem.kind == "unknown"
    if ("names" if is_name else "values") not in tool.allowed:
        return ""
    holder: Any = data
    path = problem.path
    key, is_top = path[-1], len(path) == 1
    try:
        for part in path[:-1]:
            holder = holder[part]
        value = holder[key]
    except (KeyError, IndexError, TypeError):  # moved by an earlier repair
        return ""
    where = render_path(path)
    if is_name:
        names = tool.names if is_top else tool.names_by_path.names(path[:-1])
        return _rename(holder, key, where, names, tool.spec.argument_aliases if is_top else {})
    if value is None and is_top and key not in tool.names.required:
        del holder[key]
        return f"{where}: null → the default"
    new = _convert_value(problem if value is problem.value else problem._replace(value=value))
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


def _convert_value(problem: ArgumentProblem) -> Any:
    """Converts the value to the expected type, or returns None where something would be lost."""
    return convert(problem.kind, problem.value, problem.expected)


def convert(kind: str, value: Any, expected: str) -> Any:
    """Converts a value of a problem of this kind; None where something would be lost."""
    if kind == "type":
        if type(value) is str:
            return _convert_text(value, expected)
        if expected == "integer" and isinstance(value, float) and value.is_integer():
            return int(value)
        if expected == "array" and isinstance(value, int | float) and not isinstance(value, bool):
            return [value]
        if expected == "array" and isinstance(value, dict) and value:  # an empty one may mean an empty list
            return [value]
        if expected == "string" and type(value) is int and abs(value) < _LONGEST_WHOLE:
            return str(value)  # not 1.5: it may have been written 1.50, which is another text
    return _convert_choice(value, expected) if kind == "choice" else None


def _convert_choice(value: Any, expected: str) -> Any:
    """Returns the one choice that the value spells: "7" for 7, "RED" for "red", true for "True"."""
    if isinstance(value, str) and value.isdecimal() and value in expected.split(", "):
        return int(value)
    if not isinstance(value, str | bool | int) or len(expected) >= LONGEST_CHOICES:
        return None
    spelt = fold_name(str(value).strip())
    meant = {choice for choice in list_choices(expected) if fold_name(choice) == spelt}
    return meant.pop() if len(meant) == 1 else None


def _is_short_number(text: str) -> bool:
    return text.isdigit() and text.isascii() and len(text) < 18


def _convert_text(text: str, expected: str) -> Any:
    if expected == "string":
        return None
    if expected == "integer" and _is_short_number(text):
        return int(text)
    stripped = text.strip()
    if expected == "integer":
        is_whole = stripped[:1] in _STARTS_NUMBER and _WHOLE.fullmatch(stripped)  # most texts need no pattern
        return int(stripped.partition(".")[0]) if is_whole else None
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


# Reads arguments again that failed the strict pass: repairs them, or explains what is wrong.


_problem = ArgumentProblem._make  # half the price of calling the class
_KINDS = {  # pydantic's name of an error -> ours, and the JSON type that was expected
    **dict.fromkeys(("int_type", "int_from_float", "int_parsing"), ("type", "integer")),
    **dict.fromkeys(("float_type", "float_parsing", "decimal_type"), ("type", "number")),
    **dict.fromkeys(("bool_type", "bool_parsing"), ("type", "boolean")),
    "string_type": ("type", "string"),
    **dict.fromkeys(("list_type", "tuple_type", "set_type", "frozen_set_type"), ("type", "array")),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type", "dataclass_type"), ("type", "object")),
    "none_required": ("type", "null"),
    **dict.fromkeys(("missing", "missing_argument"), ("missing", "")),
    **dict.fromkeys(("extra_forbidden", "unexpected_keyword_argument"), ("unknown", "")),
    **dict.fromkeys(("literal_error", "enum"), ("choice", "")),
}
_OTHER = ("", "")


class SecondReading:
    """Reads the calls of one typed tool that failed. `validate` is pydantic's `validate_json`."""

    __slots__ = ("_defaults", "_known", "_repairing", "_spec", "_validate")

    def __init__(self, spec: ToolSpec, validate: Callable[..., dict[str, Any]], defaults: Mapping[str, Any]) -> None:
        self._spec, self._validate, self._defaults = spec, validate, defaults
        self._repairing = Repairing(spec, spec.parameters, self._check)
        self._known: ArgumentHelp | None = None

    def read(self, text: str, failed: ValidationError | None) -> dict[str, Any]:
        """Returns the repaired arguments. Raises `ToolError`.

        `failed` is the error of the strict pass; None: the text has numbers that JSON does not have.
        """
        from pydantic_core import ValidationError, from_json

        if failed is None:
            return self._read_all(text)
        if text[-1] == "}" and text[0] == "{" and text[-2] != "," and '"' in text:  # it is JSON, most probably
            try:
                data: dict[str, Any] = from_json(text, allow_inf_nan=False)
            except (ValueError, TypeError, RecursionError):
                return self._read_all(text)
            quickly = self._repairing.repair_quickly(data)
            return quickly if quickly is not None else self._repair_or_explain(data, failed)
        respelt = respell(text, self._spec)
        if respelt is not None:
            try:
                values = self._validate(respelt.json, strict=True)
                return mark_repaired({**self._defaults, **values} if self._defaults else values, respelt.notes)
            except ValidationError:
                pass  # the text is not all that is wrong
        return self._read_all(text)

    def _repair_or_explain(self, data: dict[str, Any], failed: ValidationError) -> dict[str, Any]:
        """Repairs arguments of which the text is right."""
        aliases = self._spec.argument_aliases
        if aliases and not aliases.keys().isdisjoint(data):
            data = resolve_aliases(data, aliases)
            return self._finish(data, self._check(data), [])
        found = _list_problems(failed.errors(include_url=False), data)
        if not self._repairing.has_chance(found, data):
            raise explain(found, self._help())
        return self._finish(data, found, [])

    def _read_all(self, text: str) -> dict[str, Any]:
        """Reads a text of which nothing is known."""
        sent, notes = read_sent(text, self._spec)
        data = resolve_aliases(sent, self._spec.argument_aliases)
        return self._finish(data, self._check(data), notes)

    def _finish(
        self, data: dict[str, Any], found: dict[str, Any] | list[ArgumentProblem], notes: list[str]
    ) -> dict[str, Any]:
        repaired = self._repairing.repair(data, found, notes)
        if isinstance(repaired, dict):
            return repaired
        raise explain(repaired, self._help())

    def _help(self) -> ArgumentHelp:
        if self._known is None:
            spec = self._spec
            self._known = make_help(spec.parameters, spec.argument_aliases, example(spec.name, spec.parameters))
        return self._known

    def _check(self, data: dict[str, Any]) -> dict[str, Any] | list[ArgumentProblem]:
        from pydantic_core import ValidationError, to_json

        try:
            values = self._validate(to_json(data), strict=True)
            return {**self._defaults, **values} if self._defaults else values
        except ValidationError as error:
            return _list_problems(error.errors(include_url=False), data)


def _list_problems(errors: list[Any], data: dict[str, Any]) -> list[ArgumentProblem]:
    """Translates pydantic's errors into problems."""
    problems = []
    flat = True
    if len(errors) > MOST_REPAIRED:
        del errors[MOST_REPAIRED + 1 :]
    for one in errors:
        path, message, (kind, expected) = one["loc"], "", _KINDS.get(one["type"], _OTHER)
        if len(path) != 1:  # the last part of an absent argument is not in the data
            flat = False
            path = _find_real_path(path, data, absent=kind in ("missing", "unknown"))
        if kind == "choice":
            expected = separate_choices(one["ctx"]["expected"])
        elif not kind:
            message = one["msg"].removeprefix("Value error, ").replace("Input should", "should", 1)[:120]
        problems.append(_problem((path, kind, expected, one["input"], message)))
    return FlatProblems(problems) if flat else problems  # without nesting, pydantic names a parameter once


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
DEEPEST = 3  # wrappers inside each other
_TOOL_NAMES = frozenset({"name", "tool", "toolname", "function", "functionname", "action"})
_TOOL_KINDS = {"type": ("function", "tool_use", "function_call", "tool_call")}


def unwrap(
    data: Mapping[str, Any], known: Collection[str], spec: ToolSpec, deepest: int = DEEPEST
) -> tuple[str, dict[str, Any]] | None:
    """Returns the wrapper's key and the arguments in it; None where the data is no wrapper, or may be more than one.

    `known` are the tool's parameters. Beside the wrapper, only the name of this very tool may stand.
    """
    if len(data) > 3 or (WRAPPERS.isdisjoint(data) and CALLS.isdisjoint(data)):
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
