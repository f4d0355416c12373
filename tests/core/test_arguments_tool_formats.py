"""One spec, every provider's spelling."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel

from forge.core.registry import ToolRegistry
from forge.core.tool import Tool, tool
from tests.core.calling import call


class Item(BaseModel):
    name: str
    price: float = 0.0
    parts: list[Item] = []


def order(
    item: Annotated[Item, "what to order"],
    amount: int = 1,
    size: Literal["small", "big"] = "small",
    where: tuple[int, int] = (0, 0),
    note: str | None = None,
) -> str:
    """Order something.

    Args:
        amount: how many
    """
    return item.name


def nothing() -> str:
    """Do nothing."""
    return ""


def simple(text: str, times: int = 1, labels: list[str] | None = None) -> str:
    """Be simple."""
    return text


SHORT = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "times": {"type": "integer", "default": 1},
        "labels": {"items": {"type": "string"}, "type": "array"},
    },
    "required": ["text"],
}
DIALECTS = ("openai", "openai-strict", "anthropic", "gemini", "mcp")


def spelled(made: Any, dialect: str) -> dict[str, Any]:
    (definition,) = ToolRegistry([made]).definitions(dialect)
    return definition


def raw(**properties: Any) -> Tool:
    return Tool.from_schema("raw", "Raw.", {"type": "object", "properties": properties}, lambda **_: "")


def within(schema: Any):
    """Every schema inside a schema, itself included."""
    yield schema
    for key in ("properties", "$defs", "definitions"):
        for inner in schema.get(key, {}).values():
            yield from within(inner)
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        for inner in schema.get(key, ()):
            yield from within(inner)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from within(schema[key])


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("made", [order, nothing, simple, raw(a={}, b={"type": "integer"})])
def test_every_dialect_is_plain_json_with_name_and_description(made, dialect):
    definition = spelled(made, dialect)
    shown = definition.get("function", definition)
    assert shown["name"] in ("order", "nothing", "simple", "raw")
    assert shown["description"]
    assert json.loads(json.dumps(definition, allow_nan=False)) == definition


def test_an_unknown_dialect_names_the_known_ones():
    with pytest.raises(ValueError, match="'cohere'; known: openai, openai-strict, anthropic, gemini, mcp"):
        ToolRegistry([simple]).definitions("cohere")


def test_openai_gets_a_function():
    assert spelled(simple, "openai") == {
        "type": "function",
        "function": {"name": "simple", "description": "Be simple.", "parameters": SHORT},
    }


@pytest.mark.parametrize("dialect", ["openai", "openai-strict"])
def test_properties_are_there_even_when_empty(dialect):
    parameters = spelled(Tool.from_schema("raw", "Raw.", {}, lambda: ""), dialect)["function"]["parameters"]
    assert parameters["type"] == "object"
    assert parameters["properties"] == {}


def test_anthropic_gets_an_input_schema():
    assert spelled(simple, "anthropic") == {
        "name": "simple",
        "description": "Be simple.",
        "input_schema": SHORT,
    }


def test_parts_that_tell_a_model_nothing_are_left_out_and_calls_are_still_checked():
    schema = {
        "type": "object",
        "properties": {
            "default": {"type": "string", "default": "", "examples": ["a"]},
            "examples": {"type": "array", "items": {"enum": [None, ""]}, "default": ["x"]},
            "inner": {"type": "object", "properties": {"a": {"default": False}}, "additionalProperties": False},
            "open": {"type": "object", "additionalProperties": {"type": "string"}},
        },
        "additionalProperties": False,
    }
    made = Tool.from_schema("raw", "Raw.", schema, lambda **_: "ran")
    assert spelled(made, "openai")["function"]["parameters"] == {
        "type": "object",
        "properties": {
            "default": {"type": "string"},
            "examples": {"type": "array", "items": {"enum": [None, ""]}, "default": ["x"]},
            "inner": {"type": "object", "properties": {"a": {}}},
            "open": {"type": "object", "additionalProperties": {"type": "string"}},
        },
    }
    assert spelled(made, "mcp")["inputSchema"] == schema
    assert call(made, {"other": 1}).is_error
    assert call(made, {"default": "a"}).success


def shown(**properties: Any) -> Any:
    schema = {"type": "object", "properties": properties}
    made = Tool.from_schema("raw", "Raw.", schema, lambda **_: "ran")
    return spelled(made, "anthropic")["input_schema"]["properties"]


@pytest.mark.parametrize(
    ("whole", "short"),
    [
        ({"type": "number", "default": 30.0, "maximum": 300.0}, {"type": "number", "default": 30, "maximum": 300}),
        ({"type": "number", "default": 0.5, "maximum": 1.5}, {"type": "number", "default": 0.5, "maximum": 1.5}),
        ({"type": "integer", "minimum": 1, "default": 5}, {"type": "integer", "default": 5}),
        ({"type": "integer", "minimum": 1}, {"type": "integer", "minimum": 1}),
        ({"type": "integer", "minimum": 2, "default": 5}, {"type": "integer", "minimum": 2, "default": 5}),
        ({"type": "string", "minLength": 1, "maxLength": 9}, {"type": "string", "maxLength": 9}),
        ({"type": "object", "additionalProperties": True}, {"type": "object"}),
        ({"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}, {"type": "string"}),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        (
            {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}], "default": None},
            {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        ),
        (
            {"dependencies": {"examples": {"examples": [1], "required": ["unit"]}}},  # one is a name, one a keyword
            {"dependencies": {"examples": {"required": ["unit"]}}},
        ),
    ],
)
def test_a_parameter_is_shown_with_all_that_a_model_needs_and_no_more(whole, short):
    assert shown(a=whole) == {"a": short}


def test_a_definition_that_is_used_once_is_shown_in_its_place_and_a_circle_stays():
    leaf = {"type": "object", "properties": {"name": {"type": "string"}}}
    tree = {"type": "object", "properties": {"inner": {"$ref": "#/$defs/Tree"}, "leaf": {"$ref": "#/$defs/Leaf"}}}
    schema = {
        "type": "object",
        "properties": {"tree": {"$ref": "#/$defs/Tree"}},
        "$defs": {"Tree": tree, "Leaf": leaf},
    }
    made = Tool.from_schema("raw", "Raw.", schema, lambda **_: "ran")
    assert spelled(made, "openai")["function"]["parameters"] == {
        "type": "object",
        "properties": {"tree": {"$ref": "#/$defs/Tree"}},
        "$defs": {"Tree": {"type": "object", "properties": {"inner": {"$ref": "#/$defs/Tree"}, "leaf": leaf}}},
    }


def test_mcp_gets_an_input_schema_and_hints():
    @tool(permissions={"network"}, idempotent=True)
    def fetch(url: str) -> str:
        """Fetch."""
        return url

    reads = spelled(tool(permissions={"read"})(simple), "mcp")
    assert reads["inputSchema"]["required"] == ["text"]
    assert reads["annotations"]["readOnlyHint"] is True
    assert reads["annotations"]["openWorldHint"] is False
    hints = spelled(fetch, "mcp")["annotations"]
    assert hints["readOnlyHint"] is False
    assert hints["idempotentHint"] is True
    assert hints["openWorldHint"] is True


def test_strict_makes_every_property_required_and_optional_ones_nullable():
    function = spelled(simple, "openai-strict")["function"]
    assert function["strict"] is True
    parameters = function["parameters"]
    assert parameters["required"] == ["text", "times", "labels"]
    assert parameters["additionalProperties"] is False
    assert parameters["properties"]["text"] == {"type": "string"}
    assert parameters["properties"]["times"]["anyOf"] == [{"type": "integer"}, {"type": "null"}]
    assert parameters["properties"]["labels"]["anyOf"].count({"type": "null"}) == 1


def test_what_strict_sends_for_an_optional_argument_is_understood():
    def shows(text: str, times: int = 2, size: Literal["small", "big"] = "big") -> str:
        """Show."""
        return f"{text} {times} {size}"

    assert call(shows, {"text": "a", "times": None, "size": None}).for_llm == "a 2 big"


STRICT: dict[str, Any] = {
    "a nested model": order,
    "older definitions": Tool.from_schema(
        "raw",
        "Raw.",
        {
            "type": "object",
            "properties": {"a": {"$ref": "#/definitions/A"}},
            "definitions": {"A": {"type": "object", "properties": {"b": {"type": "string"}}}},
        },
        lambda a: "",
    ),
    "an object or nothing": raw(a={"type": ["object", "null"], "properties": {"b": {"type": "string"}}}),
    "a list of objects": raw(a={"type": "array", "items": {"type": "object", "properties": {"b": {"type": "string"}}}}),
}


@pytest.mark.parametrize("made", STRICT.values(), ids=STRICT)
def test_whatever_is_marked_strict_follows_the_rules_of_strict(made):
    function = spelled(made, "openai-strict")["function"]
    if not function.get("strict"):
        return
    for schema in within(function["parameters"]):
        if "$ref" in schema:
            assert schema == {"$ref": schema["$ref"]}, "a reference stands alone"
            continue
        assert not schema.keys() & {"default", "oneOf", "allOf", "not", "minLength", "maxLength", "format"}
        if "object" in schema.get("type", ()):
            assert schema["additionalProperties"] is False
            assert schema["required"] == list(schema["properties"])


@pytest.mark.parametrize(
    "property",
    [
        {"type": "object", "additionalProperties": {"type": "integer"}},
        {"type": "object", "properties": {"b": {"type": "string"}}, "additionalProperties": True},
        {"type": "object"},
        {},
        {"oneOf": [{"type": "string"}, {"type": "integer"}]},
        {"allOf": [{"type": "string"}]},
    ],
    ids=["map", "open object", "any object", "anything", "oneOf", "allOf"],
)
def test_what_does_not_fit_strict_is_sent_plain(property):
    function = spelled(raw(a=property), "openai-strict")["function"]
    assert "strict" not in function
    assert function["parameters"]["properties"]["a"] == property


def test_gemini_gets_no_references_and_no_words_it_does_not_know():
    parameters = spelled(order, "gemini")["parameters"]
    text = json.dumps(parameters)
    for word in ("$ref", "$defs", "additionalProperties", "const", "prefixItems", "default"):
        assert f'"{word}"' not in text
    item = parameters["properties"]["item"]
    assert item["type"] == "object"
    assert item["description"] == "what to order"
    assert item["properties"]["name"] == {"type": "string"}
    assert parameters["required"] == ["item"]
    assert len(text) < 2_000


def test_gemini_says_nullable_instead_of_null():
    assert spelled(order, "gemini")["parameters"]["properties"]["note"] == {"type": "string"}  # it may be left out
    note = spelled(raw(a={"anyOf": [{"type": "string"}, {"type": "null"}]}), "gemini")["parameters"]["properties"]["a"]
    assert note == {"type": "string", "nullable": True}
    note = spelled(raw(a={"type": ["string", "null"]}), "gemini")["parameters"]["properties"]["a"]
    assert note == {"type": "string", "nullable": True}


def test_gemini_keeps_the_type_of_a_tuples_items():
    where = spelled(order, "gemini")["parameters"]["properties"]["where"]
    assert where["type"] == "array"
    assert where["items"]["type"] == "integer"


def test_gemini_has_enums_of_text_only():
    parameters = spelled(raw(a={"enum": [1, 2]}, b={"const": "x"}), "gemini")["parameters"]
    assert parameters["properties"]["a"] == {"type": "string", "enum": ["1", "2"]}
    assert parameters["properties"]["b"] == {"type": "string", "enum": ["x"]}


def test_what_gemini_sends_for_an_enum_of_numbers_is_understood():
    def level(number: Literal[1, 2]) -> int:
        """Set a level."""
        return number

    assert call(level, {"number": "2"}).for_llm == "2"
    assert call(level, {"number": "3"}).is_error


def test_gemini_inlines_older_definitions_too():
    made = STRICT["older definitions"]
    assert spelled(made, "gemini")["parameters"]["properties"]["a"]["properties"] == {"b": {"type": "string"}}


def test_gemini_gets_no_parameters_where_there_are_none():
    assert spelled(nothing, "gemini") == {"name": "nothing", "description": "Do nothing."}


NAMED: dict[str, Any] = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
AGED: dict[str, Any] = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
COMPOSED: dict[str, tuple[dict[str, Any], set[str], list[str]]] = {
    "$ref": ({"$ref": "#/$defs/Named", "$defs": {"Named": NAMED}}, {"name"}, ["name"]),
    "definitions": ({"$ref": "#/definitions/N", "definitions": {"N": NAMED}}, {"name"}, ["name"]),
    "oneOf": ({"type": "object", "oneOf": [NAMED, AGED]}, {"name", "age"}, []),
    "anyOf": (
        {"type": "object", "anyOf": [NAMED, {**NAMED, **AGED, "required": ["age", "name"]}]},
        {"name", "age"},
        ["name"],
    ),
    "allOf": ({"type": "object", "allOf": [NAMED, AGED]}, {"name", "age"}, ["name", "age"]),
    "if": ({**NAMED, "if": {"required": ["age"]}, "then": AGED}, {"name", "age"}, ["name"]),
}


@pytest.mark.parametrize("dialect", ["openai", "openai-strict", "anthropic", "gemini"])
@pytest.mark.parametrize(("schema", "names", "required"), COMPOSED.values(), ids=COMPOSED)
def test_a_composed_root_is_shown_as_one_flat_object(schema, names, required, dialect):
    made = Tool.from_schema("raw", "Raw.", schema, lambda **_: "")
    definition = spelled(made, dialect)
    shown = definition.get("function", definition)
    parameters = shown.get("parameters") or shown["input_schema"]
    assert parameters["type"] == "object"
    assert set(parameters["properties"]) == names
    assert parameters.get("required", []) == required
    assert not {"$ref", "oneOf", "anyOf", "allOf", "if", "then"} & parameters.keys()
    assert "strict" not in shown


@pytest.mark.parametrize(("schema", "names", "required"), COMPOSED.values(), ids=COMPOSED)
def test_mcp_is_given_the_schema_itself(schema, names, required):
    made = Tool.from_schema("raw", "Raw.", schema, lambda **_: "")
    assert spelled(made, "mcp")["inputSchema"].items() >= schema.items()


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
def test_a_list_of_items_is_shown_as_today_s_drafts_spell_it(dialect):
    pair = {"type": "array", "items": [{"type": "string"}, {"type": "integer"}], "additionalItems": False}
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"pair": pair, "plain": {"type": "array", "items": {"type": "string"}}},
    }
    definition = spelled(Tool.from_schema("raw", "Raw.", schema, lambda **_: ""), dialect)
    shown = definition.get("function", definition)
    parameters = shown.get("parameters") or shown["input_schema"]
    assert parameters["properties"]["pair"] == {"type": "array", "prefixItems": pair["items"], "items": False}
    assert parameters["properties"]["plain"]["items"] == {"type": "string"}
    assert "$schema" not in parameters


def test_gemini_gets_what_a_reference_to_another_place_points_to():
    parameters = {
        "type": "object",
        "properties": {
            "from": {"type": "integer"},
            "to": {"$ref": "#/properties/from"},
            "via": {"$ref": "#/$defs/a~1b"},
        },
        "$defs": {"a/b": {"type": "boolean"}},
    }
    made = Tool.from_schema("move", "Move.", parameters, lambda **sent: sent)
    shown = spelled(made, "gemini")["parameters"]["properties"]
    assert (shown["to"]["type"], shown["via"]["type"]) == ("integer", "boolean")
