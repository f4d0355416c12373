"""The pairs of docs/coming-from.md do the same: another framework's program and ours, against one model API."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.model_api import model_api
from tests.test_docs import blocks

ROOT = Path(__file__).parent.parent
BESIDE = ROOT / ".venv-coming-from" / "bin" / "python"
PROGRAMS = {block.title: block for block in blocks("coming-from.md") if block.title.endswith(".py")}
AGENTS = {
    "pydantic_ai_agent.py": "pydantic_ai",
    "openai_agents_agent.py": "agents",
    "langgraph_agent.py": "langgraph",
    "claude_sdk_agent.py": "claude_agent_sdk",
}
OURS = "forge_agent.py"
FIFTY = "support.py"


def python_with(package: str) -> str:
    if importlib.util.find_spec(package):
        return sys.executable
    if BESIDE.exists():
        return str(BESIDE)
    pytest.skip(f"{package} is not installed here: make coming-from installs it")


def write(title: str, directory: Path) -> Path:
    file = directory / title
    file.write_text(PROGRAMS[title].text, encoding="utf-8")
    return file


def run(python: str, title: str, directory: Path) -> str:
    with model_api() as url:
        keys = {"OPENAI_API_KEY": "a-key", "ANTHROPIC_API_KEY": "another-key"}
        addresses = {"OPENAI_BASE_URL": f"{url}/v1", "ANTHROPIC_BASE_URL": url}
        quiet = {"OPENAI_AGENTS_DISABLE_TRACING": "1", "ENABLE_TOOL_SEARCH": "false", "HOME": str(directory)}
        done = subprocess.run(
            [python, str(write(title, directory))],
            cwd=directory,
            env={**os.environ, **keys, **addresses, **quiet},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.timeout(180)
@pytest.mark.parametrize("title", [OURS, *AGENTS])
def test_both_agents_of_a_pair_refund_the_order_after_an_approval(title, tmp_path):
    python = python_with(AGENTS.get(title, "forge"))
    assert run(python, title, tmp_path) == PROGRAMS[title].output


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("title", "package"), [("forge_server.py", "forge"), ("fastmcp_server.py", "fastmcp")])
async def test_both_servers_of_a_pair_answer_a_client_the_same(title, package, tmp_path):
    parameters = StdioServerParameters(command=python_with(package), args=[str(write(title, tmp_path))], cwd=tmp_path)
    async with stdio_client(parameters) as (read, send), ClientSession(read, send) as client:
        await client.initialize()
        found = [
            await client.call_tool(name, {"number": number})
            for name, number in (("find_order", 7), ("refund", 7), ("refund", 8))
        ]
        stored = (await client.read_resource("shop://orders")).contents[0]
    assert [result.is_error for result in found] == [False, False, True]
    assert [getattr(result.content[0], "text", "") for result in found[:2]] == ["paid", "Order 7 is refunded."]
    assert getattr(stored, "text", "") == "{7: 'refunded', 8: 'paid'}"


def test_a_whole_agent_takes_fifty_lines_and_six_names(tmp_path):
    """Type checkers read the same program in tests/typing."""
    program = PROGRAMS[FIFTY].text
    assert program == (ROOT / "tests" / "typing" / "programs" / FIFTY).read_text("utf-8")
    imported = [line.partition(" import ")[2] for line in program.splitlines() if line.startswith("from forge")]
    assert len(program.splitlines()) <= 50
    assert len(", ".join(imported).split(", ")) <= 6
    here = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(write(FIFTY, tmp_path))]
    done = subprocess.run(here, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
