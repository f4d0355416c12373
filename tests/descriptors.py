"""Which files of a folder this process holds open: others come and go with what other tests left to be tidied up."""

from __future__ import annotations

import gc
import os
from contextlib import suppress
from pathlib import Path


def open_below(folder: Path) -> list[str]:
    """The files and directories below a folder that are open; none where the system does not say."""
    gc.collect()  # a directory is held until its session is collected
    found = []
    root = os.path.realpath(folder)
    for number in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():
        with suppress(OSError):
            target = os.readlink(f"/proc/self/fd/{number}")
            if target == root or target.startswith(f"{root}/"):
                found.append(target)
    return found
