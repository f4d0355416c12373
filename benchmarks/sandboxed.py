"""A shell line in a sandbox, against bubblewrap started by hand with the same arguments."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.timing import Measure, side_by_side_async, wall
from forge.process.running.output import OutputPlan
from forge.process.running.run import run
from forge.process.sandbox import Confinement, Tier, bubblewrap, confine_command, problem

LINE = ["/bin/bash", "-c", "echo hi"]
RUNS = 10  # in a round; the least counts, because starting a program suffers most from others


async def measures() -> list[Measure]:
    if why := problem(Tier.BUBBLEWRAP):
        print(f"sandboxed: NOT MEASURED: bubblewrap cannot be used here: {why}", file=sys.stderr)
        return []
    with tempfile.TemporaryDirectory() as folder:
        return [Measure("bash echo hi in bubblewrap", "bare bubblewrap", *await _against_bare(Path(folder)), "ms", 1.3)]


async def _against_bare(workspace: Path) -> tuple[float, float]:
    env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    confinement = Confinement(workspace=workspace, sandbox="bubblewrap")
    files, bare = _bare(confine_command(LINE, confinement, Tier.BUBBLEWRAP, env))

    async def floor() -> None:
        opened = {f"{{{name}}}": os.open(path, os.O_RDONLY) for name, path in files.items()}  # each is read to its end
        words = [str(opened.get(one, one)) for one in bare]
        nothing, passed = subprocess.DEVNULL, list(opened.values())
        done = subprocess.run(
            words, cwd=workspace, env=env, stdin=nothing, capture_output=True, pass_fds=passed, check=True
        )
        for one in passed:
            os.close(one)
        assert done.stdout == b"hi\n"

    async def ours() -> None:
        done = await run(
            LINE, cwd=workspace, env=env, output=OutputPlan(merge=True), timeout=30, confinement=confinement
        )
        assert (done.output, done.sandbox) == ("hi\n", "bubblewrap"), done

    async def floor_time() -> float:
        return min([await wall(floor) for _ in range(RUNS)])

    async def our_time() -> float:
        return min([await wall(ours) for _ in range(RUNS)])

    return await side_by_side_async(floor_time, our_time)


def _bare(argv: list[str]) -> tuple[dict[str, str], list[str]]:
    """The files that bubblewrap reads, by option, and its arguments, without the shell that opens those files."""
    start = argv.index(bubblewrap.find_bubblewrap())
    words, opened = argv[start:], dict(re.findall(r"(\d)<(\S+)", argv[2]))
    files: dict[str, str] = {}
    for option in ("--seccomp", "--file"):
        if option in words:
            place = words.index(option) + 1
            files[option], words[place] = opened[words[place]], f"{{{option}}}"
    return files, words
