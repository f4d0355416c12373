"""Handles process trees: finds descendants, kills them, and adopts orphans."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # not loaded at run time: this process has to start fast
    from collections.abc import Callable, Collection, Iterable

PATIENCE = 5.0  # seconds that killed processes may take to vanish

_LINUX = sys.platform == "linux"
_PARENT_DIES, _SUBREAPER = 1, 36  # prctl


def kill_below(root: int, is_empty: Callable[[], bool], program: int = 0, spared: Collection[int] = ()) -> bool:
    """Kills every descendant; True when none is left. They are stopped first: a stopped process cannot fork."""
    end = time.monotonic() + PATIENCE
    pause = 0.0005
    while time.monotonic() < end:
        stopped: set[int] = set()
        while new := find_descendants(root, spared) - stopped:
            _signal(new, signal.SIGSTOP)
            stopped |= new
        _signal(stopped, signal.SIGKILL)
        if program and not _LINUX:
            with contextlib.suppress(OSError):
                os.killpg(program, signal.SIGKILL)
        if is_empty():
            return True
        time.sleep(pause)
        pause = min(pause * 2, 0.02)
    return False


def find_descendants(root: int, spared: Collection[int] = ()) -> set[int]:
    """Returns all processes below a process, without zombies and without the `spared`."""
    below: dict[int, list[int]] = {}
    for pid, parent in _list_processes():
        below.setdefault(parent, []).append(pid)
    found: set[int] = set()
    waiting = [root]
    while waiting:
        for pid in below.get(waiting.pop(), ()):
            if pid not in found and pid not in spared:
                found.add(pid)
                waiting.append(pid)
    found.discard(root)
    return found


def describe_process(pid: int) -> str:
    """Returns its command line, for people."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read(400).replace(b"\0", b" ").strip()
    except OSError:
        return "?"
    return words.decode(errors="replace")[:100] or "?"


def is_first_of_namespace(pid: int) -> bool:
    """Returns whether a process is the first one of a namespace of processes, other than this one's."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            numbers = next((line.split()[1:] for line in file if line.startswith(b"NSpid:")), [])
    except OSError:
        return False
    return len(numbers) > 1 and numbers[-1] == b"1"


def _list_processes() -> Iterable[tuple[int, int]]:
    """Yields every living process and its parent."""
    try:
        names = os.listdir("/proc")
    except OSError:
        return
    for name in names:
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    state, parent, *_ = file.read().rpartition(b")")[2].split(None, 2)
            except (OSError, ValueError):  # the process ended meanwhile
                continue
            if state not in (b"Z", b"X"):
                yield int(name), int(parent)


def _signal(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)


def adopt_orphans() -> None:
    """Makes orphaned descendants children of this process, if the system can."""
    if _LINUX:
        _prctl(_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    import ctypes

    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def follow_parent(parent: int) -> None:
    """Requests SIGTERM for when the parent dies, if the system can; ends at once if the parent is dead."""
    if _LINUX:
        _prctl(_PARENT_DIES, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)
