"""An MCP server with the one tool of the conformance suite: `python say_server.py stdio | http`.

Over stdio it is written by hand, since it is started for every test and the SDK takes a second to import.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from typing import Any

DESCRIPTION = "Say a text, after some seconds, or many lines of it."
SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "seconds": {"type": "number", "default": 0},
        "lines": {"type": "integer", "default": 0},
    },
    "required": ["text"],
}


def over_stdio() -> None:
    turn = threading.Lock()

    def answer(message: dict[str, Any]) -> None:
        line = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result_of(message)})
        with turn:
            print(line, flush=True)

    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            threading.Thread(target=answer, args=(message,), daemon=True).start()


def result_of(message: dict[str, Any]) -> dict[str, Any]:
    params = message.get("params", {})
    match message["method"]:
        case "initialize":
            about = {"name": "say", "version": "1"}
            version = params["protocolVersion"]
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
        case "tools/list":
            return {"tools": [{"name": "say", "description": DESCRIPTION, "inputSchema": SCHEMA}]}
        case "tools/call":
            return {"content": [{"type": "text", "text": said(**params["arguments"])}]}
    return {}


def said(text: str, seconds: float = 0, lines: int = 0) -> str:
    begin(text)
    time.sleep(seconds)
    return "\n".join([text] * lines) if lines else text


def begin(text: str) -> None:
    """As `every_source.begin`, which a program of its own does not import."""
    if text.startswith("/"):
        open(text, "w").close()


def over_http() -> None:
    import asyncio

    import uvicorn
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("say")

    @server.tool(description=DESCRIPTION)
    async def say(text: str, seconds: float = 0, lines: int = 0) -> str:
        begin(text)
        await asyncio.sleep(seconds)
        return said(text, 0, lines)

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        found.listen()
        print(f"http://127.0.0.1:{found.getsockname()[1]}/mcp", flush=True)
        config = uvicorn.Config(server.streamable_http_app(), log_level="critical")
        uvicorn.Server(config).run(sockets=[found])


if __name__ == "__main__":
    over_http() if sys.argv[1] == "http" else over_stdio()
