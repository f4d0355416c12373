"""A tool of somebody else's server: that it is new, that a person allowed it, and what changed since."""

from __future__ import annotations

import sys

from tests.console.conftest import running_console, script

SERVER = """
import json, sys
word = open(sys.argv[1]).read()
schema = {"type": "object", "properties": {"who": {"type": "string"}}, "required": ["who"]}
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    told = {}
    if asked["method"] == "initialize":
        told = {"protocolVersion": asked["params"]["protocolVersion"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "g", "version": "1"}}
    elif asked["method"] == "tools/list":
        told = {"tools": [{"name": "greet", "description": f"Greets {word} by name.", "inputSchema": schema}]}
    elif asked["method"] == "tools/call":
        told = {"content": [{"type": "text", "text": "hello " + asked["params"]["arguments"]["who"]}]}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": told}), flush=True)
"""


async def test_a_pin_is_shown_with_what_changed_since_it_was_made(tmp_path):
    (tmp_path / "server.py").write_text(SERVER)
    (tmp_path / "word").write_text("politely")
    arguments = f"[{tmp_path / 'server.py'}, {tmp_path / 'word'}]"
    config = tmp_path / "forge.yaml"
    config.write_text(f"mcpServers:\n  g: {{command: {sys.executable}, args: {arguments}, sandbox: auto}}\n")
    async with running_console(tmp_path, config=str(config), model=script(tmp_path, "Hi.")) as console:
        tool = await console.get("/api/tools/g__greet")
        assert (tool["source"], tool["pin"]["state"], tool["pin"]["diff"]) == ("mcp:g", "new", "")
        run = (await console.post("/api/tools/g__greet/call", {"arguments": {"who": "Ada"}}, 201))["run"]
        question = await console.question()
        assert "Greets politely by name." in question["shown"]
        await console.post(f"/api/questions/{question['id']}/answer", {"kind": "once"})
        assert (await console.run_is(run["id"], "finished"))["text"] == "hello Ada"
        assert (await console.get("/api/tools/g__greet"))["pin"]["state"] == "pinned"
    (tmp_path / "word").write_text("rudely")
    async with running_console(tmp_path, config=str(config), model=script(tmp_path, "Hi."), works=False) as console:
        pin = (await console.get("/api/tools/g__greet"))["pin"]
        assert (pin["state"], pin["server"], bool(pin["approved"])) == ("changed", "mcp:g", True)
        assert "-  Greets politely by name." in pin["diff"]
        assert "+  Greets rudely by name." in pin["diff"]
        (listed,) = [one for one in (await console.get("/api/tools"))["tools"] if one["name"] == "g__greet"]
        assert listed["pin"] == "changed"
