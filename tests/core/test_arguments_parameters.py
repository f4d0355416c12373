"""Plain types are read without pydantic, and exactly as pydantic would read them."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Annotated, Any, List, Literal, Optional, Union  # noqa: UP035

import pytest
from pydantic import ConfigDict, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from forge import DefinitionError, ToolRegistry, ToolSpec, tool
from forge.core.arguments.parameters import ParameterLimits
from forge.core.arguments.plain_types import simple_arguments
from forge.core.arguments.pydantic_private import make_closed_generator
from forge.core.arguments.type_schemas import without_titles
from forge.core.tool import Tool

PLAIN = [
    *(str, int, float, bool, list, dict, Any),
    *(list[int], list[Any], List[str], list[list[bool]], list[dict[str, float]]),  # noqa: UP006
    *(dict[str, int], dict[str, Any], dict[str, list[str]], dict[str, int | None]),
    *(int | None, Optional[str], Union[None, float], list[str] | None, dict | None),  # noqa: UP007, UP045
    *(int | str, int | float | None, str | list[str], dict[str, Any] | list[Any] | None, list[int | None]),
    *(Literal["a"], Literal["a", "b"], Literal["b", "a", "b"], Literal["a", "b"] | None, list[Literal["x", "y"]]),
    *(Annotated[str, "a text"], Annotated[int | None, "a text"], Annotated[str, "one", "two"]),
    *(Annotated[int, ParameterLimits(ge=1, le=5)], Annotated[float, ParameterLimits(gt=0, lt=1.5, example=0.5)]),
    *(
        Annotated[str, ParameterLimits(min_length=1, max_length=9)],
        Annotated[list[str], "texts", ParameterLimits(min_length=1)],
    ),
    *(Annotated[list, ParameterLimits(max_length=2, example=[1])], Annotated[bool, ParameterLimits(example=True)]),
    *(Annotated[int, ParameterLimits(ge=0)] | None, list[Annotated[str, ParameterLimits(max_length=3)]]),
    *(Annotated[str | None, ParameterLimits(example="x")], Annotated[Literal["a", "b"], ParameterLimits(example="b")]),
]
LEFT_TO_PYDANTIC = [
    *(bytes, tuple[int, str], set[int], complex, object, type(None), dict[int, str], Literal[1, 2], Literal["a", None]),
    *(Any | None, dict | dict[str, Any], List, list[bytes], bytes | None),  # noqa: UP006
    *(
        Annotated[int, ParameterLimits(min_length=1)],
        Annotated[str | None, ParameterLimits(max_length=3)],
        Annotated[int, object()],
    ),
]
TEXTS = [
    *("null", "true", "1", "-3", "0.5", "1e400", "9" * 30, '"a"', '"abcdefghij"', '""', '"1"', "NaN", "Infinity"),
    *("[]", "[1]", "[1, 2, 3]", '["a"]', '["abcd"]', "[null]", "[[true]]", '[{"a": 1.5}]', '["x", "z"]', "[0.5]"),
    *("{}", '{"a": 1}', '{"a": null}', '{"a": ["b"]}', '{"a": "b"}', '{"a": 0.25}', '{"1": true}'),
]


def _numbered(hints: list[Any]) -> list[str]:
    return [f"{number} {getattr(hint, '__name__', '')}" for number, hint in enumerate(hints)]


def by_pydantic(hint: Any, *, required: bool) -> TypeAdapter[Any]:
    shape: Any = TypedDict("Arguments", {"value": hint})  # type: ignore[name-match]
    shape.__required_keys__ = frozenset({"value"} if required else ())
    shape.__optional_keys__ = frozenset(() if required else {"value"})
    setattr(shape, "__pydantic_config__", ConfigDict(extra="forbid", allow_inf_nan=False))  # noqa: B010
    return TypeAdapter(shape)


def outcome(validator: Any, text: str) -> str:
    try:
        return repr(validator.validate_json(text, strict=True))
    except ValidationError as error:
        return repr(error.errors(include_url=False))  # NaN is not equal to itself


@pytest.mark.parametrize("required", [True, False])
@pytest.mark.parametrize("hint", PLAIN, ids=_numbered(PLAIN))
def test_a_plain_type_is_shown_and_checked_as_pydantic_does_it(hint: Any, required: bool) -> None:
    ours = simple_arguments({"value": hint}, () if required else {"value"})
    theirs = by_pydantic(hint, required=required)
    assert ours is not None
    shown = without_titles(theirs.json_schema(schema_generator=make_closed_generator()))
    assert json.dumps(ours.json_schema()) == json.dumps(shown)  # the order too: it is part of a cached prompt
    texts = [f'{{"value": {text}}}' for text in TEXTS]
    for text in [*texts, "{}", '{"other": 1}', '{"value": 1, "other": 2}', "[]", "{", '{"value": "\\ud800"}']:
        assert outcome(ours.validator, text) == outcome(theirs.validator, text), text


@pytest.mark.parametrize("hint", LEFT_TO_PYDANTIC, ids=_numbered(LEFT_TO_PYDANTIC))
def test_every_other_type_is_left_to_pydantic(hint: Any) -> None:
    assert simple_arguments({"plain": int, "value": hint}, ()) is None


def test_subclasses_of_plain_types_are_left_to_pydantic() -> None:
    class Text(str):
        pass

    assert simple_arguments({"value": Text}, ()) is None
    assert simple_arguments({"value": Annotated[str, Text("a")]}, ()) is None


def test_no_parameters_at_all_is_plain() -> None:
    ours = simple_arguments({}, ())
    assert ours is not None
    assert ours.json_schema() == {"additionalProperties": False, "properties": {}, "type": "object"}
    assert ours.validator.validate_json("{}") == {}


FIRST_USE = """
import asyncio, sys, forge

@forge.tool
def add(a: int, b: int = 2, names: list[str] | None = None) -> int:
    "Adds."
    return a + b

add.spec.to_function()
from forge.pipeline import standard_executor
executor = standard_executor([add], policy=forge.rules("allow *"))
result = asyncio.run(executor.execute(forge.ToolCall("add", '{"a": 1}'), forge.Scope()))
assert result.for_llm == "3", result
print(*sorted({name.partition(".")[0] for name in sys.modules} & {"pydantic", "jsonschema_rs", "docstring_parser"}))
"""


def test_the_first_use_of_a_plain_tool_loads_neither_pydantic_nor_a_schema_checker() -> None:
    found = subprocess.run([sys.executable, "-c", FIRST_USE], check=True, capture_output=True, text=True)
    assert found.stdout.split() == []


def test_a_schema_that_was_computed_meanwhile_is_still_not_one_that_was_given() -> None:
    @tool
    def add(a: int) -> int:
        """Adds."""
        return a

    assert not add.spec.has_own_schema
    assert add.spec.parameters["properties"]
    assert not add.spec.has_own_schema
    assert not add.spec.changed(confirm=True).has_own_schema
    assert add.spec.changed(parameters={"type": "object"}).has_own_schema


def test_a_given_schema_that_is_broken_is_refused_and_a_right_one_is_taken() -> None:
    class Own(Tool):
        def __init__(self, kind: str) -> None:
            schema = {"type": "object", "properties": {"a": {"type": kind}}}
            self.spec = ToolSpec(name="own", description="Own.", parameters=schema)

        async def invoke(self, arguments: Any, ctx: Any) -> Any:
            return arguments

    with pytest.raises(DefinitionError, match="invalid schema"):
        ToolRegistry([Own("nonsense")])
    assert "own" in ToolRegistry([Own("string")])
