"""Pydantic AI's MCP toolset."""

from __future__ import annotations

from common import Steps, main
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
from pydantic_ai.exceptions import ModelRetry
from pydantic_ai.mcp import MCPToolset


async def use(steps: Steps) -> None:
    if steps.url:
        way = StreamableHttpTransport(steps.url, headers=steps.headers)
    else:
        way = StdioTransport(command=steps.command[0], args=steps.command[1:])
    async with MCPToolset(way) as server:
        steps.listed([one.name for one in await server.list_tools()])
        steps.called(await server.direct_call_tool("math_calculate", {"expression": "6 * 7"}))
        try:
            steps.failed(False, await server.direct_call_tool("math_calculate", {"expression": "6 *"}))
        except ModelRetry as error:
            steps.failed(True, error)
        await steps.cancel(lambda arguments: server.direct_call_tool("bash", arguments))


main(use)
