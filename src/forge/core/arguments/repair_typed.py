"""Reads calls of typed tools again that failed pydantic's strict pass: repairs what has one meaning, or explains."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic_core import ValidationError, to_json

from forge.core.arguments.almost_json import read_sent
from forge.core.arguments.explain import (
    MOST_REPAIRED,
    ArgumentProblem,
    Path,
    ProblemKind,
    ToolHelp,
    explain,
)
from forge.core.arguments.outline import flatten_schema
from forge.core.arguments.pydantic_private import read_choices
from forge.core.arguments.repair import Repairing, resolve_aliases
from forge.core.errors import ToolError
from forge.core.spec import ToolSpec

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


class SecondReading:
    """Reads the calls of one typed tool that failed. `validate` is pydantic's `validate_json`."""

    def __init__(self, spec: ToolSpec, validate: Callable[..., dict[str, Any]], defaults: Mapping[str, Any]) -> None:
        self._spec, self._validate, self._defaults = spec, validate, defaults
        self._repairing = Repairing(spec, spec.parameters, self._check)

    def read(self, text: str, failed: ValidationError | None) -> tuple[dict[str, Any], list[str]]:
        """Returns the arguments and notes on their repairs. Raises `ToolError`.

        `failed` is the error of the strict pass; None: the text has numbers that JSON does not have.
        """
        sent, notes = read_sent(text, self._spec)
        aliases = self._spec.argument_aliases
        data = resolve_aliases(sent, aliases) if aliases else sent
        is_another = bool(notes) or data is not sent  # than the one that failed
        found = self._check(data) if failed is None or is_another else _list_problems(failed, data)
        return self._repairing.finish(data, found, notes)

    def _check(self, data: dict[str, Any]) -> dict[str, Any] | list[ArgumentProblem]:
        try:
            values = self._validate(to_json(data), strict=True)
        except ValidationError as error:
            return _list_problems(error, data)
        return {**self._defaults, **values} if self._defaults else values


def _list_problems(failed: ValidationError, data: dict[str, Any]) -> list[ArgumentProblem]:
    """Translates pydantic's errors into problems."""
    problems = []
    for one in failed.errors(include_url=False)[: MOST_REPAIRED + 1]:
        path, message, (kind, expected) = one["loc"], "", _KINDS.get(one["type"], _OTHER)
        if len(path) != 1:  # the last part of an absent argument is not in the data
            path = _find_real_path(path, data, absent=kind in ("missing", "unknown"))
        if kind == "choice":
            expected = read_choices(one["ctx"]["expected"])
        elif kind == "other":
            message = one["msg"].removeprefix("Value error, ").replace("Input should", "should", 1)[:120]
        problems.append(ArgumentProblem(path, kind, expected, one["input"], message))
    return problems


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
