"""Raw JSON Schemas: which are refused, and why."""

from __future__ import annotations

from typing import Any

import pytest

from forge.core.arguments.schema import take_schema
from forge.core.errors import DefinitionError
from forge.core.registry import ToolRegistry
from forge.core.spec import ToolSpec
from forge.core.tool import Tool
from tests.core.calling import at_most, call


def made_of(schema: Any) -> Tool:
    return Tool.from_schema("picky", "Is picky.", schema, lambda **arguments: sorted(arguments))


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return {"type": "object", "properties": {"a": schema}}


def wide(properties: int) -> dict[str, Any]:
    return {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(properties)}}


def cyclic() -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    schema["properties"] = {"again": schema}
    return schema


def shared() -> dict[str, Any]:
    """Few objects, but two to the thirtieth paths."""
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(30):
        schema = {"anyOf": [schema, schema]}
    return {"type": "object", "properties": {"a": schema}}


def doubling(keyword: str = "$ref", at: str = "#/$defs/S", anchor: str = "", **around: Any) -> dict[str, Any]:
    """Few nodes, and a value is checked two to the fortieth times: a validator would not come back."""
    named: dict[str, Any] = {f"S{n}": {"allOf": [{keyword: f"{at}{n + 1}"}] * 2} for n in range(40)}
    named["S40"] = {"type": "string"}
    if anchor:
        named = {name: {**one, anchor: name} for name, one in named.items()}
    return {"type": "object", "properties": {"a": {"$ref": f"{at}0"}}, "$defs": named, **around}


REFUSED = {
    "a boolean": (True, "not a JSON Schema object"),
    "a list": ([], "not a JSON Schema object"),
    "nothing": (None, "not a JSON Schema object"),
    "an array's": ({"type": "array"}, "must be an object"),
    "one of two types": ({"type": ["object", "null"]}, "must be an object"),
    "no such type": ({"type": "object", "properties": {"a": {"type": "text"}}}, "invalid schema"),
    "properties as a list": ({"type": "object", "properties": ["a"]}, "invalid schema"),
    "required as a text": ({"type": "object", "required": "a"}, "invalid schema"),
    "a broken pattern": ({"type": "object", "properties": {"a": {"pattern": "("}}}, "invalid schema"),
    "a bad $ref": ({"type": "object", "properties": {"a": {"$ref": "#/$defs/missing"}}}, "invalid schema"),
    "a remote $ref": ({"properties": {"a": {"$ref": "http://127.0.0.1:9/schema.json"}}}, "is remote"),
    "a file's $ref": ({"properties": {"a": {"$ref": "file:///etc/passwd"}}}, "is remote"),
    "a relative $ref": ({"properties": {"a": {"$ref": "other.json#/a"}}}, "is remote"),
    "too many levels": (nested(101), "100 levels"),
    "very many levels": (nested(100_000), "100 levels"),
    "too many nodes": (wide(10_001), "10000 nodes"),
    "itself": (cyclic(), "100 levels|10000 nodes"),
    "a maze": (shared(), "100 levels|10000 nodes"),
    "references that double": (doubling(), "so often"),
    "anchors that double": (doubling(at="#S", anchor="$anchor"), "so often"),
    "dynamic references that double": (doubling("$dynamicRef", "#S", "$dynamicAnchor"), "so often"),
    "a part of its own that doubles": (
        {"type": "object", "properties": {"own": {"$id": "https://example.com/own", **doubling()}}},
        "so often",
    ),
    "parts that double, named by their $id": (doubling(at="S", anchor="$id"), "so often"),
    "anchors that double, behind an example with the same names": (
        {"examples": [{"$anchor": f"S{n}"} for n in range(40)], **doubling(at="#S", anchor="$anchor")},
        "so often",
    ),
    "an example's $id": (
        {"properties": {"a": {"$ref": "https://example.com/x"}}, "examples": [{"$id": "https://example.com/x"}]},
        "is remote",
    ),
    "what JSON cannot hold": ({"type": "object", "properties": {"a": {"enum": [{1, 2}]}}}, "invalid schema"),
}


@pytest.mark.parametrize(("schema", "why"), REFUSED.values(), ids=REFUSED)
def test_these_schemas_are_refused_and_the_tool_is_named(schema, why):
    with at_most(2.0), pytest.raises(DefinitionError, match=f"tool 'picky'.*({why})"):
        made_of(schema)


FINE: dict[str, Any] = {
    "an empty one": {},
    "one without type": {"properties": {"a": {}}},
    "one with definitions": {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {}}},
    "one of an older draft": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"a": {"$ref": "#/definitions/A"}},
        "definitions": {"A": {"type": "string"}},
    },
    "one with unknown words": {"type": "object", "properties": {"a": {"type": "string", "x-shown": "big"}}},
    "a recursive one": {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/tree"}},
        "$defs": {"tree": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"$ref": "#/$defs/tree"}}]}},
    },
    "one whose kinds contain the whole": {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/Pet"}},
        "$defs": {
            "Pet": {"anyOf": [{"$ref": "#/$defs/Dog"}, {"$ref": "#/$defs/Cat"}, {"type": "string"}]},
            "Dog": {"allOf": [{"$ref": "#/$defs/Pet"}, {"type": "object"}]},
            "Cat": {"allOf": [{"$ref": "#/$defs/Pet"}, {"type": "object"}]},
        },
    },
    "a long way of references": {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/S0"}},
        "$defs": {f"S{n}": {"$ref": f"#/$defs/S{n + 1}"} for n in range(500)} | {"S500": {"type": "string"}},
    },
    "a deep one": nested(40),
    "a wide one": wide(1_000),
    "a property called $ref": {"type": "object", "properties": {"$ref": {"type": "string"}, "a": {}}},
    "a list of items": {
        "type": "object",
        "properties": {"a": {}, "b": {"type": "array", "items": [{"type": "string"}], "additionalItems": False}},
    },
    "a list of items in draft 7": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"a": {}, "b": {"type": "array", "items": [{"type": "string"}]}},
    },
    "a root that refers": {"$ref": "#/$defs/A", "$defs": {"A": {"type": "object", "properties": {"a": {}}}}},
    "a look-ahead": {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(?!b)"}}},
}


@pytest.mark.parametrize("schema", FINE.values(), ids=FINE)
def test_these_schemas_are_fine(schema):
    value: Any = [] if schema == FINE["a deep one"] else "a"
    arguments = {} if schema in (FINE["an empty one"], FINE["a wide one"]) else {"a": value}
    result = call(made_of(schema), arguments)
    assert result.success, result.for_llm


NAMED: dict[str, Any] = {
    "$id": "https://example.com/order",
    "type": "object",
    "properties": {
        "to": {"$ref": "parts/address"},
        "items": {"type": "array", "items": {"$ref": "https://example.com/parts/item#price"}},
        "note": {"const": {"$id": "parts/address"}},
    },
    "$defs": {
        "a/b ~c": {
            "$id": "parts/address",
            "type": "object",
            "properties": {"city": {"$ref": "#/$defs/city"}, "next": {"$ref": "#"}},
            "$defs": {"city": {"$anchor": "price", "type": "string"}},
        },
        "item": {"$id": "parts/item", "$defs": {"p": {"$anchor": "price", "type": "number"}}},
    },
}


def test_parts_are_found_by_their_id_and_sent_as_local_pointers():
    made = made_of(NAMED)
    address, price = "#/$defs/a~1b%20~0c", "#/$defs/item/$defs/p"
    properties = made.spec.parameters["properties"]
    assert properties["to"] == {"$ref": address}
    assert properties["items"]["items"] == {"$ref": price}
    assert properties["note"] == NAMED["properties"]["note"]  # a value, not a schema
    part = made.spec.parameters["$defs"]["a/b ~c"]
    assert part["properties"] == {"city": {"$ref": f"{address}/$defs/city"}, "next": {"$ref": address}}
    assert "$id" not in part
    right = {"to": {"city": "Rome", "next": {"city": "Bari"}}, "items": [1.5]}
    assert call(made, right).success
    wrongs: list[dict[str, Any]] = [
        {"to": {"city": {}}},
        {"to": {"next": {"city": []}}},
        {"items": ["much"]},
        {"note": {}},
    ]
    for wrong in wrongs:
        assert not call(made, wrong).success, wrong


def test_a_schema_without_names_stays_the_object_that_it_is():
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {}}}
    assert take_schema("same", schema) is schema


def test_registration_refuses_a_tool_that_brings_a_bad_schema_of_its_own():
    class Brings(Tool):
        def __init__(self, parameters: Any) -> None:
            self.spec = ToolSpec(name="brings", description="Bring.", parameters=parameters)

        async def invoke(self, arguments, ctx):
            return "brought"

        def parse(self, arguments: Any) -> dict[str, Any]:
            return {}

    registry = ToolRegistry()
    registry.add(Brings({"type": "object", "properties": {}}))
    for parameters in ({"type": "array"}, {"properties": {"a": {"$ref": "http://127.0.0.1:9/"}}}):
        with pytest.raises(DefinitionError, match="brings"):
            ToolRegistry([Brings(parameters)])


def test_what_a_schema_forbids_is_refused():
    schema = {"type": "object", "properties": {"alpha": {}}, "additionalProperties": False}
    result = call(made_of(schema), {"alpha": 1, "alpah": 2})
    assert 'alpah: unknown argument; did you mean "alpha"?' in result.for_llm


@pytest.mark.parametrize(
    "more",
    [{"additionalProperties": True}, {"additionalProperties": {"type": "integer"}}, {"patternProperties": {"^x": {}}}],
)
def test_what_a_schema_allows_is_passed_on(more):
    schema = {"type": "object", "properties": {"a": {}}, **more}
    assert call(made_of(schema), {"a": 1, "x": 2}).for_llm == '["a","x"]'


@pytest.mark.parametrize("more", [{}, {"additionalProperties": False}, {"additionalProperties": True}])
def test_argument_aliases_work_whatever_else_the_schema_allows(more):
    schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"], **more}
    made = Tool.from_schema("reads", "Read.", schema, lambda path: path, argument_aliases={"file_path": "path"})
    assert call(made, {"file_path": "a.txt"}).for_llm == "a.txt"


@pytest.mark.parametrize("draft", [{}, {"$schema": "http://json-schema.org/draft-07/schema#"}], ids=["none", "7"])
def test_a_list_of_items_is_checked_place_by_place(draft):
    pair = {"type": "array", "items": [{"type": "string"}, {"type": "integer"}], "additionalItems": False}
    made = made_of({"type": "object", "properties": {"pair": pair}, "required": ["pair"], **draft})
    assert call(made, {"pair": ["a", 1]}).success
    assert call(made, {"pair": ["a", "1"]}).data["repaired"] == ['pair[1]: "1" → 1']
    assert call(made, {"pair": ["a", "b"]}).is_error
    assert call(made, {"pair": ["a", 1, 2]}).is_error
    assert 'Example: picky(pair=["text", 1])' in call(made, {}).for_llm


def test_items_that_are_no_keyword_stay_as_they_are():
    schema = {"type": "object", "properties": {"items": {"enum": [{"items": [1]}, {"items": [2]}]}}}
    assert call(made_of(schema), {"items": {"items": [2]}}).success
    assert call(made_of(schema), {"items": {"items": [3]}}).is_error


@pytest.mark.parametrize(
    "limits",
    [
        {"type": "string", "maxLength": 5.0, "minLength": 2.0},
        {"type": "array", "minItems": 1.0, "maxItems": 2.0},
        {"type": "string", "examples": []},
    ],
    ids=str,
)
def test_an_error_has_its_example_whatever_the_limits_look_like(limits):
    made = made_of({"type": "object", "properties": {"a": limits}, "required": ["a"]})
    result = call(made, {})
    assert result.failure is not None
    assert result.failure.kind == "validation_error"
    assert "Example: picky(a=" in result.for_llm
    assert call(made, {"a": "text" if limits["type"] == "string" else ["text"]}).success


@pytest.mark.parametrize(
    ("kind", "right", "wrong"),
    [
        ("email", "ada@example.com", "ada"),
        ("date", "2025-01-31", "31.1.2025"),
        ("date-time", "2025-01-31T12:00:00Z", "2025-02-31T12:00:00Z"),
        ("uuid", "123e4567-e89b-12d3-a456-426614174000", "123"),
        ("ipv4", "192.0.2.1", "192.0.2.256"),
        ("uri", "https://example.com/", "example"),
    ],
)
def test_the_format_of_a_raw_schema_is_checked(kind, right, wrong):
    made = made_of({"type": "object", "properties": {"a": {"type": "string", "format": kind}}})
    assert call(made, {"a": right}).success
    words = call(made, {"a": wrong}).for_llm
    assert f'a: "{wrong}" is not a "{kind}"' in words


def test_a_format_nobody_knows_is_a_comment():
    made = made_of({"type": "object", "properties": {"a": {"type": "string", "format": "colour"}}})
    assert call(made, {"a": "red"}).success
