"""A call through `forge serve` over stdio, against the same function served by the bare SDK."""

from __future__ import annotations

import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from benchmarks.timing import Measure

if TYPE_CHECKING:
    from mcp import Client

CALLS = 60  # in a row, before it is the other's turn
ROUNDS = 15
OURS = "import sys\nfrom forge.cli import perform\nsys.exit(perform(sys.argv[1:]))"
BARE = """
from typing import Any
from mcp.server.mcpserver import MCPServer
from forge.tools.math_calculate import evaluate
server = MCPServer("bare")
@server.tool()
def math_calculate(expression: str) -> dict[str, Any]:
    "Calculate an arithmetic expression."
    return {"result": evaluate(expression)}
server.run("stdio")
"""


async def measures() -> list[Measure]:
    with tempfile.TemporaryDirectory() as folder:
        os.makedirs(f"{folder}/workspace")
        serve = ("-c", OURS, "serve", "--workspace", f"{folder}/workspace")
        return [
            Measure("serve: a call over stdio", "the SDK's own server", *await _both(serve, "auto"), "µs", 1.3),
            Measure(
                "serve: the same after a handshake", "the SDK's own server", *await _both(serve, "legacy"), "µs", 1.3
            ),
        ]


async def _both(serve: tuple[str, ...], mode: str) -> tuple[float, float]:
    """Medians of single calls, the two servers in turns."""
    from mcp import Client, StdioServerParameters

    def started(*arguments: str) -> Client:
        return Client(StdioServerParameters(command=sys.executable, args=list(arguments)), mode=mode)

    async with started("-c", BARE) as bare, started(*serve) as ours:
        seconds: tuple[list[float], list[float]] = ([], [])
        for one in (_calls(bare), _calls(ours)):
            await one(CALLS)  # what is loaded on first use is loaded
        for _ in range(ROUNDS):
            for kept, one in zip(seconds, (_calls(bare), _calls(ours)), strict=True):
                kept.extend(await one(CALLS))
        floor, measured = (statistics.median(kept) * 1e6 for kept in seconds)
        return floor, measured


_numbers = itertools.count()


def _calls(client: Client) -> Callable[[int], Awaitable[list[float]]]:
    async def timed(count: int) -> list[float]:
        found = []
        for _ in range(count):
            number = next(_numbers)  # the same call again and again would look like a model that goes in circles
            started = time.perf_counter()
            answer = await client.call_tool("math_calculate", {"expression": f"{number} + 1"})
            found.append(time.perf_counter() - started)
            assert answer.structured_content == {"result": number + 1}, answer
        return found

    return timed
