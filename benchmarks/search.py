"""Finding files by a pattern, against a bare walk of the same tree."""

from __future__ import annotations

import os
from itertools import count

from benchmarks.timing import Measure, per_await, per_call, side_by_side_async
from benchmarks.tree import tree
from forge import Scope, ToolCall, rules
from forge.pipeline import standard_executor
from forge.tools.glob_search import GlobSearch


async def measures() -> list[Measure]:
    with tree() as top:
        executor = standard_executor([GlobSearch()], policy=rules("allow read"))
        turns = count()
        scope = Scope(workspace=top)

        async def ours() -> int:
            number = next(turns)  # other arguments each time: the same call over and over would rightly be stopped
            call = ToolCall("glob_search", {"pattern": "**/*.py", "max_results": 50 + number % 100})
            found = await executor.execute(call, scope.in_turn(f"turn {number}"))
            return int(found.data["total"])

        async def floor_time() -> float:
            return per_call(lambda: bare_walk(str(top)), 1)

        async def our_time() -> float:
            return await per_await(ours, 1)

        assert await ours() == len(bare_walk(str(top)))
        floor, found = await side_by_side_async(floor_time, our_time)
    return [Measure("glob **/*.py on 15,000 files", "os.scandir walk", floor / 1e3, found / 1e3, "ms", 2.5)]


def bare_walk(top: str) -> list[str]:
    """The paths alone: no order, no ignore files, and nothing that keeps it inside."""
    found: list[str] = []
    pending = [top]
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                elif entry.name.endswith(".py"):
                    found.append(entry.path)
    return found
