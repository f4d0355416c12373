"""Imports a system, runs an agent with one tool call and ends: a fresh process to be timed."""

from __future__ import annotations

import asyncio
import sys

from benchmarks.peer_functions import add, plain_add
from benchmarks.peer_systems import Call, Script, load


async def use(name: str) -> None:
    system = load(name)
    chosen = add if system.takes_async else plain_add
    script = Script([[Call("c1", chosen.__name__, '{"a": 2, "b": 3}')]])
    await system.run([system.define(chosen)], script)
    assert system.results(script.messages)


if __name__ == "__main__":
    asyncio.run(use(sys.argv[1]))
