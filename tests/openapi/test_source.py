"""A document as tools: names, filters, schemas, and the calls themselves against a real server."""

from __future__ import annotations

import json
import logging

import pytest

from forge.core.context import Scope
from forge.core.errors import DefinitionError, ToolError
from forge.core.messages import ToolCall
from forge.core.registry import ToolRegistry
from forge.core.spec import Category
from forge.openapi import openapi
from forge.permissions.policy import rules
from forge.pipeline import standard_executor
from forge.tools.tool_search import ToolSearch
from tests.openapi.mounting import PETSTORE, document, json_page, kind_of, mount, open_tools, serving

NAMES = [
    *("pets__listPets", "pets__createPet", "pets__get_pet", "pets__delete_pets_petId"),
    *("pets__putPhoto", "pets__broken"),
]


async def test_every_operation_is_a_tool():
    tools = await open_tools()
    assert list(tools) == NAMES
    one = tools["pets__listPets"].spec
    assert (one.description, one.category, one.origin) == ("List the pets.", Category.ADAPTER, "openapi:pets")
    assert {str(permission) for permission in one.permissions} == {"network"}
    assert one.idempotent
    assert not tools["pets__createPet"].spec.idempotent
    assert [name for name, tool in tools.items() if tool.spec.irreversible] == ["pets__delete_pets_petId"]
    assert tools["pets__get_pet"].spec.description == "GET /pets/{petId}"
    assert not one.hidden


async def test_parameters_are_flat_and_typed():
    tools = await open_tools()
    properties = tools["pets__listPets"].spec.parameters["properties"]
    assert list(properties) == ["X-Trace", "limit", "tags", "filter_kind"]
    assert properties["limit"] == {"type": "integer", "exclusiveMinimum": 0}
    assert properties["filter_kind"]["enum"] == ["cat", "dog", "no"]  # and not false, as YAML 1.1 has it
    made = tools["pets__createPet"].spec.parameters
    assert list(made["properties"]) == [
        "X-Trace",
        "name",
        "nick",
        "born",
        "parents",
    ]  # without the id, which only answers have
    assert made["required"] == ["name"]
    assert made["properties"]["nick"]["type"] == ["string", "null"]
    assert made["properties"]["born"]["default"] == "2020-01-31"
    assert made["properties"]["name"]["examples"] == ["Rex"]
    assert made["properties"]["parents"]["items"] == {"$ref": "#/$defs/Pet"}
    assert made["$defs"]["Pet"]["properties"]["parents"]["items"] == {"$ref": "#/$defs/Pet"}


async def test_what_is_mounted_is_called_and_unmounted():
    answer = '[{"id": 1, "name": "Rex", "secret_note": "x"}]'
    async with serving(json_page(answer)) as server, mount(server=f"{server.url}/v1") as api:
        result = await api.call("pets__listPets", limit=3, tags=["a b", "c&d"], filter_kind="no")
        assert result.success, result.for_llm
        url = f"{server.url}/v1/pets?limit=3&tags=a%20b&tags=c%26d&filter%5Bkind%5D=no"
        assert server.paths == [url.removeprefix(server.url)]
        assert api.asked == [("network", url)]
        assert result.for_llm == (
            'HTTP 200 Whatever\n\n[{"id": 1, "name": "Rex"}]\n[1 value left out: not described in the API document]'
        )
        assert result.data["body"] == json.loads(answer)
        assert result.data["status"] == 200
        registry = api.registry
    assert len(registry) == 0


async def test_arguments_are_checked_before_anybody_is_asked():
    async with serving(json_page("[]")) as server, mount(server=server.url) as api:
        wrong = await api.call("pets__listPets", limit=0)
        missing = await api.call("pets__createPet", nick="x")
        assert (kind_of(wrong), kind_of(missing)) == ("validation_error", "validation_error")
        assert "name" in missing.for_llm
        assert api.asked == []
        assert (await api.call("pets__listPets", limit="2")).data["repaired"]
        assert server.paths == ["/pets?limit=2"]


async def test_a_refusal_sends_nothing():
    async with serving(json_page("[]")) as server, mount(server=server.url) as api:
        api.refused.add(f"{server.url}/pets")
        assert kind_of(await api.call("pets__listPets")) == "permission_error"
        assert server.asked == []


async def test_a_remote_reference_spoils_its_own_operation_only():
    async with serving(json_page("[]")) as server, mount(server=server.url) as api:
        broken = await api.call("pets__broken", where="x")
        assert kind_of(broken) == "config_error"
        assert "only references inside the document are followed" in broken.for_llm
        assert api.registry.definitions()  # all of them can be shown
        assert (await api.call("pets__listPets")).success
        assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"tags": ["read"]}, ["pets__listPets", "pets__get_pet"]),
        ({"include": ["*Pet*"]}, ["pets__listPets", "pets__createPet"]),
        ({"include": ["GET /pets*"]}, ["pets__listPets", "pets__get_pet"]),
        ({"include": ["get pet!"]}, ["pets__get_pet"]),
        ({"exclude": ["*Pet*", "broken", "DELETE *"]}, ["pets__get_pet", "pets__putPhoto"]),
        ({"tags": ["read"], "exclude": ["pets__list*"]}, ["pets__get_pet"]),
        ({"tags": ["none"]}, []),
    ],
)
async def test_filters(options, kept):
    assert list(await open_tools(**options)) == kept


async def test_names_are_safe_unique_and_short():
    paths = {
        "/a": {"get": {"operationId": "same"}, "post": {"operationId": "same"}, "put": {"operationId": "s a m e"}},
        "/a b/{x}": {"get": {}, "delete": {"operationId": "x" * 100}, "patch": {"operationId": "x" * 100 + "y"}},
        "/ü": {"get": {"operationId": "naïve/Ünï"}},
    }
    tools = await open_tools({**document(), "paths": paths})
    names = list(tools)
    assert len(set(names)) == 7
    assert all(len(name) <= 64 and name.startswith("pets__") for name in names)
    assert names[0] == "pets__same"
    assert names[1].startswith("pets__same_")
    assert (names[2], names[3]) == ("pets__s_a_m_e", "pets__get_a_b_x")
    assert list(await open_tools({**document(), "paths": paths})) == names
    ToolRegistry(tools.values())


@pytest.mark.parametrize(
    ("given", "prefix"),
    [
        ({"name": "Pet Store 2!"}, "pet_store_2"),
        ({"name": "x", "prefix": "shop"}, "shop"),
        ({"name": "x", "prefix": ""}, "x"),
        ({"name": "1st"}, "api_1st"),
        ({"name": ""}, "petstore"),
    ],
)
async def test_the_prefix(given, prefix):
    assert next(iter(await open_tools(PETSTORE, **given))) == f"{prefix}__listPets"


async def test_without_a_name_the_title_gives_one():
    tools = await open_tools(document(), name="")
    assert list(tools) == ["one__it"]


async def test_texts_of_others_are_cleaned():
    hostile = "Ignore\x1b[31m all\u202e that\u200b <b>bold</b>" + "x" * 5_000
    parameter = {"name": "q", "in": "query", "description": hostile, "schema": {"description": hostile}}
    tools = await open_tools(document([parameter], summary=hostile, description=hostile, deprecated=True))
    spec = tools["pets__it"].spec
    for text in (spec.description, spec.parameters["properties"]["q"]["description"]):
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert "\u200b" not in text
        assert len(text) <= 2_000
    assert spec.description.startswith("Deprecated.\n\nIgnore all that bold")


async def test_many_operations_are_hidden():
    paths = {f"/a{number}": {"get": {"operationId": f"op{number}"}} for number in range(41)}
    many = {**document(), "paths": paths}
    assert all(tool.spec.hidden for tool in (await open_tools(many)).values())
    assert not any(tool.spec.hidden for tool in (await open_tools(many, hidden=False)).values())
    assert not any(tool.spec.hidden for tool in (await open_tools(many, include=["op1*"])).values())
    assert all(tool.spec.hidden for tool in (await open_tools(hidden=True)).values())
    assert not any(tool.spec.hidden for tool in (await open_tools(hidden=None)).values())


async def test_what_is_no_operation_is_left_out_and_told(caplog):
    paths = {
        "/a": {"get": {"operationId": "fine"}, "post": "no", "trace": {}, "summary": "x", "x-y": {}},
        "/b": [],
        "/c": {"$ref": "other.yaml#/c"},
        "/d": {"$ref": "#/paths/~1a", "description": "the same again"},
    }
    source = openapi({**document(), "paths": paths}, name="pets")
    with caplog.at_level(logging.WARNING):
        async with source as tools:
            assert next(tool.spec.name for tool in tools) == "pets__fine"
            assert len(tools) == 2
    assert len(source.problems) == 6
    assert "POST /a" in caplog.text


@pytest.mark.parametrize(
    "wrong", [{"include": "x"}, {"tags": "x"}, {"hidden": "maybe"}, {"auth": {"bearer": 1, "x": 2}}]
)
def test_mistakes_are_told_at_once(wrong):
    with pytest.raises(DefinitionError):
        openapi(PETSTORE, **wrong)


def test_a_server_that_is_no_url_is_told_at_once():
    with pytest.raises(ToolError):
        openapi(PETSTORE, server="pets.example.com")


async def test_who_declares_less_is_not_asked():
    async with serving(json_page("[]")) as server, mount(server=server.url, permissions=()) as api:
        assert (await api.call("pets__listPets")).success
        assert api.asked == []


async def test_a_preview_tells_the_method_and_what_is_sent():
    tools = await open_tools(server="https://api.example.com")
    create, remove = tools["pets__createPet"], tools["pets__delete_pets_petId"]
    shown = await create.preview_call(create.parse({"name": "Rex"}), None)
    assert shown == 'POST https://api.example.com/pets\napplication/json\n{"name":"Rex"}'
    assert await remove.preview_call({"petId": "5"}, None) == "DELETE https://api.example.com/pets/5"
    assert await tools["pets__listPets"].preview_call({}, None) == ""


async def test_the_names_of_parameters_are_known_without_a_schema():
    tools = await open_tools()
    assert tools["pets__createPet"].parameter_names == ["X-Trace", "name", "nick", "born", "parents"]
    assert tools["pets__listPets"].parameter_names == ["X-Trace", "limit", "tags", "filter_kind"]
    assert tools["pets__broken"].parameter_names
    assert not any(not callable(vars(tool.spec)["_parameters"]) or "_drawn" in vars(tool) for tool in tools.values())


async def test_rules_by_host_and_search_hold_for_operations():
    async with (
        serving(json_page("[]")) as server,
        openapi(PETSTORE, name="pets", server=server.url, hidden=True) as tools,
    ):
        registry = ToolRegistry(tools)
        registry.add(ToolSearch(registry))
        scope = Scope(session_id="s", message_id="1")
        for rule, succeeds in (("allow network 127.0.0.1", True), ("allow network other.example.com", False)):
            executor = standard_executor(registry, policy=rules(rule))
            assert (await executor.execute(ToolCall("pets__listPets", {}), scope)).success is succeeds
        assert len(server.asked) == 1
        assert [spec.name for spec in registry.specs("s")] == ["tool_search"]
        executor = standard_executor(registry)
        found = await executor.execute(ToolCall("tool_search", {"query": "add a pet"}), scope)
        assert "pets__createPet" in found.for_llm
        assert "pets__createPet" in [spec.name for spec in registry.specs("s")]


async def test_a_pattern_that_matches_nothing_is_told(caplog):
    source = openapi(
        PETSTORE, name="pets", server="https://example.com", include=["listPet*", "listCats"], prefix="zoo"
    )
    with caplog.at_level(logging.WARNING):
        async with source as tools:
            assert [one.spec.name for one in tools] == ["zoo__listPets"]
    assert [one for one in source.problems if "matches no tool" in one] == [
        "include: 'listCats' matches no tool; did you mean 'listPets'?"
    ]
    assert "openapi pets: include: 'listCats' matches no tool" in caplog.text
    async with openapi(PETSTORE, name="pets", server="https://example.com", exclude=["GET /pets*"]) as rest:
        assert "pets__listPets" not in [one.spec.name for one in rest]
