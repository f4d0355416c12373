"""A worker for the benchmarks of durable runs, in a process of its own: `python -m benchmarks.durable_worker URL DIR`.

It says `ready`, takes nothing before it reads a line, and leaves when its input ends. `look 500` as a prompt is 500
calls, one a turn; `die 500` the same, but the last one kills the first process that runs it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from forge.agent.agent import Agent
from forge.agent.limits import Limits
from forge.core.context import Scope
from forge.core.messages import Message, ToolCall
from forge.core.provider import ModelRequest
from forge.core.tool import tool
from forge.durable.engine import engine, segment
from forge.durable.engine.agents import prepare_for_worker
from forge.durable.worker import Worker, WorkerSettings
from forge.permissions.policy import rules

VERSION = "0"


@tool(idempotent=True)
async def look(number: int) -> str:
    """Look at a number, which may be repeated."""
    return f"{number} was looked at"


@tool(permissions={"write"})
async def put(number: int) -> str:
    """Put a number somewhere, which must not be repeated."""
    return f"{number} was put away"


@tool(permissions={"execute"})
async def sign(number: int) -> str:
    """Sign a number once a person has agreed."""
    return f"{number} was signed"


class Counting:
    """A model that asks for one call a turn, as many as the prompt says."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[Message]:
        name, calls = next(message.text for message in request.messages if message.role == "user").split()
        done = len(request.messages) // 2  # the prompt, then a call and its result each turn
        if done >= int(calls):
            yield Message("assistant", "done")
        else:
            last = done + 1 == int(calls)
            yield Message("assistant", tool_calls=(ToolCall(name, {"number": -1 if last else done}, f"c{done}"),))


def subject(directory: Path) -> Agent:
    @tool(idempotent=True)
    async def die(number: int) -> str:
        """Kill the process that looks at the last number first."""
        if number < 0:
            mark = directory / "died"
            if not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            print("at work", time.time(), flush=True)
        return f"{number} was looked at"

    limits = Limits(turns=1_000_000, calls=0)
    return prepare_for_worker(
        Agent(Counting(), tools=[look, put, sign, die], policy=rules("allow write"), limits=limits),
        Scope(workspace=directory),
    )


def tell_when_a_segment_begins() -> None:
    perform = segment.perform

    async def told(*arguments: Any) -> str:
        print("begun", time.time(), flush=True)
        return await perform(*arguments)

    vars(segment)["perform"] = told


async def main(url: str, directory: Path) -> None:
    if "--tell" in sys.argv:
        tell_when_a_segment_begins()
    if "--idle" in sys.argv:
        engine.BUSY_FOR = 0.2  # as if the last run had ended long ago
    worker = Worker(url, [subject(directory)], WorkerSettings(version=VERSION))
    worker.engine.set_claiming(False)
    async with worker:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        worker.engine.set_claiming(True)
        worker.engine.wake()
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
