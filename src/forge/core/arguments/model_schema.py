"""Uses a pydantic model as the schema of a tool, for models to see and to check arguments by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from forge.core.arguments.checks import Repaired, as_text, mark_repaired
from forge.core.arguments.extra_keys import make_closed_generator, make_closed_validator
from forge.core.arguments.signature import without_titles
from forge.core.errors import DefinitionError, ErrorKind, ToolError

MOST_PROBLEMS = 10  # listed in one error


def is_model(schema: object) -> bool:
    """Says whether it is the class of a pydantic model; pydantic itself is not imported for that."""
    return isinstance(schema, type) and hasattr(schema, "model_json_schema") and hasattr(schema, "model_validate_json")


def schema_of(name: str, model: Any) -> dict[str, Any]:
    """Returns the JSON Schema of a model. Raises `DefinitionError` for a model with fields that JSON cannot hold."""
    try:
        schema = without_titles(model.model_json_schema(schema_generator=make_closed_generator()))
    except Exception as error:  # pydantic has no common class for "this type has no JSON form"
        raise DefinitionError(f"tool {name!r}: {model.__name__}: {str(error).splitlines()[0]}") from error
    return {"properties": {}, **{key: value for key, value in schema.items() if key != "description"}}


def field_name(model: Any, name: str) -> str:
    """Returns the field of a model that a property of its schema stands for: an alias is the property's name."""
    for key, field in model.model_fields.items():
        alias = field.validation_alias or field.alias or key
        choices = getattr(alias, "choices", (alias,))
        if name in [str(getattr(one, "path", (one,))[0]) for one in choices]:
            return str(key)
    return name


def parser_of(
    model: Any, parse: Callable[[Mapping[str, Any] | str], dict[str, Any]]
) -> Callable[[Mapping[str, Any] | str], dict[str, Any]]:
    """Returns a parser: `parse` checks arguments against the schema, then the model's own validators run."""
    from pydantic import ValidationError

    validate = make_closed_validator(model).validate_json

    def parse_and_validate(arguments: Mapping[str, Any] | str) -> dict[str, Any]:
        data = parse(arguments)
        try:
            made = validate(as_text(data))
        except ValidationError as error:
            raise _explain_error(error) from None
        values = {key: getattr(made, key) for key in type(made).model_fields} | dict(made.model_extra or {})
        return mark_repaired(values, data.repaired) if isinstance(data, Repaired) else values

    return parse_and_validate


def _explain_error(error: Any) -> ToolError:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    lines = [": ".join(filter(None, (".".join(map(str, one["loc"])), one["msg"]))) for one in found[:MOST_PROBLEMS]]
    more = f"; and {len(found) - MOST_PROBLEMS} more" if len(found) > MOST_PROBLEMS else ""
    return ToolError("; ".join(lines)[:2_000] + more, ErrorKind.VALIDATION, "Correct these arguments.")
