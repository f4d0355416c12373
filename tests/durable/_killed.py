"""A worker process for tests of being killed: `python _killed.py DATABASE WORKER DIRECTORY`.

The model's script is the conversation's length; the tools write down that they ran, and kill the process when told.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from forge.agent.agent import Agent
from forge.core.context import Scope, ToolContext
from forge.core.messages import Message, ToolCall
from forge.core.provider import ModelRequest
from forge.core.registry import ToolRegistry
from forge.core.result import ToolResult
from forge.core.tool import tool
from forge.durable.engine.agents import prepare_for_worker
from forge.durable.engine.engine import Engine, make_context
from forge.durable.engine.segment import segment_workflow
from forge.durable.store import RunStore
from forge.models.scripted import Scripted
from forge.permissions.questions import Answer, PermissionRequest
from forge.tools.run_code import RunCode

DIRECTORY = Path(sys.argv[3])


def note(what: str) -> None:
    with (DIRECTORY / "log").open("a") as file:
        file.write(f"{what}\n")


def die(where: str) -> None:
    """Once: whoever comes after finds the mark."""
    if (DIRECTORY / f"die-{where}").exists():
        (DIRECTORY / f"die-{where}").unlink()
        os.kill(os.getpid(), signal.SIGKILL)


@tool(idempotent=True)
def look(name: str) -> str:
    """Look at something, which may be repeated."""
    note(f"look {name}")
    die(f"look-{name}")
    return f"saw {name}"


@tool(permissions={"write"})
def pay(ctx: ToolContext, name: str) -> str:
    """Pay somebody, which must not be repeated."""
    die(f"before-{name}")
    note(f"pay {name} {ctx.key}")
    die(f"pay-{name}")
    return f"paid {name}"


@tool(permissions={"write"})
async def begin(ctx: ToolContext) -> ToolResult:
    """Begin something that goes on in the background, for as long as this process is to be killed."""
    note("begin -")

    async def work() -> str:
        while list(DIRECTORY.glob("die-*")):  # noqa: ASYNC110 - whoever removes them is about to kill us
            await asyncio.sleep(0.01)
        return "the work is done"

    return ctx.background(work(), "it has begun")


SCRIPT = """
import asyncio, random, time
seen = []
for name in "abcd":
    seen.append(await look(name))
seen += await asyncio.gather(*[look(name) for name in "efg"])
seen.append(await pay("h"))
seen += [await look(name) for name in "ij"]
", ".join([*seen, str(random.random()), str(time.time())])
"""
LOOK_C = ToolCall("look", {"name": "c"}, "look-c")
SCRIPTS = {
    "go": [
        [ToolCall("look", {"name": "a"}, "look-a"), ToolCall("look", {"name": "b"}, "look-b")],
        [ToolCall("pay", {"name": "a"}, "pay-a")],
        [ToolCall("pay", {"name": "b"}, "pay-b"), LOOK_C],
    ],
    "begin": [[ToolCall("begin", {}, "begin")], [LOOK_C]],
    "script": [[ToolCall("run_code", {"code": SCRIPT}, "script")]],
}


def turn(request: ModelRequest) -> Message:
    said = sum(message.role == "assistant" for message in request.messages)
    note(f"model {said}")
    die(f"model-{said}")
    prompt, *heard = [message.text for message in request.messages if message.role == "user"]
    calls = SCRIPTS[prompt]
    if said < len(calls):
        return Message("assistant", f"turn {said}", tool_calls=tuple(calls[said]))
    told = [message.text for message in request.messages if message.role == "tool"] + heard
    return Message("assistant", " | ".join(told))


async def approve(request: PermissionRequest) -> Answer:
    """A person who says yes to everything, if the process lives long enough."""
    name = request.arguments.get("name", "")
    die(f"asking-{name}")
    await asyncio.sleep(0)
    die(f"asked-{name}")
    return Answer.ONCE


async def main() -> None:
    registry = ToolRegistry([look, pay, begin])
    registry.add(RunCode(registry))
    agent = Agent(Scripted(*[turn] * 20), tools=registry, approve=approve)
    agents = [prepare_for_worker(agent, Scope(workspace=DIRECTORY))]
    context = make_context(RunStore(sys.argv[1]), agents, worker=sys.argv[2])
    async with Engine(context, segment_workflow) as engine:
        for lost in sys.argv[4:]:
            await asyncio.to_thread(engine.hand_back, lost)
        for run in engine.store.list():
            if run.status == "queued":
                await engine.context.start_segment(run)
        while any(not run.is_over for run in engine.store.list()):  # noqa: ASYNC110 - the end is in the database
            await asyncio.sleep(0.05)


asyncio.run(main())
