"""Holds the directories of a commit open, so that they cannot be replaced meanwhile, and makes missing ones."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from forge.core.errors import ErrorKind, ToolError
from forge.workspace.paths import Location
from forge.workspace.paths.open import open_directory

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CANNOT_SYNC = frozenset({errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS})


class Folders:
    """A context manager that closes all directories at its end. Raises `ToolError` for a path that cannot be opened as
    one.
    """

    def __init__(self, wanted: Iterable[Location]) -> None:
        self._open: dict[Path, int] = {}
        self._made: list[Location] = []
        missing: dict[Path, Location] = {}
        try:
            for folder in wanted:
                self._find(folder, missing)
        except BaseException:
            self._close()
            raise
        self.missing = sorted(missing.values(), key=lambda one: one.relative.count("/"))  # the outermost first

    def __enter__(self) -> Folders:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._close()

    def of(self, location: Location) -> int:
        """Returns the descriptor of the directory that contains a location."""
        return self._open[location.parent.path]

    def has(self, location: Location) -> bool:
        return location.parent.path in self._open

    def make(self, folder: Location) -> None:
        """Makes a missing directory. Raises `OSError`."""
        above = self._open[folder.parent.path]
        with suppress(FileExistsError):  # another process made it
            os.mkdir(folder.name, dir_fd=above)
            self._made.append(folder)
        self._open[folder.path] = os.open(folder.name, _FLAGS, dir_fd=above)

    def unmake(self) -> None:
        """Removes the directories made here, if they are empty."""
        while self._made:
            folder = self._made.pop()
            with suppress(OSError):
                os.rmdir(folder.name, dir_fd=self._open[folder.parent.path])

    def sync(self) -> None:
        """Makes names survive a power failure, if the file system can."""
        for descriptor in self._open.values():
            try:
                os.fsync(descriptor)
            except OSError as error:
                if error.errno not in _CANNOT_SYNC:
                    raise

    def _find(self, folder: Location, missing: dict[Path, Location]) -> None:
        while folder.path not in self._open and folder.path not in missing:
            try:
                self._open[folder.path] = open_directory(folder)
            except ToolError as error:
                if error.kind is not ErrorKind.NOT_FOUND or folder.relative == ".":
                    raise
                missing[folder.path] = folder
                folder = folder.parent

    def _close(self) -> None:
        while self._open:
            os.close(self._open.popitem()[1])
