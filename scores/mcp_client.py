"""The MCP client that the conformance kit tests: Forge mounts the kit's server, and calls what it offers.

The kit starts `python -m scores.mcp_client URL` and names the scenario in the environment.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from forge import Egress, Scope, ToolCall, ToolRegistry, approve_all, mcp, standard_executor
from forge.core.arguments.example import example_arguments
from forge.core.mount_source import mount_source


async def main(url: str) -> int:
    scenario = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
    registry = ToolRegistry()
    async with mount_source(registry, mcp(url, name="kit", egress=Egress(private=("127.0.0.1", "localhost")))):
        executor = standard_executor(registry, approve=approve_all)
        for name in [one for one in registry if one.startswith("kit__")]:
            call = ToolCall(name, arguments_for(scenario, registry, name), id=name)
            result = await executor.execute(call, Scope(session_id="conformance"))
            print(f"{name}: {result.for_llm[:200]}")
    return 0


def arguments_for(scenario: str, registry: ToolRegistry, name: str) -> dict[str, Any]:
    if name.endswith("add_numbers"):
        return {"a": 5, "b": 3}
    return dict(example_arguments(registry[name].spec.parameters))


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[-1])))
