"""A server with one tool, `try`, that runs Python code and returns the value of `found`, or the error."""

from __future__ import annotations

import json
import sys
from typing import Any

SCHEMA = {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]}


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    match asked["method"]:
        case "initialize":
            version = asked["params"]["protocolVersion"]
            info = {"name": "tries", "version": "1"}
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            return {"tools": [{"name": "try", "description": "Run it.", "inputSchema": SCHEMA}]}
    names: dict[str, Any] = {}
    try:
        exec(asked["params"]["arguments"]["code"], names)
        text = str(names["found"])
    except Exception as error:
        text = type(error).__name__
    return {"content": [{"type": "text", "text": text}]}


for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("id") is None:
        continue
    if asked["method"] == "server/discover":
        reply: dict[str, Any] = {"error": {"code": -32601, "message": "Method not found"}}
    else:
        reply = {"result": answer(asked)}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **reply}), flush=True)
