"""Schemas of documents as schemas that models and validators take."""

from __future__ import annotations

import json
from typing import Any

import pytest

from forge.core.arguments.schema import check_schema
from forge.core.errors import ToolError
from tests.openapi.mounting import document, kind_of, mount, open_tools


async def schema_of(schema: Any, version: Any = "3.0.3", **components: Any) -> Any:
    """The schema of one parameter, and all of them."""
    parameter = {"name": "v", "in": "query", "schema": schema}
    made = document([parameter], version=version, components={"schemas": components})
    whole = (await open_tools(made))["pets__it"].spec.parameters
    check_schema("it", whole)
    return whole["properties"]["v"], whole


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"type": "string", "nullable": True}, {"type": ["string", "null"]}),
        ({"type": "string", "nullable": True, "enum": ["a"]}, {"type": ["string", "null"], "enum": ["a", None]}),
        (
            {"nullable": True, "allOf": [{"type": "string"}]},
            {"anyOf": [{"allOf": [{"type": "string"}]}, {"type": "null"}]},
        ),
        ({"type": "number", "maximum": 5, "exclusiveMaximum": True}, {"type": "number", "exclusiveMaximum": 5}),
        ({"type": "number", "minimum": 5, "exclusiveMinimum": False}, {"type": "number", "minimum": 5}),
        ({"type": "string", "example": "x"}, {"type": "string", "examples": ["x"]}),
        ({"type": "string", "xml": {}, "x-own": 1, "externalDocs": {}}, {"type": "string"}),
        ({"type": "file"}, {}),
        ({"type": "string", "example": 5}, {"type": "string", "examples": ["5"]}),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, {"anyOf": [{"type": "integer"}, {"type": "number"}]}),
    ],
)
async def test_old_words_are_said_in_new_ones(old, new):
    assert (await schema_of(old))[0] == new


async def test_new_words_stay():
    new = {"type": ["string", "null"], "exclusiveMinimum": 3, "const": "a", "examples": ["a"], "description": "A."}
    assert (await schema_of({**new, "nullable": True}, "3.1.0"))[0] == new


async def test_what_contains_itself_is_referred_to():
    tree = {
        "type": "object",
        "properties": {"below": {"type": "array", "items": {"$ref": "#/components/schemas/Tree"}}},
    }
    made, whole = await schema_of({"$ref": "#/components/schemas/Tree", "description": "All."}, Tree=tree)
    assert made == {"$ref": "#/$defs/Tree", "description": "All."}
    assert whole["$defs"]["Tree"]["properties"]["below"]["items"] == {"$ref": "#/$defs/Tree"}


async def test_simple_values_stand_where_they_are_used():
    made, whole = await schema_of({"$ref": "#/components/schemas/Kind"}, Kind={"type": "string", "enum": ["a"]})
    assert made == {"type": "string", "enum": ["a"]}
    assert "$defs" not in whole


async def test_two_schemas_of_one_name_are_told_apart():
    branches = [{"$ref": "#/components/schemas/A"}, {"$ref": "#/components/parameters/A/schema"}]
    parameter = {"name": "v", "in": "query", "schema": {"anyOf": branches}}
    one = {"type": "object", "properties": {"x": {}}}
    other = {"name": "A", "in": "query", "schema": {"type": "array", "items": {}}}
    made = document([parameter], components={"schemas": {"A": one}, "parameters": {"A": other}})
    whole = (await open_tools(made))["pets__it"].spec.parameters
    assert sorted(whole["$defs"]) == ["A", "schema"]


@pytest.mark.parametrize(
    ("reference", "why"),
    [
        ("#/components/schemas/None", "does not exist"),
        ("other.yaml#/A", "only references inside"),
        ("file:///etc/passwd", "only references inside"),
        (5, "not a string"),
    ],
)
async def test_references_that_cannot_be_followed(reference, why):
    async with mount(document([{"name": "v", "in": "query", "schema": {"$ref": reference}}])) as api:
        result = await api.call("pets__it")
        assert kind_of(result) == "config_error"
        assert why in result.for_llm


async def test_a_circle_of_references_is_told():
    components = {
        "parameters": {"A": {"$ref": "#/components/parameters/B"}, "B": {"$ref": "#/components/parameters/A"}}
    }
    async with mount(document([{"$ref": "#/components/parameters/A"}], components=components)) as api:
        assert "circular" in (await api.call("pets__it")).for_llm


async def test_escaped_names_in_references():
    made, _ = await schema_of({"$ref": "#/components/schemas/a~1b%20c"}, **{"a/b c": {"type": "integer"}})
    assert made == {"type": "integer"}


async def test_a_pattern_that_no_engine_reads_is_left_out():
    made, _ = await schema_of({"type": "string", "pattern": "(?<broken"})
    assert made == {"type": "string"}
    assert (await schema_of({"type": "string", "pattern": "^a+$"}))[0]["pattern"] == "^a+$"


async def test_a_schema_without_end_is_cut():
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(80):
        deep = {"type": "object", "properties": {"x": deep}}
    await schema_of(deep)
    wide = {"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(50_000)}}
    made, _ = await schema_of(wide)
    assert made["type"] == "object"
    schemas = {
        f"S{n}": {"properties": {c: {"$ref": f"#/components/schemas/S{n + 1}"} for c in "abcdefghij"}}
        for n in range(50)
    }
    await schema_of({"$ref": "#/components/schemas/S0"}, **schemas, S50={"type": "string"})


@pytest.mark.parametrize(
    "schema",
    [
        *(None, 5, "x", [], True, False, {"type": 5}, {"type": ["x"]}, {"enum": 5}, {"required": True}, {"items": 3}),
        *({"properties": []}, {"allOf": {}}, {"allOf": []}, {"minimum": "x"}, {"additionalProperties": "x"}),
    ],
)
async def test_nonsense_harms_nobody(schema):
    body = {"content": {"application/json": {"schema": schema}}}
    parameters = [{"name": "v", "in": "query", "schema": schema}, None, {"in": "query"}, {"name": 5, "in": "path"}]
    async with mount(document(parameters, method="post", requestBody=body)) as api:
        tool = api.registry["pets__it"]
        check_schema("it", tool.spec.parameters)
        assert tool.spec.description == "POST /it"


@pytest.mark.parametrize(
    "broken", [{"parameters": 5}, {"requestBody": 5}, {"requestBody": {"content": {"": 5}}}, {"tags": 5}]
)
async def test_a_broken_operation_is_told_when_it_is_called(broken):
    async with mount({**document(**broken, method="post")}) as api:
        assert isinstance(api.registry["pets__it"].spec.parameters, dict)


async def test_a_number_that_json_has_not_spoils_no_other_definition(tmp_path):
    parameters = [{"name": "v", "in": "query", "schema": {"type": "number", "default": 777, "description": "Fine."}}]
    file = tmp_path / "pets.json"
    file.write_text(json.dumps(document(parameters)).replace("777", "1e999"))
    (tool,) = (await open_tools(file)).values()
    assert tool.spec.parameters["properties"]["v"] == {"type": "number", "description": "Fine."}
    file.write_text(file.read_text().replace("default", "maximum"))
    (tool,) = (await open_tools(file)).values()
    json.dumps(tool.spec.parameters, allow_nan=False)
    with pytest.raises(ToolError, match="is not a valid JSON number"):
        tool.parse({})


async def test_more_parameters_than_anybody_sends_take_no_time():
    names = (f"p{chr(0x4E00 + number)}" for number in range(501))  # all the same once they are safe
    (tool,) = (await open_tools(document([{"name": name, "in": "query"} for name in names]))).values()
    assert tool.spec.parameters["properties"] == {}
    with pytest.raises(ToolError, match="more than 500 parameters"):
        tool.parse({})
