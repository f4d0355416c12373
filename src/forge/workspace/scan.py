"""Searches files for a pattern as a program of its own, which can be killed whatever the pattern does.

`python -m forge.workspace.scan KIND CASE MOST SECONDS PATTERN` reads paths, each followed by a NUL byte, and writes for
every file in which lines match a line of its own: the path, a NUL byte, how many lines match, and of some of them
` line:column:offset`, where column and offset count bytes from 0. The path is empty where files could not be read.
"""

from __future__ import annotations

import os
import re
import select
import signal
import sys
from collections.abc import Callable, Iterator
from typing import AnyStr, NoReturn

from forge.workspace.expression import Expressions
from forge.workspace.pattern import literal_pattern, read_pattern

SMALL = 64 * 1024  # bytes: most files are read at once
PIECE = 32 * 1024 * 1024  # bytes of a large file searched at once, more where a line is longer
LARGEST_WIDE = 256 * 1024 * 1024  # bytes of a file in UTF-16, which is decoded as a whole
BATCH = 4_096  # bytes of paths handed over at once: what a pipe takes without waiting
RECORD = 4_000  # bytes written at once: what two writers cannot mix up
SPARE = 5  # seconds after which this program ends by itself, when whoever should have killed it is gone

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WIDE = (b"\xff\xfe", b"\xfe\xff")
_MARKED = (*_WIDE, b"\xef\xbb")

Position = tuple[int, int, int]  # the line's number from 1, the match's column, the line's offset


class Scan:
    """One worker's search."""

    def __init__(self, expressions: Expressions, room: int, write: Callable[[bytes], object]) -> None:
        self.expressions = expressions
        self.room = room  # for so many more positions
        self.write = write
        self.unreadable = 0

    def search(self, paths: bytes) -> None:
        """Paths, each followed by a NUL byte."""
        for path in paths.split(b"\0"):
            if not path:
                continue
            try:
                file = os.open(path, _READ)
                try:
                    head = os.read(file, SMALL)
                    if len(head) < SMALL and head[:2] not in _MARKED and not self._may_match(head):
                        continue  # most files: one glance is enough
                    count, found = self._search_file(head, file)
                finally:
                    os.close(file)
            except FileNotFoundError:
                continue
            except OSError:
                self.unreadable += 1
                continue
            if count:
                self.report(path, count, found)

    def _may_match(self, content: bytes) -> bool:
        hints = self.expressions.hints
        place = min((found for found in map(content.find, hints) if found >= 0), default=-1)
        if place < 0 and hints:
            return False
        expression, text = self.expressions.matching(content)
        start = content.rfind(b"\n", 0, place) + 1 if text is content and place > 0 else 0  # no line before it matches
        return expression.search(text, start) is not None

    def _search_file(self, head: bytes, file: int) -> tuple[int, list[Position]]:
        """How many lines match, and where the first of them are. A file with a NUL byte is binary and not searched."""
        total = 0
        found: list[Position] = []
        hints = self.expressions.hints
        for content, line, offset in pieces(head, file):
            if b"\0" in content:
                return 0, []
            if hints and not any(hint in content for hint in hints):
                continue
            count, more = matches(self.expressions, content, self.room - len(found))
            found += [(line + number, column, offset + start) for number, column, start in more]
            total += count
        return total, found

    def report(self, path: bytes, count: int, found: list[Position]) -> None:
        self.room -= len(found)
        line = b"%b\0%d" % (path, count)
        for position in found:
            if len(line) > RECORD:
                self.write(line + b"\n")
                line = b"%b\0%d" % (path, 0)
            line += b" %d:%d:%d" % position
        self.write(line + b"\n")

    def end(self) -> None:
        if self.unreadable:
            self.write(b"\0%d\n" % self.unreadable)


def matches(expressions: Expressions, content: bytes, room: int) -> tuple[int, list[Position]]:
    """How many lines match, and of the first `room` of them the number from 0, the column and the offset."""
    expression, text = expressions.matching(content)
    if isinstance(text, bytes):
        return _matches(expression, text, b"\n", room, len)
    return _matches(expression, text, "\n", room, _bytes_of)


def _bytes_of(text: str) -> int:
    return len(text.encode("utf-8", "surrogateescape"))


def _matches(
    expression: re.Pattern[AnyStr], text: AnyStr, newline: AnyStr, room: int, size: Callable[[AnyStr], int]
) -> tuple[int, list[Position]]:
    search = expression.search
    found: list[Position] = []
    count = place = line = offset = counted = 0
    end = len(text) + (text[-1:] not in (newline, text[:0]))  # behind a last line break there is no line
    while place < end and (match := search(text, place)):
        start = match.start()
        if start >= end:
            break
        count += 1
        if len(found) < room:
            begin = text.rfind(newline, 0, start) + 1
            line += text.count(newline, counted, begin)
            offset += size(text[counted:begin])
            counted = begin
            found.append((line, size(text[begin:start]), offset))
        place = text.find(newline, start) + 1 or end
    return count, found


def pieces(content: bytes, file: int) -> Iterator[tuple[bytes, int, int]]:
    """What was read and what is left, in pieces of whole lines, each with the number of its first line and its offset.

    In UTF-8 without a mark at the beginning, whatever the file is in.
    """
    whole = len(content) < SMALL
    if content[:2] in _WIDE:
        content = widened(content if whole else content + _read(file, LARGEST_WIDE))
        whole = True
    elif content.startswith(b"\xef\xbb\xbf"):
        content = content[3:]
    if whole:
        yield content, 1, 0
    else:
        yield from _large(file, content)


def widened(content: bytes) -> bytes:
    """UTF-16 with its mark, in UTF-8 without one."""
    encoding = "utf-16-le" if content.startswith(_WIDE[0]) else "utf-16-be"
    return content[2:].decode(encoding, "replace").encode()


def _large(file: int, rest: bytes) -> Iterator[tuple[bytes, int, int]]:
    line, offset = 1, 0
    while more := _read(file, PIECE):
        rest += more
        if end := rest.rfind(b"\n") + 1:
            yield rest[:end], line, offset
            line += rest.count(b"\n", 0, end)
            offset += end
            rest = rest[end:]
    yield rest, line, offset


def _read(file: int, size: int) -> bytes:
    found = []
    while size > 0 and (piece := os.read(file, min(size, 1024 * 1024))):
        found.append(piece)
        size -= len(piece)
    return b"".join(found)


def main() -> None:
    kind, case, most, seconds, pattern = sys.argv[1:]
    signal.alarm(int(seconds) + SPARE)
    read = literal_pattern if kind == "fixed" else read_pattern
    scan = Scan(Expressions(read(pattern, folds=case == "any")), int(most), lambda line: os.write(1, line))
    other = 0
    for number, batch in enumerate(_batches(0)):
        if number == 1 and (os.cpu_count() or 1) > 1:
            other = _start_other(scan, int(seconds))
        if other and number % 2 and select.select((), (other,), (), 0)[1]:
            os.write(other, batch)
        else:
            scan.search(batch)
    if other:
        os.close(other)
        os.wait()
    scan.end()


def _start_other(scan: Scan, seconds: int) -> int:
    """A second worker, and the pipe through which it gets its paths."""
    theirs, ours = os.pipe()
    if os.fork():
        os.close(theirs)
        return ours
    os.close(ours)
    _work(scan, theirs, seconds)


def _work(scan: Scan, paths: int, seconds: int) -> NoReturn:
    signal.alarm(seconds + SPARE)  # a fork has none
    try:
        for batch in _batches(paths):
            scan.search(batch)
        scan.end()
    finally:
        os._exit(0)


def _batches(file: int) -> Iterator[bytes]:
    """What is read, cut where a path ends."""
    rest = b""
    while piece := os.read(file, BATCH - min(len(rest), BATCH // 2)):
        rest += piece
        end = rest.rfind(b"\0") + 1
        if end:
            yield rest[:end]
            rest = rest[end:]


if __name__ == "__main__":
    main()
