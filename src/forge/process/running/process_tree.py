"""Process trees: who lives below a process, how all of them are killed, and who adopts their orphans."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # nothing of it is loaded beside Forge: what starts there has to be small
    from collections.abc import Callable, Collection, Iterable

PATIENCE = 5.0  # seconds that killed processes may take to vanish

_LINUX = sys.platform == "linux"
_PARENT_DIES, _SUBREAPER = 1, 36  # prctl


def kill_below(root: int, is_empty: Callable[[], bool], program: int = 0, spared: Collection[int] = ()) -> bool:
    """Kill every descendant; True when none is left. They are stopped first: what cannot run cannot fork."""
    end = time.monotonic() + PATIENCE
    pause = 0.0005
    while time.monotonic() < end:
        stopped: set[int] = set()
        while new := descendants(root, spared) - stopped:
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


def descendants(root: int, spared: Collection[int] = ()) -> set[int]:
    """All that run below a process, without the dead that wait for their parent, and without those spared."""
    below: dict[int, list[int]] = {}
    for pid, parent in _processes():
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


def name_of(pid: int) -> str:
    """How it was started, for people."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read(400).replace(b"\0", b" ").strip()
    except OSError:
        return "?"
    return words.decode(errors="replace")[:100] or "?"


def _processes() -> Iterable[tuple[int, int]]:
    """Every living process and its parent."""
    try:
        names = os.listdir("/proc")
    except OSError:
        return
    for name in names:
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    state, parent, *_ = file.read().rpartition(b")")[2].split(None, 2)
            except (OSError, ValueError):  # it ended meanwhile
                continue
            if state not in (b"Z", b"X"):
                yield int(name), int(parent)


def _signal(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)


def adopt_orphans() -> None:
    """Descendants whose parent dies become children of this process, where the system can do that."""
    if _LINUX:
        _prctl(_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    import ctypes

    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def follow_parent(parent: int) -> None:
    """Get SIGTERM when the parent dies, where the system can do that; end at once if it is dead already."""
    if _LINUX:
        _prctl(_PARENT_DIES, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)
