"""Calls one operation of an OpenAPI document that nobody mounted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from forge.core.arguments.checks import near
from forge.core.context import Scope, ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.plain_values import brief
from forge.core.result import ToolResult
from forge.core.spec import Category, Permission
from forge.core.tool import Tool
from forge.sources.inner import authorized

if TYPE_CHECKING:  # reading documents and asking servers is loaded by the first call
    from forge.sources.openapi.source import OpenApi

KEPT = 4  # documents


class OpenapiCall(
    Tool,
    category=Category.ADAPTER,
    permissions={"network"},
    optional_permissions={"read"},
    argument_aliases={"operationId": "operation_id", "operation": "operation_id", "arguments": "params", "url": "spec"},
    timeout=120.0,
):
    """Call one operation of an API that an OpenAPI document describes, and get its status and answer."""

    def __init__(self, specs: Mapping[str, OpenApi] | None = None) -> None:
        self._specs = specs if specs is not None else {}
        self._kept: dict[tuple[str, bytes], dict[str, Tool]] = {}  # by place and content

    async def run(
        self,
        ctx: ToolContext,
        spec: Annotated[str, "A configured API's name, or the path or URL of its OpenAPI document."],
        operation_id: Annotated[str, "As the document names it, or as in GET /pets/{id}."],
        params: Annotated[dict[str, Any] | None, "Path, query, header and body parameters by name."] = None,
    ) -> ToolResult:
        if (configured := self._specs.get(spec)) is not None:
            tools = _by_id(configured.tools or list(await configured.__aenter__()))
            tool = _found(tools, operation_id)
        else:
            tool = _found(await self._opened(ctx, spec), operation_id)
        arguments = await authorized(tool, _parsed(tool, params or {}), ctx, "params")
        return await tool.invoke(arguments, ctx)

    def wants(self, arguments: Mapping[str, Any], scope: Scope) -> list[tuple[Permission | None, str]]:
        """The document is read first; what the operation needs is asked for once it is known which one it is."""
        spec = str(arguments["spec"])
        if spec in self._specs:
            return [(None, "")]
        from forge.sources.openapi.opening import is_url

        return [(Permission.NETWORK if is_url(spec) else Permission.READ, spec)]

    async def _opened(self, ctx: ToolContext, spec: str) -> dict[str, Tool]:
        from hashlib import blake2b

        from forge.core.execution.threads import in_thread
        from forge.network.egress import Egress
        from forge.sources.openapi.opening import download, is_url, parsed
        from forge.sources.openapi.parsing import LARGEST
        from forge.sources.openapi.source import openapi
        from forge.workspace.paths.open import read_file

        url = ""
        if is_url(spec):
            raw, url = await download(spec, Egress.current())
        else:
            try:
                raw = await in_thread(lambda: read_file(ctx.scope, spec, LARGEST))
            except ToolError as error:
                if error.kind is ErrorKind.NOT_FOUND and self._specs:
                    error.suggestion = f"Configured are {', '.join(sorted(self._specs)[:20])}."
                raise
        key = (url or spec, blake2b(raw, digest_size=16).digest())
        if key not in self._kept:
            document = await parsed(raw, url or spec, url)
            while len(self._kept) >= KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = _by_id(openapi(url or spec).made(document, asked=True))
        return self._kept[key]


def _by_id(tools: list[Tool]) -> dict[str, Tool]:
    """By every name an operation may be called by."""
    found: dict[str, Tool] = {}
    for tool in tools:
        operation = getattr(tool, "operation", None)
        if operation is not None:
            for name in (operation.id, operation.title, tool.spec.name):
                found.setdefault(name, tool)
    return found


def _found(tools: Mapping[str, Tool], operation_id: str) -> Tool:
    tool = tools.get(operation_id.strip())
    if tool is not None:
        return tool
    similar = near(operation_id, tools)
    hint = " or ".join(map(brief, similar))
    some = ", ".join(dict.fromkeys(tool.operation.id for tool in [*tools.values()][:30]))  # type: ignore[attr-defined]
    raise ToolError(
        f"there is no operation {brief(operation_id)}",
        ErrorKind.NOT_FOUND,
        f"Did you mean {hint}?" if hint else f"There are {some}."[:500],
    )


def _parsed(tool: Tool, params: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return tool.parse(params)
    except ToolError as error:
        error.message = f"params: {error.message}"
        raise
