"""An MCP server over stdio with one tool, written by hand so that it starts at once."""

from __future__ import annotations

import json
import sys
from typing import Any

SCHEMA = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "lines": {"type": "integer", "default": 0, "maximum": 1000}},
    "required": ["text"],
}


def result_of(method: str, params: dict[str, Any]) -> dict[str, Any]:
    match method:
        case "initialize":
            about = {"name": "say", "version": "1"}
            return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": about}
        case "tools/list":
            return {"tools": [{"name": "say", "description": "Say a text.", "inputSchema": SCHEMA}]}
        case "tools/call":
            given = params.get("arguments") or {}
            lines = given.get("lines", 0)
            times = lines if isinstance(lines, int) and 0 < lines <= 1000 else 1
            return {"content": [{"type": "text", "text": "\n".join([str(given.get("text", ""))] * times)}]}
    return {}


def main() -> None:
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" in message:
            result = result_of(message["method"], message.get("params") or {})
            answer = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result})
            sys.stdout.write(f"{answer}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
