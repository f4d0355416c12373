"""A worker that offers what its arguments name: `python _placed.py DATABASE DIRECTORY OFFER…`; ends with its input."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from forge.agent.agent import Agent
from forge.core.context import Scope
from forge.core.messages import ToolCall
from forge.core.tool import tool
from forge.durable.engine.agents import prepare_for_worker
from forge.durable.worker import Worker, WorkerSettings
from tests.durable.working import script


@tool(runs_on="gpu", permissions={"write"})
def render(picture: str) -> str:
    """Render a picture where there is a graphics card."""
    with Path("rendered").open("a") as file:
        file.write(f"{picture} {os.getpid()}\n")
    return f"{picture} by {os.getpid()}"


@tool
def here() -> int:
    """Say which process this is."""
    return os.getpid()


def agent() -> Agent:
    calls = [ToolCall("render", {"picture": "cat"}, "r1"), ToolCall("here", {}, "h1")]
    return Agent(script(calls, "done"), tools=[render, here])


async def main() -> None:
    database, directory, *offers = sys.argv[1:]
    subject = prepare_for_worker(agent(), Scope(workspace=Path(directory)))
    async with Worker(database, [subject], WorkerSettings(version="0", offers=offers)):
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
