"""Operations of OpenAPI documents: called beside http_request, and mounted by the thousand."""

from __future__ import annotations

import json
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.timing import Measure, per_await, per_call, side_by_side, side_by_side_async
from benchmarks.web import serving
from forge.core.context import Scope
from forge.core.executor import ToolExecutor
from forge.core.messages import ToolCall
from forge.core.registry import ToolRegistry, mount_source
from forge.core.result import ToolResult
from forge.network.egress import Egress
from forge.openapi import openapi
from forge.permissions.policy import rules
from forge.pipeline import standard_executor
from forge.tools.http_request import HttpRequest

CALLS = 100
MANY = 5_000
ITEMS = json.dumps([{"id": number, "name": f"item {number}", "tags": ["a", "b"]} for number in range(50)]).encode()


async def measures() -> list[Measure]:
    async with serving(ITEMS, b"application/json") as url:
        called = await _called(url)
    mounting = await _mounting()
    again = await _again()
    return [
        Measure("openapi: a mounted operation", "http_request, the same answer", *called, "µs", 1.3),
        Measure(f"openapi: {MANY:,} operations mounted", "", 0.0, mounting, "s", 5.0, absolute=True),
        Measure(f"openapi: definitions with {MANY:,} mounted", "definitions without", *again, "µs", 1.5),
    ]


async def _called(url: str) -> tuple[float, float]:
    async with openapi(_document(1), name="api", server=url.rstrip("/")) as tools:
        executor = standard_executor(
            [*tools, HttpRequest()], policy=rules("allow network"), egress=Egress(private=("127.0.0.1",))
        )
        scope = Scope(workspace=Path("."))
        plain = _asking(executor, scope, "http_request", {"method": "GET", "url": f"{url}items/0?limit=5"})
        ours = _asking(executor, scope, "api__get_0", {"id": "0", "limit": 5})
        for one in (await plain(), await ours()):
            assert one.data["status"] == 200, one.for_llm

        async def measured_floor() -> float:
            return await per_await(plain, CALLS)

        async def measured() -> float:
            return await per_await(ours, CALLS)

        return await side_by_side_async(measured_floor, measured)


def _asking(executor: ToolExecutor, scope: Scope, name: str, arguments: dict[str, Any]) -> Any:
    turn = iter(range(10**9))

    async def ask() -> ToolResult:
        number = next(turn)  # every call its own turn and session: no repetition, no loop
        own = Scope(session_id=f"s{number}", message_id=str(number), workspace=scope.workspace)
        return await executor.execute(ToolCall(name, arguments), own)

    return ask


async def _mounting() -> float:
    """Seconds from a file to a registry, the median of three."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "large.json"
        path.write_text(json.dumps(_document(MANY)))
        taken = []
        for _ in range(3):
            started = time.perf_counter()
            registry = ToolRegistry()
            async with mount_source(registry, openapi(path, name="api")):
                assert len(registry) == MANY
                taken.append(time.perf_counter() - started)
    return sorted(taken)[1]


async def _again() -> tuple[float, float]:
    """Microseconds a turn pays for the definitions: hidden ones cost nothing."""
    few, many = ToolRegistry([HttpRequest()]), ToolRegistry([HttpRequest()])
    async with mount_source(many, openapi(_document(MANY), name="api")):
        assert few.definitions() == many.definitions()
        return side_by_side(lambda: per_call(few.definitions, 2_000), lambda: per_call(many.definitions, 2_000))


def _document(number: int) -> dict[str, Any]:
    """Operations as they are: a path parameter, some for the query, a schema that others refer to."""
    item = {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "name": {"type": "string", "description": "What it is called."},
            "tags": {"type": "array", "items": {"type": "string"}},
            "parent": {"$ref": "#/components/schemas/Item"},
        },
    }
    limit = {"name": "limit", "in": "query", "schema": {"type": "integer", "minimum": 1}}
    answer = {"200": {"content": {"application/json": {"schema": {"type": "array", "items": {"$ref": _ITEM}}}}}}
    paths = {
        f"/items{'' if one == 0 else one}/{{id}}": {
            "get": {
                "operationId": f"get_{one}",
                "summary": f"Get the items of kind {one}.",
                "description": "All of them, the newest first. " * 5,
                "parameters": [
                    {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}},
                    {"$ref": "#/components/parameters/limit"},
                ],
                "responses": answer,
            }
        }
        for one in range(number)
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Items", "version": "1"},
        "servers": [{"url": "https://api.example.com"}],
        "paths": paths,
        "components": {"schemas": {"Item": item}, "parameters": {"limit": limit}},
    }


_ITEM = "#/components/schemas/Item"
