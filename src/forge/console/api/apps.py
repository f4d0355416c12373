"""Apps of MCP servers: the HTML of a frame, and which tools it may call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from forge.console.api.requests import ApiRequest
from forge.console.console_state import ConsoleState
from forge.core.errors import ErrorKind, ToolError

if TYPE_CHECKING:
    from forge.mcp.client.tools import McpTool


def show_app(console: ConsoleState, asked: ApiRequest) -> dict[str, Any]:
    """Returns the app of a tool, and the tools of its server by the names that the server uses."""
    from forge.mcp.client.tools import McpTool  # only where a server has an app

    tool = _find_tool(console, asked.path["tool"])
    same = {
        one.remote: name
        for name, one in console.registry.items()
        if isinstance(one, McpTool) and one.spec.origin == tool.spec.origin
    }
    return {"server": tool.spec.origin.partition(":")[2], "uri": tool.app, "tools": same}


class AppFrame:
    """Serves the HTML of an app. The guard adds a policy that lets it reach nothing."""

    def __init__(self, console: ConsoleState) -> None:
        self.console = console

    async def __call__(self, request: Request) -> Response:
        try:
            return HTMLResponse(await _find_tool(self.console, request.path_params["tool"]).read_app())
        except ToolError as error:
            raise HTTPException(404, error.message) from None


def _find_tool(console: ConsoleState, name: str) -> McpTool:
    from forge.mcp.client.tools import McpTool

    tool = console.registry.get(name)
    if not isinstance(tool, McpTool) or not tool.app:
        raise ToolError(f"the tool {name[:80]!r} has no app", ErrorKind.NOT_FOUND, "Read its result as text.")
    return tool
