"""Where in the log of events those of each session are, found once, so that a page of them reads only itself."""

from __future__ import annotations

import gzip
import os
import re
import stat
import zlib
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import IO, NamedTuple

from forge.app.audit import Event, Log
from forge.app.audit_files import LONGEST_LINE, rotations
from forge.core.errors import ErrorKind, ToolError

_BEGINNING = rb'{"event": "'
_HEAD = re.compile(rb'\{"event": "\w+", "ts": \d+(?:\.\d+)?(?:e[+-]?\d+)?, "seq": \d+, "session": ("(?:[^"\\]|\\.)*")')


class _File:
    """One file of the log, as far as it was read."""

    def __init__(self) -> None:
        self.read = 0  # bytes
        self.places: dict[str, array[int]] = {}  # of a session's lines: where each begins


class _Known(NamedTuple):
    path: Path
    file: _File


class LogIndex:
    """Safe from any thread. What was appended since the last look is read once; files that were renamed are known."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files: dict[tuple[int, int], _File] = {}
        self._names: dict[bytes, str] = {}  # of sessions, as they are written
        self._lock = Lock()

    def page(self, session: str, after: int, limit: int) -> tuple[list[tuple[int, Event]], int | None]:
        """Those numbered above `after`, counted from 1, and the number after which there are more; None at the end.

        Raises `ToolError` where the log cannot be read.
        """
        with self._lock:
            found = [(one.path, one.file.places.get(session, ())) for one in self._looked()]
            page: list[tuple[int, Event]] = []
            number, last = 0, after + limit
            for path, places in found:
                wanted = places[max(0, after - number) : max(0, last - number)]
                first = max(number, after) + 1
                page += zip(range(first, first + len(wanted)), _events(path, wanted, session), strict=False)
                number += len(places)
        return [(place, event) for place, event in page if event], last if number > last else None

    def _looked(self) -> list[_Known]:
        """The files there are, the oldest first, read to their ends."""
        known: dict[tuple[int, int], _File] = {}
        found = []
        for path in (*rotations(self.path), *([self.path] if os.path.lexists(self.path) else ())):
            with _opened(path) as stream:
                status = os.fstat(stream.fileno())
                name = (status.st_dev, status.st_ino)
                file = self._files.get(name, _File())
                if status.st_size < file.read and path.suffix != ".gz":  # it was emptied in place
                    file = _File()
                known[name] = file
                self._read_on(file, stream, path)
            found.append(_Known(path, file))
        self._files = known
        return found

    def _read_on(self, file: _File, stream: IO[bytes], path: Path) -> None:
        if path.suffix == ".gz" and file.read:  # nobody appends to those
            return
        with _unpacked(stream, path, file.read) as plain:
            while line := plain.readline(LONGEST_LINE):
                size = len(line)
                if line.endswith(b"\n"):
                    self._note(file, line)
                elif size < LONGEST_LINE:  # it is being written
                    return
                else:
                    size += _rest(plain)
                file.read += size

    def _note(self, file: _File, line: bytes) -> None:
        if (session := self._session(line)) is not None:
            file.places.setdefault(session, array("q")).append(file.read)

    def _session(self, line: bytes) -> str | None:
        """None: it is no event. Two beginnings in a line: what a crash left of one, maybe."""
        head = _HEAD.match(line) if line.count(_BEGINNING) == 1 else None
        if head is not None and (name := self._names.get(head[1])) is not None:
            return name
        event = _event(line)
        if event is None:
            return None
        name = str(event.get("session", ""))
        if head is not None:
            self._names[head[1]] = name
        return name


def _events(path: Path, places: Sequence[int], session: str) -> Iterator[Event]:
    """An empty one for what is there no more."""
    if not places:
        return
    with _opened(path) as stream, _unpacked(stream, path, 0) as plain:
        for place in places:
            plain.seek(place)
            event = _event(plain.readline(LONGEST_LINE)) or {}
            yield event if str(event.get("session", "")) == session else {}


def _event(line: bytes) -> Event | None:
    return next((entry.event for entry in Log(Path()).chosen(iter([line]))), None)


def _rest(stream: IO[bytes]) -> int:
    """How many bytes more a line has that is too long to be an event."""
    length = 0
    while piece := stream.readline(LONGEST_LINE):
        length += len(piece)
        if piece.endswith(b"\n"):
            break
    return length


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """A regular file, not where a link leads: a project may come with a log of somebody else's making."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(file, "rb", buffering=256 * 1024) as stream:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise OSError("it is no regular file")
            yield stream
    except (OSError, EOFError, zlib.error) as error:  # a compressed one that is damaged, too
        words = f"the log of events {path.name} cannot be read: {error}"
        raise ToolError(words, ErrorKind.CONFIG, "Move it away, or fix its permissions.") from error


@contextmanager
def _unpacked(stream: IO[bytes], path: Path, start: int) -> Iterator[IO[bytes]]:
    plain: IO[bytes] = gzip.GzipFile(fileobj=stream, mode="rb") if path.suffix == ".gz" else stream  # type: ignore[assignment]
    plain.seek(start)
    yield plain
