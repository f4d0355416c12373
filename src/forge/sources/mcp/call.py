"""The tool `mcp_call`: calls one tool of a configured MCP server by its name, or of any server by its URL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from forge.core.arguments.checks import near
from forge.core.context import Scope, ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.result import ToolResult
from forge.core.spec import Category, Permission
from forge.core.tool import Tool
from forge.sources.inner_calls import authorize_inner

if TYPE_CHECKING:  # listing tools needs nothing of a server
    from forge.sources.mcp.server import McpServer
    from forge.sources.mcp.tools import McpTool

MOST_NAMES = 20  # tools named in an error


class McpCall(
    Tool,
    name="mcp_call",
    category=Category.ADAPTER,
    permissions={"execute", "network"},
    argument_aliases={"tool": "tool_name", "name": "tool_name", "args": "arguments", "url": "server"},
    timeout=180.0,
):
    """Call one tool of an MCP server: a configured one by its name, any other by its URL."""

    def __init__(self, servers: Mapping[str, McpServer] | None = None) -> None:
        self.servers = dict(servers or {})

    def wants(self, arguments: Mapping[str, Any], scope: Scope) -> list[tuple[Permission | None, str]] | None:
        """Asks for a URL here. A configured tool's permissions are asked for once the tool is known, so that every rule
        about that tool applies, whichever way it is called. Starting its server asks first."""
        server = str(arguments.get("server", ""))
        known = self._find_server(server)
        if known is None:
            return [(Permission.NETWORK, server)]
        return [(None, "")] if known.is_open else known.wants()

    async def run(
        self,
        ctx: ToolContext,
        server: Annotated[str, "The name of a configured server, or a complete http or https URL."],
        tool_name: Annotated[str, "The tool, as the server names it."],
        arguments: Annotated[dict[str, Any] | None, "What the tool takes."] = None,
    ) -> ToolResult:
        known = self._find_server(server)
        if known is None:
            from forge.network.egress import Egress  # needed only for servers that are not configured
            from forge.sources.mcp.server import McpServer

            known = McpServer(server, egress=Egress.current())
            async with known:
                tool, parsed = _find_tool(known, tool_name, arguments)
                await _confirm(tool, ctx)
                return _add_server(await tool.invoke(parsed, ctx), known, tool)
        async with known:
            tool, parsed = _find_tool(known, tool_name, arguments)
            parsed = await authorize_inner(tool, parsed, ctx, "arguments")
            return _add_server(await tool.invoke(parsed, ctx), known, tool)

    def _find_server(self, server: str) -> McpServer | None:
        """Returns the configured server; None for an unconfigured URL. Raises `ToolError` for anything else."""
        if server in self.servers:
            return self.servers[server]
        if server.strip().lower().startswith(("http://", "https://")):
            from forge.network.url import read_url

            address = str(read_url(server))
            same = (one for one in self.servers.values() if one.url and str(read_url(one.url)) == address)
            return next(same, None)
        there = f"Configured are {', '.join(self.servers)}." if self.servers else "No server is configured."
        raise ToolError(
            f"there is no MCP server {_display(server, 60)!r}", ErrorKind.NOT_FOUND, f"{there} Or give its URL."
        )


def _find_tool(server: McpServer, name: str, arguments: Mapping[str, Any] | None) -> tuple[McpTool, dict[str, Any]]:
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
    from forge.permissions.call_gate import gate_of

    with ctx.asking():
        question = f"{_display(tool.remote, 100)} says of itself that it may destroy something. Call it?"
        if await gate_of(ctx).confirm(ctx, question):
            return
    raise ToolError("the person does not want it to be called", ErrorKind.PERMISSION, "Ask them what to do instead.")


def _add_server(result: ToolResult, server: McpServer, tool: McpTool) -> ToolResult:
    return result.with_data(server=server.name, tool=tool.remote)


def _display(text: str, limit: int) -> str:
    from forge.sources.untrusted import one_line  # not needed to list tools

    return one_line(text, limit)
