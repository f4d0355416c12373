"""A worker of its own for the chaos: `python -m chaos.worker DATABASE SETTINGS`.

Its model is a function of the conversation: the next turn of the order in the first message, whichever worker asks.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

from forge.agent.agent import Agent
from forge.agent.limits import Limits
from forge.agent.subagent import AgentType
from forge.core.context import Scope, ToolContext
from forge.core.messages import Message, ToolCall
from forge.core.provider import ModelRequest
from forge.core.tool import tool
from forge.durable.engine.agents import prepare_for_worker
from forge.durable.engine.approval import stored_approval
from forge.durable.store import heartbeats as processes
from forge.durable.worker import Worker, WorkerSettings
from forge.permissions.questions import Answer, PermissionRequest, approve_all

LEDGER = "ledger"  # one line for every time that something happened which must not be repeated
SEEN = "seen"  # the same for what may be


@tool(idempotent=True)
async def look(ctx: ToolContext, name: str, seconds: float) -> str:
    """Look at something, which takes a while and may be repeated."""
    await asyncio.sleep(seconds)
    _write(ctx, SEEN, name)
    return f"saw {name}"


@tool(permissions={"write"})
async def pay(ctx: ToolContext, name: str, seconds: float) -> str:
    """Pay somebody, which takes a while and must not be repeated."""
    return await _once(ctx, "paid", name, seconds)


@tool(permissions={"write"})
async def sign(ctx: ToolContext, name: str, seconds: float) -> str:
    """Sign something once a person has agreed, which must not be repeated."""
    return await _once(ctx, "signed", name, seconds)


@tool(permissions={"write"}, runs_on="press")
async def press(ctx: ToolContext, name: str, seconds: float) -> str:
    """Print something on a worker with a press, which must not be repeated."""
    return await _once(ctx, "pressed", name, seconds)


async def _once(ctx: ToolContext, what: str, name: str, seconds: float) -> str:
    await asyncio.sleep(seconds / 2)
    _write(ctx, LEDGER, name)
    await asyncio.sleep(seconds / 2)
    return f"{what} {name}"


def _write(ctx: ToolContext, file: str, name: str) -> None:
    """One write at the end of the file: lines of several processes do not mix, and none is torn by a kill."""
    line = json.dumps({"key": ctx.key, "name": name, "pid": os.getpid()}) + "\n"
    handle = os.open(ctx.scope.workspace / file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(handle, line.encode())
    finally:
        os.close(handle)


class Playing:
    """Does what the first message orders, turn by turn, then says how many calls it heard of."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
        said = list(request.messages)
        order = json.loads(next(message.text for message in said if message.role == "user"))
        turn = sum(message.role == "assistant" for message in said)
        if turn < len(order):
            calls = tuple(ToolCall(tool, arguments, name) for tool, name, arguments in order[turn])
            yield Message("assistant", f"turn {turn}", tool_calls=calls)
        else:
            yield Message("assistant", f"heard of {sum(message.role == 'tool' for message in said)} calls")


async def approve(request: PermissionRequest) -> Answer:
    """Signatures are asked for and stored; all else is fine."""
    return await (stored_approval if request.spec.name == "sign" else approve_all)(request)


def agent() -> Agent:
    kinds = {"helper": AgentType(prompt="Do what is ordered.", tools=("look", "pay"))}
    tools = [look, pay, sign, press]
    return Agent(Playing(), tools=tools, agents=kinds, approve=approve, limits=Limits(seconds=3_600))


async def main(database: str, settings: dict[str, Any]) -> None:
    workspace = Path(settings.pop("workspace"))
    if settings.pop("far", False):
        # as if on a machine of its own: nobody sees that its process has ended
        processes.find_boot = lambda: uuid4().hex
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    agents = [prepare_for_worker(agent(), Scope(workspace=workspace))]
    async with Worker(database, agents, WorkerSettings(**settings)) as worker:
        print("ready", worker.id, flush=True)
        await ended.wait()
        print("drained" if await worker.drain(20) else "left", flush=True)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    asyncio.run(main(sys.argv[1], json.loads(sys.argv[2])))
