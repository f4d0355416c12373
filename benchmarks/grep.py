"""Searching file contents with ripgrep and without, against bare ripgrep on the same tree."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path

from benchmarks.timing import Measure, side_by_side_async, wall
from benchmarks.tree import tree
from forge import Scope, ToolCall, rules
from forge.pipeline import standard_executor
from forge.process.programs import trusted_program
from forge.tools.grep_search import GrepSearch

PATTERN = r"this file is \d*77\b"


async def measures() -> list[Measure]:
    """Wall time: both use all cores, and whoever called waits."""
    rg = trusted_program("rg")
    if rg is None:
        print("grep is left out: its floor is ripgrep, which is not installed", file=sys.stderr)
        return []
    with tree() as top:
        (top / ".gitignore").write_text("*.pyc\n/out/\n")

        async def bare() -> int:
            command = [rg, "--line-number", "--regexp", PATTERN, "./"]
            return subprocess.run(command, cwd=top, capture_output=True, check=True).stdout.count(b"\n")

        found: list[tuple[float, float]] = []
        for engine in ("rg", "python"):
            ours = _search(top, engine)
            assert await ours() == await bare()
            found.append(await side_by_side_async(lambda: wall(bare), lambda ours=ours: wall(ours)))  # type: ignore[misc]
    return [
        Measure("grep on 15,000 files with rg", "bare rg", *found[0], "ms", 1.3),
        Measure("grep on 15,000 files without rg", "bare rg", *found[1], "ms", 4.0),
    ]


def _search(top: Path, engine: str) -> Callable[[], Awaitable[int]]:
    executor = standard_executor([GrepSearch(engine=engine)], policy=rules("allow read"))
    turns = count()

    async def search() -> int:
        number = next(turns)  # other arguments each time: the same call over and over would rightly be stopped
        call = ToolCall("grep_search", {"pattern": PATTERN, "max_results": 100 + number % 100})
        result = await executor.execute(call, Scope(workspace=top, message_id=f"turn {number}"))
        return int(result.data["total"])

    return search
