"""Builds the answer of grep_search: lines as text for the model and as data for programs, and notes on omissions."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from forge.core.context import ToolContext
from forge.core.errors import ToolError
from forge.core.execution.threads import in_thread
from forge.core.result import ToolResult
from forge.tools.grep_search.ripgrep import FoundMatches, GrepRequest, Position
from forge.tools.shared.listing import printable, sendable_name
from forge.workspace.history.tracking import batch_read_notes, note_read
from forge.workspace.paths import Location
from forge.workspace.paths.open import open_file

AT_ONCE = 20  # files a chunk of streamed output


class SearchAnswer:
    """Grows file by file."""

    def __init__(self, request: GrepRequest, found: FoundMatches, before: int, after: int, names_only: bool) -> None:
        self.request = request
        self.found = found
        self.before = before
        self.after = after
        self.names_only = names_only
        self.text: list[str] = []
        self.matches: list[dict[str, Any]] = []
        self.files: list[str] = []
        self.denied = 0  # files that a rule leaves out
        self.changed = 0  # files that are not what they were

    async def collect(self, ctx: ToolContext, paths: Sequence[str], most: int) -> None:
        """Reads the files in a thread; listeners see them as they come."""
        size = AT_ONCE if ctx.activity.listening else max(1, len(paths))
        for start in range(0, len(paths), size):
            before = len(self.text)
            await in_thread(lambda some=paths[start : start + size]: self._add_all(some, most))  # type: ignore[misc]
            if len(self.text) > before:
                ctx.output("\n".join(self.text[before:]) + "\n")

    def _add_all(self, paths: Sequence[str], most: int) -> None:
        with batch_read_notes():
            for path in paths:
                if self.names_only:
                    self._add_name(path)
                else:
                    self._add_lines(path, most - len(self.matches))

    def _add_name(self, path: str) -> None:
        location = self.request.location.child(path)
        if can_open(location):
            self.text.append(printable(location.shown))
            self.files.append(sendable_name(location.shown))
        else:
            self.changed += 1

    def _add_lines(self, path: str, room: int) -> None:
        location = self.request.location.child(path)
        positions = self.found.positions.get(path, [])[: max(0, room)]
        lines = read_lines(location, positions, self.before, self.after) if positions else None
        if not lines:
            self.changed += room > 0
            return
        name, sent = printable(location.shown), sendable_name(location.shown)
        self.files.append(sent)
        last = -1
        for line in lines:
            if (self.before or self.after) and self.text and line.number != last + 1:
                self.text.append("--")
            last = line.number
            mark = ":" if line.matches else "-"
            self.text.append(f"{name}{mark}{line.number}{mark}{line.text}")
            if line.matches:
                self.matches.append({"path": sent, "line": line.number, "text": line.text})

    def result(self, seconds: float) -> ToolResult:
        found, files = self.found, len(self.found.counts)
        total = files if self.names_only else found.total
        shown = len(self.files if self.names_only else self.matches)
        data: dict[str, Any] = {} if self.names_only else {"matches": self.matches}
        data |= {"files": self.files, "total": total, "total_files": files}
        data |= {"truncated": found.is_partial or shown < total, "timed_out": found.is_partial}
        notes = self._notes(shown, total, seconds)
        where = "" if self.names_only else f" in {_count_text(files, 'file')}"
        return ToolResult(
            for_llm="\n".join([*(self.text or ["No matches."]), *(f"[{note}]" for note in notes)]),
            title=_count_text(total, "file" if self.names_only else "matching line") + where,
            data=data,
        )

    def _notes(self, shown: int, total: int, seconds: float) -> Iterator[str]:
        found = self.found
        if shown < total:
            what = "file" if self.names_only else "matching line"
            where = "" if self.names_only else f" in {_count_text(len(found.counts), 'file')}"
            least = "at least " if found.is_partial else ""
            yield f"{shown:,} of {least}{_count_text(total, what)}{where}; narrow the search or raise max_results"
        if found.is_partial:
            yield f"stopped after {seconds:g} s, so there may be more; narrow the search"
        if self.request.reads_brackets:
            yield "the brackets in include were read as plain characters: as a glob it finds nothing"
        if self.denied:
            yield f"{_count_text(self.denied, 'file')} left out: a rule denies reading"
        if self.changed:
            yield f"{_count_text(self.changed, 'file')} changed during the search; search again to see it all"
        if found.is_too_hard:
            yield "some lines were skipped: the pattern takes too long on them; simplify it"
        for path in found.unread_rules[:3]:
            name = printable(self.request.location.child(path).shown)
            yield f"{name} is not a regular file, so its rules do not count; remove it to search faster"
        if found.unreadable:
            yield "some files or directories could not be read"


def _count_text(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


# Reads the found lines again, through the only function that cannot leave the workspace.

SMALL = 8 * 1024 * 1024  # bytes of a file that is read as a whole
AROUND = 256 * 1024  # bytes read on either side of a line of a larger one
SHOWN_BEFORE, SHOWN_BEHIND = 150, 350  # characters of a long line that are shown around the match
LONGEST_SHOWN = SHOWN_BEFORE + SHOWN_BEHIND

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
    """Returns whether the file can be opened; the model then knows of it and may edit it."""
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
    if len(line) <= LONGEST_SHOWN:
        return line.decode(errors="replace")
    left = (
        line[:column].decode(errors="replace")
        if column <= 4 * SHOWN_BEFORE
        else _decode_tail(line[column - 4 * SHOWN_BEFORE : column])
    )
    right = _decode_head(line[column : column + 4 * SHOWN_BEHIND])
    is_cut_left = column > 4 * SHOWN_BEFORE or len(left) > SHOWN_BEFORE
    is_cut_right = len(line) > column + 4 * SHOWN_BEHIND or len(right) > SHOWN_BEHIND
    if not is_cut_left and not is_cut_right:
        return left + right
    return "…" * is_cut_left + left[-SHOWN_BEFORE:] + right[:SHOWN_BEHIND] + "…" * is_cut_right


def _decode_tail(piece: bytes) -> str:
    """Drops the rest of a character that was cut in two."""
    return piece.lstrip(bytes(range(0x80, 0xC0))).decode(errors="replace")


def _decode_head(piece: bytes) -> str:
    return piece.decode(errors="ignore" if len(piece) == 4 * SHOWN_BEHIND else "replace")
