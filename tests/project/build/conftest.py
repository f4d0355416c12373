"""A project with a tool of every source, and what is built of it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from forge.project.build.record import Build, BuildOrder
from forge.project.build.stages import BuildError, build

SCRIPT = '''"""
Tool: shout
Description: Say it loudly.

Input:
  text (str): What to say.
"""
import json, sys
from loud import loud

print(loud(json.load(sys.stdin)["text"]))
'''
PETS = """openapi: 3.1.0
info: {title: pets, version: "1"}
servers: [{url: /v1}]
paths:
  /pets:
    get: {operationId: list_pets, summary: List the pets., responses: {"200": {description: ok}}}
"""
SKILL = """---
name: hello
description: How to greet people.
---
Say hello.
"""
SERVER = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    params = message.get("params", {})
    result = {}
    if message["method"] == "initialize":
        about = {"name": "say", "version": "1"}
        result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": about}
    elif message["method"] == "tools/list":
        schema = {"type": "object", "properties": {"text": {"type": "string"}}}
        result = {"tools": [{"name": name, "description": text, "inputSchema": schema} for name, text in TOOLS.items()]}
    elif message["method"] == "tools/call":
        result = {"content": [{"type": "text", "text": params["arguments"]["text"]}]}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""
READY: dict[str, Any] = {
    "agent": {"id": "pets", "version": "1.2.0", "description": "Looks after pets.", "prompt": "Be kind. \u2028é😀"},
    "permissions": {"rules": ["allow read", "deny execute rm *", {"action": "ask", "tool": "http_*"}]},
    "egress": {"mode": "allowlist", "domains": ["api.example.com"]},
    "openapi": {"pets": {"spec": "pets.yaml", "server": "https://api.example.com/v1"}},
    "webhooks": {"notify": {"url": "https://api.example.com/hook", "description": "Tell the team."}},
    "skills": {"paths": ["skills"], "active": ["hello"]},
    "guardrails": {"deny_commands": [{"pattern": "mkfs", "message": "no disks"}]},
    "agents": {"reader": {"prompt": "Read.", "tools": [{"group": "read"}], "limits": {"turns": 3}}},
    "limits": {"turns": 7},
    "tools": [{"group": "read"}, "bash", "read_skill"],  # few, so that a build takes no time
}


class Project:
    """`write` the files of it, `make` what is built of it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def output(self) -> Path:
        return self.root / ".forge-output"

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text, encoding="utf-8")

    def says(self, *without: str, **changes: Any) -> None:
        """forge.yaml: what is ready for production, but for these keys."""
        document = {key: value for key, value in {**READY, **changes}.items() if key not in without}
        self.write("forge.yaml", yaml.safe_dump(document))

    def serves(self, **tools: str) -> dict[str, Any]:
        """An MCP server with these tools, as an entry of forge.yaml."""
        self.write("server.py", f"TOOLS = {tools!r}\n{SERVER}")
        return {"say": {"command": sys.executable, "args": ["server.py"], "sandbox": "auto"}}

    def make(self, **asked: Any) -> Build:
        order = BuildOrder(config=str(self.root / "forge.yaml"), workspace=self.root, output=self.output)
        return build(order._replace(**asked))

    def problems(self, **asked: Any) -> tuple[str, list[str]]:
        """The stage that refused it, and what it said."""
        with pytest.raises(BuildError) as caught:
            self.make(**asked)
        return caught.value.stage, [str(one) for one in caught.value.problems]

    def bytes(self) -> dict[str, bytes]:
        return {str(one.relative_to(self.output)): one.read_bytes() for one in self.output.rglob("*") if one.is_file()}


@pytest.fixture
def new_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Project]:
    """`new_project("name")`: the same files in a directory of that name."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("XDG_CONFIG_HOME", "AGENT_WORKSPACE_ROOT", "FORGE_MODEL"):
        monkeypatch.delenv(name, raising=False)

    def made(name: str) -> Project:
        project = Project(tmp_path / name)
        project.write("tools/shout.py", SCRIPT)
        project.write("tools/loud.py", "def loud(text):\n    return text.upper()\n")
        project.write("pets.yaml", PETS)
        project.write("skills/hello/SKILL.md", SKILL)
        project.write("skills/hello/more/names.txt", "Ada\n")
        project.says()
        return project

    return made


@pytest.fixture
def project(new_project: Callable[[str], Project]) -> Project:
    return new_project("project")
