"""Reads ripgrep's output for grep_search as it comes, and limits the time."""

from __future__ import annotations

import os
import re
import time
from asyncio import Future, ensure_future, wait
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from threading import Event

from forge.core.execution.threads import in_thread
from forge.process.running.pipes import StreamedProgram

MOST_FILES = 200_000  # with matches; then the search ends
END = 1 << 62  # the column of a match at the end of its line

_POSITION = re.compile(rb"(\d+):(?:(\d+):)?(\d+):")  # without a column where the match is the file's very end
_LATE_BINARY = re.compile(rb"(.*): WARNING: stopped searching binary file after match \(found .*\)", re.DOTALL)

Position = tuple[int, int, int]  # the line's number from 1, the match's column, the line's offset: bytes from 0


@dataclass
class FoundMatches:
    """The matches found so far."""

    counts: dict[str, int] = field(default_factory=dict)  # lines that match, by path relative to the place
    positions: dict[str, list[Position]] = field(default_factory=dict)
    total: int = 0
    unreadable: bool = False
    is_too_hard: bool = False  # the pattern would have taken too long on some lines
    is_partial: bool = False  # time was up, or there was too much
    unread_rules: list[str] = field(default_factory=list)  # ignore files that are no files
    is_wanted: Callable[[str], bool] = bool
    _left_out: set[str] = field(default_factory=set)
    _head: bytes = b""

    def take_counts(self, lines: Iterable[bytes]) -> None:
        """Reads lines of a path, a NUL byte, and the number of matching lines."""
        for path, rest in self._records(lines):
            self._add_count(path, int(rest))

    def take_positions(self, lines: Iterable[bytes]) -> None:
        """Reads lines of a path, a NUL byte, and the position of one match."""
        for path, rest in self._records(lines):
            if (position := _POSITION.match(rest)) and self._add_count(path, 1):
                column = int(position[2]) - 1 if position[2] else END
                self.positions.setdefault(path, []).append((int(position[1]), column, int(position[3])))

    def _records(self, lines: Iterable[bytes]) -> Iterator[tuple[str, bytes]]:
        for line in lines:
            path, is_whole, rest = (self._head + line).partition(b"\0")
            if is_whole:
                self._head = b""
                yield os.fsdecode(path.removeprefix(b"./")), rest
            elif late := _LATE_BINARY.fullmatch(line):
                self._forget(os.fsdecode(late[1].removeprefix(b"./")))
            else:
                self._head = path + b"\n"  # a path may have line breaks

    def _add_count(self, path: str, count: int) -> bool:
        if path not in self.counts:
            if path in self._left_out or not self.is_wanted(path):
                self._left_out.add(path)
                return False
            self.counts[path] = 0
        self.counts[path] += count
        self.total += count
        return True

    def _forget(self, path: str) -> None:
        self.total -= self.counts.pop(path, 0)
        self.positions.pop(path, None)
        self._left_out.add(path)

    def list_paths(self) -> list[str]:
        """Sorts by the names in the path, as bytes."""
        return sorted(self.counts, key=lambda path: os.fsencode(path).split(b"/"))


class SearchClock:
    """Waits for the end of the search; reports progress once a second."""

    def __init__(self, seconds: float, report: Callable[[FoundMatches], None]) -> None:
        self.seconds = seconds
        self.end = time.monotonic() + seconds
        self.report = report

    @property
    def left(self) -> float:
        return self.end - time.monotonic()

    def is_over(self) -> bool:
        return self.left <= 0

    async def follow(
        self,
        program: StreamedProgram,
        found: FoundMatches,
        take: Callable[[list[bytes]], None],
        check: Callable[[Callable[[], bool]], None] | None = None,
    ) -> bool:
        """Reads everything the program writes; False if it had to be stopped.

        `check`: called in a thread after a second, with a function that tells it to stop. Its error ends the search.
        """
        tick = self.left - 1.0
        ended = Event()
        checking: Future[None] | None = None
        try:
            while self.left > 0 and len(found.counts) < MOST_FILES:
                lines = await program.lines(max(0.0, min(self.left, self.left - tick)))
                if lines == []:
                    return True
                take(lines or [])
                if checking is not None and checking.done():
                    checking.result()
                if self.left <= tick:
                    self.report(found)
                    tick = self.left - 1.0
                    if check is not None and checking is None:
                        checking = ensure_future(in_thread(lambda: check(ended.is_set)))
        finally:
            ended.set()
            if checking is not None:
                await wait([checking])
                checking.exception()  # it was raised above, or does not matter any more
        found.is_partial = True
        return False
