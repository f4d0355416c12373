"""Finds processes by a word in their command line that nothing else has."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

PATIENCE = 60.0  # seconds


def mark() -> str:
    """A number that `sleep` takes, and that no other process has in its command line."""
    return f"9{uuid4().int % 10**12:012d}"


def found(word: str) -> list[int]:
    """The living processes with that word in their command line, but not this one."""
    numbers = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                words = Path(f"/proc/{name}/cmdline").read_bytes()
                state = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()[0]
            except OSError:
                continue
            if word.encode() in words and state != b"Z":
                numbers.append(int(name))
    return numbers


def until(condition: Callable[[], object]) -> bool:
    """Looks again and again: of processes that are none of our children nobody tells us."""
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def zombies() -> int:
    """The dead below this process that nobody buried."""
    parents, dead = {}, []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                state, parent, *_ = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()
            except OSError:
                continue
            parents[int(name)] = int(parent)
            if state == b"Z":
                dead.append(int(name))
    return sum(os.getpid() in _above(one, parents) for one in dead)


def _above(pid: int, parents: dict[int, int]) -> set[int]:
    line: set[int] = set()
    while pid in parents and pid not in line:
        line.add(pid)
        pid = parents[pid]
    return line
