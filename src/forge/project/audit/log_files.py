"""The files of a log that others write meanwhile: rotated, compressed, torn, emptied or not there yet."""

from __future__ import annotations

import errno
import gzip
import os
import re
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from forge.core.errors import ErrorKind, ToolError

LONGEST_LINE = 16 * 1024 * 1024  # bytes; a longer one is none of ours
RECENT = 1024 * 1024  # bytes of the end of a log that count as what happened last


class Tail:
    """The end of a file that others write, wherever it went meanwhile."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stream: IO[bytes] | None = None
        self._rest = b""  # of a line that is not whole yet

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def recent(self) -> Iterator[bytes]:
        """The last lines there are now."""
        if self._open() and self._stream is not None:
            size = os.fstat(self._stream.fileno()).st_size
            self._stream.seek(max(0, size - RECENT))
            if size > RECENT:
                self._stream.readline(RECENT)  # the rest of a line whose beginning is before this
            yield from self._new_lines()

    def more(self) -> Iterator[bytes]:
        """What came since. A file that was replaced is read to its end before the new one is opened."""
        if self._stream is not None:
            yield from self._new_lines()
            if not self._is_replaced():
                return
            self.close()
            self._rest = b""
        if self._open():
            yield from self._new_lines()

    def _open(self) -> bool:
        try:
            self._stream = open_log(self.path)
        except ToolError:
            if self.path.exists() or self.path.is_symlink():
                raise
            return False
        return True

    def _is_replaced(self) -> bool:
        assert self._stream is not None
        ours = os.fstat(self._stream.fileno())
        try:
            there = os.stat(self.path, follow_symlinks=False)
        except OSError:
            return False  # moved away; the next one is not there yet
        if (there.st_dev, there.st_ino) != (ours.st_dev, ours.st_ino):
            return True
        return ours.st_size < self._stream.tell()  # emptied in place

    def _new_lines(self) -> Iterator[bytes]:
        assert self._stream is not None
        while piece := self._stream.readline(LONGEST_LINE):
            self._rest += piece
            if self._rest.endswith(b"\n"):
                line, self._rest = self._rest, b""
                yield line
            elif len(self._rest) > LONGEST_LINE:
                self._rest = b""


def lines_of(path: Path) -> Iterator[bytes]:
    """With the last one, whole or not. Of one that is too long only the beginning, which is no event.

    Raises `ToolError` where the file cannot be read.
    """
    with open_log(path) as stream:
        yield from (line for _, line in lines_from(stream, path, 0))


def lines_from(stream: IO[bytes], path: Path, start: int) -> Iterator[tuple[int, bytes]]:
    """The lines of an open log from a place on, each with how many bytes it has; those of one that is too long count.

    Places in a compressed file are those of its content.
    """
    plain = unpack(stream, path, start)
    while line := read_piece(plain, path):
        size, piece = len(line), line
        while len(piece) == LONGEST_LINE and not piece.endswith(b"\n"):
            piece = read_piece(plain, path)
            size += len(piece)
        yield size, line


def changed(path: Path) -> float:
    """When it was last written; 0 where it is gone."""
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0


def rotations(path: Path) -> list[Path]:
    """`audit.ndjson.1`, `audit.ndjson-20260101.gz` and the like, the oldest first."""
    found = []
    try:
        with os.scandir(path.parent) as entries:
            for entry in entries:
                if re.fullmatch(rf"{re.escape(path.name)}[.-]\d[\d.T:-]*(\.gz)?", entry.name):
                    found.append((entry.stat(follow_symlinks=False).st_mtime, entry.path))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _unusable(path, error) from error
    return [Path(name) for _, name in sorted(found)]


def read_piece(stream: IO[bytes], path: Path, size: int | None = None) -> bytes:
    """A line, or so many bytes. Raises `ToolError`."""
    try:
        return stream.readline(LONGEST_LINE) if size is None else stream.read(size)
    except (OSError, EOFError, zlib.error) as error:  # a compressed one that is damaged, too
        raise _unusable(path, error) from error


def unpack(stream: IO[bytes], path: Path, start: int = 0) -> IO[bytes]:
    """The content of an open log from a place on. Raises `ToolError`."""
    plain: IO[bytes] = stream
    try:
        if path.suffix == ".gz":
            stream.seek(0)
            plain = gzip.GzipFile(fileobj=stream, mode="rb")  # type: ignore[assignment]
        plain.seek(start)
    except (OSError, EOFError, zlib.error) as error:
        raise _unusable(path, error) from error
    return plain


def open_log(path: Path) -> IO[bytes]:
    """A regular file, not where a link leads: a project may come with a log of somebody else's making.

    Raises `ToolError`.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise _unusable(path, error) from error
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise _unusable(path, OSError(errno.EINVAL, "it is no regular file"))
    return os.fdopen(file, "rb", buffering=256 * 1024)


def _unusable(path: Path, error: Exception) -> ToolError:
    problem = (error.strerror if isinstance(error, OSError) else None) or str(error)
    if isinstance(error, OSError) and error.errno == errno.ELOOP:
        problem = "it is a link"
    message = f"the audit log {str(path)!r} cannot be read: {problem}"
    return ToolError(message, ErrorKind.CONFIG, "Name another with --file.")
