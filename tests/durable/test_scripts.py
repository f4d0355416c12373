"""Scripts in stored runs: one that waits is a row, and goes on without repeating what it did."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from forge.agent.agent import Agent
from forge.core.messages import ToolCall
from forge.core.registry import ToolRegistry
from forge.core.tool import tool
from forge.durable.engine.wait_tool import wait
from forge.tools.run_code import RunCode
from tests.durable.working import Clock, answered, begun, rested, script, told, working

DAY = 86_400.0
made: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_made() -> None:
    made.clear()


@tool(permissions={"read"})
def look(name: str) -> str:
    """Look at something."""
    made.append(f"look {name}")
    return f"saw {name}"


@tool(permissions={"write"}, target="name")
def pay(name: str) -> str:
    """Pay somebody."""
    made.append(f"pay {name}")
    return f"paid {name}"


def agent_with(code: str) -> Agent:
    registry = ToolRegistry([look, pay, wait])
    registry.add(RunCode(registry))
    return Agent(script(ToolCall("run_code", {"code": code}, "s"), "done"), tools=registry)


SCRIPT = "found = [await look('a')]\nfound.append(await pay('b'))\nfound.append(await look('c'))\n', '.join(found)"


async def test_a_script_that_needs_an_approval_waits_as_a_row_and_goes_on(shared_first: str, tmp_path: Path) -> None:
    async with working(shared_first, agent_with(SCRIPT), tmp_path) as worker:
        await begun(worker)
        run = await rested(worker)
        assert (run.status, run.waits[0].kind, run.waits[0].call) == ("waiting", "approval", "s.2")
        while worker.attempts:  # noqa: ASYNC110 - nobody holds it, once its row says so
            await asyncio.sleep(0.01)
        run = await answered(worker, {"kind": "once"})
        assert run.status == "finished"
        assert told(worker) == ["saw a, paid b, saw c"]
        assert made == ["look a", "pay b", "look c"]


async def test_a_refused_approval_raises_in_the_script(sqlite: str, tmp_path: Path) -> None:
    code = "await look('a')\ntry:\n    await pay('b')\nexcept PermissionError as error:\n    said = str(error)\nsaid"
    async with working(sqlite, agent_with(code), tmp_path) as worker:
        await begun(worker)
        await rested(worker)
        run = await answered(worker, {"kind": "no", "feedback": "not b"})
        assert run.status == "finished"
        assert "not b" in told(worker)[0]
        assert made == ["look a"]


@pytest.mark.slow
async def test_a_script_with_two_approvals_and_a_wait_in_between_repeats_nothing(
    sqlite: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "import time\nbegan = time.time()\nawait pay('a')\nawait wait(seconds=86400.0)\nawait pay('b')\n"
        "'same clock' if began == time.time() else 'another clock'"
    )
    clock = Clock(monkeypatch)
    async with working(sqlite, agent_with(code), tmp_path) as worker:
        await begun(worker)
        await rested(worker)
        run = await answered(worker, {"kind": "once"})
        assert run.waits[0].kind == "time"
        clock.ahead = DAY + 1
        run = await rested(worker, segment=3)
        assert run.waits[0].kind == "approval"
        run = await answered(worker, {"kind": "once"})
        assert run.status == "finished"
        assert told(worker) == ["same clock"]
        assert made == ["pay a", "pay b"]
