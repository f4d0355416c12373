"""Identifies processes across restarts of a machine, and tells whether one has certainly ended."""

from __future__ import annotations

import os
import socket
from functools import cache
from pathlib import Path


def find_boot() -> str:
    """Returns the same value for two processes that see each other's pids."""
    return _find_namespace() or socket.gethostname()


@cache
def mark_process() -> str:
    """Returns a mark of this process that no other process ever has; empty where the system tells too little."""
    place, began = _find_namespace(), _find_start(os.getpid())
    return f"{place}/{os.getpid()}/{began}" if place and began else ""


def has_ended(mark: str) -> bool:
    """Returns True only if the marked process has certainly ended. One on another machine may still run."""
    place, _, rest = mark.rpartition("/")
    place, _, pid = place.rpartition("/")
    if not place or place != _find_namespace() or not pid.isdigit():
        return False
    return _find_start(int(pid)) != rest or _is_zombie(int(pid), alone=True)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not _is_zombie(pid)


@cache
def _find_namespace() -> str:
    """Returns the machine's start and the process namespace: where a pid means something."""
    try:
        start = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{start}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return ""


def _find_start(pid: int) -> str:
    """Returns when the process started, in ticks since the machine did; empty: there is no such process."""
    fields = _read_status(pid)
    return fields[19] if len(fields) > 19 else ""


def _is_zombie(pid: int, *, alone: bool = False) -> bool:
    """`alone`: none of its threads runs any more."""
    if _read_status(pid)[:1] != ["Z"]:
        return False
    try:
        return not alone or len(os.listdir(f"/proc/{pid}/task")) <= 1
    except OSError:
        return True


def _read_status(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


os.register_at_fork(after_in_child=mark_process.cache_clear)
