"""The MCP servers of the OpenAI Agents SDK."""

from __future__ import annotations

from agents.mcp import MCPServerStdio, MCPServerStreamableHttp
from common import Steps, main


async def use(steps: Steps) -> None:
    if steps.url:
        server = MCPServerStreamableHttp(
            {"url": steps.url, "headers": steps.headers}, client_session_timeout_seconds=60
        )
    else:
        params = {"command": steps.command[0], "args": steps.command[1:]}
        server = MCPServerStdio(params, client_session_timeout_seconds=60)
    async with server:
        steps.listed([one.name for one in await server.list_tools()])
        steps.called((await server.call_tool("math_calculate", {"expression": "6 * 7"})).content[0].text)
        failed = await server.call_tool("math_calculate", {"expression": "6 *"})
        is_error = getattr(failed, "isError", None) or getattr(failed, "is_error", None)
        steps.failed(is_error, failed.content[0].text)
        await steps.cancel(lambda arguments: server.call_tool("bash", arguments))


main(use)
