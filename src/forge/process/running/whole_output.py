"""Keeps a long output, of which a result holds only a part, outside of memory until it is written to a file."""

from __future__ import annotations

import codecs
import os
import tempfile
from collections.abc import Callable, Iterator

MOST = 64 * 1024 * 1024  # bytes that are kept, the first ones
PIECE = 1024 * 1024  # bytes that are read at once
LOOKED_AT = 64 * 1024  # bytes at the beginning that tell a text from other data
LONGEST_SECRET = 64 * 1024  # characters held back, so that no secret is cut in two


class WholeOutput:
    """The output of a program, in an unnamed file. If writing fails, `problem` says why."""

    def __init__(self, file: _Unnamed | None = None) -> None:
        self.name = ""  # of the one file for all results of a job; "": each result has its own file
        self.total_bytes = 0
        self.problem = ""  # why some of it is missing
        self._stored = 0
        self._newlines = 0
        self._is_ended = True  # with a newline
        self._masks: tuple[Callable[[str], str], ...] = ()
        self._file = file
        self._content = b""  # used instead of the file

    @classmethod
    def of(cls, content: bytes, name: str = "") -> WholeOutput:
        """Makes one from content in memory."""
        whole = cls()
        whole.name = name
        whole._content = content
        whole.total_bytes = whole._stored = len(content)
        whole._newlines, whole._is_ended = content.count(b"\n"), content.endswith(b"\n")
        return whole

    def snapshot(self, name: str) -> WholeOutput:
        """Returns the output so far; what is added later is not in it."""
        same = WholeOutput(self._file)
        vars(same).update(vars(self), name=name)
        return same

    @property
    def stored_bytes(self) -> int:
        return self._stored

    @property
    def is_binary(self) -> bool:
        """Says whether the output is no text, by its beginning."""
        for piece in self._read(0, min(self._stored, LOOKED_AT)):
            decoder = codecs.getincrementaldecoder("utf-8")()
            try:
                return "\0" in decoder.decode(piece)
            except UnicodeDecodeError:
                return True
        return False

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

    def pieces(self) -> Iterator[bytes]:
        """Yields the output from its beginning, piece by piece: all bytes as they are, with the secrets masked.

        A NUL in a text is written as ␀.
        """
        held, is_binary = "", self.is_binary
        decoder = codecs.getincrementaldecoder("latin-1" if is_binary else "utf-8")("surrogateescape")
        coding = "latin-1" if is_binary else "utf-8"
        for piece in self._read(0, self._stored):
            if is_binary and not self._masks:
                yield piece
                continue
            held += decoder.decode(piece)
            for mask in self._masks:
                held = mask(held)
            yield _encode(held[:-LONGEST_SECRET], coding)
            held = held[-LONGEST_SECRET:]
        yield _encode(held + decoder.decode(b"", final=True), coding)
        if self._stored < self.total_bytes and not is_binary:
            yield f"\n[the text ends here: {self.problem}]\n".encode()

    def _read(self, start: int, end: int) -> Iterator[bytes]:
        for position in range(start, end, PIECE):
            stop = min(position + PIECE, end)
            yield self._content[position:stop] if self._file is None else self._file.read(position, stop - position)

    def __reduce__(self) -> tuple[Callable[[], None], tuple[()]]:
        return _restore_nothing, ()


def _encode(text: str, coding: str) -> bytes:
    if coding == "latin-1":
        return text.encode(coding, "replace")  # a mask may have put other characters in
    return text.replace("\0", "␀").encode(coding, "surrogateescape")


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
