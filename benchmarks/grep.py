"""Searching file contents, against bare ripgrep on the same tree."""

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
from forge.process.environment import find_packaged_program
from forge.tools.grep_search import GrepSearch

PATTERN = r"this file is \d*77\b"


async def measures() -> list[Measure]:
    """Wall time: both use all cores, and whoever called waits."""
    rg = find_packaged_program("rg")
    if rg is None:
        print("grep is left out: its floor is ripgrep, which is not installed", file=sys.stderr)
        return []
    with tree() as top:
        (top / ".gitignore").write_text("*.pyc\n/out/\n")

        async def bare() -> int:
            command = [rg, "--line-number", "--regexp", PATTERN, "./"]
            return subprocess.run(command, cwd=top, capture_output=True, check=True).stdout.count(b"\n")

        ours = _search(top)
        assert await ours() == await bare()
        found = await side_by_side_async(lambda: wall(bare), lambda: wall(ours))
    return [Measure("grep on 15,000 files", "bare rg", *found, "ms", 1.3)]


def _search(top: Path) -> Callable[[], Awaitable[int]]:
    executor = standard_executor([GrepSearch()], policy=rules("allow read"))
    turns = count()

    async def search() -> int:
        number = next(turns)  # other arguments each time: the same call over and over would rightly be stopped
        call = ToolCall("grep_search", {"pattern": PATTERN, "max_results": 100 + number % 100})
        result = await executor.execute(call, Scope(workspace=top, message_id=f"turn {number}"))
        return int(result.data["total"])

    return search
