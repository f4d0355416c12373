"""Reads calls of typed tools again that failed pydantic's strict pass: repairs what has one meaning, or explains."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from pydantic_core import ValidationError, to_json

from forge.core.arguments.almost_json import read_sent
from forge.core.arguments.explain import (
    MOST_REPAIRED,
    ArgumentProblem,
    FlatProblems,
    Path,
    ProblemKind,
    ToolHelp,
    explain,
)
from forge.core.arguments.outline import flatten_schema
from forge.core.arguments.pydantic_private import read_choices
from forge.core.arguments.repair import MOST_NOTES, Repairing, convert_text, note_name, note_value, resolve_aliases
from forge.core.arguments.wrappers import WRAPPERS_AND_CALLS
from forge.core.errors import ToolError
from forge.core.spec import REPAIRS, ToolSpec

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
# makes a problem without `ArgumentProblem.__new__`, to save time: see `FlatProblems`
_make_problem: Callable[[tuple[Any, ...]], ArgumentProblem] = partial(tuple.__new__, ArgumentProblem)
_NOT_TEXT = frozenset({"integer", "number", "boolean"})


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

    def read(self, text: str, failed: ValidationError | None) -> tuple[dict[str, Any], list[str]]:
        """Returns the arguments and notes on their repairs. Raises `ToolError`.

        `failed` is the error of the strict pass; None: the text has numbers that JSON does not have.
        """
        sent, notes = read_sent(text, self._spec)
        aliases = self._spec.argument_aliases
        data = resolve_aliases(sent, aliases) if aliases else sent
        if failed is None or notes or data is not sent:
            return self._repairing.finish(data, self._check(data), notes)
        repaired = self._repair_quickly(data)
        return repaired if repaired is not None else self._repairing.finish(data, _list_problems(failed, data), notes)

    def _repair_quickly(self, sent: dict[str, Any]) -> tuple[dict[str, Any], list[str]] | None:
        """Repairs names and texts for numbers before pydantic is asked for its errors. None: `Repairing` decides.

        Pydantic's errors take longer than all the rest: such a call takes 11 times as long as a right one with pydantic
        alone, and 17 times without this function; the limit in `benchmarks/` is 14.
        """
        types = self._types
        if not types or not WRAPPERS_AND_CALLS.isdisjoint(sent):
            return None
        data: dict[str, Any] = {}
        notes: list[str] = []
        for key, value in sent.items():
            name = key if key in types else self._names.find_meant(key, sent)
            if not name or name in data or len(notes) == MOST_NOTES:
                return None
            if name != key:
                notes.append(note_name((key,), name))
            if type(value) is str and types[name] in _NOT_TEXT:
                new = convert_text(value, types[name])
                if new is None:
                    return None
                notes.append(note_value((name,), value, new))
                value = new
            data[name] = value
        found = self._check(data) if notes else None
        return (found, notes) if isinstance(found, dict) else None

    def _check(self, data: dict[str, Any]) -> dict[str, Any] | list[ArgumentProblem]:
        try:
            values = self._validate(to_json(data), strict=True)
        except ValidationError as error:
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
            expected = read_choices(one["ctx"]["expected"])
        elif kind == "other":
            message = one["msg"].removeprefix("Value error, ").replace("Input should", "should", 1)[:120]
        problems.append(_make_problem((path, kind, expected, one["input"], message)))
    return FlatProblems(problems) if is_flat else problems


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


def explain_errors(spec: ToolSpec, failed: ValidationError, data: dict[str, Any]) -> ToolError:
    """Explains the errors of a pydantic model's own validators."""
    return explain(_list_problems(failed, data), ToolHelp(spec, flatten_schema(spec.parameters)))
