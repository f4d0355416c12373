"""Killed at any moment while a trial is applied, the tree is as before or as after, never between.

The layer is a copy, which needs no namespaces: only the applying is looked at. The tests start this file as a program
of its own, which forks: in the tests' process there are threads.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from forge.workspace.changes.journal import recover
from forge.workspace.trial import TrialLayer, open_layer
from forge.workspace.trial.scan import COPY
from tests.process.trials import tree
from tests.workspace.test_commit_killed import CALLS, in_child, strays

MORE = ("utime", "setxattr", "chmod", "ftruncate", "listdir", "scandir")


@pytest.mark.parametrize("step", [61, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_at_any_step_all_or_nothing_is_applied(tmp_path: Path, step: int) -> None:
    command = [sys.executable, __file__, str(tmp_path), str(step)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600, env=env)
    assert ended.returncode == 0, ended.stderr[-3_000:]
    outcomes = json.loads(ended.stdout)
    assert outcomes["all"] > 1
    assert outcomes["nothing"] > 3


def prepare(root: Path) -> tuple[TrialLayer, Path, dict[str, Any]]:
    """Returns a layer with changes of every kind, and what the tree is once they are applied."""
    workspace, place = root / "workspace", root / "place"
    place.mkdir(parents=True)
    for name in ("changed", "script", "deleted", "folder/a", "folder/b/c", "was_folder/x", "was_file", "kept/in"):
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_text(f"old {name}")
    layer = open_layer(workspace, [workspace], COPY, place)
    new = Path(layer.mounts[0].upper)
    (new / "changed").write_text("new")
    (new / "script").chmod(0o755)
    (new / "deleted").unlink()
    shutil.rmtree(new / "folder")
    shutil.rmtree(new / "was_folder")
    (new / "was_folder").write_text("a file now")
    (new / "was_file").unlink()
    (new / "was_file" / "deep").mkdir(parents=True)
    (new / "was_file" / "deep" / "x").write_text("a folder now")
    (new / "made" / "below").mkdir(parents=True)
    (new / "made" / "below" / "y").write_text("new")
    os.setxattr(new / "made" / "below" / "y", "user.note", b"1")
    (new / "link").symlink_to("changed")
    (new / "kept").chmod(0o700)
    (new / "large").write_bytes(b"x" * 2_000_000)
    return layer, workspace, tree(new)


def apply_killed(layer: TrialLayer, call: str, number: int) -> None:
    os.fsync = lambda fd: None  # a kill loses nothing that was written, and the disk is slow
    real, count = getattr(os, call), iter(range(10_000))

    def kills(*given: Any, **named: Any) -> Any:
        if next(count) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*given, **named)

    setattr(os, call, kills)
    layer.apply()


def main(root: Path, step: int) -> None:
    outcomes = {"all": 0, "nothing": 0}
    for call in (*CALLS, *MORE):
        for number in range(0, 1_000, step):
            folder = root / f"{call}{number}"
            layer, workspace, after = prepare(folder)
            before = tree(workspace)
            was_killed = in_child(partial(apply_killed, layer, call, number))
            said = recover(workspace)
            now = tree(workspace)
            assert not strays(workspace), (call, number, strays(workspace), said)
            assert now in (before, after), (call, number, said, sorted(now.items() - before.items()))
            outcomes["all" if now == after else "nothing"] += 1
            shutil.rmtree(folder)
            if not was_killed:
                break
    sys.stdout.write(json.dumps(outcomes))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
