"""Programs through `bash`: a small one, many at once, and a gigabyte of output."""

from __future__ import annotations

import asyncio
import atexit
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path

from benchmarks.timing import Measure, median_pair
from forge import Scope, ToolCall, rules
from forge.pipeline import standard_executor
from forge.tools.bash import Bash

ROUNDS = 7
CALLS = 40
MANY = 200
NAPS = 3  # rounds of them
GIGABYTE = 1 << 30

_folder = Path(tempfile.mkdtemp())
atexit.register(shutil.rmtree, _folder)
_different = count()  # the same call with the same result over and over would rightly be stopped


async def measures() -> list[Measure]:
    small = await _compared(_bare_echo, _echo, ROUNDS)
    naps = await _compared(_bare_naps, _naps, NAPS)
    flood = await _compared(_bare_flood, _flood, 3)
    return [
        Measure("bash: echo hi", "subprocess.run", *small, "ms", 2.0),
        Measure(f"bash: {MANY} × sleep 0.1 at once", "asyncio subprocesses", *naps, "ms", 3.0),
        Measure("bash: 1 GB of output", "a plain pipe", *flood, "ms", 2.0),
        Measure("bash: memory for 1 GB of output", "", 0.0, _memory_of_a_flood(), "MB", 64.0, absolute=True),
    ]


async def _compared(
    floor: Callable[[], Awaitable[float]], ours: Callable[[], Awaitable[float]], rounds: int
) -> tuple[float, float]:
    await floor(), await ours()
    pairs = [(await floor(), await ours()) for _ in range(rounds)]
    return median_pair(pairs)


def _calls(sandbox: str = "off") -> Callable[[str], Awaitable[str]]:
    executor = standard_executor([Bash(sandbox=sandbox)], policy=rules("allow execute"))
    scope = Scope(workspace=_folder)  # an agent has one for all its calls

    async def call(command: str) -> str:
        result = await executor.execute(ToolCall("bash", {"command": command}), scope)
        assert result.success, result.for_llm
        return result.for_llm

    return call


async def _bare_echo() -> float:
    started = time.perf_counter()
    for _ in range(CALLS):
        line = f"echo hi {next(_different)}"
        subprocess.run(["bash", "-c", line], capture_output=True, check=True)
    return (time.perf_counter() - started) / CALLS * 1e3


async def _echo() -> float:
    call = _calls()
    await call("true")
    started = time.perf_counter()
    for _ in range(CALLS):
        number = next(_different)
        assert await call(f"echo hi {number}") == f"hi {number}"
    return (time.perf_counter() - started) / CALLS * 1e3


async def _bare_naps() -> float:
    async def nap() -> None:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec("bash", "-c", "sleep 0.1", stdout=pipe, stderr=pipe)
        await process.communicate()

    started = time.perf_counter()
    await asyncio.gather(*(nap() for _ in range(MANY)))
    return (time.perf_counter() - started) * 1e3


async def _naps() -> float:
    call = _calls()
    started = time.perf_counter()
    await asyncio.gather(*(call("sleep 0.1") for _ in range(MANY)))
    return (time.perf_counter() - started) * 1e3


async def _bare_flood() -> float:
    started = time.perf_counter()
    with subprocess.Popen(["bash", "-c", f"yes | head -c {GIGABYTE}"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        while os.read(process.stdout.fileno(), 1 << 16):
            pass
    return (time.perf_counter() - started) * 1e3


async def _flood() -> float:
    call = _calls()
    started = time.perf_counter()
    assert "lines left out" in await call(f"yes | head -c {GIGABYTE}")
    return (time.perf_counter() - started) * 1e3


def _memory_of_a_flood() -> float:
    """Megabytes that a gigabyte of output adds to the most a process ever held."""
    done = subprocess.run([sys.executable, "-m", "benchmarks.programs"], stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout)


async def _flooded() -> float:
    await _calls()("echo warm")
    before = _peak()
    await _flood()
    return _peak() - before


def _peak() -> float:
    """Megabytes, the most that were ever held at once."""
    if sys.platform != "linux":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 / 1024
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    print(asyncio.run(_flooded()))
