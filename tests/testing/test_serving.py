"""MCP servers for tests, over real streams and real HTTP."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from forge import Agent, Scripted, ToolError, rules
from forge.mcp import mcp
from forge.testing import assert_called, bench, calls, mcp_server, project

BOTH = pytest.mark.parametrize("over", ["stdio", "http"])


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@BOTH
def test_functions_of_the_test_are_called_over_the_wire(over):
    heard = []

    def hear(word: str) -> str:
        """Hear a word."""
        heard.append((word, threading.current_thread() is threading.main_thread()))
        return f"heard {word}"

    with mcp_server(add, hear, over=over, name="sums") as server, bench(server.source()) as made:
        assert made.text("sums__add", a=1, b=2) == "3"
        assert "heard x" in made.text("sums__hear", word="x")
        assert made.failure("sums__add", a=1).kind == "validation_error"
        assert heard == [("x", False)]
        assert_called(server, "add", a=1, b=2)
        assert server.calls.names == ["add", "hear"]
    assert not any(thread.name == "forge-mcp-server" for thread in threading.enumerate())


@BOTH
async def test_an_agent_mounts_it(over):
    model = Scripted(calls("server__add", a=20, b=22), "42.")
    with mcp_server(add, over=over) as server:
        async with Agent(model, tools=[server.source()], policy=rules("allow *")) as agent:
            result = await agent.run("What is 20 + 22?")
    assert_called(result, "server__add", a=20)
    assert result.text == "42."


def test_a_program_that_crashed_is_started_again():
    with mcp_server(add) as server, bench(server.source()) as made:
        assert made.text("server__add", a=1, b=1) == "2"
        server.crash()
        results = [made.call("server__add", a=1, b=2) for _ in range(3)]
        assert any(result.for_llm == "3" for result in results)


def test_after_the_test_nobody_serves():
    with mcp_server(add) as server:
        source = mcp(replace(server.transport, connect_timeout=5), name=server.name)
    with pytest.raises(ToolError, match="server"), bench(source):
        raise AssertionError


@pytest.mark.parametrize("over", ["stdio", pytest.param("http", marks=pytest.mark.slow)])
def test_a_project_names_it(over):
    with mcp_server(add, over=over) as server, project({"forge.yaml": {"mcpServers": {"sums": server.entry}}}) as made:
        done = made.forge("tool", "call", "sums__add", '{"a": 1, "b": 2}', "--config", "forge.yaml", "--yes", "--json")
        assert done.code == 0, done.output + done.errors
        assert done.json["for_llm"] == "3"


def test_what_a_transport_has_not_is_said():
    with pytest.raises(RuntimeError, match="inside `with`"):
        _ = mcp_server(add).command
    with pytest.raises(ValueError, match="stdio or http"):
        mcp_server(add, over="pigeon")  # type: ignore[arg-type]
    with mcp_server(add) as server, pytest.raises(RuntimeError, match="has no url"):
        _ = server.url
