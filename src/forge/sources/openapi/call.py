"""The tool `openapi_call`: calls one operation of an OpenAPI document that is not mounted."""

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
from forge.sources.inner_calls import authorize_inner

if TYPE_CHECKING:  # loaded by the first call
    from forge.sources.openapi.source import OpenApi

MOST_DOCUMENTS = 4  # documents


class OpenapiCall(
    Tool,
    category=Category.ADAPTER,
    trust="untrusted",
    permissions={"network"},
    optional_permissions={"read"},
    argument_aliases={"operationId": "operation_id", "operation": "operation_id", "arguments": "params", "url": "spec"},
    timeout=120.0,
):
    """Call one operation of an API that an OpenAPI document describes; get status and answer."""

    def __init__(self, specs: Mapping[str, OpenApi] | None = None) -> None:
        self._specs = specs if specs is not None else {}
        self._documents: dict[tuple[str, bytes], dict[str, Tool]] = {}  # by location and content

    async def run(
        self,
        ctx: ToolContext,
        spec: Annotated[str, "A configured API, or the path or URL of a document."],
        operation_id: Annotated[str, "Or method and path, such as GET /pets/{id}."],
        params: Annotated[dict[str, Any] | None, "Path, query, header and body parameters."] = None,
    ) -> ToolResult:
        if (configured := self._specs.get(spec)) is not None:
            tools = _index_by_id(configured.tools or list(await configured.__aenter__()))
            tool = _find_operation(tools, operation_id)
        else:
            tool = _find_operation(await self._open_tools(ctx, spec), operation_id)
        arguments = await authorize_inner(tool, _parse_params(tool, params or {}), ctx, "params")
        return await tool.invoke(arguments, ctx)

    def wants(self, arguments: Mapping[str, Any], scope: Scope) -> list[tuple[Permission | None, str]]:
        """Asks to read the document; the operation's permissions are asked for once the operation is known."""
        spec = str(arguments["spec"])
        if spec in self._specs:
            return [(None, "")]
        from forge.sources.openapi.opening import is_url

        return [(Permission.NETWORK if is_url(spec) else Permission.READ, spec)]

    async def _open_tools(self, ctx: ToolContext, spec: str) -> dict[str, Tool]:
        from hashlib import blake2b

        from forge.core.execution.threads import in_thread
        from forge.network.egress import Egress
        from forge.sources.openapi.opening import download, is_url, parse_document
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
                    error.suggestion = f"The configured APIs are {', '.join(sorted(self._specs)[:20])}."
                raise
        key = (url or spec, blake2b(raw, digest_size=16).digest())
        if key not in self._documents:
            document = await parse_document(raw, url or spec, url)
            while len(self._documents) >= MOST_DOCUMENTS:
                del self._documents[next(iter(self._documents))]
            self._documents[key] = _index_by_id(openapi(url or spec).make_tools(document, ad_hoc=True))
        return self._documents[key]


def _index_by_id(tools: list[Tool]) -> dict[str, Tool]:
    """Maps every name of an operation to its tool."""
    found: dict[str, Tool] = {}
    for tool in tools:
        operation = getattr(tool, "operation", None)
        if operation is not None:
            for name in (operation.id, operation.title, tool.spec.name):
                found.setdefault(name, tool)
    return found


def _find_operation(tools: Mapping[str, Tool], operation_id: str) -> Tool:
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


def _parse_params(tool: Tool, params: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return tool.parse(params)
    except ToolError as error:
        error.message = f"params: {error.message}"
        raise
