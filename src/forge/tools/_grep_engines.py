"""The two engines of grep_search, ripgrep and Python: they only find out where, so that what is shown is the same."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from forge.core.errors import ErrorKind, ToolError
from forge.core.threads import in_thread
from forge.process.lines import Program, running
from forge.tools._grep_filter import Globs, RulesAbove, Wanted, names_for_ripgrep
from forge.tools._grep_found import Clock, Found
from forge.workspace.paths import Place
from forge.workspace.pattern import Pattern
from forge.workspace.walk import NEVER, SKIPPED, walk

FED = 2_000  # paths found at once for the Python engine
MOST_OUTPUT = 512 * 1024  # bytes of positions, of which most would not be shown
LONGEST_COMMAND = 100_000  # bytes of paths on a command line

_START = "import sys; sys.path.append(sys.argv.pop()); from forge.workspace.scan import main; main()"
_HOME = str(Path(__file__).parents[2])
_RULE = ["--hidden", "--no-ignore-global", "--no-ignore-exclude", "--no-ignore-parent", "--no-require-git"]
_POSITIONS = ["--with-filename", "--no-heading", "--line-number", "--column", "--byte-offset", "--max-columns=1"]
_PLAIN_NAME = re.compile(r"[\w.@+=,~-]+", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is searched for, and where."""

    place: Place  # a directory
    name: str = ""  # the only file of it that counts
    pattern: Pattern
    is_fixed: bool
    folds: bool
    include: Globs
    include_ignored: bool
    most: int  # positions needed
    wanted: Wanted
    reads_brackets: bool = False  # those of include are parts of names


class PythonEngine:
    """Our own: walks here, in a thread, and searches in a program of its own."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self._is_over = False

    async def search(self, clock: Clock) -> Found:
        found = Found()
        async with running(self._command(clock.seconds), self.request.place.path, reads=True) as program:
            try:
                async with _beside(self._feed(program, found)):
                    if not await clock.follow(program, found, found.take_counts):
                        return found
            finally:
                self._is_over = True
            code, said = await program.ended()
        if code:
            _explain(code, said)
        return found

    async def locate(self, paths: list[str], found: Found, clock: Clock) -> None:
        """It knows: files come in order, and it counts on when it has enough positions."""

    def _command(self, seconds: float) -> list[str]:
        asked = self.request
        kind, case = "fixed" if asked.is_fixed else "regex", "any" if asked.folds else "exact"
        text = asked.pattern.source
        python = [sys.executable, "-I", "-S", "-X", "utf8", "-c", _START]
        return [*python, kind, case, str(asked.most), str(int(seconds) + 1), text, _HOME]

    async def _feed(self, program: Program, found: Found) -> None:
        paths = iter(self._paths(found))
        try:
            while batch := await in_thread(lambda: list(islice(paths, FED))):
                await program.write(os.fsencode("\0".join(batch) + "\0"))
        finally:
            program.end_input()

    def _paths(self, found: Found) -> Iterable[str]:
        asked = self.request
        if asked.name:
            yield asked.name
            return
        files = walk(asked.place, include_ignored=asked.include_ignored, ordered=True, stop=lambda: self._is_over)
        is_wanted = None if asked.wanted.is_all else asked.wanted
        for path, entry, _ in files:
            if entry.is_file(follow_symlinks=False) and (is_wanted is None or is_wanted(path)):
                yield path
        found.unreadable |= files.unreadable > 0


class Ripgrep:
    """ripgrep, told to look at the same files and to see lines in the same way."""

    def __init__(self, request: Request, program: str) -> None:
        self.request = request
        self.program = program
        self.above = None if request.include_ignored or request.name else RulesAbove(request.place)

    @property
    def can(self) -> bool:
        """Whether it would look at the same files."""
        if self.request.name:
            return _PLAIN_NAME.fullmatch(self.request.name) is not None
        return self.above is None or not self.above.are_beyond_ripgrep

    async def search(self, clock: Clock) -> Found:
        """With positions at once, unless there are so many that counting first is cheaper."""
        if self.request.most:
            try:
                return await self._search(clock, _POSITIONS, Found.take_positions, MOST_OUTPUT)
            except _TooMuch:
                pass
        return await self._search(clock, ["--count"], Found.take_counts)

    async def _search(
        self, clock: Clock, kind: list[str], take: Callable[[Found, list[bytes]], None], most: int = sys.maxsize
    ) -> Found:
        found = Found(is_wanted=self._is_wanted)
        taken = 0

        def bounded(lines: list[bytes]) -> None:
            nonlocal taken
            taken += sum(map(len, lines))
            if taken > most:
                raise _TooMuch
            take(found, lines)

        command = [*self._command(), *kind, *self._files(), *self._pattern(), "--", "./"]
        async with running(command, self.request.place.path) as program:
            if await clock.follow(program, found, bounded):
                code, said = await program.ended()
                if code > 1 or code < 0:
                    found.unreadable = True
                    if not found.counts:
                        _explain(code, said)
        return found

    async def locate(self, paths: list[str], found: Found, clock: Clock) -> None:
        """Ask again, for the positions in these files only: there may be millions in the others."""
        command = [*self._command(), *_POSITIONS, f"--max-count={self.request.most}", *self._pattern(), "--"]
        there = Found(is_wanted=found.counts.__contains__)
        there.positions = found.positions
        spare = Clock(max(clock.left, 2.0), lambda found: None)
        while paths:
            some: list[str] = []
            size = 0
            while paths and size < LONGEST_COMMAND:
                some.append(f"./{paths.pop(0)}")
                size += len(os.fsencode(some[-1]))
            async with running([*command, *some], self.request.place.path) as program:
                await spare.follow(program, there, there.take_positions)

    def _is_wanted(self, path: str) -> bool:
        return self.request.wanted(path) and not (self.above is not None and self.above.ignores(path))

    def _command(self) -> list[str]:
        command = [self.program, "--no-config", "--color=never", "--null", "--no-mmap", "--engine=default"]
        command += ["--ignore-case" if self.request.folds else "--case-sensitive"]
        return command + ([] if self.request.pattern.has_return else ["--crlf"])

    def _pattern(self) -> list[str]:
        return [*(["--fixed-strings"] if self.request.is_fixed else []), f"--regexp={self.request.pattern.source}"]

    def _files(self) -> list[str]:
        asked = self.request
        if asked.name:  # as one found in its directory: a file that is named is read on behind a NUL byte
            return ["--hidden", "--no-ignore", "--max-depth=1", f"--glob=/{asked.name}"]
        never = [f"--glob=!{name}" for name in sorted(NEVER)]
        names = names_for_ripgrep(asked.wanted.include, asked.include)
        types = [*(f"--type-add=wanted:{name}" for name in names), "--type=wanted"] if names else []
        if asked.include_ignored:
            return ["--hidden", "--no-ignore", *never, *types]
        return [*_RULE, *never, *(f"--glob=!{name}/" for name in sorted(SKIPPED)), *types]


def _explain(code: int, said: str) -> None:
    """The engine failed: because of the pattern, or by itself."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    if problem := next((line.removeprefix("error: ") for line in lines if line.startswith("error: ")), ""):
        raise NotUnderstood(problem)
    if "regex" in said:
        raise NotUnderstood(lines[0].removeprefix("rg: "))
    if code < 0 or "rg: " not in said:
        problem = f"the search ended with {code}: {lines[-1] if lines else 'it said nothing'}"
        raise ToolError(problem, ErrorKind.SYSTEM, "Try a simpler pattern, or a smaller directory.")


class _TooMuch(Exception):
    pass


class NotUnderstood(Exception):
    """ripgrep does not take a pattern that we do: it is too large, or newer than this ripgrep."""


def count_denied(request: Request, stop: Callable[[], bool]) -> int:
    """How many files a rule of the person leaves out: all of them, so that the number says nothing of what is in them.

    Blocks, so call it in a thread.
    """
    wanted = request.wanted
    if wanted.is_denied is None or request.name:
        return 0
    files = walk(request.place, include_ignored=request.include_ignored, stop=stop)
    return sum(
        entry.is_file(follow_symlinks=False) and wanted.fits(path) and wanted.denies(path) for path, entry, _ in files
    )


@asynccontextmanager
async def _beside(work: Any) -> AsyncIterator[None]:
    """Work that goes on meanwhile, and ends with the block; what it raises is raised here."""
    task = asyncio.ensure_future(work)
    try:
        yield
        if task.done():
            task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
