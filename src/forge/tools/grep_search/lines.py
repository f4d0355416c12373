"""Reads the found lines again, through the only function that cannot leave the workspace."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from forge.core.errors import ToolError
from forge.tools.grep_search.matches import Position
from forge.workspace.history.tracking import note_read
from forge.workspace.paths import Location
from forge.workspace.paths.open import open_file

SMALL = 8 * 1024 * 1024  # bytes of a file that is read as a whole
AROUND = 256 * 1024  # bytes read on either side of a line of a larger one
BEFORE, BEHIND = 150, 350  # characters of a long line that are shown around the match
LONGEST = BEFORE + BEHIND

_WIDE = (b"\xff\xfe", b"\xfe\xff")
_MARK = b"\xef\xbb\xbf"


class FoundLine(NamedTuple):
    """A line to show."""

    number: int
    text: str
    matches: bool


def read_lines(location: Location, positions: list[Position], before: int, after: int) -> list[FoundLine] | None:
    """Returns the matching lines and their context, in order; None if the file changed since the search."""
    try:
        file = open_file(location)
    except ToolError:
        return None
    try:
        status = os.fstat(file)
        content = _Content(file, status.st_size)
        shown: dict[int, FoundLine] = {}
        for position in sorted(positions):
            for line in _read_around(content, position, before, after):
                if line.matches or line.number not in shown:
                    shown[line.number] = line
        note_read(location, status, content.raw)
    except (OSError, ValueError):
        return None
    finally:
        os.close(file)
    return [shown[number] for number in sorted(shown)]


def can_open(location: Location) -> bool:
    """Returns True if the file can be opened; the model then knows of it and may edit it."""
    try:
        file = open_file(location)
    except ToolError:
        return False
    try:
        note_read(location, os.fstat(file))
    finally:
        os.close(file)
    return True


class _Content:
    """Holds the bytes of a file as ripgrep sees them: in UTF-8, without a byte order mark."""

    def __init__(self, file: int, size: int) -> None:
        self._file = file
        head = os.pread(file, min(size, SMALL) + 1, 0)
        self.raw = head if len(head) <= SMALL else None  # all of it
        self._mark = len(_MARK) if head.startswith(_MARK) else 0
        if head[:2] in _WIDE:
            rest = b"" if self.raw is not None else os.pread(file, size, len(head))
            self._text: bytes | None = decode_wide(head + rest)
        else:
            self._text = None if self.raw is None else head[self._mark :]

    def around(self, offset: int) -> tuple[bytes, int]:
        """Returns the bytes around an offset, and the offset within them."""
        if self._text is not None:
            return self._text, offset
        start = max(0, offset - AROUND)
        return os.pread(self._file, offset - start + AROUND, start + self._mark), offset - start


def decode_wide(content: bytes) -> bytes:
    """Converts UTF-16 with a byte order mark to UTF-8 without one."""
    encoding = "utf-16-le" if content.startswith(_WIDE[0]) else "utf-16-be"
    return content[2:].decode(encoding, "replace").encode()


def _read_around(content: _Content, position: Position, before: int, after: int) -> Iterator[FoundLine]:
    """Yields the line of a match, and the lines before and after it."""
    number, column, offset = position
    text, start = content.around(offset)
    if start > len(text) or (start and text[start - 1] != 10):
        raise ValueError("no line begins here any more")
    line_start = start
    for back in range(1, before + 1):
        if line_start == 0:
            break
        above = text.rfind(b"\n", 0, line_start - 1) + 1
        yield FoundLine(number - back, render_line(text[above : line_start - 1]), False)
        line_start = above
    end = text.find(b"\n", start)
    yield FoundLine(number, render_line(text[start : end if end >= 0 else len(text)], column), True)
    for on in range(1, after + 1):
        if end < 0 or end + 1 >= len(text):
            break
        start, end = end + 1, text.find(b"\n", end + 1)
        yield FoundLine(number + on, render_line(text[start : end if end >= 0 else len(text)]), False)


def render_line(line: bytes, column: int = 0) -> str:
    """Returns a line to show; of a long line, the part around the column."""
    line = line.removesuffix(b"\r")
    column = min(column, len(line))
    if len(line) <= LONGEST:
        return line.decode(errors="replace")
    left = (
        line[:column].decode(errors="replace")
        if column <= 4 * BEFORE
        else _decode_tail(line[column - 4 * BEFORE : column])
    )
    right = _decode_head(line[column : column + 4 * BEHIND])
    is_cut_left = column > 4 * BEFORE or len(left) > BEFORE
    is_cut_right = len(line) > column + 4 * BEHIND or len(right) > BEHIND
    if not is_cut_left and not is_cut_right:
        return left + right
    return "…" * is_cut_left + left[-BEFORE:] + right[:BEHIND] + "…" * is_cut_right


def _decode_tail(piece: bytes) -> str:
    """Drops the rest of a character that was cut in two."""
    return piece.lstrip(bytes(range(0x80, 0xC0))).decode(errors="replace")


def _decode_head(piece: bytes) -> str:
    return piece.decode(errors="ignore" if len(piece) == 4 * BEHIND else "replace")
