"""Confines a program with Landlock and a system call filter, where no namespaces can be had."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence

from forge.core.errors import ErrorKind, ToolError
from forge.process import _confine
from forge.process.layout import PROCESSORS, SETTINGS, SYSTEM, Confinement, program_folders, roots_of

HOW = "It needs Linux 5.13 or newer with Landlock switched on: lsm=landlock,… on the kernel's command line."

_DEVICES = tuple(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom"))
# Of /proc only what belongs to no process: of the others even a listing would tell how they were started.
_KERNEL = (
    *(f"/proc/{name}" for name in ("cpuinfo", "meminfo", "stat", "loadavg", "uptime", "version", "filesystems", "sys")),
    PROCESSORS,
)


def command(argv: Sequence[str], confinement: Confinement, env: Mapping[str, str]) -> list[str]:
    """To be started with `env`, in a directory below a root."""
    if not sys.executable:
        raise ToolError("the sandbox needs a Python interpreter", ErrorKind.CONFIG, "Install one, or set sandbox: off.")
    roots = roots_of(confinement)
    readable = (*SYSTEM, *SETTINGS, *_KERNEL, *program_folders(env, roots))
    words = ["network"] if confinement.network else []
    for path in (*readable, *(folder for folder, writable in roots.folders if not writable)):
        words += ["r", path]
    for path in roots.writable:
        words += ["w", path]
    for path in _DEVICES:
        words += ["d", path]
    words += ["t", temporary(roots.workspace), "home", str(confinement.home or roots.workspace)]
    # isolated, and without the site's packages: it starts in a moment and needs nothing of ours
    return [sys.executable, "-I", "-S", _confine.__file__, *words, "--", *argv]


def temporary(workspace: str) -> str:
    """A directory of its own for each workspace: what others keep in /tmp is none of a program's business."""
    name = hashlib.sha256(os.fsencode(workspace)).hexdigest()[:16]
    return os.path.join(tempfile.gettempdir(), f"forge-{os.geteuid()}-{name}")
