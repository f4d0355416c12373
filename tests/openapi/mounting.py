"""Operations behind a real executor, with a gate that notes what it is asked, and documents in a few lines."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from forge.core.context import Scope, ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.executor import ToolExecutor
from forge.core.messages import ToolCall
from forge.core.registry import ToolRegistry, mount_source
from forge.core.result import ToolResult
from forge.core.spec import Permission
from forge.network.egress import Egress
from forge.openapi import OpenApi, openapi
from forge.pipeline.authorize import Authorize, GuardEgress
from tests.network.serving import HERE, Asked, Reply, Server, page, redirect, serving, site

__all__ = ["HERE", "PETSTORE", "Api", "Asked", "Reply", "Server", "document", "json_page", "mount"]
__all__ += ["kind_of", "open_tools", "page", "redirect", "serving", "site"]

PETSTORE = Path(__file__).with_name("petstore.yaml")


class Api:
    """What is mounted: `await api.call("pets__listPets", limit=3)`."""

    def __init__(self, registry: ToolRegistry, workspace: Path, egress: Egress | None) -> None:
        self.registry = registry
        self.asked: list[tuple[str, str]] = []
        self.refused: set[str] = set()
        self.scope = Scope(session_id="api", workspace=workspace)
        self.executor = ToolExecutor(registry, [Authorize(self), GuardEgress(egress)])

    async def call(self, tool: str, /, **arguments: Any) -> ToolResult:
        return await self.executor.execute(ToolCall(tool, arguments), self.scope)

    async def require(self, ctx: ToolContext, permission: Permission, target: str) -> None:
        self.asked.append((str(permission), target))
        if target in self.refused:
            raise ToolError("refused", ErrorKind.PERMISSION)


@asynccontextmanager
async def mount(
    spec: Any = PETSTORE, *, egress: Egress | None = None, workspace: Path = Path(), **options: Any
) -> AsyncIterator[Api]:
    """Mounted as a program does it; `egress` is the project's, the source gets none of its own."""
    source = spec if isinstance(spec, OpenApi) else openapi(spec, **{"name": "pets", **options})
    registry = ToolRegistry()
    async with mount_source(registry, source):
        yield Api(registry, workspace, egress)


async def open_tools(spec: Any = PETSTORE, **options: Any) -> dict[str, Any]:
    async with openapi(spec, **{"name": "pets", **options}) as tools:
        return {tool.spec.name: tool for tool in tools}


def document(
    parameters: list[Any] | None = None,
    *,
    path: str = "/it",
    method: str = "get",
    version: str = "3.1.0",
    components: Mapping[str, Any] | None = None,
    **operation: Any,
) -> dict[str, Any]:
    """One operation, `pets__it`."""
    said = {"operationId": "it", "parameters": parameters or [], "responses": {}, **operation}
    return {
        "openapi": version,
        "info": {"title": "One", "version": "1"},
        "servers": [{"url": "https://api.example.com"}],
        "paths": {path: {method: said}},
        "components": dict(components or {}),
    }


def json_page(text: str, status: int = 200, **headers: str) -> Reply:
    kept = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return Reply([text.encode()], status, [("Content-Type", "application/json"), *kept])


def kind_of(result: ToolResult) -> str:
    return "" if result.failure is None else str(result.failure.kind)
