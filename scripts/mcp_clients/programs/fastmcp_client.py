"""FastMCP's client."""

from __future__ import annotations

from common import Steps, main
from fastmcp import Client
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport


async def use(steps: Steps) -> None:
    if steps.url:
        way = StreamableHttpTransport(steps.url, headers=steps.headers)
    else:
        way = StdioTransport(command=steps.command[0], args=steps.command[1:])
    async with Client(way) as client:
        steps.listed([one.name for one in await client.list_tools()])
        steps.called((await client.call_tool("math_calculate", {"expression": "6 * 7"})).content[0].text)
        failed = await client.call_tool("math_calculate", {"expression": "6 *"}, raise_on_error=False)
        steps.failed(failed.is_error, failed.content[0].text)
        await steps.cancel(lambda arguments: client.call_tool("bash", arguments))


main(use)
