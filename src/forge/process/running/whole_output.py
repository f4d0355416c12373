"""All of a long text of which a result holds only a part, kept outside of memory until it is written to a file."""

from __future__ import annotations

import codecs
import os
import tempfile
from collections.abc import Callable, Iterator

MOST = 64 * 1024 * 1024  # bytes that are kept, the first ones
PIECE = 1024 * 1024  # bytes that are read at once
LONGEST_SECRET = 64 * 1024  # characters held back, so that no secret is cut in two


class Whole:
    """What a program wrote, in a file without a name. One that cannot be written any more says so in `problem`."""

    def __init__(self, file: _Unnamed | None = None) -> None:
        self.total_bytes = 0
        self.problem = ""  # why not all of it is kept
        self._kept = 0
        self._start = 0  # the byte from which on it is wanted
        self._newlines = 0
        self._is_ended = True  # with a newline
        self._masks: tuple[Callable[[str], str], ...] = ()
        self._file = file
        self._content = b""  # instead of the file

    @classmethod
    def of(cls, content: bytes) -> Whole:
        """One that is in memory already."""
        whole = cls()
        whole._content = content
        whole.total_bytes = whole._kept = len(content)
        whole._newlines, whole._is_ended = content.count(b"\n"), content.endswith(b"\n")
        return whole

    def since(self, start: int) -> Whole | None:
        """What there is of it now, from a byte on; None if nothing after it is kept."""
        if start >= self._kept:
            return None
        rest = Whole(self._file)
        vars(rest).update(vars(self), _start=start, total_bytes=self.total_bytes - start)
        rest._newlines -= sum(piece.count(b"\n") for piece in self._read(0, start))
        return rest

    @property
    def total_lines(self) -> int:
        return self._newlines + (not self._is_ended)

    def add(self, piece: bytes | bytearray | memoryview) -> None:
        if not piece:
            return
        self.total_bytes += len(piece)
        self._newlines += bytes(piece).count(b"\n")
        self._is_ended = piece[-1] == 0x0A
        if self.problem:
            return
        room = MOST - self._kept
        try:
            self._file = self._file or _Unnamed()
            self._file.write(memoryview(piece)[:room])
        except OSError as error:
            self.problem = f"the rest could not be kept: {error.strerror}"
            return
        self._kept += min(len(piece), room)
        if len(piece) > room:
            self.problem = f"only the first {MOST // 1024 // 1024} MiB are kept"

    def masked(self, mask: Callable[[str], str]) -> Whole:
        """The same, with every text that is taken out of it passed through `mask`."""
        same = Whole(self._file)
        vars(same).update(vars(self), _masks=(*self._masks, mask))
        return same

    def pieces(self) -> Iterator[str]:
        """The text from its beginning, piece by piece."""
        held = ""
        for piece in self._decoded():
            held += piece
            for mask in self._masks:
                held = mask(held)
            yield held[:-LONGEST_SECRET]
            held = held[-LONGEST_SECRET:]
        yield held
        if self._kept < self._start + self.total_bytes:
            yield f"\n[the text ends here: {self.problem}]\n"

    def _decoded(self) -> Iterator[str]:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        for piece in self._read(self._start, self._kept):
            yield decoder.decode(piece).replace("\0", "␀")
        yield decoder.decode(b"", final=True)

    def _read(self, start: int, end: int) -> Iterator[bytes]:
        for place in range(start, end, PIECE):
            stop = min(place + PIECE, end)
            yield self._content[place:stop] if self._file is None else self._file.read(place, stop - place)

    def __reduce__(self) -> tuple[Callable[[], None], tuple[()]]:
        return _left_behind, ()


class _Unnamed:
    """A file without a name, gone when nobody holds this any more."""

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


def _left_behind() -> None:
    """It stays in the process that has the file."""
