"""Typed functions: the schema the model sees, the values the function gets, the signatures that are refused."""

from __future__ import annotations

import json
import threading
import typing
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import Enum, IntEnum
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, Optional, Union
from uuid import UUID

import jsonschema_rs
import pytest
from annotated_types import Ge, Le, MaxLen, MinLen
from pydantic import AliasChoices, BaseModel, Field
from typing_extensions import TypedDict

from forge.core.arguments.parameters import Setting
from forge.core.context import ToolContext
from forge.core.errors import DefinitionError
from forge.core.registry import ToolRegistry
from forge.core.tool import Tool, tool
from tests.core.calling import call


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Mail(BaseModel):
    sender: str = Field(alias="from")


class Address(BaseModel):
    """Where someone lives."""

    street: str
    number: int = 1


class Person(BaseModel):
    name: str
    home: Address
    title: str = ""


class Node(BaseModel):
    name: str
    children: list[Node] = []


@dataclass
class Point:
    x: int
    y: int = 0


class Size(TypedDict):
    width: int
    height: NotRequired[int]


class OldSize(typing.TypedDict):
    width: int


def taking(annotation: Any, **defaults: Any) -> tuple[Tool, list[Any]]:
    """A tool with one parameter `x`, and what it was called with."""
    got: list[Any] = []

    def made(x):
        """Take something."""
        got.append(x)
        return "taken"

    made.__annotations__ = {"x": annotation}
    if defaults:
        made.__defaults__ = (defaults["default"],)
    return tool(made), got


STAMP = "2024-05-06T07:08:09Z"
IDENTITY = "12345678-1234-5678-1234-567812345678"

TYPES = [
    (str, {"type": "string"}, "a", "a"),
    (int, {"type": "integer"}, 5, 5),
    (float, {"type": "number"}, 2.5, 2.5),
    (bool, {"type": "boolean"}, True, True),
    (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}, None, None),  # noqa: UP045
    (Union[int, str], {"anyOf": [{"type": "integer"}, {"type": "string"}]}, "a", "a"),  # noqa: UP007
    (int | list[str], {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "string"}}]}, ["a"], ["a"]),
    (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}, "b", "b"),
    (Literal["only"], {"type": "string", "const": "only"}, "only", "only"),
    (Literal[1, 2], {"type": "integer", "enum": [1, 2]}, 2, 2),
    (Color, {"type": "string", "enum": ["red", "blue"]}, "red", Color.RED),
    (Level, {"type": "integer", "enum": [1, 2]}, 2, Level.HIGH),
    (list[int], {"type": "array", "items": {"type": "integer"}}, [1, 2], [1, 2]),
    (set[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}, ["a"], {"a"}),
    (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}, {"a": 1}, {"a": 1}),
    (
        tuple[int, str],
        {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2, "maxItems": 2},
        [1, "a"],
        (1, "a"),
    ),
    (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}, [1, 2, 3], (1, 2, 3)),
    (datetime, {"type": "string", "format": "date-time"}, STAMP, datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)),
    (date, {"type": "string", "format": "date"}, "2024-05-06", date(2024, 5, 6)),
    (UUID, {"type": "string", "format": "uuid"}, IDENTITY, UUID(IDENTITY)),
    (Path, {"type": "string", "format": "path"}, "a/b", Path("a/b")),
    (
        Address,
        {
            "type": "object",
            "description": "Where someone lives.",
            "properties": {"street": {"type": "string"}, "number": {"type": "integer", "default": 1}},
            "required": ["street"],
            "additionalProperties": False,
        },
        {"street": "Main", "number": 2},
        Address(street="Main", number=2),
    ),
    (
        Point,
        {
            "type": "object",
            "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 0}},
            "required": ["x"],
            "additionalProperties": False,
        },
        {"x": 1},
        Point(1, 0),
    ),
    (
        Size,
        {
            "type": "object",
            "properties": {"width": {"type": "integer"}, "height": {"type": "integer"}},
            "required": ["width"],
            "additionalProperties": False,
        },
        {"width": 3},
        {"width": 3},
    ),
    (Annotated[str, "what to say"], {"type": "string", "description": "what to say"}, "a", "a"),
    (
        Annotated[int, Field(ge=1, description="how many")],
        {"type": "integer", "minimum": 1, "description": "how many"},
        1,
        1,
    ),
    (Annotated[int, Ge(1), Le(9)], {"type": "integer", "minimum": 1, "maximum": 9}, 9, 9),
    (Annotated[str, MinLen(2), MaxLen(3)], {"type": "string", "minLength": 2, "maxLength": 3}, "abc", "abc"),
    (
        Annotated[list[str], "names", MinLen(1)],
        {"type": "array", "items": {"type": "string"}, "minItems": 1, "description": "names"},
        ["a"],
        ["a"],
    ),
]


@pytest.mark.parametrize(("annotation", "expected", "sent", "received"), TYPES, ids=[str(row[0])[:40] for row in TYPES])
def test_the_schema_of_a_type_is_right_and_its_value_arrives(annotation, expected, sent, received):
    made, got = taking(annotation)
    schema = made.spec.parameters
    assert resolved(schema["properties"]["x"], schema) == expected
    assert schema["required"] == ["x"]
    assert jsonschema_rs.is_valid(dict(schema), {"x": sent})
    for arguments in ({"x": sent}, json.dumps({"x": sent})):
        result = call(made, arguments)
        assert result.success, result.for_llm
        assert "repaired" not in result.data
        assert got.pop() == received


def resolved(schema: Any, root: Any) -> Any:
    if isinstance(schema, dict) and "$ref" in schema:
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        return {**resolved(root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root), **beside}
    if isinstance(schema, dict):
        return {key: resolved(value, root) for key, value in schema.items()}
    return [resolved(item, root) for item in schema] if isinstance(schema, list) else schema


@pytest.mark.parametrize(
    ("annotation", "sent"), [(row[0], row[2]) for row in TYPES], ids=[str(row[0])[:40] for row in TYPES]
)
def test_a_parameter_with_a_default_is_not_required(annotation, sent):
    made, got = taking(annotation, default=None)
    assert "required" not in made.spec.parameters
    assert call(made).success
    assert got == [None]
    assert call(made, {"x": sent}).success


def test_a_default_is_shown_and_used():
    made, got = taking(int, default=7)
    assert made.spec.parameters["properties"]["x"] == {"type": "integer", "default": 7}
    call(made)
    call(made, {"x": 1})
    assert got == [7, 1]


def test_a_default_may_be_a_pydantic_field():
    made, got = taking(int, default=Field(5, ge=1, description="how many"))
    assert made.spec.parameters["properties"]["x"] == {
        "type": "integer",
        "default": 5,
        "minimum": 1,
        "description": "how many",
    }
    call(made)
    assert got == [5]
    assert call(made, {"x": 0}).is_error


def test_a_pydantic_field_without_default_is_required():
    made, _ = taking(int, default=Field(ge=1))
    assert made.spec.parameters["required"] == ["x"]
    assert "x: required, but missing" in call(made).for_llm


def test_defaults_reach_the_steps_as_well():
    seen = []

    async def step(ctx, proceed):
        seen.append(dict(ctx.arguments))
        return await proceed(ctx)

    made, _ = taking(int, default=7)
    call(made, steps=[step])
    call(made, "{}", steps=[step])
    assert seen == [{"x": 7}, {"x": 7}]


def test_keyword_only_parameters_are_parameters():
    def made(a: int, *, b: str, c: bool = False) -> str:
        """Take."""
        return f"{a}{b}{c}"

    assert tool(made).spec.parameters["required"] == ["a", "b"]
    assert call(made, {"a": 1, "b": "x"}).for_llm == "1xFalse"


def test_a_tool_without_parameters_has_an_empty_object():
    def made() -> str:
        """Take nothing."""
        return "fine"

    schema = tool(made).spec.parameters
    assert schema["type"] == "object"
    assert schema["properties"] == {}
    assert call(made, "{}").for_llm == "fine"


@pytest.mark.parametrize("arguments", ["", "{}", {}])
def test_no_arguments_are_no_arguments_however_they_are_written(arguments):
    made, got = taking(int, default=7)
    assert call(made, arguments).success, "a provider sends an empty text for a call without arguments"
    assert got == [7]


def test_nested_models_arrive_as_models():
    made, got = taking(Person)
    person = {"name": "Ada", "home": {"street": "Main"}, "title": "Countess"}
    assert call(made, {"x": person}).success
    assert got == [Person(name="Ada", home=Address(street="Main"), title="Countess")]


def test_recursive_models_keep_a_small_schema_that_json_can_hold():
    made, got = taking(Node)
    text = json.dumps(dict(made.spec.parameters))
    assert len(text) < 600
    assert "#/$defs/Node" in text
    assert call(made, {"x": {"name": "a", "children": [{"name": "b"}]}}).success
    assert got == [Node(name="a", children=[Node(name="b")])]
    assert "x.children[0].name: required, but missing" in call(made, {"x": {"name": "a", "children": [{}]}}).for_llm


def test_titles_are_left_out_but_a_parameter_may_be_called_title():
    def made(title: str, person: Person) -> str:
        """Take."""
        return title

    schema = tool(made).spec.parameters
    assert "title" in schema["properties"]
    assert "title" in resolved(schema["properties"]["person"], schema)["properties"]
    assert '"title": "' not in json.dumps(schema)


def test_an_annotated_text_wins_over_the_docstring():
    def made(name: Annotated[str, "from the annotation"], other: str) -> str:
        """Take.

        Args:
            name: from the docstring
            other: from the docstring
        """
        return name

    properties = tool(made).spec.parameters["properties"]
    assert properties["name"]["description"] == "from the annotation"
    assert properties["other"]["description"] == "from the docstring"


def test_a_fields_own_text_wins_over_the_docstring():
    def made(name: Annotated[str, Field(description="from the field")]) -> str:
        """Take.

        Args:
            name: from the docstring
        """
        return name

    assert tool(made).spec.parameters["properties"]["name"]["description"] == "from the field"


def test_the_context_may_stand_anywhere():
    def made(ctx: ToolContext, x: int, *, y: int = 2) -> str:
        """Take."""
        return f"{x}{y}{ctx.call.name}"

    def last(x: int, context: ToolContext) -> str:
        """Take."""
        return f"{x}{context.call.name}"

    assert set(tool(made).spec.parameters["properties"]) == {"x", "y"}
    assert call(made, {"x": 1}).for_llm == "12made"
    assert call(last, {"x": 1}).for_llm == "1last"


def test_a_model_cannot_pass_a_context():
    def made(ctx: ToolContext) -> str:
        """Take."""
        return type(ctx).__name__

    assert call(made).for_llm == "ToolContext"
    assert "ctx: unknown argument" in call(made, {"ctx": {}}).for_llm


def test_an_unlimited_list_of_arguments_is_refused():
    def made(*parts: str) -> str:
        """Join."""
        return "".join(parts)

    with pytest.raises(DefinitionError, match=r"tool 'made': parameter \*parts.*one `list\[...\]` parameter"):
        tool(made)


def test_unlimited_keywords_are_refused():
    def made(**parts: str) -> str:
        """Join."""
        return "".join(parts)

    with pytest.raises(DefinitionError, match=r"tool 'made': parameter \*\*parts.*one `dict\[str, ...\]` parameter"):
        tool(made)


def test_positional_only_parameters_are_refused():
    def made(a: int, /) -> int:
        """Take."""
        return a

    with pytest.raises(DefinitionError, match=r"tool 'made': parameter .*remove the `/`"):
        tool(made)


def test_a_parameter_without_type_is_refused():
    def made(a, b: int):
        """Take."""

    with pytest.raises(DefinitionError, match="tool 'made': parameter 'a' has no type; write for example `a: str`"):
        tool(made)


def test_an_alias_in_a_field_is_refused_with_the_option_that_does_it():
    def made(sender: Annotated[str, Field(alias="from")]) -> str:
        """Take."""
        return sender

    def of_default(sender: str = Field(validation_alias="from")) -> str:
        """Take."""
        return sender

    def of_several(sender: Annotated[str, Field(validation_alias=AliasChoices("from", "by"))]) -> str:
        """Take."""
        return sender

    advice = r"has the alias .* rename the parameter, or accept the other name too: argument_aliases="
    with pytest.raises(DefinitionError, match=rf"tool 'made': parameter 'sender' {advice}{{'from': 'sender'}}"):
        tool(made)
    with pytest.raises(DefinitionError, match=rf"tool 'of_default': parameter 'sender' {advice}{{'from': 'sender'}}"):
        tool(of_default)
    with pytest.raises(DefinitionError, match=rf"{advice}{{'from': 'sender', 'by': 'sender'}}"):
        tool(of_several)


def test_the_option_that_is_named_instead_of_an_alias_works_and_so_does_the_field_of_a_model():
    def made(sender: Annotated[str, Field(alias="sender", description="Who.")]) -> str:
        """Take."""
        return sender

    assert call(tool(argument_aliases={"from": "sender"})(made), {"from": "Ann"}).for_llm == "Ann"

    def send(mail: Mail) -> str:
        """Send."""
        return mail.sender

    assert call(tool(send), {"mail": {"from": "Ann"}}).for_llm == "Ann"


def test_a_class_is_refused_for_the_same_reasons():
    with pytest.raises(DefinitionError, match=r"tool 'joins': parameter \*parts"):

        class Joins(Tool):
            """Join."""

            def run(self, *parts: str) -> str:
                return ""


def test_a_type_without_json_form_names_the_tool():
    made, _ = taking(threading.Event)
    with pytest.raises(DefinitionError, match="tool 'made'"):
        ToolRegistry([made]).definitions()


@pytest.mark.parametrize("annotation", [OldSize, list[OldSize], OldSize | None, dict[str, list[OldSize]]])
def test_a_typed_dict_of_the_standard_library_works_wherever_it_stands(annotation):
    made, got = taking(annotation)
    assert "width" in json.dumps(made.spec.parameters)
    size = {"width": 3}
    value = {list[OldSize]: [size], dict[str, list[OldSize]]: {"a": [size]}}.get(annotation, size)
    assert call(made, {"x": value}).success
    assert got == [value]
    assert call(made, {"x": 5}).is_error


def test_an_annotation_that_cannot_be_read_names_the_tool():
    def made(x: NoSuchType) -> str:  # type: ignore[name-defined]  # noqa: F821
        """Take."""
        return ""

    with pytest.raises(DefinitionError, match=r"tool 'made'.*NoSuchType.*module level"):
        ToolRegistry([made])


def test_a_pattern_that_cannot_be_checked_names_the_tool():
    made, _ = taking(Annotated[str, Field(pattern="(?<=a)b")])
    with pytest.raises(DefinitionError, match="tool 'made'"):
        ToolRegistry([made]).definitions()


def test_a_validator_of_the_users_own_has_its_say():
    made, _ = taking(Even)
    assert call(made, {"x": {"number": 2}}).success
    result = call(made, {"x": {"number": 3}})
    assert result.failure is not None
    assert result.failure.kind == "validation_error"
    assert "x: 3 is odd" in result.for_llm


class Even(BaseModel):
    number: int

    def model_post_init(self, _: Any) -> None:
        if self.number % 2:
            raise ValueError(f"{self.number} is odd")


class Search(Tool):
    """Search, in a place that a setting may name."""

    def __init__(self, place: str = "") -> None:
        self.place = place
        self.show_settings()

    def parameter_settings(self) -> dict[str, Setting]:
        return {"where": Setting(self.place)} if self.place else {}

    def run(self, what: str, where: str) -> str:
        return f"{what} in {where}"


def test_a_setting_makes_a_parameter_optional_after_the_class_was_called_without_it() -> None:
    refused = call(Search(), {"what": "tea"})
    assert "where: required, but missing" in refused.for_llm
    found = Search("china")
    assert call(found, {"what": "tea"}).for_llm == "tea in china"
    assert found.spec.parameters["required"] == ["what"]
    assert call(found, {"what": "tea", "where": "ceylon"}).for_llm == "tea in ceylon"
