"""The official Python SDK."""

from __future__ import annotations

import httpx2
from common import Steps, main
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client


async def use(steps: Steps) -> None:
    if steps.url:
        async with (
            httpx2.AsyncClient(headers=steps.headers, timeout=60) as http,
            Client(streamable_http_client(steps.url, http_client=http)) as client,
        ):
            await follow(steps, client)
    else:
        server = StdioServerParameters(command=steps.command[0], args=steps.command[1:])
        async with Client(server) as client:
            await follow(steps, client)


async def follow(steps: Steps, client: Client) -> None:
    steps.listed([one.name for one in (await client.list_tools()).tools])
    steps.called((await client.call_tool("math_calculate", {"expression": "6 * 7"})).content[0].text)
    failed = await client.call_tool("math_calculate", {"expression": "6 *"})
    steps.failed(failed.is_error, failed.content[0].text)
    await steps.cancel(lambda arguments: client.call_tool("bash", arguments))


main(use)
