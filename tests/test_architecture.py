"""Imports only point down, and listing tools loads nothing heavy."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import forge

ROOT = Path(__file__).parents[1]
CONTRACTS = "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True, no_logo=True))"
LISTING = """
from forge.core.registry import ToolRegistry
from forge.tools import register_all
registry = ToolRegistry()
register_all(registry)
assert "math_calculate" in registry
assert all(spec.name and spec.description and spec.origin for spec in registry.specs())
assert registry.summaries()
assert registry.enabled({"read"}).count
"""


def test_the_import_contracts_hold():
    found = _python("-c", CONTRACTS)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "0 broken" in found.stdout


@pytest.mark.parametrize("program", ["import forge", LISTING], ids=["import forge", "list tools"])
@pytest.mark.parametrize("heavy", ["asyncio", "pydantic", "pydantic_core", "jsonschema_rs", "docstring_parser"])
def test_nothing_heavy_is_loaded_before_it_is_used(program, heavy):
    found = _python("-c", f"{program}\nimport sys\nassert {heavy!r} not in sys.modules")
    assert found.returncode == 0, found.stderr


FIRST_USE = """
import asyncio
from forge import Agent, Message, ToolCall, rules, tool

@tool
async def add(a: int, b: int) -> int:
    'Add two numbers.'
    return a + b

class Model:
    async def stream(self, request):
        calls = () if request.messages[-1].role == 'tool' else (ToolCall('add', '{"a": 2, "b": 3}', 'c1'),)
        yield Message('assistant', '' if calls else 'done', tool_calls=calls)

result = asyncio.run(Agent(Model(), tools=[add], policy=rules('allow *')).run('go'))
assert (result.reason, result.calls) == ('answer', 1), result
"""
NOT_AT_FIRST_USE = (  # what a run needs only for certain types, rules, tools or errors
    *("docstring_parser", "httpcore2", "httpx2", "jsonschema_rs", "mcp", "platform", "pydantic", "random", "uuid"),
    *("yaml", "forge.agent.quarantine", "forge.agent.subagent", "forge.core.arguments.repair", "forge.core.yaml"),
    *("forge.permissions.policy_files", "forge.permissions.shell", "forge.process", "forge.tools.run_code"),
)


def test_the_first_run_of_an_agent_loads_nothing_that_it_does_not_need():
    found = _python(
        "-c", f"{FIRST_USE}\nimport sys\nprint([one for one in {NOT_AT_FIRST_USE!r} if one in sys.modules])"
    )
    assert (found.stdout.strip(), found.returncode) == ("[]", 0), found.stderr


OPENS_CONNECTIONS = re.compile(
    r"\b(?:Async)?(?:ConnectionPool|HTTPProxy|SOCKSProxy|HTTPConnection|HTTPTransport|Client)\(|\bHTTPSConnection\("
    r"|\b(?:urlopen|urlretrieve|open_connection|create_connection|sock_connect)\(|httpx2\.(?:get|post|request|stream)\("
)


def test_requests_leave_from_one_place():
    """Other programs' clients, such as that of MCP, get a transport of ours."""
    source = Path(forge.__file__).parent
    found = {
        (file.relative_to(source).as_posix(), match[0].rstrip("("))
        for file in source.rglob("*.py")
        for match in OPENS_CONNECTIONS.finditer(file.read_text())
    }
    assert found == {("network/connections.py", "AsyncConnectionPool"), ("mcp/guarded_http.py", "AsyncClient")}
    assert "AsyncClient(\n        transport=transport," in (source / "mcp/guarded_http.py").read_text()


def test_defining_and_registering_a_tool_builds_no_schema():
    found = _python(
        "-c",
        "import sys\n"
        "from forge import tool, ToolRegistry\n"
        "def greet(name: str, times: int = 1) -> str:\n    'Greet.'\n    return name * times\n"
        "ToolRegistry([tool(greet)])\n"
        "assert 'pydantic' not in sys.modules",
    )
    assert found.returncode == 0, found.stderr


def _python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(Path(forge.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=150,
    )
