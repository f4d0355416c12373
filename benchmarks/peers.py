"""Forge and its peers at the same work, as ratios to the floor: `make bench-peers` prints the table.

Every system has a process of its own and is measured there in turns with the floor. A call is timed from the JSON text
of its arguments to the text the model sees, the objects that carry them included. A loop is timed with a model that
answers at once, from building the agent to its answer, and given a turn.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import platform
import subprocess
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from importlib.metadata import version
from itertools import count
from types import FunctionType
from typing import Any

from pydantic import TypeAdapter, ValidationError, create_model

from benchmarks.calls import Item, Write, add, addition, mistake, order, total
from benchmarks.definitions import bare_definition, search_files
from benchmarks.peer_systems import SYSTEMS, Looping, System, scripted
from benchmarks.timing import per_await, side_by_side_async

SLICE = 20_000  # µs of CPU in a turn: many calls of a quick system, a few of a slow one
LONG = 5_000_000  # µs of CPU: what takes longer is measured once
MEASURES = {
    "call add(a, b) from JSON text": "validate_json + await",
    "call with 20 nested objects": "validate_json + await",
    "invalid arguments to text": "pydantic's error text",
    "define a tool with 5 parameters": "pydantic model and schema",
    "loop: a turn at 100 turns": "validate_json + await + two appends",
    "loop: a turn at 1,000 turns": "validate_json + await + two appends",
    "1,000 definitions, second time": "copy of the list",
}
MARKS = {
    "*": "not validated: a wrong value reaches the function",
    "~": "the same text whatever is wrong",
    "^": "at 300 turns: a turn costs more with every turn before it",
    "–": "has no agent loop",
}
PAIR = TypeAdapter(create_model("Pair", a=(int, ...), b=(int, ...)))
ORDER = TypeAdapter(create_model("Order", items=(list[Item], ...), discount=(float, ...)))

Work = Callable[[], Awaitable[object]]


def main() -> int:
    if len(sys.argv) > 1:
        logging.disable()  # some peers log a refused call to the terminal, which would be most of its time
        print(json.dumps(asyncio.run(measured(sys.argv[1]))))
        return 0
    found = {name: in_a_process(name) for name in SYSTEMS}
    there = {name: one["rows"] for name, one in found.items() if "rows" in one}
    for name in found:
        if name not in there:
            print(f"left out: {name}: {found[name]['reason']}")
    if "forge-tools" not in there:
        return 1
    print(f"CPU time in multiples of the floor's; Python {platform.python_version()}, pydantic {version('pydantic')}\n")
    print("|", *(f"| {title}" for title in ["floor", "µs", *(f"{name} {version(name)}" for name in there)]), "|")
    print("|---" * (len(there) + 3) + "|")
    for (measure, floor), *row in zip(MEASURES.items(), *there.values(), strict=True):
        ratios = [f"{shown(ours / bare)}{mark}" for bare, ours, mark in row]
        print(f"| {' | '.join([measure, floor, f'{row[0][0]:.1f}', *ratios])} |")
    print("", *(f"{mark} {meaning}" for mark, meaning in MARKS.items()), sep="\n")
    return 0


def shown(ratio: float) -> str:
    if math.isnan(ratio):
        return ""
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:,.0f}"


def in_a_process(name: str) -> dict[str, Any]:
    print(f"measuring {name} …", file=sys.stderr)
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.peers", name]
    environment = {**os.environ, "OPENAI_AGENTS_DISABLE_TRACING": "1", "LANGSMITH_TRACING": "false"}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment)
    if ended.returncode:
        return {"reason": (ended.stderr.strip().splitlines() or ["it ended without a word"])[-1]}
    return {"rows": json.loads(ended.stdout.splitlines()[-1])}


async def measured(name: str) -> list[tuple[float, float, str]]:
    system = SYSTEMS[name]()
    first = [*await calls(system), await defining(system)]
    return [*first, *[await looping(system, turns) for turns in (100, 1_000)], await listing(system)]


async def calls(system: System) -> list[tuple[float, float, str]]:
    adding = partial(system.send, await system.serve([system.define(add.run, "add")]), "add")
    totalling = partial(system.send, await system.serve([system.define(total.run, "total")]), "total")
    assert (await adding('{"a": 2, "b": 3}'), await totalling(order(0))) == ("5", "285.0")
    unchecked = "*" if "two3" in await adding('{"a": "two", "b": "3"}') else ""
    unnested = "*" if "285" in await totalling(order(0).replace('"id": 7', '"id": "seven"')) else ""
    vague = "~" if await adding('{"a": "two", "b": 3}') == await adding('{"a": 2, "b": "three"}') else ""
    return [
        (*await compared(over(bare_call(PAIR, add.run), addition), over(adding, addition)), unchecked),
        (*await compared(over(bare_call(ORDER, total.run), order), over(totalling, order)), unnested),
        (*await compared(over(bare_error, mistake), over(adding, mistake)), unchecked + vague),
    ]


async def defining(system: System) -> tuple[float, float, str]:
    async def bare() -> object:
        return bare_definition()

    async def theirs() -> object:
        return system.define(another(), "search_files")

    return (*await compared(bare, theirs), "")


async def looping(system: System, turns: int) -> tuple[float, float, str]:
    if not isinstance(system, Looping):
        return (math.nan, math.nan, "–")
    number = min(turns, system.most_turns)
    run = partial(system.loop, system.define(add.run, "add"), number)
    assert await system.loop(system.define(add.run, "add"), 3) == 3
    bare, theirs = await compared(partial(bare_loop, number), run)
    return (bare / number, theirs / number, "^" if number < turns else "")


async def listing(system: System) -> tuple[float, float, str]:
    """The thousand come last: they make the garbage collector slow."""
    server = await system.serve([system.define(another(), f"search_{number}") for number in range(1_000)])
    built = await system.definitions(server)
    assert len(built) >= 1_000

    async def copy() -> object:
        return list(built)

    return (*await compared(copy, partial(system.definitions, server)), "")


def another() -> FunctionType:
    """`search_files` as a new function: some systems remember what they read of one."""
    made = FunctionType(search_files.__code__, search_files.__globals__, "search_files", search_files.__defaults__)
    made.__doc__, made.__annotations__ = search_files.__doc__, dict(search_files.__annotations__)
    return made


def bare_call(adapter: TypeAdapter[Any], function: Callable[..., Any]) -> Callable[[str], Awaitable[str]]:
    async def call(text: str) -> str:
        return str(await function(**adapter.validate_json(text).__dict__))

    return call


async def bare_loop(turns: int) -> int:
    call = bare_call(PAIR, add.run)
    pool = scripted(turns)

    async def model(messages: list[dict[str, str]]) -> dict[str, str]:
        id, text = next(pool, ("", ""))
        return {"role": "assistant", "content": "" if id else "done", "id": id, "arguments": text}

    messages = [{"role": "user", "content": "go"}, await model([])]
    while messages[-1]["id"]:
        id, text = messages[-1]["id"], messages[-1]["arguments"]
        messages.append({"role": "tool", "id": id, "content": await call(text)})
        messages.append(await model(messages))
    return len(messages)


async def bare_error(text: str) -> str:
    try:
        PAIR.validate_json(text)
    except ValidationError as error:
        return str(error)
    raise AssertionError


def over(call: Callable[[str], Awaitable[str]], write: Write) -> Work:
    """Arguments that never repeat."""
    numbers = count()
    return lambda: call(write(next(numbers)))


async def compared(floor: Work, ours: Work) -> tuple[float, float]:
    once = await per_await(ours, 1)
    if once > LONG:
        return await (await in_slices(floor))(), once
    return await side_by_side_async(await in_slices(floor), await in_slices(ours))


async def in_slices(work: Work) -> Callable[[], Awaitable[float]]:
    await work()  # the first time builds what later ones use
    calls = max(1, min(3_000, int(SLICE / await per_await(work, 5))))
    return lambda: per_await(work, calls)


if __name__ == "__main__":
    sys.exit(main())
