"""A script called as a tool, against its interpreter started by hand with the same JSON and the same isolation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path

from benchmarks.sandboxed import _bare
from benchmarks.timing import Measure, side_by_side_async, wall
from forge import Scope, ToolCall, rules
from forge.pipeline import standard_executor
from forge.process.environment import shell_environment
from forge.process.sandbox import Confinement, Tier, confine_command, problem
from forge.scripts.folder import scripts

RUNS = 10  # in a round; the least counts, because starting a program suffers most from others
SCRIPT = '''
"""
Tool: doubled
Description: Doubles a number.
Input:
  n (int): The number.
"""
import json, sys
print(json.dumps({"n": json.load(sys.stdin)["n"] * 2}))
'''

_different = count()  # the same call with the same result over and over would rightly be stopped


async def measures() -> list[Measure]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(os.path.realpath(folder))
        (root / "tools").mkdir()
        script = root / "tools" / "doubled.py"
        script.write_text(SCRIPT)
        plain = await _compared(_bare_runs(root, [sys.executable, str(script)]), _calls(root, "off"))
        found = [Measure("script: a Python tool", "the interpreter", *plain, "ms", 1.3)]
        if why := problem(Tier.BUBBLEWRAP):
            print(f"script in bubblewrap: NOT MEASURED: {why}", file=sys.stderr)
            return found
        boxed = await _compared(_bare_boxed_runs(root, script), _calls(root, "bubblewrap"))
        return [*found, Measure("script: in bubblewrap", "the interpreter in bubblewrap", *boxed, "ms", 1.3)]


async def _compared(floor: Callable[[], Awaitable[None]], ours: Callable[[], Awaitable[None]]) -> tuple[float, float]:
    async def floor_time() -> float:
        return min([await wall(floor) for _ in range(RUNS)])

    async def our_time() -> float:
        return min([await wall(ours) for _ in range(RUNS)])

    return await side_by_side_async(floor_time, our_time)


def _calls(root: Path, sandbox: str) -> Callable[[], Awaitable[None]]:
    executor = standard_executor(scripts("tools", root=root, sandbox=sandbox).load(), policy=rules("allow execute"))

    async def call() -> None:
        number = next(_different)
        result = await executor.execute(ToolCall("doubled", {"n": number}), Scope(workspace=root))
        assert result.success, result.for_llm
        assert result.data["result"] == {"n": number * 2}

    return call


def _bare_runs(root: Path, argv: list[str]) -> Callable[[], Awaitable[None]]:
    env = {**shell_environment(), "PYTHONIOENCODING": "utf-8"}

    async def run() -> None:
        given = json.dumps({"n": next(_different)}).encode()
        subprocess.run(argv, input=given, capture_output=True, check=True, cwd=root, env=env)

    return run


def _bare_boxed_runs(root: Path, script: Path) -> Callable[[], Awaitable[None]]:
    env = {**shell_environment(), "PYTHONIOENCODING": "utf-8"}
    files, words = _bare(
        confine_command([sys.executable, str(script)], Confinement(workspace=root), Tier.BUBBLEWRAP, env)
    )

    async def run() -> None:
        given = json.dumps({"n": next(_different)}).encode()
        opened = {f"{{{name}}}": os.open(path, os.O_RDONLY) for name, path in files.items()}  # each read to its end
        argv = [str(opened.get(one, one)) for one in words]
        passed = list(opened.values())
        subprocess.run(argv, input=given, capture_output=True, check=True, cwd=root, env=env, pass_fds=passed)
        for one in passed:
            os.close(one)

    return run
