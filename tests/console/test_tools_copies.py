"""What is copied from a tool's page runs as it is."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import forge
from tests import programs
from tests.console.conftest import running_console, script

HELLO = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
}


def environment(folder: Path) -> dict[str, str]:
    return {"PYTHONPATH": str(Path(forge.__file__).parents[1]), "PATH": "/usr/bin:/bin", "HOME": str(folder)}


def said(command: list[str], folder: Path) -> str:
    ended = programs.run(
        command, cwd=folder, env=environment(folder), text=True, capture_output=True, timeout=150, check=True
    )
    return ended.stdout


def answered(command: list[str], folder: Path, request: dict[str, Any]) -> dict[str, Any]:
    """By a server of MCP that is asked this and nothing else."""
    streams: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with programs.Popen(command, cwd=folder, env=environment(folder), text=True, **streams) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            for one in (HELLO, {"jsonrpc": "2.0", "method": "notifications/initialized"}, request):
                server.stdin.write(f"{json.dumps(one)}\n")
            server.stdin.flush()
            told = (json.loads(line) for line in server.stdout)
            return next(one for one in told if one.get("id") == request["id"])
        finally:
            server.kill()


@pytest.mark.slow
async def test_a_copied_call_runs_from_a_shell_from_python_and_over_mcp(tmp_path, tmp_path_factory):
    (tmp_path / "forge.yaml").write_text("memory: {enabled: true}\n")
    (tmp_path / "it's $HOME.txt").write_text("a line of its own\n")
    (tmp_path / ".forge" / "memory").mkdir(parents=True)
    (tmp_path / ".forge" / "memory" / "MEMORY.md").write_text("The favourite colour is blue.\n")
    config, elsewhere = str(tmp_path / "forge.yaml"), tmp_path_factory.mktemp("elsewhere")
    async with running_console(tmp_path, config=config, model=script(tmp_path, "Hi."), works=False) as console:
        file = await console.post("/api/tools/file_read/copy", {"arguments": {"path": "it's $HOME.txt"}})
        memory = await console.post("/api/tools/memory_search/copy", {"arguments": {"query": "favourite colour"}})
    start = [sys.executable, "-c", "from forge.cli import main; main()"]
    command = f"{shlex.join(start)} {file['cli'].removeprefix('forge ')}"
    assert "a line of its own" in said(["sh", "-c", command], elsewhere)
    assert "blue" in said([sys.executable, "-c", memory["python"]], elsewhere)
    serve = [*start, "serve", "--workspace", str(tmp_path), "--config", config]
    told = answered(serve, elsewhere, json.loads(file["mcp"]))
    assert "a line of its own" in told["result"]["content"][0]["text"]
