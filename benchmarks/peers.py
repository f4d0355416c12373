"""Forge and its peers at the same work: `make bench-peers` prints the table.

Each system runs in a process of its own and is measured in turns with the floor there; a figure is that ratio.
Timed is what one call takes from the JSON text to the text the model sees, message objects included.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import platform
import subprocess
import sys
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from itertools import cycle
from typing import Any

from pydantic import TypeAdapter, ValidationError, create_model

from benchmarks.calls import Item, add, additions, orders, total
from benchmarks.definitions import bare_definition
from benchmarks.peer_systems import SYSTEMS, Call
from benchmarks.timing import per_await, side_by_side_async

SLICE = 20_000  # µs of CPU in a turn: many calls of a quick system, a few of a slow one
MEASURES = {
    "call add(a, b) from JSON text": "validate_json + await",
    "call with 20 nested objects": "validate_json + await",
    "invalid arguments to text": "pydantic's error text",
    "define a tool with 5 parameters": "pydantic model and schema",
    "1,000 definitions, second time": "copy of the list",
}
PAIR = TypeAdapter(create_model("Pair", a=(int, ...), b=(int, ...)))
ORDER = TypeAdapter(create_model("Order", items=(list[Item], ...), discount=(float, ...)))


def main() -> int:
    if len(sys.argv) > 1:
        logging.disable()  # some peers write a refused call to the terminal, which would be most of its time
        print(json.dumps(asyncio.run(measured(sys.argv[1]))))
        return 0
    found = {name: in_a_process(name) for name in SYSTEMS}
    table = {f"{name} {result['version']}": result for name, result in found.items() if "version" in result}
    print(f"Times the floor of the same process, CPU time, Python {platform.python_version()}; pydantic {version('pydantic')}\n")
    print(f"| | floor | floor's | {' | '.join(table)} |\n|{'---|' * (len(table) + 3)}")
    for row, (measure, floor) in enumerate(MEASURES.items()):
        cells = [f"{shown(ours / bare)}{mark}" for bare, ours, mark in (one["rows"][row] for one in table.values())]
        print(f"| {measure} | {floor} | {found['forge-tools']['rows'][row][0]:.1f} µs | {' | '.join(cells)} |")
    print("\n* not validated: a wrong value reaches the function")
    for name, result in found.items():
        if "version" not in result:
            print(f"left out: {name}: {result['reason']}")
    return 0


def in_a_process(name: str) -> dict[str, Any]:
    print(f"measuring {name} …", file=sys.stderr)
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.peers", name]
    environment = {**os.environ, "OPENAI_AGENTS_DISABLE_TRACING": "1"}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment)
    if ended.returncode:
        return {"reason": (ended.stderr.strip().splitlines() or ["it ended without a word"])[-1]}
    result: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return result


def shown(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:,.0f}"


async def measured(name: str) -> dict[str, Any]:
    system = SYSTEMS[name]()
    adding, totalling = await system.call(add.run), await system.call(total.run)
    assert "3" in await adding(additions()[0])
    assert "285" in await totalling(orders()[0])
    small = "*" if "two3" in await adding('{"a": "two", "b": "3"}') else ""
    nested = "*" if "285" in await totalling(orders()[0].replace('"id": 7', '"id": "seven"')) else ""

    many = await system.definitions([system.define(f"search_{number}") for number in range(1_000)])
    built = await many()
    assert len(built) == 1_000

    async def define() -> object:
        return system.define("search_files")

    async def bare_define() -> object:
        return bare_definition()

    async def copy() -> object:
        return list(built)

    wrong = [json.dumps({"a": f"two {number}", "c": 3}) for number in range(500)]
    return {
        "version": version(name),
        "rows": [
            (*await compared(over(bare_call(PAIR, add.run), additions()), over(adding, additions())), small),
            (*await compared(over(bare_call(ORDER, total.run), orders()), over(totalling, orders())), nested),
            (*await compared(over(bare_error, wrong), over(adding, wrong)), small),
            (*await compared(bare_define, define), ""),
            (*await compared(copy, many), ""),
        ],
    }


def bare_call(adapter: TypeAdapter[Any], function: Callable[..., Any]) -> Call:
    async def call(text: str) -> str:
        return str(await function(**adapter.validate_json(text).__dict__))

    return call


async def bare_error(text: str) -> str:
    try:
        PAIR.validate_json(text)
    except ValidationError as error:
        return str(error)
    raise AssertionError


def over(call: Call, texts: list[str]) -> Callable[[], Awaitable[str]]:
    pool = cycle(texts)
    return lambda: call(next(pool))


async def compared(
    floor: Callable[[], Awaitable[object]], ours: Callable[[], Awaitable[object]]
) -> tuple[float, float]:
    return await side_by_side_async(await in_slices(floor), await in_slices(ours))


async def in_slices(function: Callable[[], Awaitable[object]]) -> Callable[[], Awaitable[float]]:
    await function()  # the first call builds what later ones use
    calls = max(1, min(3_000, int(SLICE / await per_await(function, 5))))
    return lambda: per_await(function, calls)


if __name__ == "__main__":
    sys.exit(main())
