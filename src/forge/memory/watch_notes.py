"""Reports the notes that changed since the last call, if the system supports it: then no directory is read.

This uses Linux's inotify on local file systems; other file systems may change without an event.
"""

from __future__ import annotations

import errno
import os
import struct
import sys
from pathlib import Path
from typing import Any

_EVENTS = (
    0x2 | 0x4 | 0x8 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800
)  # modified, attributes, closed, moved, created …
_ONLY_DIRECTORY, _NO_LINK = 0x01000000, 0x02000000
_OF_DIRECTORY = 0x40000000
_LOST = 0x4000 | 0x2000 | 0x8000 | 0x400 | 0x800  # queue overflow, unmounted, no longer watched, moved, deleted
_HEAD = struct.Struct("iIII")
_LOCAL = frozenset(
    {0xEF53, 0x58465342, 0x9123683E, 0x01021994, 0x794C7630, 0xF2F52010, 0x2FC12FC1}
)  # ext, xfs, btrfs, tmpfs, overlay, f2fs, zfs


class NotesWatch:
    """Watches one directory and nothing below it. The first call starts the watch."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._descriptor = -1
        self._process = 0

    def take_changes(self) -> set[str] | None:
        """Returns the names of changed, new and removed files; None if they are unknown."""
        if self._process != os.getpid():
            self._descriptor = -1  # after a fork the descriptor is the parent's
        if self._descriptor < 0:
            self._begin()
            return None
        names = self._read()
        if names is None:
            self.close()
            self._begin()
        return names

    def close(self) -> None:
        if self._descriptor >= 0 and self._process == os.getpid():
            os.close(self._descriptor)
        self._descriptor = -1

    def __del__(self) -> None:
        if getattr(self, "_descriptor", -1) >= 0:
            self.close()

    def _begin(self) -> None:
        self._process = os.getpid()
        if sys.platform != "linux" or not (library := _library()) or not _is_local(library, self._directory):
            return
        descriptor = library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if descriptor < 0:
            return
        mask = _EVENTS | _ONLY_DIRECTORY | _NO_LINK
        if library.inotify_add_watch(descriptor, os.fsencode(self._directory), mask) < 0:
            os.close(descriptor)
            return
        self._descriptor = descriptor

    def _read(self) -> set[str] | None:
        names: set[str] = set()
        while True:
            try:
                events = os.read(self._descriptor, 64 * 1024)
            except BlockingIOError:
                return names
            except OSError as error:
                if error.errno == errno.EINTR:
                    continue
                return None
            at = 0
            while at < len(events):
                _, mask, _, length = _HEAD.unpack_from(events, at)
                name = events[at + _HEAD.size : at + _HEAD.size + length].rstrip(b"\0")
                if mask & (_LOST | _OF_DIRECTORY):
                    return None
                names.add(os.fsdecode(name))
                at += _HEAD.size + length


def _library() -> Any:
    try:
        import ctypes  # slow to import, and not in every Python

        library = ctypes.CDLL(None, use_errno=True)
        return library if hasattr(library, "inotify_init1") else None
    except (ImportError, OSError):
        return None


def _is_local(library: Any, directory: Path) -> bool:
    import ctypes

    status = (ctypes.c_long * 64)()  # more than enough: the type is the first field
    if library.statfs(os.fsencode(directory), status) != 0:
        return False
    return (status[0] & 0xFFFFFFFF) in _LOCAL
