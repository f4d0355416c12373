"""A console for its benchmarks, in a process of its own: `python -m benchmarks.console_server WORKSPACE`.

It prints a link and serves until its input ends. `tick 200 3` as a prompt streams 200 pieces of text a second for 3
seconds, each with the moment at which it was said; `work 20 0.05` is 20 calls, one a turn, of a model that takes 0.05
seconds. With `--big NUMBER`, a run of so many events is there from the start.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from forge.console.console_state import ConsoleState, open_project
from forge.console.guard import Entrance, new_key
from forge.console.running_console import link
from forge.console.server import make_app, serve
from forge.core.events import TextDelta
from forge.core.messages import Message, ToolCall
from forge.core.provider import ModelRequest
from forge.durable.store.rows import NewRun, Outcome
from forge.project.project import RunOptions

BIG = "run-big"
LAST = "This is the end of it."
BATCH = 500  # events that are written at once


class Busy:
    """A model that does as it is told, and knows from the history how far it is."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | Message]:
        messages = list(request.messages)
        prompt = next(message.text for message in reversed(messages) if message.role == "user")
        what, *numbers = prompt.split()
        if what == "tick":
            async for part in _ticks(int(numbers[0]), float(numbers[1])):
                yield part
            return
        done = sum(message.role == "assistant" for message in messages)
        await asyncio.sleep(float(numbers[1]))
        yield TextDelta(f"Turn {done}. ")
        if done >= int(numbers[0]):
            yield Message("assistant", f"Turn {done}. Done.")
        else:
            call = ToolCall("math_calculate", {"expression": f"{done} + 1"})
            yield Message("assistant", f"Turn {done}. ", (call,))


async def _ticks(rate: int, seconds: float) -> AsyncIterator[TextDelta | Message]:
    loop = asyncio.get_running_loop()
    started, said = loop.time(), []
    for number in range(int(rate * seconds)):
        await asyncio.sleep(max(0.0, started + number / rate - loop.time()))
        said.append(f"@{time.time() * 1e3:.1f}@ ")
        yield TextDelta(said[-1])
    yield Message("assistant", "".join(said))


def add_big_run(home: ConsoleState, number: int) -> None:
    """As an agent leaves one behind: text, calls with output and results, turns."""
    store = home.runs.store
    store.create(NewRun(id=BIG, prompt="A long day.", messages=(Message("user", "A long day."),), version=home.version))
    store.begin(BIG, 1, "nobody")
    events = list(_day(number))
    for at in range(0, number, BATCH):
        store.add_events(BIG, [(None, one) for one in events[at : at + BATCH]])
    result = {"reason": "answer", "text": LAST, "turns": number // 5, "calls": number // 5}
    said = (Message("assistant", LAST),)
    store.close_segment(BIG, 1, Outcome(status="finished", messages=said, spent={}, result=result))


def _day(number: int) -> Iterator[dict[str, Any]]:
    started = time.time() - number
    made: list[dict[str, Any]] = [{"event": "run_started", "prompt": "A long day."}]
    turn = 0
    while len(made) < number - 2:
        turn += 1
        call = {"id": f"call-{turn}", "name": "bash", "arguments": {"command": f"make part-{turn}"}}
        output = "".join(f"compiling part {turn} of the whole, file {line}\n" for line in range(8))
        result = {
            "id": call["id"],
            "name": "bash",
            "success": True,
            "is_error": False,
            "for_llm": output,
            "title": "make",
        }
        made += [
            {"event": "text_delta", "text": f"Now I turn to part {turn}, which needs a look at its files.\n"},
            {"event": "tool_call_start", "call": call},
            {"event": "tool_output_chunk", "call": call, "text": output},
            {"event": "tool_call_end", "call": call, "success": True, "seconds": 0.4, "result": result},
            {"event": "turn_finished", "turn": turn, "usage": {"input": 900, "output": 60, "cached": 0}},
        ]
    made = made[: number - 2]
    usage = {"input": 900 * turn, "output": 60 * turn, "cached": 0}
    over = {"reason": "answer", "turns": turn, "calls": turn, "usage": usage, "cost": None, "error": None}
    made += [{"event": "text_delta", "text": LAST}, {"event": "run_finished", "text": LAST, **over}]
    for seq, one in enumerate(made):
        yield {"ts": started + seq, "seq": seq, "session": BIG, "agent": "main", **one}


async def main(workspace: Path, big: int) -> None:
    script = workspace / "script.json"
    script.write_text(json.dumps(["Hello."]), encoding="utf-8")
    home = open_project(RunOptions(workspace=str(workspace)), model=f"scripted:{script}")
    home.agent.provider = Busy()
    entrance = Entrance(new_key(), "benchmark")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        async with home.opened():
            if big:
                await asyncio.to_thread(add_big_run, home, big)
            ready = asyncio.Event()
            serving = asyncio.create_task(serve(make_app(home, entrance, port), home, listening, ready.set))
            await ready.wait()
            print(link(port, entrance), flush=True)
            await asyncio.to_thread(sys.stdin.read)
            serving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await serving


if __name__ == "__main__":
    os.environ["XDG_DATA_HOME"] = os.environ["XDG_CONFIG_HOME"] = str(Path(sys.argv[1]) / "home")
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[sys.argv.index("--big") + 1]) if "--big" in sys.argv else 0))
