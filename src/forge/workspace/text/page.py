"""Reads a page of lines from a file of any size: the cost grows with the offset, the memory does not."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import AnyStr, BinaryIO, Generic, NamedTuple

from forge.core.errors import ErrorKind, ToolError
from forge.workspace.text import encoding_of, split_lines

EXACT = 16 * 1024 * 1024  # bytes up to which all lines of a file are counted, and that one page may span
BLOCK = 256 * 1024  # bytes read at once
DENSE = 30  # bytes a line: below, counting beats deleting

_INSIDE = bytes(range(0x80, 0xC0))  # bytes that go on with a UTF-8 character


class Line(NamedTuple):
    text: str
    ending: str  # as in the file; nothing after the last line
    more: int = 0  # characters that were clipped
    whole: bool = True  # False: reading stopped inside it, so there may be more


@dataclass(frozen=True, slots=True)
class Page:
    """Some lines, and what is known of the whole."""

    first: int
    lines: list[Line]
    total: int  # lines of the file
    exact: bool  # False: at least so many
    ended: bool  # whether nothing follows these lines

    @property
    def last(self) -> int:
        return self.first + len(self.lines) - 1


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where a page ends: always after a whole line, and never before the first."""

    lines: int = 0  # 0: no limit
    size: int = 0  # bytes of the lines with their numbers, as `numbered` shows them; 0: no limit
    characters: int = 2_000  # of a line


def numbered(number: int, line: Line) -> str:
    """A line as a model is shown it."""
    if not line.more:
        return f"{number:6d}\t{line.text}"
    least = "" if line.whole else "at least "
    return f"{number:6d}\t{line.text}[… {least}{line.more} more characters]"


def read_page(
    file: BinaryIO, first: int, bounds: Bounds, *, exact: int = EXACT, stopped: Callable[[], bool] = lambda: False
) -> Page:
    """The lines from number `first` on. Raises `ToolError` where they are no text, or when it was `stopped`.

    Lines are told apart as `split_lines` does. What the file holds while it is read counts, should it grow or shrink.
    """
    source = _Source(file, stopped)
    mark = file.read(4)
    encoding, found = encoding_of(mark)
    file.seek(len(found))
    if encoding == "utf-8":
        return _Reader(source, source.blocks(), _OF_BYTES, exact).page(first, bounds)
    return _Reader(source, source.texts(encoding), _OF_TEXT, exact).page(first, bounds)


class _Source:
    """The file in blocks, from where it stands."""

    def __init__(self, file: BinaryIO, stopped: Callable[[], bool]) -> None:
        self.file = file
        self.stopped = stopped
        self.read = 0  # bytes

    def blocks(self) -> Iterator[bytes]:
        while block := self.file.read(BLOCK):
            self.read += len(block)
            yield block
            if self.stopped():
                raise ToolError("stopped before the page was found", ErrorKind.CANCELLED, "Ask for a smaller offset.")

    def texts(self, encoding: str) -> Iterator[str]:
        decoder = codecs.getincrementaldecoder(encoding)()
        try:
            for block in self.blocks():
                yield decoder.decode(block)
            yield decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            raise _not_text(encoding[:6].upper(), f"before byte {self.read:,}") from None


@dataclass(frozen=True, slots=True)
class _Form(Generic[AnyStr]):
    """How lines are found in bytes, or in text: UTF-8 need not be decoded to be counted."""

    newline: AnyStr
    back: AnyStr
    end: re.Pattern[AnyStr]
    split: Callable[[AnyStr], list[AnyStr]]
    characters: Callable[[AnyStr], int]
    text: Callable[[AnyStr, bool], str]  # True: it may end inside a character, which is left out
    width: int  # units a character takes at most


_OF_BYTES: _Form[bytes] = _Form(
    b"\n",
    b"\r",
    re.compile(rb"\r\n?|\n"),
    lambda block: block.splitlines(keepends=True),  # of bytes it knows no other endings than ours
    lambda part: len(part) if part.isascii() else len(part.translate(None, _INSIDE)),
    lambda part, is_part: codecs.utf_8_decode(part, "strict", not is_part)[0],
    4,
)
_OF_TEXT: _Form[str] = _Form("\n", "\r", re.compile(r"\r\n?|\n"), split_lines, len, lambda part, is_part: part, 1)


class _Reader(Generic[AnyStr]):
    """Skips to the first line, takes lines while they fit, counts what follows."""

    def __init__(self, source: _Source, blocks: Iterator[AnyStr], form: _Form[AnyStr], exact: int) -> None:
        self.source = source
        self.form: _Form[AnyStr] = form
        self.exact = exact
        self.blocks: Iterator[AnyStr] = self._cut_between_lines(blocks)
        self.pieces: Iterator[AnyStr] = iter(())  # of the block whose lines are being taken
        self.is_cut = False  # whether reading stopped inside a line
        self.is_sparse = True

    def page(self, first: int, bounds: Bounds) -> Page:
        passed, block = self._skip(first - 1)
        if block is None:
            return Page(first, [], passed, exact=True, ended=True)
        lines: list[Line] = []
        used = 0
        taken = self._lines(block, bounds.characters)
        while not bounds.lines or len(lines) < bounds.lines:
            try:
                line = next(taken, None)
            except UnicodeDecodeError:
                raise _not_text("UTF-8", f"in line {first + len(lines)}") from None
            if line is None:
                return Page(first, lines, passed + len(lines), exact=not self.is_cut, ended=not self.is_cut)
            used += len(numbered(first + len(lines), line).encode()) + 1
            if lines and 0 < bounds.size < used:
                total, complete = self._count(passed + len(lines) + 1)
                return Page(first, lines, total, exact=complete, ended=False)
            lines.append(line)
        last = passed + len(lines)
        total, complete = self._count(last)
        return Page(first, lines, total, exact=complete, ended=complete and total == last)

    def _cut_between_lines(self, blocks: Iterator[AnyStr]) -> Iterator[AnyStr]:
        """The blocks cut anew, so that none ends between \\r and \\n."""
        held = nothing = self.form.back[:0]
        for piece in blocks:
            block = held + piece
            held = self.form.back if block.endswith(self.form.back) else nothing
            yield block[:-1] if held else block
        if held:
            yield held

    def _skip(self, lines: int) -> tuple[int, AnyStr | None]:
        """How many lines were passed, and what follows them in their block; None where the file ends before."""
        passed, inside = 0, False
        for block in self.blocks:
            ends = self._ends(block) if lines else 0
            if passed + ends >= lines:
                start = next(islice(self.form.end.finditer(block), lines - passed - 1, None)).end() if lines else 0
                return lines, block[start:]
            passed += ends
            inside = self._is_inside(block, inside)
        return passed + inside, None

    def _lines(self, block: AnyStr | None, characters: int) -> Iterator[Line]:
        furthest, is_first = self.source.read + self.exact, True
        line = _Open(self.form, characters)
        while block is not None:
            self.pieces = iter(self.form.split(block))
            for piece in self.pieces:
                body = piece.rstrip(self.form.newline + self.form.back)
                line.add(body)
                if len(body) < len(piece):
                    yield line.closed(piece[len(body) :])
                    line, is_first = _Open(self.form, characters), False
            block = next(self.blocks, None)
            if block is not None and self.source.read > furthest:
                self.is_cut = True
                break
        if line.size and (is_first or not self.is_cut):
            yield line.closed(self.form.newline[:0], whole=not self.is_cut)

    def _count(self, total: int) -> tuple[int, bool]:
        """The lines of the file, `total` of which are known; False: of its first part."""
        inside = False
        for piece in self.pieces:
            inside = not piece.endswith((self.form.newline, self.form.back))
            total += not inside
        known = total
        try:
            for block in self.blocks:
                total += self._ends(block)
                inside = self._is_inside(block, inside)
                if self.source.read >= self.exact and total + inside > known:
                    return total + inside, False
        except ToolError:  # what follows the page is no text
            return total + 1, False
        return total + inside, True

    def _ends(self, block: AnyStr) -> int:
        """How many lines end in the block."""
        if self.form.back in block:
            return len(self.form.split(block)) - self._is_inside(block, False)
        newline = self.form.newline
        # deleting jumps from one to the next, counting looks at each byte
        found = len(block) - len(block.replace(newline, newline[:0])) if self.is_sparse else block.count(newline)
        self.is_sparse = found * DENSE < len(block)
        return found

    def _is_inside(self, block: AnyStr, before: bool) -> bool:
        """Whether after the last ending something came."""
        return not block.endswith((self.form.newline, self.form.back)) if block else before


class _Open(Generic[AnyStr]):
    """A line that is being read: as much of it as will be shown, and how much more there was."""

    __slots__ = ("characters", "form", "kept", "rest", "size")

    def __init__(self, form: _Form[AnyStr], characters: int) -> None:
        self.form: _Form[AnyStr] = form
        self.characters = characters
        self.kept: AnyStr = form.newline[:0]
        self.rest = 0  # characters
        self.size = 0

    def add(self, body: AnyStr) -> None:
        self.size += len(body)
        room = self.characters * self.form.width - len(self.kept)
        if len(body) <= room:
            self.kept = self.kept + body
        else:
            self.kept = self.kept + body[:room]
            self.rest += self.form.characters(body[room:])

    def closed(self, ending: AnyStr, *, whole: bool = True) -> Line:
        is_part = self.size > len(self.kept)
        text = self.form.text(self.kept, is_part or not whole)
        more = 0
        if is_part or len(text) > self.characters:
            text = text[: self.characters]
            more = self.form.characters(self.kept) + self.rest - len(text)
        return Line(text, ending.decode() if isinstance(ending, bytes) else str(ending), more, whole)


def _not_text(encoding: str, where: str) -> ToolError:
    return ToolError(
        f"it is not {encoding} text: a byte {where} cannot be decoded", ErrorKind.USER, "Convert it to UTF-8 first."
    )
