"""Reads a page of lines from a file of any size: the time grows with the offset, the memory does not."""

from __future__ import annotations

import codecs
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, islice, takewhile
from typing import AnyStr, BinaryIO, Generic, NamedTuple

from forge.core.errors import ErrorKind, ToolError
from forge.workspace.text import encoding_of, split_lines

EXACT = 16 * 1024 * 1024  # bytes: all lines of smaller files are counted, and one page may span so many
BLOCK = 256 * 1024  # bytes read at once
DENSE = 30  # bytes a line: below that, counting is faster than deleting

_INSIDE = bytes(range(0x80, 0xC0))  # continuation bytes of UTF-8


class PageLine(NamedTuple):
    text: str
    ending: str  # as in the file; empty after the last line
    more: int = 0  # characters that were clipped
    whole: bool = True  # False: reading stopped inside the line


@dataclass(frozen=True, slots=True)
class Page:
    """Some lines of a file, and its total number of lines."""

    first: int
    lines: list[PageLine]
    total: int  # lines of the file
    exact: bool  # False: the total is a minimum
    ended: bool  # True: no lines follow

    @property
    def last(self) -> int:
        return self.first + len(self.lines) - 1


@dataclass(frozen=True, slots=True)
class PageBounds:
    """The limits of a page, which always ends after a whole line and has at least one."""

    lines: int = 0  # 0: no limit
    size: int = 0  # bytes of the lines with their numbers, as `number_lines` shows them; 0: no limit
    characters: int = 2_000  # of a line


def number_lines(first: int, lines: Iterable[PageLine]) -> list[str]:
    """Formats lines for the model."""
    return [
        f"{number:6d}\t{text}"
        if not more
        else f"{number:6d}\t{text}[… {'' if whole else 'at least '}{more} more characters]"
        for number, (text, _, more, whole) in enumerate(lines, first)
    ]


def read_page(
    file: BinaryIO, first: int, bounds: PageBounds, *, exact: int = EXACT, stopped: Callable[[], bool] = lambda: False
) -> Page:
    """Reads the lines from number `first` on. Raises `ToolError` if they are not text, or if it was `stopped`.

    Splits lines as `split_lines` does. If the file grows or shrinks meanwhile, its content at the time of reading
    counts.
    """
    source = _BlockSource(file, stopped)
    mark = file.read(4)
    encoding, found = encoding_of(mark)
    file.seek(len(found))
    if encoding == "utf-8":
        return _PageReader(source, source.blocks(), _OF_BYTES, exact).read_page_from(first, bounds)
    return _PageReader(source, source.texts(encoding), _OF_TEXT, exact).read_page_from(first, bounds)


class _BlockSource:
    """Reads the file in blocks, from its current position."""

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
            raise _not_text_error(encoding[:6].upper(), f"before byte {self.read:,}") from None


@dataclass(frozen=True, slots=True)
class _LineFormat(Generic[AnyStr]):
    """Functions to find lines in bytes or in text: UTF-8 need not be decoded to count lines."""

    newline: AnyStr
    back: AnyStr
    end: re.Pattern[AnyStr]
    split: Callable[[AnyStr], list[AnyStr]]
    characters: Callable[[AnyStr], int]
    text: Callable[[AnyStr, bool], str]  # True: a partial character at the end is left out
    width: int  # units a character takes at most


_OF_BYTES: _LineFormat[bytes] = _LineFormat(
    b"\n",
    b"\r",
    re.compile(rb"\r\n?|\n"),
    lambda block: block.splitlines(keepends=True),  # for bytes, it knows the same endings as we do
    lambda part: len(part) if part.isascii() else len(part.translate(None, _INSIDE)),
    lambda part, is_part: codecs.utf_8_decode(part, "strict", not is_part)[0],
    4,
)
_OF_TEXT: _LineFormat[str] = _LineFormat(
    "\n", "\r", re.compile(r"\r\n?|\n"), split_lines, len, lambda part, is_part: part, 1
)


class _PageReader(Generic[AnyStr]):
    """Skips to the first line, takes lines while they fit, counts the rest."""

    def __init__(self, source: _BlockSource, blocks: Iterator[AnyStr], form: _LineFormat[AnyStr], exact: int) -> None:
        self.source = source
        self.form: _LineFormat[AnyStr] = form
        self.exact = exact
        self.blocks: Iterator[AnyStr] = self._split_between_lines(blocks)
        self.rest: AnyStr | None = None  # of the block that the page begins in, before its lines are taken one by one
        self.pieces: Iterator[AnyStr] = iter(())  # of the block whose lines are being taken
        self.is_cut = False  # True: reading stopped inside a line
        self.is_sparse = True

    def read_page_from(self, first: int, bounds: PageBounds) -> Page:
        passed, block = self._skip(first - 1)
        if block is None:
            return Page(first, [], passed, exact=True, ended=True)
        lines, used, self.rest = _take_short_lines(block, first, bounds)
        taken = self._lines(bounds.characters, is_first=not lines)
        while not bounds.lines or len(lines) < bounds.lines:
            try:
                line = next(taken, None)
            except UnicodeDecodeError:
                raise _not_text_error("UTF-8", f"in line {first + len(lines)}") from None
            if line is None:
                return Page(first, lines, passed + len(lines), exact=not self.is_cut, ended=not self.is_cut)
            used += len(number_lines(first + len(lines), [line])[0].encode()) + 1
            if lines and 0 < bounds.size < used:
                total, complete = self._count(passed + len(lines) + 1)
                return Page(first, lines, total, exact=complete, ended=False)
            lines.append(line)
        last = passed + len(lines)
        total, complete = self._count(last)
        return Page(first, lines, total, exact=complete, ended=complete and total == last)

    def _split_between_lines(self, blocks: Iterator[AnyStr]) -> Iterator[AnyStr]:
        """Splits the blocks again, so that none ends between \\r and \\n."""
        held = nothing = self.form.back[:0]
        for piece in blocks:
            block = held + piece
            held = self.form.back if block.endswith(self.form.back) else nothing
            yield block[:-1] if held else block
        if held:
            yield held

    def _skip(self, lines: int) -> tuple[int, AnyStr | None]:
        """Returns the number of lines passed, and the rest of their block; None if the file ends before."""
        passed, inside = 0, False
        for block in self.blocks:
            ends = self._ends(block) if lines else 0
            if passed + ends >= lines:
                start = next(islice(self.form.end.finditer(block), lines - passed - 1, None)).end() if lines else 0
                return lines, block[start:]
            passed += ends
            inside = self._is_inside(block, inside)
        return passed + inside, None

    def _lines(self, characters: int, *, is_first: bool) -> Iterator[PageLine]:
        furthest = self.source.read + self.exact
        line = _OpenLine(self.form, characters)
        block: AnyStr | None = self.rest
        self.rest = None
        while block is not None:
            self.pieces = iter(self.form.split(block))
            for piece in self.pieces:
                body = piece.rstrip(self.form.newline + self.form.back)
                line.add(body)
                if len(body) < len(piece):
                    yield line.close(piece[len(body) :])
                    line, is_first = _OpenLine(self.form, characters), False
            block = next(self.blocks, None)
            if block is not None and self.source.read > furthest:
                self.is_cut = True
                break
        if line.size and (is_first or not self.is_cut):
            yield line.close(self.form.newline[:0], whole=not self.is_cut)

    def _count(self, total: int) -> tuple[int, bool]:
        """Counts the lines of the file, `total` of which are known; False: only of its first part."""
        inside = False
        if self.rest is not None:
            total, inside = total + self._ends(self.rest), self._is_inside(self.rest, False)
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
        """Counts the lines that end in the block."""
        if self.form.back in block:
            return len(self.form.split(block)) - self._is_inside(block, False)
        newline = self.form.newline
        # deleting jumps from one newline to the next, counting reads each byte
        found = len(block) - len(block.replace(newline, newline[:0])) if self.is_sparse else block.count(newline)
        self.is_sparse = found * DENSE < len(block)
        return found

    def _is_inside(self, block: AnyStr, before: bool) -> bool:
        """Returns whether text follows the last line ending."""
        return not block.endswith((self.form.newline, self.form.back)) if block else before


def _take_short_lines(block: AnyStr, first: int, bounds: PageBounds) -> tuple[list[PageLine], int, AnyStr]:
    """Takes the lines from the start of a block that are whole, short and within the bounds, all at once.

    Returns the lines, their size, and the rest of the block. Most pages have no other lines.
    """
    nothing: tuple[list[PageLine], int, AnyStr] = ([], 0, block)
    if not isinstance(block, bytes) or block.count(b"\r") != block.count(b"\r\n"):
        return nothing
    pieces = block.split(b"\n", bounds.lines or -1)
    pieces.pop()  # what follows the last newline
    digits = max(6, len(str(first)))
    if first + len(pieces) >= 10**digits:
        return nothing
    around = digits + 2  # bytes that are shown with a line: its number, a tab and the newline
    sizes = [len(piece) + around for piece in pieces]
    if max(sizes, default=0) > bounds.characters + around:
        pieces = list(takewhile(lambda piece: len(piece) <= bounds.characters, pieces))
        del sizes[len(pieces) :]
    totals = list(accumulate(sizes))
    fitting = bisect_right(totals, bounds.size) if bounds.size else len(totals)
    if not fitting:
        return nothing
    end = totals[fitting - 1] - fitting * (around - 1)
    try:
        texts = block[:end].decode().split("\n")
    except UnicodeDecodeError:  # in which line, the careful way finds out
        return nothing
    texts.pop()
    returns = block.count(b"\r", 0, end)
    if returns:
        lines = [PageLine(text[:-1], "\r\n") if text[-1:] == "\r" else PageLine(text, "\n") for text in texts]
    else:
        new = tuple.__new__  # faster than PageLine(…), with the same result
        lines = [new(PageLine, (text, "\n", 0, True)) for text in texts]
    return lines, totals[fitting - 1] - returns, block[end:]


class _OpenLine(Generic[AnyStr]):
    """A line being read: the part that will be shown, and the length of the rest."""

    __slots__ = ("characters", "form", "rest", "size", "visible")

    def __init__(self, form: _LineFormat[AnyStr], characters: int) -> None:
        self.form: _LineFormat[AnyStr] = form
        self.characters = characters
        self.visible: AnyStr = form.newline[:0]
        self.rest = 0  # characters
        self.size = 0

    def add(self, body: AnyStr) -> None:
        self.size += len(body)
        room = self.characters * self.form.width - len(self.visible)
        if len(body) <= room:
            self.visible = self.visible + body
        else:
            self.visible = self.visible + body[:room]
            self.rest += self.form.characters(body[room:])

    def close(self, ending: AnyStr, *, whole: bool = True) -> PageLine:
        is_part = self.size > len(self.visible)
        text = self.form.text(self.visible, is_part or not whole)
        more = 0
        if is_part or len(text) > self.characters:
            text = text[: self.characters]
            more = self.form.characters(self.visible) + self.rest - len(text)
        return PageLine(text, ending.decode() if isinstance(ending, bytes) else str(ending), more, whole)


def _not_text_error(encoding: str, where: str) -> ToolError:
    return ToolError(
        f"it is not {encoding} text: a byte {where} cannot be decoded", ErrorKind.USER, "Convert it to UTF-8 first."
    )
