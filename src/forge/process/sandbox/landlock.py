"""Confines a program with Landlock and a system call filter, where no namespaces can be had."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from forge.core.errors import ErrorKind, ToolError
from forge.process.sandbox import landlock_program as _confine
from forge.process.sandbox.command import Command
from forge.process.sandbox.git_settings import git_settings
from forge.process.sandbox.layout import (
    PROCESSORS,
    SETTINGS,
    SYSTEM,
    Confinement,
    Roots,
    inside_any,
    is_inside,
    program_folders,
    roots_of,
)
from forge.process.sandbox.private_folders import private_folder

HOW = "It needs Linux 5.13 or newer with Landlock switched on: lsm=landlock,… on the kernel's command line."

_DEVICES = tuple(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom"))
# Of /proc only what belongs to no process: of the others even a listing would tell how they were started.
_KERNEL = (
    *(f"/proc/{name}" for name in ("cpuinfo", "meminfo", "stat", "loadavg", "uptime", "version", "filesystems", "sys")),
    PROCESSORS,
)
_EXPECTED = ("/etc/magic",)  # programs take it for an error when they see such a file and cannot read it
_PROBE_SECONDS = 20.0


def command(
    argv: Sequence[str], confinement: Confinement, env: Mapping[str, str], *, folder: str = "", status: str = ""
) -> Command:
    """To be started with `env`, in a directory below a root.

    `folder`: private to this run, for the home directory and Git's settings. `status`: the file that is told whether
    the program began.
    """
    if confinement.hidden:
        raise ToolError(
            f'"{confinement.hidden[0]}" cannot be hidden from a program by Landlock',
            ErrorKind.CONFIG,
            "Use bubblewrap, or ask a person first.",
        )
    roots = roots_of(confinement)
    folder = folder or private_folder()
    home, settings = os.path.join(folder, "home"), git_settings(roots.workspace)
    os.makedirs(home, 0o700, exist_ok=True)
    if settings:
        Path(folder, "gitconfig").write_bytes(settings)
    programs = program_folders(env, roots)
    readable = [*SYSTEM, *SETTINGS, *_EXPECTED, *_KERNEL, *programs, folder]
    readable += [path for path, writable in roots.folders if not writable]
    writable = [] if confinement.read_only else [*roots.writable, home]
    words = ["network"] if confinement.network and not confinement.read_only else []
    words += ["mounts"] if _can_mount() else []
    words += ["fixed"] if confinement.read_only else []
    for kind, paths in (("r", readable), ("w", writable), ("d", _DEVICES)):
        for path in paths:
            words += [kind, path]
    words += ["=HOME", str(confinement.home or home), "=PATH", _path(env, roots, programs)]
    words += ["=GIT_CONFIG_SYSTEM", os.path.join(folder, "gitconfig") if settings else os.devnull]
    if not confinement.read_only:
        words += ["t", temporary(roots.workspace)]
    return Command([*_python(), *words, *(("status", status) if status else ()), "--", *argv])


def why_not_run(argv: Sequence[str], exit_code: int, status: bytes, said: str) -> tuple[int, str] | None:
    """Why the program never ran: an error number where it could not be started, and words; None if it ran."""
    if status == _confine.STARTED:
        return None
    last = (said.strip().splitlines() or [f"it ended with exit code {exit_code}"])[-1].removeprefix("forge: ")
    began, _, number = status.partition(b" ")
    return (int(number) if began == _confine.STARTED and number.isdigit() else 0), last


def temporary(workspace: str) -> str:
    """A directory of its own for each workspace: what others keep in /tmp is none of a program's business."""
    name = hashlib.sha256(os.fsencode(workspace)).hexdigest()[:16]
    return os.path.join(tempfile.gettempdir(), f"forge-{os.geteuid()}-{name}")


def _path(env: Mapping[str, str], roots: Roots, programs: list[str]) -> str:
    """Keep the folders that the program may read.

    Landlock hides no name: a shell would find a program in one of the others, and could not start it.
    """
    seen = (*SYSTEM, *programs, *(folder for folder, _ in roots.folders))
    wanted = env.get("PATH", os.defpath).split(os.pathsep)
    kept = [
        one
        for one in wanted
        if not os.path.isabs(one)
        or (inside_any(os.path.realpath(one), seen) and os.access(one, os.R_OK | os.X_OK))
        or any(is_inside(one, folder) for folder, _ in roots.folders)
    ]
    return os.pathsep.join(kept) or os.defpath


def _python() -> list[str]:
    if not sys.executable:
        raise ToolError("the sandbox needs a Python interpreter", ErrorKind.CONFIG, "Install one, or set sandbox: off.")
    # isolated, and without the site's packages: it starts in a moment and needs nothing of ours
    return [sys.executable, "-I", "-S", _confine.__file__]


@cache
def _can_mount() -> bool:
    """Whether everything outside can be mounted read-only: by root, or where user namespaces are permitted."""
    words = ["mounts", "r", "/", "--", "/bin/true"]
    try:
        tried = subprocess.run(
            [*_python(), *words],
            cwd="/",
            env={},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return tried.returncode == 0
