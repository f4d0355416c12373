"""Measures one system in its own environment: `python -m benchmarks.peer_measures NAME`; its last line is JSON.

With `--behaviour` it observes what the system does, and measures nothing.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import statistics
import sys
import time
import traceback
import warnings
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from functools import partial

from benchmarks import peer_floor as floor
from benchmarks.peer_behaviour import observe_behaviour, observe_repairs
from benchmarks.peer_functions import add, another, nap, plain_add, plain_nap
from benchmarks.peer_systems import Call, Script, System, load
from benchmarks.peer_work import observe_work
from benchmarks.timing import side_by_side_async, wall

SLICE = 0.02  # seconds of CPU in a turn: many calls of a quick system, a few of a slow one
LONGEST = 20.0  # seconds of CPU for a run of an agent; it is repeated while all runs take less than ENOUGH
ENOUGH = 5.0
NAP_ROUNDS = 7
UNCHECKED = "*"
VAGUE = "~"

Work = Callable[[], Awaitable[object]]
Send = Callable[[str], Awaitable[str]]


@dataclass
class Row:
    """A measurement: the system's and the floor's, in µs or ms, and what is to be said of it."""

    ours: float | None = None
    floor: float | None = None
    mark: str = ""
    note: str = ""


async def measure(system: System) -> dict[str, Row]:
    rows = await measure_calls(system)
    rows["define a tool with 5 parameters"] = await attempt(measure_defining(system))
    rows |= await measure_loops(system)
    rows["100 async naps of 10 ms in a turn"] = await attempt(measure_naps(system, is_async=True))
    rows["100 plain naps of 10 ms in a turn"] = await attempt(measure_naps(system, is_async=False))
    # last: so many objects slow the garbage collector
    rows["1,000 definitions, second time"] = await attempt(measure_definitions(system))
    return rows


async def attempt(row: Awaitable[Row]) -> Row:
    """A system that cannot do one thing is still measured at the others."""
    try:
        return await row
    except Exception as error:
        traceback.print_exc()
        return Row(note=f"fails: {type(error).__name__}")


async def measure_calls(system: System) -> dict[str, Row]:
    plain = await open_door(system, plain_add)
    adding = await open_door(system, add) if system.takes_async else plain
    summing = await open_door(system, floor.total if system.takes_models else floor.plain_total)
    assert "5" in await plain('{"a": 2, "b": 3}')
    right = f'{{"items": {floor.ITEMS}, "discount": 0.5}}'
    assert "284.5" in await summing(right)
    checked = UNCHECKED if "two3" in await plain('{"a": "two", "b": "3"}') else ""
    deep = UNCHECKED if "284.5" in await summing(right.replace('"id": 7,', '"id": "seven",')) else ""
    vague = VAGUE if await plain('{"a": "two", "b": 3}') == await plain('{"a": 2, "b": "three"}') else ""
    rows = {
        "call, async function": await compare(floor.call(floor.PAIR, add), adding, floor.addition, checked),
        "call, plain function": await compare(floor.plain_call(floor.PAIR, plain_add), plain, floor.addition, checked),
        "call with 20 nested objects": await compare(floor.call(floor.ORDER, floor.total), summing, floor.order, deep),
        "invalid arguments to text": await compare(floor.refusal, adding, floor.mistake, checked + vague),
    }
    if not system.takes_async:
        rows["call, async function"] = Row(note="plain only")
    return rows


async def open_door(system: System, function: Callable[..., object]) -> Send:
    tried = partial(system.send, await system.serve([system.define(function)]), function.__name__)

    async def send(text: str) -> str:
        try:
            return await tried(text)
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    return send


async def compare(bare: Send, theirs: Send, text: Callable[[], str], mark: str) -> Row:
    found = await side_by_side_async(await time_texts(bare, text), await time_texts(theirs, text))
    return Row(found[1], found[0], mark)


async def time_texts(send: Send, text: Callable[[], str]) -> Callable[[], Awaitable[float]]:
    """Microseconds of CPU a call, the texts made before the clock starts."""

    async def timed(number: int) -> float:
        texts = [text() for _ in range(number)]
        gc.collect()
        started = time.process_time()
        for one in texts:
            await send(one)
        return (time.process_time() - started) / number * 1e6

    await timed(5)  # the first ones build what later ones use
    number = max(1, min(3_000, int(SLICE * 1e6 / await timed(10))))
    return partial(timed, number)


async def time_work(work: Work) -> Callable[[], Awaitable[float]]:
    async def timed(number: int) -> float:
        gc.collect()
        started = time.process_time()
        for _ in range(number):
            await work()
        return (time.process_time() - started) / number * 1e6

    await timed(1)
    return partial(timed, max(1, min(3_000, int(SLICE * 1e6 / await timed(2)))))


async def measure_defining(system: System) -> Row:
    async def bare() -> object:
        return floor.bare_definition()

    async def theirs() -> object:
        return system.define(another())

    found = await side_by_side_async(await time_work(bare), await time_work(theirs))
    return Row(found[1], found[0])


async def measure_loops(system: System) -> dict[str, Row]:
    rows: dict[str, Row] = {}
    last = Row()
    for turns in (10, 100, 1_000, 10_000):
        if not system.loops:
            last = Row(note="no loop")
        elif not last.note:  # what was cut or failed before is not tried longer
            last = await measure_loop(system, turns)
        rows[f"loop: a turn at {turns:,} turns"] = last
    return rows


async def measure_loop(system: System, turns: int) -> Row:
    """Microseconds of CPU a turn, from building the agent to its answer; out of time, at the turns it came to."""
    chosen = add if system.takes_async else plain_add
    tools = [system.define(chosen)]
    ours: list[float] = []
    bare: list[float] = []
    left = ENOUGH
    while left > 0 and len(ours) < 5:
        planned = floor.additions(turns, chosen.__name__)
        script = Script(planned, LONGEST)
        gc.collect()
        started = time.process_time()
        try:
            await system.run(tools, script, turns)
        except Exception as error:
            return Row(note=f"fails at {script.made}: {type(error).__name__}")
        spent = time.process_time() - started
        ours.append(spent / script.made * 1e6)
        bare.append(await time_bare_loop(script.made))
        if script.made < turns:
            return Row(ours[-1], bare[-1], note=f"at {script.made:,}")
        left -= spent
        assert str(json.loads(planned[-1][0].text)["a"] + 3) in system.results(script.messages)[-1]
    return Row(statistics.median(ours), statistics.median(bare))


async def time_bare_loop(turns: int) -> float:
    script = Script(floor.additions(turns, add.__name__))
    gc.collect()
    started = time.process_time()
    await floor.loop(script)
    return (time.process_time() - started) / turns * 1e6


async def measure_naps(system: System, is_async: bool) -> Row:
    """Milliseconds on the clock for one turn of an agent."""
    if is_async and not system.takes_async:
        return Row(note="plain only")
    chosen = nap if is_async else plain_nap
    tools = [system.define(chosen)]
    turn = [Call(f"c{number}", chosen.__name__, f'{{"number": {number}}}') for number in range(floor.MANY)]
    script = Script([turn])
    await system.run(tools, script)
    text = "\n".join(system.results(script.messages))
    assert all(str(number) in text for number in range(floor.MANY))

    async def theirs() -> None:
        await system.turn(tools, turn)

    bare = floor.naps if is_async else floor.plain_naps
    await wall(bare), await wall(theirs)
    pairs = [(await wall(bare), await wall(theirs)) for _ in range(NAP_ROUNDS)]
    return Row(statistics.median(ours for _, ours in pairs), statistics.median(bare for bare, _ in pairs))


async def measure_definitions(system: System) -> Row:
    server = await system.serve([system.define(another(f"search_{number}")) for number in range(1_000)])
    built = await system.definitions(server)
    assert len(built) >= 1_000

    async def copy() -> object:
        return list(built)

    found = await side_by_side_async(await time_work(copy), await time_work(partial(system.definitions, server)))
    return Row(found[1], found[0])


async def report(name: str) -> dict[str, object]:
    system = load(name)
    if "--behaviour" not in sys.argv:
        return {"rows": {key: asdict(row) for key, row in (await measure(system)).items()}}
    return {
        "behaviour": await observe_behaviour(system),
        "repair": await observe_repairs(system),
        "work": await observe_work(system),
    }


def main() -> int:
    warnings.simplefilter("ignore")
    logging.disable()  # some log a refused call to the terminal, which would be most of its time
    real = os.dup(1)
    os.dup2(2, 1)  # what a system prints is not a result
    try:
        found = asyncio.run(report(sys.argv[1]))
    except Exception:
        traceback.print_exc()
        return 1
    os.write(real, json.dumps(found).encode() + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
