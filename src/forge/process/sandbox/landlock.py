"""Confines a program with Landlock and a system call filter, where namespaces are not available."""

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
from forge.process.sandbox import landlock_program
from forge.process.sandbox.layout import (
    MIB,
    PROCESSORS,
    SETTINGS,
    STATE,
    SYSTEM,
    CommandLine,
    Confinement,
    Roots,
    git_settings,
    is_inside,
    is_inside_any,
    kernel_limits,
    make_private_folder,
    program_folders,
    roots_of,
)

HOW = "It needs Linux 5.13 or newer with Landlock switched on: lsm=landlock,… on the kernel's command line."

_DEVICES = tuple(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom"))
# The parts of /proc that belong to no process: a listing of the others would reveal their command lines.
_KERNEL = (
    *(f"/proc/{name}" for name in ("cpuinfo", "meminfo", "stat", "loadavg", "uptime", "version", "filesystems", "sys")),
    PROCESSORS,
)
_EXPECTED = ("/etc/magic",)  # programs fail if they see such a file and cannot read it
_PROBE_SECONDS = 20.0


def build_command(
    argv: Sequence[str], confinement: Confinement, env: Mapping[str, str], *, folder: str = "", status: str = ""
) -> CommandLine:
    """Builds the command line, to be started with `env` in a directory below a root.

    `folder`: private to this run, for the home directory and Git's settings. `status`: the file that records the start
    of the program.
    """
    if confinement.hidden:
        raise ToolError(
            f'"{confinement.hidden[0]}" cannot be hidden from a program by Landlock',
            ErrorKind.CONFIG,
            "Use bubblewrap, or ask a person first.",
        )
    roots = roots_of(confinement)
    folder = folder or make_private_folder()
    home, settings = os.path.join(folder, "home"), git_settings(roots.workspace)
    os.makedirs(home, 0o700, exist_ok=True)
    if settings:
        Path(folder, "gitconfig").write_bytes(settings)
    programs = program_folders(env, roots)
    readable = [*SYSTEM, *SETTINGS, *_EXPECTED, *_KERNEL, *programs, folder]
    readable += [path for path, writable in roots.folders if not writable]
    writable = [] if confinement.read_only else [*roots.writable, home]
    words = ["network"] if confinement.network and not confinement.read_only else []
    if _can_mount():
        words += ["mounts", "processes"] if _can_separate() else ["mounts"]
    words += ["fixed"] if confinement.read_only else []
    states = [os.path.join(path, STATE) for path, _ in roots.folders]
    hidden = [path for path in states if os.path.isdir(path) and not os.path.islink(path)]
    for kind, paths in (("r", readable), ("w", writable), ("d", _DEVICES), ("h", hidden)):
        for path in paths:
            words += [kind, path]
    words += ["=HOME", str(confinement.home or home), "=PATH", _readable_path(env, roots, programs)]
    words += ["=GIT_CONFIG_SYSTEM", os.path.join(folder, "gitconfig") if settings else os.devnull]
    if not confinement.read_only:
        words += ["t", temporary_folder(roots.workspace)]
        words += ["size", str(confinement.limits.temporary * MIB), "tmp", home] if confinement.limits.temporary else []
    for name, value in kernel_limits(confinement.limits, apart=_can_mount()).items():
        words += ["limit", f"{name}={value}"]
    return CommandLine([*_python(), *words, *(("status", status) if status else ()), "--", *argv])


def explain_failed_start(argv: Sequence[str], exit_code: int, status: bytes, said: str) -> tuple[int, str] | None:
    """Returns why the program never ran: an error number if it could not be started, and words; None if it ran."""
    if status == landlock_program.STARTED:
        return None
    last = (said.strip().splitlines() or [f"it ended with exit code {exit_code}"])[-1].removeprefix("forge: ")
    began, _, number = status.partition(b" ")
    return (int(number) if began == landlock_program.STARTED and number.isdigit() else 0), last


def limits_temporary_files() -> bool:
    """Returns whether the size of temporary files can be limited here."""
    return _can_mount()


def temporary_folder(workspace: str) -> str:
    """Returns a temporary directory for each workspace: a program must not see the /tmp of others."""
    name = hashlib.sha256(os.fsencode(workspace)).hexdigest()[:16]
    return os.path.join(tempfile.gettempdir(), f"forge-{os.geteuid()}-{name}")


def _readable_path(env: Mapping[str, str], roots: Roots, programs: list[str]) -> str:
    """Returns the PATH with only the folders that the program may read.

    Landlock hides no names: a shell would find a program in another folder and could not start it.
    """
    seen = (*SYSTEM, *programs, *(folder for folder, _ in roots.folders))
    wanted = env.get("PATH", os.defpath).split(os.pathsep)
    readable_folders = [
        one
        for one in wanted
        if not os.path.isabs(one)
        or (is_inside_any(os.path.realpath(one), seen) and os.access(one, os.R_OK | os.X_OK))
        or any(is_inside(one, folder) for folder, _ in roots.folders)
    ]
    return os.pathsep.join(readable_folders) or os.defpath


def _python() -> list[str]:
    if not sys.executable:
        raise ToolError("the sandbox needs a Python interpreter", ErrorKind.CONFIG, "Install one, or set sandbox: off.")
    # isolated, and without the site's packages: it starts fast and needs nothing of Forge
    return [sys.executable, "-I", "-S", landlock_program.__file__]


@cache
def _can_mount() -> bool:
    """Returns whether everything outside can be mounted read-only: by root, or with user namespaces."""
    return _works("mounts")


@cache
def _can_separate() -> bool:
    """Returns whether programs can also have processes and shared memory of their own; not in many containers."""
    return _works("mounts", "processes")


def _works(*flags: str) -> bool:
    try:
        tried = subprocess.run(
            [*_python(), *flags, "r", "/", "--", "/bin/true"],
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
