"""The tool `openapi_call`: calls one operation of an OpenAPI document that is not mounted."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from forge.core.arguments.names import near
from forge.core.context import Scope, ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.plain_values import brief
from forge.core.result import ToolResult
from forge.core.spec import Category, Permission, ToolSpec
from forge.core.tool import Tool

if TYPE_CHECKING:  # loaded by the first call
    from forge.openapi.source import OpenApi
    from forge.permissions.policy import JudgedInnerCall

NOT_FETCHED = "the document is not fetched here: the operation is judged when it is, and asks by default"
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
        tool = _find_operation(await self._list_operations(spec, ctx.scope), operation_id)
        from forge.permissions.gate import authorize_inner  # not needed to list tools

        arguments = await authorize_inner(tool, _parse_params(tool, params or {}), ctx, "params")
        return await tool.invoke(arguments, ctx)

    def required_permissions(self, arguments: Mapping[str, Any], scope: Scope) -> list[tuple[Permission | None, str]]:
        """Asks to read the document; the operation's permissions are asked for once the operation is known."""
        spec = str(arguments["spec"])
        if spec in self._specs:
            return [(None, "")]
        from forge.openapi.document import is_url

        return [(Permission.NETWORK if is_url(spec) else Permission.READ, spec)]

    def find_inner_call(self, arguments: Mapping[str, Any], scope: Scope) -> JudgedInnerCall:
        """Returns the call of the operation. A document at a URL is not fetched for it."""
        from forge.openapi.document import is_url
        from forge.permissions.policy import JudgedInnerCall  # listing tools does without

        spec, operation_id = str(arguments.get("spec", "")), str(arguments.get("operation_id", ""))
        configured = self._specs.get(spec)
        place = spec if configured is None else configured.spec
        if isinstance(place, str) and is_url(place) and not (configured and configured.tools):
            unknown = _UnknownOperation(spec if configured is not None else "openapi", operation_id)
            return JudgedInnerCall(unknown.spec.name, unknown, {}, NOT_FETCHED)
        tool = _find_operation(_run_aside(lambda: self._list_operations(spec, scope)), operation_id)
        return JudgedInnerCall(tool.spec.name, tool, _parse_params(tool, arguments.get("params") or {}))

    async def _list_operations(self, spec: str, scope: Scope) -> dict[str, Tool]:
        configured = self._specs.get(spec)
        if configured is None:
            return await self._open_tools(scope, spec)
        return _index_by_id(configured.tools or list(await configured.__aenter__()))

    async def _open_tools(self, scope: Scope, spec: str) -> dict[str, Tool]:
        from hashlib import blake2b

        from forge.core.execution.threads import in_thread
        from forge.network.egress import Egress
        from forge.openapi.document import LARGEST_JSON, download, is_url, parse_document
        from forge.openapi.source import openapi
        from forge.workspace.paths.open import read_file

        url = ""
        if is_url(spec):
            raw, url = await download(spec, Egress.current())
        else:
            try:
                raw = await in_thread(lambda: read_file(scope, spec, LARGEST_JSON))
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


class _UnknownOperation(Tool):
    """An operation of a document that is not fetched. It needs the network, at an address that is not known."""

    checked = True

    def __init__(self, api: str, operation_id: str) -> None:
        from forge.openapi.operations import prefix_of

        name = re.sub(r"[^A-Za-z0-9-]+", "_", operation_id).strip("_-") or "operation"
        self.spec = ToolSpec(
            name=f"{prefix_of(api)}__{name}"[:64],
            description="An operation of a document that is not fetched.",
            parameters={"type": "object", "properties": {}},
            category=Category.ADAPTER,
            permissions=frozenset({Permission.NETWORK}),
        )

    def required_permissions(self, arguments: Mapping[str, Any], scope: Scope) -> list[tuple[Permission | None, str]]:
        return [(Permission.NETWORK, "")]


def _run_aside(make: Callable[[], Coroutine[Any, Any, dict[str, Tool]]]) -> dict[str, Tool]:
    """Runs a coroutine to its end, on a loop of its own: the caller may be on one."""
    import asyncio  # only to explain a call
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(make())).result()


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
