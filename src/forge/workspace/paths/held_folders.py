"""The directories a commit works in, held open so that nobody can put others in their place; missing ones are made."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from forge.core.errors import ErrorKind, ToolError
from forge.workspace.paths import Place
from forge.workspace.paths.open import open_directory

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CANNOT_SYNC = frozenset({errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS})


class Folders:
    """A context: everything is closed at its end. Raises `ToolError` for what is no directory or may not be opened."""

    def __init__(self, wanted: Iterable[Place]) -> None:
        self._open: dict[Path, int] = {}
        self._made: list[Place] = []
        missing: dict[Path, Place] = {}
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

    def of(self, place: Place) -> int:
        """The descriptor of the directory that a place is in."""
        return self._open[place.parent.path]

    def has(self, place: Place) -> bool:
        return place.parent.path in self._open

    def make(self, folder: Place) -> None:
        """Make a missing one. Raises `OSError`."""
        above = self._open[folder.parent.path]
        with suppress(FileExistsError):  # somebody else made it
            os.mkdir(folder.name, dir_fd=above)
            self._made.append(folder)
        self._open[folder.path] = os.open(folder.name, _FLAGS, dir_fd=above)

    def unmake(self) -> None:
        """Remove those that were made here, as far as they are empty."""
        while self._made:
            folder = self._made.pop()
            with suppress(OSError):
                os.rmdir(folder.name, dir_fd=self._open[folder.parent.path])

    def sync(self) -> None:
        """Let names survive a power failure, where the file system can promise that."""
        for descriptor in self._open.values():
            try:
                os.fsync(descriptor)
            except OSError as error:
                if error.errno not in _CANNOT_SYNC:
                    raise

    def _find(self, folder: Place, missing: dict[Path, Place]) -> None:
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
