"""An MCP server with the one tool of the conformance suite: `python say_server.py stdio | http`."""

from __future__ import annotations

import asyncio
import socket
import sys


def main(transport: str) -> None:
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("say")

    @server.tool()
    async def say(text: str, seconds: float = 0, lines: int = 0) -> str:
        """Say a text, after some seconds, or many lines of it."""
        await asyncio.sleep(seconds)
        return "\n".join([text] * lines) if lines else text

    if transport == "stdio":
        server.run("stdio")
        return
    import uvicorn

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        found.listen()
        print(f"http://127.0.0.1:{found.getsockname()[1]}/mcp", flush=True)
        config = uvicorn.Config(server.streamable_http_app(), log_level="critical")
        uvicorn.Server(config).run(sockets=[found])


if __name__ == "__main__":
    main(sys.argv[1])
