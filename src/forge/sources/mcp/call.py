"""Calls one tool of an MCP server once: of a configured one by its name, or of any by its URL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from forge.core.arguments.checks import near
from forge.core.context import Scope, ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.result import ToolResult
from forge.core.spec import Category, Permission
from forge.core.tool import Tool
from forge.sources.inner import authorized

if TYPE_CHECKING:  # listing tools needs nothing of a server
    from forge.sources.mcp.server import McpServer
    from forge.sources.mcp.tools import McpTool

MOST_NAMES = 20  # tools that are named where one is not found


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
        """A URL is asked for here. What a configured tool needs is asked for once it is known which one it is: every
        rule about that tool holds, whichever way it is called. Starting its server first is a question of its own."""
        server = str(arguments.get("server", ""))
        known = self._configured(server)
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
        known = self._configured(server)
        if known is None:
            from forge.network.egress import Egress  # only for servers that nobody configured
            from forge.sources.mcp.server import McpServer

            known = McpServer(server, egress=Egress.current())
            async with known:
                tool, parsed = _found(known, tool_name, arguments)
                await _confirmed(tool, ctx)
                return _told(await tool.invoke(parsed, ctx), known, tool)
        async with known:
            tool, parsed = _found(known, tool_name, arguments)
            parsed = await authorized(tool, parsed, ctx, "arguments")
            return _told(await tool.invoke(parsed, ctx), known, tool)

    def _configured(self, server: str) -> McpServer | None:
        """None: it is a URL of which nothing is configured. Raises `ToolError` for what is neither."""
        if server in self.servers:
            return self.servers[server]
        if server.strip().lower().startswith(("http://", "https://")):
            from forge.network.url import read_url

            place = str(read_url(server))
            same = (one for one in self.servers.values() if one.url and str(read_url(one.url)) == place)
            return next(same, None)
        there = f"Configured are {', '.join(self.servers)}." if self.servers else "No server is configured."
        raise ToolError(
            f"there is no MCP server {_shown(server, 60)!r}", ErrorKind.NOT_FOUND, f"{there} Or give its URL."
        )


def _found(server: McpServer, name: str, arguments: Mapping[str, Any] | None) -> tuple[McpTool, dict[str, Any]]:
    """The tool and its arguments, checked against what the server says of it. Raises `ToolError`."""
    tools = {tool.remote: tool for tool in server.tools}
    local = {tool.spec.name: tool for tool in server.tools}
    tool = tools.get(name) or local.get(name)
    if tool is not None:
        return tool, tool.parse(arguments or {})
    close = near(name, tools)
    some = ", ".join(_shown(one, 60) for one in (close or list(tools)[:MOST_NAMES]))
    hint = f"Did you mean {some}?" if close else f"It has {some}." if some else "It has none."
    raise ToolError(f"the server {server.name} has no tool {_shown(name, 60)!r}", ErrorKind.NOT_FOUND, hint)


async def _confirmed(tool: McpTool, ctx: ToolContext) -> None:
    """A tool that says of itself that it destroys is asked about, like one that is mounted."""
    if not tool.spec.confirm:
        return
    from forge.permissions.call_gate import gate_of

    with ctx.asking():
        question = f"{_shown(tool.remote, 100)} says of itself that it may destroy something. Call it?"
        if await gate_of(ctx).confirm(ctx, question):
            return
    raise ToolError("the person does not want it to be called", ErrorKind.PERMISSION, "Ask them what to do instead.")


def _told(result: ToolResult, server: McpServer, tool: McpTool) -> ToolResult:
    return result.with_data(server=server.name, tool=tool.remote)


def _shown(text: str, limit: int) -> str:
    from forge.sources.untrusted import one_line  # listing tools does without

    return one_line(text, limit)
