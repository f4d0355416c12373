"""One writer a directory at a time, among all threads and processes that change files through Forge."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from forge.core.errors import ErrorKind, ToolError
from forge.workspace.paths import Place
from forge.workspace.paths.open import open_directory

PATIENCE = 10.0  # seconds that another writer may take

_PAUSE = 0.002  # seconds between two tries, growing
_LONGEST_PAUSE = 0.05
_NO_LOCKS = frozenset({errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})

_Inode = tuple[int, int]


@contextmanager
def locked(places: Iterable[Place], patience: float = PATIENCE) -> Iterator[None]:
    """Hold the directories that the places are in; of one that is still to be made, the deepest that is there.

    It blocks, so it belongs into a worker thread, and it is not to be nested: whoever holds a directory waits for it in
    vain. Raises `ToolError` when another writer holds one of them for longer than `patience`. On a file system that has
    no such locks nothing is held, and only the comparison before each replacement protects what others write.
    """
    wanted = {place.parent.path: place.parent for place in places}
    until = time.monotonic() + patience
    while True:
        with ExitStack() as held:
            opened = _opened(wanted.values(), held)
            for inode in sorted(opened):  # in one order for everybody, so that no two wait for each other
                _take(opened[inode], inode, until, patience)
            with ExitStack() as brief:
                is_current = _opened(wanted.values(), brief).keys() == opened.keys()
            if is_current:  # and nobody made, moved or replaced a directory while this one waited
                yield
                return


def _opened(directories: Iterable[Place], stack: ExitStack) -> dict[_Inode, tuple[int, Place]]:
    """Each by its inode: the same directory may be reached by two paths, and can be locked only once."""
    found: dict[_Inode, tuple[int, Place]] = {}
    for directory in directories:
        descriptor, there = _deepest(directory)
        stack.callback(os.close, descriptor)
        status = os.fstat(descriptor)
        found.setdefault((status.st_dev, status.st_ino), (descriptor, there))
    return found


def _deepest(directory: Place) -> tuple[int, Place]:
    while True:
        try:
            return open_directory(directory), directory
        except ToolError as error:
            if error.kind is not ErrorKind.NOT_FOUND or directory.relative == ".":
                raise
            directory = directory.parent


def _take(opened: tuple[int, Place], inode: _Inode, until: float, patience: float) -> None:
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
                f"waited {patience:g} s to change files in {directory.shown}: {_holder(inode)} is changing files there",
                ErrorKind.TIMEOUT,
                "Nothing was changed. Try again in a moment.",
                passing=True,
            )
        time.sleep(min(pause, left))
        pause = min(pause * 1.5, _LONGEST_PAUSE)


def _holder(inode: _Inode) -> str:
    """Who holds the lock, where the system tells."""
    device, number = inode
    key = f"{os.major(device):02x}:{os.minor(device):02x}:{number}"
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        words = line.split()
        if key in words and "->" not in words:  # an arrow: one that waits, too
            owner = words[words.index(key) - 1]
            return "another call" if owner == str(os.getpid()) else f"process {owner}"
    return "another call or program"
