"""A shell line in a sandbox, against bubblewrap with the same arguments; and on the layer of a trial."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from benchmarks.timing import Measure, per_call, side_by_side, side_by_side_async, wall
from forge.process.running.output import OutputPlan
from forge.process.running.run import run
from forge.process.running.trial import find_trial
from forge.process.sandbox import Confinement, Tier, bubblewrap, confine_command, problem
from forge.workspace.trial import find_places, open_layer

LINE = ["/bin/bash", "-c", "echo hi"]
RUNS = 10  # in a round; the least counts, because starting a program suffers most from others


async def measures() -> list[Measure]:
    if why := problem(Tier.BUBBLEWRAP):
        print(f"sandboxed: NOT MEASURED: bubblewrap cannot be used here: {why}", file=sys.stderr)
        return []
    with tempfile.TemporaryDirectory() as folder:
        bare = Measure("bash echo hi in bubblewrap", "bare bubblewrap", *await _against_bare(Path(folder)), "ms", 1.3)
    with tempfile.TemporaryDirectory() as folder:
        return [bare, *await _trial(Path(folder))]


async def _trial(folder: Path) -> list[Measure]:
    """The limit of the first is 4 ms more than a line that takes 11 ms. The lines follow at once, so that each also
    waits for the removal of the mounts of the one before.
    """
    (workspace := folder / "workspace").mkdir()
    confinement = Confinement(workspace=workspace, sandbox="bubblewrap")
    found = find_trial(confinement, find_places([workspace]))
    if not found.how or found.place is None:
        print(f"sandboxed: NOT MEASURED: there is no trial here: {found.problem}", file=sys.stderr)
        return []
    how, place = found.how, found.place
    env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}

    async def line(confinement: Confinement) -> None:
        done = await run(LINE, cwd=workspace, env=env, timeout=30, confinement=confinement)
        assert done.output == "hi\n", done

    async def tried() -> None:
        layer = open_layer(workspace, [workspace], how, place)
        await line(replace(confinement, layers=layer.mounts))
        layer.discard()

    async def plain_time() -> float:
        return min([await wall(lambda: line(confinement)) for _ in range(RUNS)])

    async def trial_time() -> float:
        return min([await wall(tried) for _ in range(RUNS)])

    lines = await side_by_side_async(plain_time, trial_time)
    layers = {}
    for name, files in (("small", 100), ("large", 100_000)):
        root = folder / name
        for number in range(0, files, 100):
            (root / str(number)).mkdir(parents=True)
            for inner in range(100):
                os.mknod(root / str(number) / str(inner))
        layers[name] = open_layer(root, [root], how, place)
        inside = replace(confinement, workspace=root, layers=layers[name].mounts)
        words = ["/bin/bash", "-c", "for one in 0/{0..9}; do echo new >$one; done"]
        await run(words, cwd=root, env=env, timeout=30, confinement=inside)

    def effects_time(name: str) -> float:
        return per_call(lambda: layers[name].effects(), 20) / 1e3

    effects = side_by_side(lambda: effects_time("small"), lambda: effects_time("large"))
    assert all(len(layer.effects().files) == 10 for layer in layers.values())
    for layer in layers.values():
        layer.discard()
    return [
        Measure(f"the line as a trial ({how})", "bash echo hi in bubblewrap", *lines, "ms", 1.4),
        Measure("effects: 10 of 100,000 files", "10 of 100 files", *effects, "ms", 5.0, absolute=True),
    ]


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
