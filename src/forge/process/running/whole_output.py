"""Keeps a long output, of which a result holds only a part, outside of memory until it is written to a file."""

from __future__ import annotations

import codecs
import os
import tempfile
from collections.abc import Callable, Iterator

MOST = 64 * 1024 * 1024  # bytes that are kept, the first ones
PIECE = 1024 * 1024  # bytes that are read at once
LONGEST_SECRET = 64 * 1024  # characters held back, so that no secret is cut in two


class WholeOutput:
    """The output of a program, in an unnamed file. If writing fails, `problem` says why."""

    def __init__(self, file: _Unnamed | None = None) -> None:
        self.total_bytes = 0
        self.problem = ""  # why some of it is missing
        self._stored = 0
        self._start = 0  # the first byte that is wanted
        self._newlines = 0
        self._is_ended = True  # with a newline
        self._masks: tuple[Callable[[str], str], ...] = ()
        self._file = file
        self._content = b""  # used instead of the file

    @classmethod
    def of(cls, content: bytes) -> WholeOutput:
        """Makes one from content in memory."""
        whole = cls()
        whole._content = content
        whole.total_bytes = whole._stored = len(content)
        whole._newlines, whole._is_ended = content.count(b"\n"), content.endswith(b"\n")
        return whole

    def since(self, start: int) -> WholeOutput | None:
        """Returns the output from a byte on; None if nothing after it is stored."""
        if start >= self._stored:
            return None
        rest = WholeOutput(self._file)
        vars(rest).update(vars(self), _start=start, total_bytes=self.total_bytes - start)
        rest._newlines -= sum(piece.count(b"\n") for piece in self._read(0, start))
        return rest

    @property
    def total_lines(self) -> int:
        """The number of stored lines: all, unless there is a `problem`. Counting the rest would slow its reading."""
        return self._newlines + (not self._is_ended)

    def add(self, piece: bytes | bytearray | memoryview) -> None:
        if not piece:
            return
        self.total_bytes += len(piece)
        if self.problem:
            return
        room = MOST - self._stored
        stored = memoryview(piece)[:room]
        try:
            self._file = self._file or _Unnamed()
            self._file.write(stored)
        except OSError as error:
            self.problem = f"the rest could not be kept: {error.strerror}"
            return
        self._stored += len(stored)
        self._newlines += bytes(stored).count(b"\n")
        self._is_ended = stored[-1] == 0x0A if stored else self._is_ended
        if len(piece) > room:
            self.problem = f"only the first {MOST // 1024 // 1024} MiB are kept"

    def masked(self, mask: Callable[[str], str]) -> WholeOutput:
        """Returns a copy whose texts all pass through `mask`."""
        same = WholeOutput(self._file)
        vars(same).update(vars(self), _masks=(*self._masks, mask))
        return same

    def pieces(self) -> Iterator[str]:
        """Yields the text from its beginning, piece by piece."""
        held = ""
        for piece in self._decode():
            held += piece
            for mask in self._masks:
                held = mask(held)
            yield held[:-LONGEST_SECRET]
            held = held[-LONGEST_SECRET:]
        yield held
        if self._stored < self._start + self.total_bytes:
            yield f"\n[the text ends here: {self.problem}]\n"

    def _decode(self) -> Iterator[str]:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        for piece in self._read(self._start, self._stored):
            yield decoder.decode(piece).replace("\0", "␀")
        yield decoder.decode(b"", final=True)

    def _read(self, start: int, end: int) -> Iterator[bytes]:
        for position in range(start, end, PIECE):
            stop = min(position + PIECE, end)
            yield self._content[position:stop] if self._file is None else self._file.read(position, stop - position)

    def __reduce__(self) -> tuple[Callable[[], None], tuple[()]]:
        return _restore_nothing, ()


class _Unnamed:
    """An unnamed file, gone when this object is."""

    def __init__(self) -> None:
        with tempfile.TemporaryFile(buffering=0) as file:
            self._number = os.dup(file.fileno())

    def write(self, piece: memoryview) -> None:
        while piece:
            piece = piece[os.write(self._number, piece) :]

    def read(self, start: int, size: int) -> bytes:
        return os.pread(self._number, size, start)

    def __del__(self) -> None:
        if (number := vars(self).get("_number")) is not None:
            os.close(number)


def _restore_nothing() -> None:
    """Unpickles as None: the file stays in its process."""
