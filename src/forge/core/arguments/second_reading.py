"""Reads arguments again that failed the strict pass: repairs them, or explains what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic_core import ValidationError, from_json, to_json

from forge.core.arguments.checks import (
    LONGEST_CHOICES,
    MOST_PROBLEMS,
    MOST_REPAIRED,
    ArgumentHelp,
    FlatProblems,
    Path,
    Problem,
    explain,
    make_argument_error,
    make_help,
    mark_repaired,
    render_missing,
    render_type,
    render_unknown,
)
from forge.core.arguments.example import example
from forge.core.arguments.repair import HOPELESS, Repairing, resolve_aliases
from forge.core.arguments.sent_text import read_sent, respell
from forge.core.arguments.simple_types import ExactType
from forge.core.spec import ToolSpec

_problem = Problem._make  # half the price of calling the class
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

    __slots__ = ("_defaults", "_exact_types", "_known", "_repairing", "_spec", "_validate")

    def __init__(
        self,
        spec: ToolSpec,
        validate: Callable[..., dict[str, Any]],
        defaults: Mapping[str, Any],
        exact_types: Mapping[str, ExactType | None],
    ) -> None:
        self._spec, self._validate, self._defaults, self._exact_types = spec, validate, defaults, exact_types
        self._repairing = Repairing(spec, spec.parameters, self._check)
        self._known: ArgumentHelp | None = None

    def read(self, text: str, failed: ValidationError | None) -> dict[str, Any]:
        """Returns the repaired arguments. Raises `ToolError`.

        `failed` is the error of the strict pass; None: the text has numbers that JSON does not have.
        """
        if failed is None:
            return self._read_all(text)
        if text[-1] == "}" and text[0] == "{" and text[-2] != "," and '"' in text:  # it is JSON, most probably
            try:
                data: dict[str, Any] = from_json(text, allow_inf_nan=False)
            except (ValueError, TypeError, RecursionError):
                return self._read_all(text)
            quickly = self._repairing.repair_quickly(data)
            if quickly is HOPELESS:
                self._explain_quickly(data)
            elif quickly is not None:
                return quickly
            return self._repair_or_explain(data, failed)
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

    def _explain_quickly(self, data: dict[str, Any]) -> None:
        """Raises the explanation of arguments that cannot be repaired, unless pydantic alone knows all that is wrong.

        It is the commonest case; to ask pydantic and to translate its errors would cost a fifth of the whole call.
        """
        known, required, exact_types = self._help(), self._repairing.names.required, self._exact_types
        shown = []
        for name, exact in exact_types.items():
            if name in data:
                if exact is None:
                    return
                value = data[name]
                if type(value) is not exact[1]:
                    shown.append(render_type(name, exact[0], value))
            elif name in required:
                shown.append(render_missing(name))
        for key in data:
            if key not in exact_types:
                shown.append(render_unknown(key, (key,), known))
        if len(shown) <= MOST_PROBLEMS:
            raise make_argument_error(shown, known)

    def _read_all(self, text: str) -> dict[str, Any]:
        """Reads a text of which nothing is known."""
        sent, notes = read_sent(text, self._spec)
        data = resolve_aliases(sent, self._spec.argument_aliases)
        return self._finish(data, self._check(data), notes)

    def _finish(self, data: dict[str, Any], found: dict[str, Any] | list[Problem], notes: list[str]) -> dict[str, Any]:
        repaired = self._repairing.repair(data, found, notes)
        if isinstance(repaired, dict):
            return repaired
        raise explain(repaired, self._help())

    def _help(self) -> ArgumentHelp:
        if self._known is None:
            spec = self._spec
            self._known = make_help(spec.parameters, spec.argument_aliases, example(spec.name, spec.parameters))
        return self._known

    def _check(self, data: dict[str, Any]) -> dict[str, Any] | list[Problem]:
        try:
            values = self._validate(to_json(data), strict=True)
            return {**self._defaults, **values} if self._defaults else values
        except ValidationError as error:
            return _list_problems(error.errors(include_url=False), data)


def _list_problems(errors: list[Any], data: dict[str, Any]) -> list[Problem]:
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
            expected = one["ctx"]["expected"].replace(" or ", ", ")[:LONGEST_CHOICES]
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
