"""`mcp_call` and `mcp_resource`: reach the tools and resources of servers that are not mounted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from forge.core.arguments.names import near
from forge.core.context import Scope, ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.result import ToolResult
from forge.core.spec import Category, Permission
from forge.core.tool import Tool

if TYPE_CHECKING:  # listing tools needs nothing of a server
    from forge.mcp.client.contents import ServerResource
    from forge.mcp.client.source import McpSource
    from forge.mcp.client.tools import McpTool
    from forge.permissions.policy import JudgedInnerCall

UNCONFIGURED = "a tool that says that it may destroy data asks when the server answers"
NOT_APPROVED = "nobody approved this tool yet: it is judged when the server answers, and asks by default"
APPROVED = "by its approved definition; it is judged again when the server answers"
MOST_NAMES = 20  # tools named in an error
MOST_SHOWN = 200  # resources in one list


class McpCall(
    Tool,
    name="mcp_call",
    category=Category.ADAPTER,
    trust="untrusted",
    permissions={"execute", "network"},
    argument_aliases={"tool": "tool_name", "name": "tool_name", "args": "arguments", "url": "server"},
    timeout=180.0,
    extra="mcp",
):
    """Call one tool of an MCP server: a configured one by its name, any other by its URL."""

    def __init__(self, servers: Mapping[str, McpSource] | None = None) -> None:
        self.servers = dict(servers or {})

    def required_permissions(
        self, arguments: Mapping[str, Any], scope: Scope
    ) -> list[tuple[Permission | None, str]] | None:
        """Asks for a URL here. A configured tool's permissions are asked for once the tool is known, so that every rule
        about that tool applies, whichever way it is called. Starting its server asks first."""
        server = str(arguments.get("server", ""))
        known = self._find_server(server)
        if known is None:
            return [(Permission.NETWORK, server)]
        return [(None, "")] if known.is_open else known.required_permissions()

    def find_inner_call(self, arguments: Mapping[str, Any], scope: Scope) -> JudgedInnerCall:
        """Returns the call of the server's tool, as far as it is known before the server answers."""
        from forge.mcp.pins import PinState
        from forge.permissions.policy import JudgedInnerCall  # listing tools does without

        name, sent = str(arguments.get("tool_name", "")), arguments.get("arguments")
        known = self._find_server(str(arguments.get("server", "")))
        if known is None:
            return JudgedInnerCall(_display(name, 60), None, {}, UNCONFIGURED)
        if known.is_open:
            tool, parsed = _find_tool(known, name, sent)
            return JudgedInnerCall(tool.spec.name, tool, parsed)
        tool = known.foresee_tool(name)
        if tool.state in (PinState.NEW, PinState.UNKNOWN):
            return JudgedInnerCall(tool.spec.name, tool, dict(sent or {}), NOT_APPROVED)
        return JudgedInnerCall(tool.spec.name, tool, tool.parse(sent or {}), APPROVED)

    async def run(
        self,
        ctx: ToolContext,
        server: Annotated[str, "A configured server, or a URL."],
        tool_name: str,
        arguments: dict[str, Any] | None = None,
    ) -> ToolResult:
        known = self._find_server(server)
        if known is None:
            from forge.mcp.client.link import Http
            from forge.mcp.client.source import McpSource
            from forge.network.egress import Egress  # needed only for servers that are not configured

            # a model may not use a login that no one configured here
            known = McpSource(Http(server.strip(), auth=None, egress=Egress.current()))
            async with known:
                tool, parsed = _find_tool(known, tool_name, arguments)
                await _confirm(tool, ctx)
                return _add_server(await tool.invoke(parsed, ctx), known, tool)
        from forge.permissions.gate import authorize_inner  # not needed to list tools

        async with known:
            tool, parsed = _find_tool(known, tool_name, arguments)
            parsed = await authorize_inner(tool, parsed, ctx, "arguments")
            return _add_server(await tool.invoke(parsed, ctx), known, tool)

    def _find_server(self, server: str) -> McpSource | None:
        """Returns the configured server; None for an unconfigured URL. Raises `ToolError` for anything else."""
        if server in self.servers:
            return self.servers[server]
        if server.strip().lower().startswith(("http://", "https://")):
            from forge.network.address import read_url

            address = str(read_url(server))
            same = (one for one in self.servers.values() if one.url and str(read_url(one.url)) == address)
            return next(same, None)
        there = f"The configured servers are {', '.join(self.servers)}." if self.servers else "No server is configured."
        raise ToolError(
            f"there is no MCP server {_display(server, 60)!r}", ErrorKind.NOT_FOUND, f"{there} You can also pass a URL."
        )


def _find_tool(server: McpSource, name: str, arguments: Mapping[str, Any] | None) -> tuple[McpTool, dict[str, Any]]:
    """Returns the tool and its arguments, checked against the server's schema. Raises `ToolError`."""
    tools = {tool.remote: tool for tool in server.tools}
    local = {tool.spec.name: tool for tool in server.tools}
    tool = tools.get(name) or local.get(name)
    if tool is not None:
        return tool, tool.parse(arguments or {})
    close = near(name, tools)
    some = ", ".join(_display(one, 60) for one in (close or list(tools)[:MOST_NAMES]))
    hint = f"Did you mean {some}?" if close else f"It has {some}." if some else "It has none."
    raise ToolError(f"the server {server.name} has no tool {_display(name, 60)!r}", ErrorKind.NOT_FOUND, hint)


async def _confirm(tool: McpTool, ctx: ToolContext) -> None:
    """Asks a person about a tool that declares itself destructive, as for a mounted tool."""
    if not tool.spec.confirm:
        return
    from forge.permissions.gate import gate_of

    with ctx.pause_clock():
        question = f"{_display(tool.remote, 100)} declares that it may destroy data. Call it?"
        if await gate_of(ctx).confirm(ctx, question):
            return
    raise ToolError("the person refused this call", ErrorKind.PERMISSION, "Ask the person what to do instead.")


def _add_server(result: ToolResult, server: McpSource, tool: McpTool) -> ToolResult:
    return result.with_data(server=server.name, tool=tool.remote)


def _display(text: str, limit: int) -> str:
    from forge.core.untrusted import one_line  # not needed to list tools

    return one_line(text, limit)


class McpResource(
    Tool,
    name="mcp_resource",
    category=Category.ADAPTER,
    trust="untrusted",
    permissions={"execute", "network"},
    argument_aliases={"name": "server", "url": "uri"},
    timeout=120.0,
    extra="mcp",
):
    """List or read the resources of a configured MCP server, such as its files, records and documents."""

    def __init__(self, servers: Mapping[str, McpSource] | None = None) -> None:
        self.servers = dict(servers or {})

    def required_permissions(
        self, arguments: Mapping[str, Any], scope: Scope
    ) -> list[tuple[Permission | None, str]] | None:
        """Needs the same permissions as the server's tools."""
        return self._find_server(str(arguments.get("server", ""))).required_permissions()

    async def run(
        self,
        ctx: ToolContext,
        server: Annotated[str, "The name of a configured server."],
        action: Annotated[
            Literal["list", "templates", "read"], "`list` and `templates` show URIs; `read` needs a `uri`."
        ] = "list",
        uri: Annotated[str, "The URI to read, as the server lists it or as a template makes it."] = "",
        match: Annotated[str, "Only list entries that contain this text."] = "",
    ) -> ToolResult:
        found = self._find_server(server)
        if action == "read" and not uri:
            raise ToolError("`read` needs a `uri`", ErrorKind.VALIDATION, "Use the action `list` to see them.")
        async with found:
            if action == "read":
                return (await found.read_resource(uri, ctx)).with_data(server=found.name, uri=uri)
            is_list = action == "list"
            listed = await (found.list_resources(ctx) if is_list else found.list_resource_templates(ctx))
        return _format_list(found.name, "resources" if is_list else "resource templates", listed, match)

    def _find_server(self, name: str) -> McpSource:
        if name in self.servers:
            return self.servers[name]
        known = f"The configured servers are {', '.join(self.servers)}." if self.servers else "No server is configured."
        raise ToolError(f"there is no MCP server {_display(name, 60)!r}", ErrorKind.NOT_FOUND, known)


def _format_list(server: str, what: str, listed: list[ServerResource], match: str) -> ToolResult:
    wanted = match.casefold()
    chosen = [one for one in listed if wanted in f"{one.uri}\n{one.name}\n{one.description}".casefold()]
    if not chosen:
        return ToolResult.text(f"{server} has no {what}{' that match' if listed else ''}.")
    lines = [_format_resource(one) for one in chosen[:MOST_SHOWN]]
    if len(chosen) > MOST_SHOWN:
        lines.append(f"[{len(chosen) - MOST_SHOWN:,} more {what}: use `match` to find them]")
    return ToolResult(for_llm="\n".join(lines), data={"server": server, "uris": [one.uri for one in chosen]})


def _format_resource(one: ServerResource) -> str:
    about = ", ".join(dict.fromkeys(filter(None, (one.name, one.media_type, one.description))))
    return f"{one.uri}{f'  ({about})' if about else ''}"
