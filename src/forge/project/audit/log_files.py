"""Reads the files of a log while others write them: rotated, compressed, truncated or missing."""

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

LONGEST_LINE = 16 * 1024 * 1024  # bytes; Forge writes no longer ones
RECENT = 1024 * 1024  # bytes at the end of a log that count as recent


class Tail:
    """Follows the end of a file that others write, also if it is replaced."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stream: IO[bytes] | None = None
        self._rest = b""  # the beginning of an incomplete line

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def recent(self) -> Iterator[bytes]:
        """Yields the last lines of the file."""
        if self._open() and self._stream is not None:
            size = os.fstat(self._stream.fileno()).st_size
            self._stream.seek(max(0, size - RECENT))
            if size > RECENT:
                self._stream.readline(RECENT)  # the rest of a line that began before
            yield from self._new_lines()

    def more(self) -> Iterator[bytes]:
        """Yields new lines. A replaced file is read to its end before the new one is opened."""
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
            return False  # moved away; the next file does not exist yet
        if (there.st_dev, there.st_ino) != (ours.st_dev, ours.st_ino):
            return True
        return ours.st_size < self._stream.tell()  # truncated in place

    def _new_lines(self) -> Iterator[bytes]:
        assert self._stream is not None
        while piece := self._stream.readline(LONGEST_LINE):
            self._rest += piece
            if self._rest.endswith(b"\n"):
                line, self._rest = self._rest, b""
                yield line
            elif len(self._rest) > LONGEST_LINE:
                self._rest = b""


def lines_from(stream: IO[bytes], path: Path, start: int) -> Iterator[tuple[int, bytes]]:
    """Yields the lines of an open log from a position on, each with its number of bytes, also those cut off.

    Positions in a compressed file count its content.
    """
    plain = unpack(stream, path, start)
    while line := read_piece(plain, path):
        size, piece = len(line), line
        while len(piece) == LONGEST_LINE and not piece.endswith(b"\n"):
            piece = read_piece(plain, path)
            size += len(piece)
        yield size, line


def modification_time(path: Path) -> float:
    """Returns the time of the last write; 0 if the file is gone."""
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0


def rotations(path: Path) -> list[Path]:
    """Returns `audit.ndjson.1`, `audit.ndjson-20260101.gz` and the like, the oldest first."""
    found = []
    try:
        with os.scandir(path.parent) as entries:
            for entry in entries:
                if re.fullmatch(rf"{re.escape(path.name)}[.-]\d[\d.T:-]*(\.gz)?", entry.name):
                    found.append((entry.stat(follow_symlinks=False).st_mtime, entry.path))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _unreadable(path, error) from error
    return [Path(name) for _, name in sorted(found)]


def read_piece(stream: IO[bytes], path: Path, size: int | None = None) -> bytes:
    """Reads a line, or so many bytes. Raises `ToolError`."""
    try:
        return stream.readline(LONGEST_LINE) if size is None else stream.read(size)
    except (OSError, EOFError, zlib.error) as error:  # also a damaged compressed file
        raise _unreadable(path, error) from error


def unpack(stream: IO[bytes], path: Path, start: int = 0) -> IO[bytes]:
    """Returns the content of an open log from a position on. Raises `ToolError`."""
    plain: IO[bytes] = stream
    try:
        if path.suffix == ".gz":
            stream.seek(0)
            plain = gzip.GzipFile(fileobj=stream, mode="rb")  # type: ignore[assignment]
        plain.seek(start)
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(path, error) from error
    return plain


def open_log(path: Path) -> IO[bytes]:
    """Opens a regular file and follows no link: a project may come with a planted log.

    Raises `ToolError`.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise _unreadable(path, OSError(errno.EINVAL, "it is not a regular file"))
    return os.fdopen(file, "rb", buffering=256 * 1024)


def _unreadable(path: Path, error: Exception) -> ToolError:
    problem = (error.strerror if isinstance(error, OSError) else None) or str(error)
    if isinstance(error, OSError) and error.errno == errno.ELOOP:
        problem = "it is a symbolic link"
    message = f"the audit log {str(path)!r} cannot be read: {problem}"
    return ToolError(message, ErrorKind.CONFIG, "Choose another file with --file.")
