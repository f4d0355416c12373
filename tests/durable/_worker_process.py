"""A worker in a process of its own, for tests: its model counts, and its tools write down that they ran.

A prompt is JSON: `{"tool": "note", "calls": 3, "seconds": 0.1, "file": "…", "name": "…"}`. `note` must not be repeated,
`look` may be; each writes `name number pid` when it begins, and the same with `done` when it ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from forge.agent.agent import Agent
from forge.core.messages import Message, ToolCall
from forge.core.provider import ModelRequest
from forge.core.tool import tool
from forge.durable.engine.agents import prepare_for_worker
from forge.durable.engine.queues import QueueLimits
from forge.durable.worker import Worker, WorkerSettings
from forge.permissions.questions import approve_all


def _line(file: str, *words: object) -> None:
    with open(file, "a") as stream:  # one write: lines of several processes do not mix
        stream.write(" ".join(map(str, words)) + "\n")


def _is_held(file: str, number: int) -> bool:
    """`Fleet.hold` says which calls wait."""
    try:
        return Path(f"{file}.held").read_text() in ("all", str(number))
    except FileNotFoundError:
        return False


async def _work(name: str, number: int, seconds: float, file: str) -> str:
    _line(file, name, number, os.getpid())
    while _is_held(file, number):  # noqa: ASYNC110 - another process releases it
        await asyncio.sleep(0.02)
    await asyncio.sleep(seconds)
    _line(file, name, number, os.getpid(), "done")
    return f"{number} noted"


@tool(permissions={"write"})
async def note(name: str, number: int, seconds: float, file: str) -> str:
    """Write a line into the file of this test, then wait for some seconds."""
    return await _work(name, number, seconds, file)


@tool(idempotent=True)
async def look(name: str, number: int, seconds: float, file: str) -> str:
    """Write a line into the file of this test, then wait for some seconds."""
    return await _work(name, number, seconds, file)


@tool(idempotent=True)
async def block(name: str, number: int, seconds: float, file: str) -> str:
    """Keep the whole event loop from doing anything for some seconds."""
    _line(file, name, number, os.getpid())
    time.sleep(seconds)
    return "blocked"


class Counting:
    """Asks for one call a turn, as many as the prompt wants, then says which workers it saw."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
        said = list(request.messages)
        order = json.loads(next(message.text for message in said if message.role == "user"))
        done = sum(1 for message in said if message.role == "tool")
        if done >= order["calls"]:
            unknown = sum("unknown" in message.text for message in said if message.role == "tool")
            yield Message("assistant", f"{done} calls, {unknown} unknown")
            return
        arguments = {"number": done + 1, **{name: order[name] for name in ("name", "seconds", "file")}}
        yield Message("assistant", "", tool_calls=(ToolCall(order["tool"], arguments, f"c{done + 1}"),))


def subject(name: str = "main") -> Agent:
    return prepare_for_worker(Agent(Counting(), tools=[note, look, block], approve=approve_all, name=name))


async def main(database: str, settings: dict[str, Any]) -> None:
    grace = settings.pop("grace", 20.0)
    limits = {name: QueueLimits.of(name, entry) for name, entry in settings.pop("limits", {}).items()}
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    agents = [subject(name) for name in settings.pop("agents", ["main"])]
    async with Worker(database, agents, WorkerSettings(limits=limits, **settings)) as worker:
        print("ready", worker.id, flush=True)
        await ended.wait()
        print("drained" if await worker.drain(grace) else "left", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}))
