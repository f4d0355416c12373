"""LangChain's MCP adapters."""

from __future__ import annotations

from common import Steps, main
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools


async def use(steps: Steps) -> None:
    if steps.url:
        server = {"transport": "streamable_http", "url": steps.url, "headers": steps.headers}
    else:
        server = {"transport": "stdio", "command": steps.command[0], "args": steps.command[1:]}
    client = MultiServerMCPClient({"forge": server})
    async with client.session("forge") as session:
        tools = {one.name: one for one in await load_mcp_tools(session)}
        steps.listed(list(tools))
        steps.called(await tools["math_calculate"].ainvoke({"expression": "6 * 7"}))
        asked = {"type": "tool_call", "id": "1", "name": "math_calculate", "args": {"expression": "6 *"}}
        failed = await tools["math_calculate"].ainvoke(asked)
        steps.failed(failed.status == "error", failed.content)
        await steps.cancel(tools["bash"].ainvoke)


main(use)
