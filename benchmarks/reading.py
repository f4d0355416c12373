"""Reading files: short ones through the whole gate, and a page far inside one of 1 GB, in little memory."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.timing import Measure, side_by_side_async, wall
from forge import Scope, ToolCall, rules
from forge.core.executor import ToolExecutor
from forge.core.registry import ToolRegistry
from forge.pipeline import standard_executor
from forge.tools.file_read import FileRead

SIZE = 1_000_000_000  # bytes
LINE = 1_000_000
PAGE = 400  # lines
NAME = "large.log"
FILES = 100

_MEMORY = """
import asyncio, sys
from pathlib import Path
from benchmarks.reading import peak, reader
page = asyncio.run(reader(Path(sys.argv[1]))())
print(peak())
"""


async def measures() -> list[Measure]:
    return [await _read_short(20, 5.5), await _read_short(500, 4.5), *await _read_far()]


async def _read_short(lines: int, must: float) -> Measure:
    """Reads files as an agent does: each call asks the policy, notes what was read, and is limited and labelled."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        for number in range(FILES):
            text = "".join(f"line {line} of the file with the number {number}\n" for line in range(lines))
            (folder / f"{number}.txt").write_text(text)
        executor, scope = standard_executor([FileRead()], policy=rules("allow read")), Scope(workspace=folder)
        here, there = count(), count()

        def number_lines(path: Path) -> str:
            return "\n".join(f"{at:6d}\t{line}" for at, line in enumerate(path.read_text().splitlines(), 1))

        async def bare() -> str:
            return await asyncio.to_thread(number_lines, folder / f"{next(there) % FILES}.txt")

        async def ours() -> str:
            number = next(here)
            call = ToolCall("file_read", {"path": f"{number % FILES}.txt"})
            return (await executor.execute(call, scope.in_turn(f"turn {number}"))).for_llm

        assert await ours() == await bare()
        floor, found = await side_by_side_async(lambda: wall(_times(bare)), lambda: wall(_times(ours)))
    each = 1e3 / FILES  # of all of them, in milliseconds
    return Measure(
        f"read a file of {lines} lines", "read and numbered in a thread", floor * each, found * each, "µs", must
    )


def _times(function: Callable[[], Awaitable[str]]) -> Callable[[], Awaitable[None]]:
    async def run() -> None:
        for _ in range(FILES):
            await function()

    return run


async def _read_far() -> list[Measure]:
    with TemporaryDirectory() as name:
        folder = Path(name)
        if shutil.disk_usage(folder).free < 2 * SIZE:
            print(f"no room for a file of 1 GB in {folder}: nothing measured", file=sys.stderr)
            return []
        write(folder / NAME)
        sed, read = _sed(folder / NAME), reader(folder)
        floor, ours = await side_by_side_async(lambda: wall(sed), lambda: wall(read))
        run = subprocess.run([sys.executable, "-c", _MEMORY, folder], check=True, capture_output=True, text=True)
    return [
        Measure("page at line 1,000,000 of 1 GB", "sed -n of the same lines", floor, ours, "ms", 1.5),
        Measure("page at line 1,000,000 of 1 GB: memory", "", 0.0, float(run.stdout), "MB", 64.0, absolute=True),
    ]


def write(path: Path) -> None:
    """Lines of 20 to 140 characters, 80 on average, as logs and sources have them."""
    lines = [b"%07d %s\n" % (number, b"x" * (11 + number * 7919 % 121)) for number in range(100_000)]
    block = b"".join(lines)
    with path.open("wb") as file:
        while file.tell() < SIZE:
            file.write(block[: SIZE - file.tell()])


def reader(folder: Path) -> Callable[[], Awaitable[str]]:
    """Calls of file_read, each for a page of its own: the same one over and over might be remembered."""
    executor = ToolExecutor(ToolRegistry([FileRead()]), [])
    scope = Scope(workspace=folder)
    offsets = count(LINE)

    async def read() -> str:
        offset = next(offsets)
        call = ToolCall("file_read", {"path": NAME, "offset": offset, "limit": PAGE})
        shown = (await executor.execute(call, scope)).for_llm
        assert shown.startswith(f"{offset}\t")
        assert f"[lines {offset}-{offset + PAGE - 1} of at least " in shown
        return shown

    return read


def _sed(path: Path) -> Callable[[], Awaitable[str]]:
    offsets = count(LINE)

    async def read() -> str:
        first = next(offsets)
        last = first + PAGE - 1
        run = subprocess.run(["sed", "-n", f"{first},{last}p;{last}q", path], check=True, capture_output=True)
        shown = run.stdout.decode()
        assert shown.count("\n") == PAGE
        return shown

    return read


def peak() -> float:
    """The most memory this process had, in MB."""
    import resource

    try:  # what getrusage says of a new process includes what its parent had
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1e3
    except (OSError, IndexError, ValueError):
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most / 1e6 if sys.platform == "darwin" else most / 1e3
