"""Runs shell lines on a layer, and compares trees: content, modes, time stamps, links and attributes."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from forge.process.environment import shell_environment
from forge.process.running.output import OutputPlan
from forge.process.running.run import FinishedProgram, run
from forge.process.running.trial import TrialTier, explain_unusable, find_trial
from forge.process.sandbox import Confinement
from forge.workspace.effects import Effects
from forge.workspace.trial import TrialLayer, find_places, open_layer

ENVIRONMENT = {**shell_environment(), "GIT_AUTHOR_DATE": "2026-01-01T00:00:00", "PYTHONDONTWRITEBYTECODE": "1"}


def tier_of(workspace: Path, *others: Path) -> TrialTier:
    confinement = Confinement(workspace=workspace, writable=others, sandbox="auto")
    return find_trial(confinement, find_places([workspace, *others]))


def layer_over(workspace: Path, *others: Path, how: str = "") -> TrialLayer:
    found = tier_of(workspace, *others)
    if not found.how or found.place is None:
        pytest.skip(f"NOT TESTED: no trial is possible here: {found.problem}")
    return open_layer(workspace, [workspace, *others], how or found.how, found.place)


def try_way(how: str, workspace: Path) -> str:
    """Returns why a kind of layer cannot be used here; "" if it can."""
    return explain_unusable(how, [str(workspace)], find_places([workspace])[0])


async def in_layer(layer: TrialLayer, line: str, confinement: Confinement | None = None) -> FinishedProgram:
    confinement = confinement or Confinement(
        workspace=layer.workspace, writable=tuple(Path(one) for one in layer.roots if one != str(layer.workspace))
    )
    return await in_sandbox(line, replace(confinement, layers=layer.mounts))


async def in_sandbox(line: str, confinement: Confinement) -> FinishedProgram:
    return await run(
        ["bash", "-c", line],
        cwd=confinement.workspace,
        env=ENVIRONMENT,
        timeout=120,
        output=OutputPlan(merge=True),
        confinement=confinement,
    )


async def try_line(
    workspace: Path, line: str, others: Sequence[Path] = (), how: str = ""
) -> tuple[TrialLayer, Effects, FinishedProgram]:
    layer = layer_over(workspace, *others, how=how)
    done = await in_layer(layer, line)
    return layer, layer.effects(done.output, processes=done.killed), done


def kinds(effects: Effects) -> dict[str, str]:
    return {one.shown: one.kind for one in effects.files}


def tree(root: Path, *, times: bool = False) -> dict[str, tuple[object, ...]]:
    """Returns what is in a tree, without Forge's own state. `times`: with time stamps, as only an untouched one has."""
    found: dict[str, tuple[object, ...]] = {}
    for folder, folders, files in os.walk(root):
        for name in (".forge",) if folder == str(root) and ".forge" in folders else ():
            folders.remove(name)
        for name in (".", *folders, *files):
            path = os.path.join(folder, name)
            try:
                status = os.lstat(path)
            except PermissionError:  # in a folder that an ordinary user may list, and not enter
                found[os.path.normpath(os.path.relpath(path, root))] = ("unreadable",)
                continue
            kind = stat.S_IFMT(status.st_mode)
            content = ""
            if kind == stat.S_IFREG:
                content = hashlib.sha256(Path(path).read_bytes()).hexdigest()
            elif kind == stat.S_IFLNK:
                content = os.readlink(path)
            attributes = tuple(sorted((one, os.getxattr(path, one, follow_symlinks=False)) for one in _names(path)))
            key = os.path.normpath(os.path.relpath(path, root))
            found[key] = (kind, stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid, content, attributes)
            if times and key != ".":
                found[key] += (status.st_mtime_ns, status.st_ctime_ns, status.st_nlink, status.st_ino)
    return found


def _names(path: str) -> list[str]:
    return [one for one in os.listxattr(path, follow_symlinks=False) if one.startswith(("user.", "trusted."))]
