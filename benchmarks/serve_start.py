"""The start of `forge serve` in a project with ten sources: five MCP servers, three OpenAPI documents, two scripts.

Counted is the time of the server's own process: on the clock, the start also waits for whatever else runs. The floor is
the import of the MCP SDK's server, which every server that is made with it needs before its first answer.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.timing import Measure, median_pair, process

ROUNDS = 7
SDK = "import mcp.server"
SERVER = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        answers = {
            "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                           "serverInfo": {"name": "bench", "version": "0"}},
            "tools/list": {"tools": [{"name": f"tool_{n}", "inputSchema": {"type": "object"}} for n in range(10)]},
        }
        found = answers.get(message["method"])
        body = {"result": found} if found else {"error": {"code": -32601, "message": "no"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **body}), flush=True)
"""
SCRIPT = '# {{"description": "Say {name}."}}\nprint("{name}")\n'
EXPECTED = 5 * 10 + 3 * 20  # tools of the servers and the documents


async def measures() -> list[Measure]:
    with tempfile.TemporaryDirectory() as folder:
        config = _write_project(Path(folder))
        command = [sys.executable, "-m", "forge", "serve", "--workspace", folder, "--config", config, "--all"]
        rounds = [(process("-c", SDK), *_start(command)) for _ in range(ROUNDS + 1)][1:]  # the first writes bytecode
    floor, answered = median_pair([(floor, answered) for floor, answered, _ in rounds])
    listed = statistics.median(listed for _, _, listed in rounds)
    return [
        Measure("serve: CPU until initialize, ten sources", f"python -c '{SDK}'", floor, answered, "ms", 0.5),
        Measure("serve: CPU until the list of their tools", "", 0.0, listed, "ms", None),
    ]


def _write_project(folder: Path) -> str:
    server = folder / "server.py"
    server.write_text(SERVER)
    (folder / "tools").mkdir()
    for name in ("one", "two"):
        (folder / "tools" / f"{name}.py").write_text(SCRIPT.format(name=name))
    get = {"responses": {"200": {"description": "Fine."}}}
    paths = {f"/thing{n}": {"get": {**get, "operationId": f"thing_{n}", "summary": "A thing."}} for n in range(20)}
    document = {"openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "paths": paths}
    (folder / "api.json").write_text(json.dumps({**document, "servers": [{"url": "https://api.example.com"}]}))
    entries: dict[str, Any] = {
        "mcpServers": {f"s{n}": {"command": sys.executable, "args": [str(server)]} for n in range(5)},
        "openapi": {f"api{n}": {"spec": "./api.json"} for n in range(3)},
    }
    config = folder / "forge.yaml"
    config.write_text(json.dumps(entries))  # JSON is YAML
    return str(config)


def _start(command: list[str]) -> tuple[float, float]:
    """Returns the milliseconds of CPU until `initialize` and until `tools/list` are answered."""
    client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "0"}}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdin is not None

        def ask(number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
            assert process.stdin is not None
            assert process.stdout is not None
            message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            process.stdin.write(json.dumps(message).encode() + b"\n")
            process.stdin.flush()
            while (answer := json.loads(process.stdout.readline())).get("id") != number:
                pass
            return dict(answer["result"])

        ask(0, "initialize", client)
        answered = _spent(process.pid)
        process.stdin.write(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
        tools = ask(1, "tools/list", {})["tools"]
        listed = _spent(process.pid)
        assert len(tools) >= EXPECTED, [one["name"] for one in tools]
        process.stdin.close()
    return answered, listed


def _spent(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) * 1e3 / os.sysconf("SC_CLK_TCK")  # of the program and of the system
