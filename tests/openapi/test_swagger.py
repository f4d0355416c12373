"""Swagger 2.0 documents are mounted like OpenAPI 3 documents: the same tools, the same requests."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qsl

import pytest

from forge.core.errors import ErrorKind, ToolError
from forge.openapi.swagger import convert_swagger
from tests.openapi.mounting import HERE, json_page, mount, open_tools, serving

PET = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string"}, "owner": {"$ref": "#/definitions/Owner"}},
}


def swagger(paths: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "swagger": "2.0",
        "info": {"title": "Pets", "version": "1"},
        "host": "api.example.com",
        "basePath": "/v1",
        "schemes": ["http", "https"],
        "paths": paths,
        "definitions": {"Pet": PET, "Owner": {"type": "object", "properties": {"age": {"type": "integer"}}}},
        **more,
    }


def operation(parameters: list[Any], **more: Any) -> dict[str, Any]:
    return {"operationId": "it", "parameters": parameters, "responses": {"200": {"description": "fine"}}, **more}


async def test_the_address_is_made_of_scheme_host_and_base_path():
    document = swagger({"/pets/{id}": {"get": operation([{"name": "id", "in": "path", "type": "integer"}])}})
    tool = (await open_tools(document))["pets__it"]
    assert tool.targets(tool.parse({"id": 7})) == ["https://api.example.com/v1/pets/7"]


@pytest.mark.parametrize(
    ("how", "query"),
    [
        ("csv", "tags=a,b"),
        (None, "tags=a,b"),
        ("multi", "tags=a&tags=b"),
        ("ssv", "tags=a%20b"),
        ("pipes", "tags=a%7Cb"),
        ("tsv", "tags=a%09b"),
    ],
)
async def test_lists_are_joined_as_the_collection_format_says(how, query):
    tags = {"name": "tags", "in": "query", "type": "array", "items": {"type": "string"}}
    tags |= {"collectionFormat": how} if how else {}
    tool = (await open_tools(swagger({"/it": {"get": operation([tags])}})))["pets__it"]
    assert tool.targets(tool.parse({"tags": ["a", "b"]})) == [f"https://api.example.com/v1/it?{query}"]


async def test_a_body_is_sent_as_json_with_its_references_followed():
    body = {"name": "pet", "in": "body", "required": True, "schema": {"$ref": "#/definitions/Pet"}}
    document = swagger({"/pets": {"post": operation([body])}})
    async with (
        serving(lambda asked: json_page("{}")) as server,
        mount(document, server=server.url, egress=HERE) as api,
    ):
        refused = await api.call("pets__it", owner={"age": 3})
        result = await api.call("pets__it", name="Rex", owner={"age": 3})
    assert refused.is_error
    assert "name" in refused.for_llm
    assert not result.is_error, result.for_llm
    [asked] = server.asked
    assert json.loads(asked.body) == {"name": "Rex", "owner": {"age": 3}}
    assert asked.headers["content-type"] == "application/json"


async def test_a_shared_body_parameter_is_followed():
    body = {"name": "pet", "in": "body", "schema": {"$ref": "#/definitions/Pet"}}
    document = swagger({"/pets": {"post": operation([{"$ref": "#/parameters/Pet"}])}}, parameters={"Pet": body})
    tool = (await open_tools(document))["pets__it"]
    assert set(tool.spec.parameters["properties"]) == {"name", "owner"}


async def test_form_fields_are_sent_as_a_form():
    fields = [
        {"name": "name", "in": "formData", "type": "string", "required": True},
        {"name": "age", "in": "formData", "type": "integer"},
    ]
    document = swagger({"/it": {"post": operation(fields)}})
    async with (
        serving(lambda asked: json_page("{}")) as server,
        mount(document, server=server.url, egress=HERE) as api,
    ):
        result = await api.call("pets__it", name="Rex & co", age=3)
    assert not result.is_error, result.for_llm
    assert parse_qsl(server.asked[0].body.decode()) == [("name", "Rex & co"), ("age", "3")]


async def test_a_file_field_is_sent_as_multipart():
    fields = [{"name": "photo", "in": "formData", "type": "file"}]
    document = swagger({"/it": {"post": operation(fields, consumes=["multipart/form-data"])}})
    async with (
        serving(lambda asked: json_page("{}")) as server,
        mount(document, server=server.url, egress=HERE) as api,
    ):
        result = await api.call("pets__it", photo="base64:aGVsbG8=")
    assert not result.is_error, result.for_llm
    assert server.asked[0].headers["content-type"].startswith("multipart/form-data")
    assert b"hello" in server.asked[0].body


async def test_an_api_key_is_placed_where_the_document_says():
    document = swagger(
        {"/it": {"get": operation([])}},
        securityDefinitions={"key": {"type": "apiKey", "name": "X-Key", "in": "header"}},
        security=[{"key": []}],
    )
    async with (
        serving(lambda asked: json_page("{}")) as server,
        mount(document, server=server.url, egress=HERE, auth={"api_key": "secret-key-1"}) as api,
    ):
        result = await api.call("pets__it")
    assert not result.is_error, result.for_llm
    assert server.asked[0].headers["x-key"] == "secret-key-1"


def test_odd_documents_are_converted_without_an_exception():
    odd: list[dict[str, Any]] = [
        {"swagger": "2.0"},
        {"swagger": "2.0", "paths": [], "definitions": 3, "parameters": None},
        swagger({"/a": None, "/b": {"get": None, "parameters": "x"}}),
        swagger({"/a": {"get": {"parameters": [3, {"$ref": 4}, {"$ref": "#/parameters/gone"}], "responses": []}}}),
        swagger({}, host=3, basePath=4, schemes="https", securityDefinitions={"a": "b"}),
    ]
    for document in odd:
        assert convert_swagger(document)["openapi"] == "3.0.3"


async def test_other_versions_are_refused(tmp_path):
    (tmp_path / "old.json").write_text('{"swagger": "1.2"}')
    with pytest.raises(ToolError) as caught:
        await open_tools(tmp_path / "old.json")
    assert caught.value.kind is ErrorKind.CONFIG
    assert "swagger: 2.0" in caught.value.message
