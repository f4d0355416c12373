"""Makes the parsers of typed functions and of pydantic models; the picture is in `core/arguments/__init__.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from forge.core.arguments.json_text import MOST_PARTS, as_text, check_amount, is_readable
from forge.core.arguments.pydantic_private import make_closed_validator
from forge.core.spec import ToolSpec

Parse = Callable[[Mapping[str, Any] | str], dict[str, Any]]


class Repaired(dict[str, Any]):
    """Validated arguments that differ from the sent ones, with notes on the repairs."""

    __slots__ = ("repaired",)
    repaired: list[str]


def mark_repaired(values: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    """Returns the arguments with notes on their repairs; the arguments themselves if there are none."""
    if not notes:
        return values
    made = Repaired(values)
    made.repaired = notes
    return made


def make_typed_parser(spec: ToolSpec, adapter: Any, defaults: Mapping[str, Any]) -> Parse:
    """Makes the `parse` of a typed tool. `adapter`: `SimpleArguments` of `plain_types`, or pydantic's `TypeAdapter`."""
    from pydantic_core import ValidationError  # heavy: paid at the first call

    validate = make_closed_validator(adapter).validate_json

    @cache
    def second_reading() -> Any:
        from forge.core.arguments.repair_typed import SecondReading  # only where something is wrong

        return SecondReading(spec, validate, defaults)

    def parse(arguments: Mapping[str, Any] | str) -> dict[str, Any]:
        text = arguments if type(arguments) is str else as_text(arguments)
        if not text or text.isspace():
            text = "{}"  # how some providers spell a call without arguments
        if len(text) > MOST_PARTS:
            check_amount(text)
        failed = None
        # pydantic takes NaN and Infinity as numbers; to look for one letter first takes 9 instead of 420 µs in 100 kB
        has_json_numbers = ("N" not in text or "NaN" not in text) and ("I" not in text or "Infinity" not in text)
        if has_json_numbers or is_readable(text):
            try:
                values: dict[str, Any] = validate(text, strict=True)
                return {**defaults, **values} if defaults else values
            except ValidationError as error:
                failed = error.with_traceback(None)  # the traceback holds this frame, and the frame holds the error
        return mark_repaired(*second_reading().read(text, failed))

    return parse


def make_model_parser(spec: ToolSpec, model: Any, parse: Parse) -> Parse:
    """Makes the `parse` of a tool whose schema is a pydantic model. `parse` checks by the schema of the model."""
    from pydantic import ValidationError

    validate = make_closed_validator(model).validate_json

    def parse_and_validate(arguments: Mapping[str, Any] | str) -> dict[str, Any]:
        data = parse(arguments)
        try:
            made = validate(as_text(data))
        except ValidationError as error:
            from forge.core.arguments.repair_typed import explain_errors  # only where something is wrong

            raise explain_errors(spec, error, data) from None
        values = {key: getattr(made, key) for key in type(made).model_fields} | dict(made.model_extra or {})
        return mark_repaired(values, data.repaired) if isinstance(data, Repaired) else values

    return parse_and_validate
