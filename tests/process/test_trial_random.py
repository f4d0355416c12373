"""Random command lines: a discarded trial changes nothing, an applied one equals a direct run or says why not."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from forge.process.sandbox import Confinement
from tests.process.trials import in_sandbox, tree, try_line, try_way

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="overlayfs")

NAMES = ("a", "b", "dir", "dir/a", "dir/sub", "dir/sub/c", "other", "other/A", "link", "empty", "new", "dir/new/x")
COMMANDS = (
    "echo {number} >{one}",
    "echo {number} >>{one}",
    "rm -f {one}",
    "rm -rf {one}",
    "mkdir -p {one}",
    "mv -T {one} {two}",
    "mv {one} {two}",
    "cp -a {one} {two}",
    "ln -s {two} {one}",
    "chmod {mode} {one}",
    "touch {one}",
    "sed -i s/a/b/ {one}",
    "truncate -s {number}k {one}",
    "rm -rf {one} && mkdir {one} && echo {number} >{one}/z",
    "mv {one} {one}.aside && mv {one}.aside {one}",
    "mv other/A other/a",
    "rmdir {one}",
    "mkfifo {one}",
    "ln {one} {two}",
    'python3 -c \'import os; os.rename("{one}", "{two}")\'',
    'python3 -c \'import os; os.setxattr("{one}", "user.x", b"{number}")\'',
    "dd if=/dev/zero of={one} bs=1 count=1 seek={number}000000 conv=notrunc status=none",
)
MODES = ("600", "644", "755", "700", "444", "u+x")


def make_tree(root: Path, chance: random.Random) -> None:
    for name in ("a", "b", "dir/a", "dir/sub/c", "other/A"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"a {name}\n" * chance.randrange(1, 500))
    (root / "empty").mkdir()
    (root / "link").symlink_to(chance.choice(("a", "dir", "nowhere")))
    os.setxattr(root / "b", "user.kept", b"1")
    if chance.random() < 0.1:
        os.link(root / "a", root / "dir/linked")


def make_line(chance: random.Random) -> str:
    lines = []
    for number in range(chance.randrange(1, 8)):
        one, two, command = chance.choice(NAMES), chance.choice(NAMES), chance.choice(COMMANDS)
        if command.startswith("cp") and f"{two}/".startswith(f"{one}/"):
            two = "copied"  # a folder into itself: what comes out depends on the order of its files
        lines.append(command.format(one=one, two=two, number=number, mode=chance.choice(MODES)))
    return " ; ".join(lines)


async def compare(folder: Path, seed: int, how: str = "") -> str:
    """Returns "same", or "recognised" where the layer says that it cannot do what the line does."""
    chance = random.Random(seed)
    workspace, direct = folder / f"{seed}", folder / f"{seed}-direct"
    workspace.mkdir(parents=True)
    make_tree(workspace, chance)
    line = make_line(chance)
    subprocess.run(["cp", "-a", str(workspace), str(direct)], check=True)
    before = tree(workspace, times=True)
    layer, effects, done = await try_line(workspace, line, how=how)
    assert tree(workspace, times=True) == before, line
    real = await in_sandbox(line, Confinement(workspace=direct))
    if effects.unsure:
        layer.discard()
        assert tree(workspace, times=True) == before, line
        return "recognised"
    layer.apply()
    layer.discard()
    assert tree(workspace) == tree(direct), f"seed {seed}: {line}\n{done.output}\n{real.output}"
    assert [name for name in os.listdir(workspace) if name.startswith(".forge-tmp")] == []
    shutil.rmtree(workspace, ignore_errors=True)
    shutil.rmtree(direct, ignore_errors=True)
    return "same"


@pytest.mark.parametrize("how", ["", "overlay", "copy", "fuse-overlayfs"])
async def test_a_few_random_lines_are_the_same_or_recognised(tmp_path: Path, how: str) -> None:
    if how and (why := try_way(how, tmp_path)):
        pytest.skip(f"NOT TESTED: {how} cannot be used here: {why}")
    found = [await compare(tmp_path, seed, how) for seed in range(3 if how else 6)]
    assert found.count("same") >= (1 if how else 3), found


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1000, 1200, 20))
@pytest.mark.parametrize("how", ["", "overlay", "copy", "fuse-overlayfs"])
async def test_many_random_lines_are_the_same_or_recognised(tmp_path: Path, start: int, how: str) -> None:
    if how and (why := try_way(how, tmp_path)):
        pytest.skip(f"NOT TESTED: {how} cannot be used here: {why}")
    found = [await compare(tmp_path, seed, how) for seed in range(start, start + 20)]
    assert found.count("same") >= 5, found
