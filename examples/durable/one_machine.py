"""A run whose process is killed twice with -9: it goes on where it was, and nobody is paid twice.

python examples/durable/one_machine.py
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from forge import Agent, DurableAgent, Scripted, ToolCall, approve_all, tool
from forge.core.provider import ModelRequest

TURNS = (
    ToolCall("look_up", {"name": "Ada"}, "look"),
    ToolCall("pay", {"name": "Ada", "amount": 5}, "pay"),
)


def die_once(where: str) -> None:
    """As if somebody pulled the plug: nothing is cleaned up, nothing is said."""
    mark = Path(f"died-{where}")
    if not mark.exists():
        mark.touch()
        print(f"  process {os.getpid()} is killed in {where}", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)


@tool(idempotent=True)
def look_up(name: str) -> str:
    """Look up the account of somebody, which may be repeated."""
    die_once("look_up")
    return f"the account of {name} is 4711"


@tool(permissions={"write"})
def pay(name: str, amount: int) -> str:
    """Pay somebody by name, which must not be done twice."""
    with Path("payments").open("a") as file:
        file.write(f"{name} {amount}\n")
    die_once("pay")
    return f"paid {name} {amount}"


def model(request: ModelRequest) -> ToolCall | str:
    """Says what comes next in the conversation, whichever process asks."""
    said = sum(message.role == "assistant" for message in request.messages)
    heard = [message.text for message in request.messages if message.role == "tool"]
    return TURNS[said] if said < len(TURNS) else f"The last thing I heard is: {heard[-1]}"


async def work() -> None:
    agent = Agent(Scripted(*[model] * 10), tools=[look_up, pay], approve=approve_all)
    async with DurableAgent(agent, "sqlite:///runs.db") as durable:
        result = await durable.run("Pay Ada what we owe her.", run_id="invoice-17")
        print(result.text, flush=True)
        asked = sum(message.role == "assistant" for message in result.messages)
        print(f"{asked} answers of the model, {payments()} payment", flush=True)


def payments() -> int:
    return len(Path("payments").read_text().splitlines())


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        while True:
            print("a process begins, or goes on", flush=True)
            done = subprocess.run([sys.executable, __file__, "work"], cwd=directory)
            if done.returncode != -signal.SIGKILL:
                sys.exit(done.returncode)


if __name__ == "__main__":
    asyncio.run(work()) if sys.argv[1:] == ["work"] else main()
