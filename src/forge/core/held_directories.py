"""Holds the directories of sessions open, so that nothing can replace them unnoticed.

A held directory stays the one it was when its session began, while a `HeldDirectory` refers to it. Sessions that name
the same path meanwhile share it: one descriptor for each directory, closed with the last session.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterable
from pathlib import Path

from forge.core.errors import ErrorKind, ToolError

_FLAGS = os.O_DIRECTORY | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)


class HeldDirectory:
    """One directory: the real path it had, and its descriptor."""

    __slots__ = ("__weakref__", "_identity", "_names", "descriptor", "path")

    def __init__(self, spelled: str) -> None:
        """Raises `OSError`."""
        self.path = Path(os.path.realpath(spelled))
        self._names = tuple(dict.fromkeys((spelled, str(self.path))))
        self.descriptor = os.open(self.path, _FLAGS)
        status = os.fstat(self.descriptor)
        self._identity = (status.st_dev, status.st_ino)
        weakref.finalize(self, os.close, self.descriptor).atexit = False

    def check(self) -> None:
        """Raises `ToolError` where its name, or the real path it had, now leads to another directory."""
        for name in self._names:
            try:
                status = os.stat(name)
            except OSError as error:
                raise _make_error(name, f"cannot be reached any more: {error.strerror}") from None
            if (status.st_dev, status.st_ino) != self._identity:
                raise _make_error(name, "was replaced by another directory since this session began")


_held: weakref.WeakValueDictionary[str, HeldDirectory] = weakref.WeakValueDictionary()  # by spelling, and by real path
_lock = threading.RLock()  # a collection may close a directory in the middle of it


def hold(path: Path | str) -> HeldDirectory | None:
    """Returns the held directory of this name, or holds it as it is now; None where there is none."""
    spelled = _normalise_path(path)
    held = _held.get(spelled)
    if held is not None:
        return held
    with _lock:
        if (held := _held.get(spelled)) is not None:
            return held
        try:
            made = HeldDirectory(spelled)
        except (OSError, ValueError):  # not there, no directory, a NUL byte: its first use fails
            return None
        _held[spelled] = made
        _held.setdefault(str(made.path), made)
        return made


def find_held(path: Path | str) -> HeldDirectory | None:
    """Returns the held directory of this name, if there is one."""
    return _held.get(_normalise_path(path))


def check_held(paths: Iterable[Path | str]) -> None:
    """Raises `ToolError` where one of these paths, or a directory above it, is held and was replaced."""
    for path in paths:
        name = _normalise_path(path)
        while True:
            if (held := _held.get(name)) is not None:
                held.check()
            above = os.path.dirname(name)
            if above == name:
                break
            name = above


def _normalise_path(path: Path | str) -> str:
    """Makes a path absolute, in one spelling. Every call needs this: most paths are normal already."""
    name = str(path)
    plain = isinstance(path, Path) and name.startswith("/") and "/.." not in name and not name.startswith("//")
    return name if plain else os.path.abspath(name)


def _make_error(name: str, words: str) -> ToolError:
    return ToolError(
        f'the directory "{name}" {words}',
        ErrorKind.SECURITY,
        "Nothing is read, written or started there. The person can put it back, or start Forge again.",
    )
