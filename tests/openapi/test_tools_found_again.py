"""A request of a lost worker is found again with a GET of the same path."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from forge import Reconciled, Scope, Tool, ToolCall, ToolContext
from forge.openapi import openapi
from tests.network.serving import Asked, Reply, Server, serving
from tests.openapi.mounting import json_page

PET = {"name": "Rex", "age": 3, "tags": ["a"]}
MERGE = "application/merge-patch+json"


def _body(media: str = "application/json") -> dict[str, Any]:
    fields = {"name": {"type": "string"}, "age": {"type": "integer"}, "tags": {"type": "array"}}
    return {"content": {media: {"schema": {"type": "object", "properties": fields}}}}


def _document(**more: Any) -> dict[str, Any]:
    number = {"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}
    item = {
        "parameters": [number],
        "get": {"operationId": "get"},
        "put": {"operationId": "put", "requestBody": _body()},
        "patch": {"operationId": "patch", "requestBody": _body(MERGE)},
        "delete": {"operationId": "delete"},
        "post": {"operationId": "post", "requestBody": _body()},
        **more,
    }
    return {"openapi": "3.1.0", "info": {"title": "Pets", "version": "1"}, "paths": {"/pets/{id}": item}}


@asynccontextmanager
async def mounted(answer: Any, document: Any = None, **options: Any) -> AsyncIterator[tuple[dict[str, Tool], Server]]:
    async with (
        serving(answer) as server,
        openapi(document or _document(), name="pets", server=server.url, **options) as tools,
    ):
        yield {tool.spec.name.removeprefix("pets__"): tool for tool in tools}, server


async def ask(tool: Tool, arguments: dict[str, Any]) -> Reconciled:
    ctx = ToolContext(ToolCall(tool.spec.name, arguments, "c"), tool, tool.parse(arguments), Scope(workspace=Path()))
    return await tool.reconcile(ctx.key, ctx.arguments, ctx)


SAME = json.dumps({**PET, "id": 1, "born": "2020"})


@pytest.mark.parametrize(
    ("operation", "given", "found", "state"),
    [
        ("put", PET, json_page(SAME), "done"),
        ("put", {**PET, "age": 4}, json_page(SAME), "not_done"),
        ("put", {**PET, "tags": []}, json_page(SAME), "not_done"),
        ("put", PET, json_page("{}", 404), "not_done"),
        ("put", PET, json_page("[]"), "not_done"),
        ("put", PET, json_page("{}", 500), "unknown"),
        ("put", PET, json_page("{}", 401), "unknown"),
        ("put", {}, json_page(SAME), "unknown"),
        ("patch", {"age": 3}, json_page(SAME), "done"),
        ("patch", {"age": 4}, json_page(SAME), "unknown"),
        ("patch", {"age": 4}, json_page("{}", 404), "unknown"),
        ("delete", {}, json_page("{}", 404), "done"),
        ("delete", {}, json_page("{}", 410), "done"),
        ("delete", {}, json_page(SAME), "not_done"),
        ("delete", {}, json_page("{}", 403), "unknown"),
    ],
)
async def test_what_is_there_says_whether_a_request_took_effect(
    operation: str, given: dict[str, Any], found: Reply, state: str
) -> None:
    async with mounted(found) as (tools, server):
        assert tools[operation].reconciles
        answer = await ask(tools[operation], {"id": 1, **given})
        assert answer.state == state, answer.reason
        assert not answer.final, "the earlier worker may still send it"
        assert [(one.method, one.path) for one in server.asked] == [("GET", "/pets/1")], "asking changes nothing"
        if state == "done":
            assert answer.result.success


async def test_what_was_found_is_the_result() -> None:
    async with mounted(json_page(SAME)) as (tools, _):
        answer = await ask(tools["put"], {"id": 1, **PET})
        assert "the answer was lost" in answer.result.for_llm
        assert '"Rex"' in answer.result.for_llm
        assert answer.result.data["status"] == 200


async def test_operations_without_a_way_to_find_out_are_not_asked() -> None:
    async with mounted(json_page(SAME)) as (tools, server):
        assert not tools["post"].reconciles, "a POST is no state"
        plain = _document(patch={"operationId": "patch", "requestBody": _body()})
        async with openapi(plain, name="pets", server=server.url) as others:
            assert not next(one for one in others if one.spec.name == "pets__patch").reconciles
        async with openapi(_document(), name="pets", server=server.url, exclude=["get"]) as others:
            assert not any(one.reconciles for one in others), "a person left the GET out"


async def test_a_get_that_needs_more_than_the_path_is_not_sent() -> None:
    needed = {"name": "as", "in": "query", "required": True, "schema": {"type": "string"}}
    document = _document(get={"operationId": "get", "parameters": [needed]})
    async with mounted(json_page(SAME), document) as (tools, server):
        assert (await ask(tools["put"], {"id": 1, **PET})).state == "unknown"
        assert not server.asked
    given = _document(
        get={"operationId": "get", "parameters": [needed]},
        delete={"operationId": "delete", "parameters": [needed]},
    )
    async with mounted(json_page("{}", 404), given) as (tools, server):
        assert (await ask(tools["delete"], {"id": 1, "as": "ada"})).state == "done"
        assert [one.path for one in server.asked] == ["/pets/1?as=ada"]


async def test_the_get_has_the_credentials_of_the_call() -> None:
    def answer(asked: Asked) -> Reply:
        return json_page(SAME if asked.headers.get("authorization") == "Bearer secret-token" else "{}", 200)

    security = {"components": {"securitySchemes": {"b": {"type": "http", "scheme": "bearer"}}}, "security": [{"b": []}]}
    async with mounted(answer, {**_document(), **security}, auth={"bearer": "secret-token"}) as (tools, _):
        assert (await ask(tools["put"], {"id": 1, **PET})).state == "done"
