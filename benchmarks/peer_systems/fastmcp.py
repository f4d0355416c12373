"""FastMCP: a server, called directly and, where an agent is wanted, through its in-memory client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from benchmarks.peer_systems import Call, Script, System


class It(System):
    takes_text = False
    loops = False

    def __init__(self) -> None:
        self.peer: Any = import_module("fastmcp")
        self.tool: Any = import_module("fastmcp.tools").Tool
        self.refused: Any = import_module("fastmcp.exceptions").ValidationError

    def define(self, function: Callable[..., Any]) -> Any:
        made = self.tool.from_function(function)
        made.to_mcp_tool()
        return made

    async def serve(self, tools: list[Any]) -> Any:
        server = self.peer.FastMCP("server")
        for made in tools:
            server.add_tool(made)
        return server

    async def send(self, server: Any, name: str, text: str) -> str:
        try:
            return str((await server.call_tool(name, json.loads(text))).content[0].text)
        except self.refused as error:  # what the protocol around the server makes an error result of
            return str(error)

    async def definitions(self, server: Any) -> list[Any]:
        return [made.to_mcp_tool() for made in await server.list_tools()]

    async def run(self, tools: list[Any], script: Script, turns: int = 0) -> None:
        async with self.peer.Client(await self.serve(tools)) as client:

            async def answer(call: Call) -> str:
                result = await client.call_tool(call.name, json.loads(call.text), raise_on_error=False)
                return "\n".join(part.text for part in result.content)

            answers: list[str] = []
            while calls := script.next(answers):
                answers.extend(await asyncio.gather(*(answer(call) for call in calls)))

    async def turn(self, tools: list[Any], calls: Sequence[Call]) -> None:
        server = await self.serve(tools)
        await asyncio.gather(*(self.send(server, call.name, call.text) for call in calls))

    def results(self, messages: Any) -> list[str]:
        return list(messages)
