"""Locks directories: one writer at a time, among all threads and processes that change files through Forge."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from forge.core.errors import ErrorKind, ToolError
from forge.workspace.paths import Location
from forge.workspace.paths.open import open_directory

PATIENCE = 10.0  # seconds that another writer may take

_PAUSE = 0.002  # seconds between two tries, growing
_LONGEST_PAUSE = 0.05
_NO_LOCKS = frozenset({errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})

_Inode = tuple[int, int]


@contextmanager
def lock_directories(locations: Iterable[Location], patience: float = PATIENCE) -> Iterator[None]:
    """Locks the parent directories of the locations; for a missing one, its deepest existing parent.

    Blocks, so call it in a worker thread. Do not nest it: a second lock on the same directory would wait for the first.
    Raises `ToolError` if another writer holds a directory for longer than `patience`. A file system without locks locks
    nothing; then only the comparison before each replacement protects the changes of others.
    """
    wanted = {location.parent.path: location.parent for location in locations}
    until = time.monotonic() + patience
    while True:
        with ExitStack() as held:
            opened = _open_directories(wanted.values(), held)
            for inode in sorted(opened):  # in one order for all writers, so that no two wait for each other
                _take_lock(opened[inode], inode, until, patience)
            with ExitStack() as brief:
                is_current = _open_directories(wanted.values(), brief).keys() == opened.keys()
            if is_current:  # no directory was made, moved or replaced while this writer waited
                yield
                return


def _open_directories(directories: Iterable[Location], stack: ExitStack) -> dict[_Inode, tuple[int, Location]]:
    """Opens the directories by inode: two paths may lead to one directory, which can be locked only once."""
    found: dict[_Inode, tuple[int, Location]] = {}
    for directory in directories:
        descriptor, there = _open_deepest(directory)
        stack.callback(os.close, descriptor)
        status = os.fstat(descriptor)
        found.setdefault((status.st_dev, status.st_ino), (descriptor, there))
    return found


def _open_deepest(directory: Location) -> tuple[int, Location]:
    while True:
        try:
            return open_directory(directory), directory
        except ToolError as error:
            if error.kind is not ErrorKind.NOT_FOUND or directory.relative == ".":
                raise
            directory = directory.parent


def _take_lock(opened: tuple[int, Location], inode: _Inode, until: float, patience: float) -> None:
    descriptor, directory = opened
    pause = _PAUSE
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            left = until - time.monotonic()
        except OSError as error:
            if error.errno in _NO_LOCKS:
                return None
            raise
        if left <= 0:
            raise ToolError(
                f"waited {patience:g} s to change files in {directory.shown}:"
                f" {_describe_holder(inode)} is changing files there",
                ErrorKind.TIMEOUT,
                "Nothing was changed. Try again in a moment.",
                passing=True,
            )
        time.sleep(min(pause, left))
        pause = min(pause * 1.5, _LONGEST_PAUSE)


def _describe_holder(inode: _Inode) -> str:
    """Describes the holder of the lock, if the system knows it."""
    device, number = inode
    key = f"{os.major(device):02x}:{os.minor(device):02x}:{number}"
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        words = line.split()
        if key in words and "->" not in words:  # an arrow marks another waiter
            owner = words[words.index(key) - 1]
            return "another call" if owner == str(os.getpid()) else f"process {owner}"
    return "another call or program"
