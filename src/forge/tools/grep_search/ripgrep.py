"""Runs ripgrep for grep_search. It only says where lines match; the lines themselves are read by Forge."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass

from forge.core.errors import ErrorKind, ToolError
from forge.process.environment import find_packaged_program
from forge.process.running.pipes import run_streamed
from forge.tools.grep_search.filter import FileFilter, Globs, RulesAbove, names_for_ripgrep
from forge.tools.grep_search.matches import FoundMatches, SearchClock
from forge.tools.grep_search.pattern import Pattern, convert_to_pcre, explain_refusal, install_advice, may_need_pcre
from forge.workspace.paths import Location, PathValidator
from forge.workspace.search.walk import NEVER, SKIPPED, walk

MOST_OUTPUT = 512 * 1024  # bytes of positions, of which most would not be shown
LONGEST_COMMAND = 100_000  # bytes of paths on a command line

_RULE = ["--hidden", "--no-ignore-global", "--no-ignore-exclude", "--no-ignore-parent", "--no-require-git"]
_POSITIONS = ["--with-filename", "--no-heading", "--line-number", "--column", "--byte-offset", "--max-columns=1"]
_SPECIAL = re.compile(r"[][*?{}\\!,]")


@dataclass(frozen=True, kw_only=True)
class GrepRequest:
    """A search's pattern, location and options."""

    location: Location  # a directory
    name: str = ""  # the only file of it that counts
    pattern: Pattern
    folds: bool
    include: Globs
    include_ignored: bool
    most: int  # positions needed
    wanted: FileFilter
    reads_brackets: bool = False  # those of include are parts of names


def find_ripgrep(paths: PathValidator) -> str:
    """Returns the ripgrep of Forge's dependency, or another trusted one. Raises `ToolError` without one."""
    found = find_packaged_program("rg", [root.path for root in paths.roots if root.writable])
    if found is None:
        raise ToolError("ripgrep, which searches the files, is not installed", ErrorKind.CONFIG, install_advice())
    return found


class Ripgrep:
    """One search."""

    def __init__(self, request: GrepRequest, program: str) -> None:
        self.request = request
        self.program = program
        self.pattern = request.pattern
        self.unread_rules: list[str] = []
        self.above = None if request.include_ignored or request.name else RulesAbove(request.location)

    async def search(self, clock: SearchClock) -> FoundMatches:
        """Find the lines, with the engine that can read the pattern."""
        try:
            found = await self._search(clock)
        except _NeedsPcre:
            self.pattern = convert_to_pcre(self.pattern)
            return await self.search(clock)
        except _Blocked as blocked:
            # ripgrep waits for ever for an ignore file that is a FIFO: then Forge alone applies the rules
            self.unread_rules = blocked.unread_rules
            if self.above is not None:
                self.above.decides_alone = True
            return await self.search(clock)
        found.unread_rules = self.unread_rules
        return found

    async def _search(self, clock: SearchClock) -> FoundMatches:
        """Searches for positions at once, unless there are so many that counting first is cheaper."""
        if self.request.most:
            try:
                return await self._run(clock, _POSITIONS, FoundMatches.take_positions, MOST_OUTPUT)
            except _TooMuch:
                pass
        return await self._run(clock, ["--count"], FoundMatches.take_counts)

    async def _run(
        self,
        clock: SearchClock,
        kind: list[str],
        take: Callable[[FoundMatches, list[bytes]], None],
        most: int = sys.maxsize,
    ) -> FoundMatches:
        found = FoundMatches(is_wanted=self._is_wanted)
        taken = 0

        def take_bounded(lines: list[bytes]) -> None:
            nonlocal taken
            taken += sum(map(len, lines))
            if taken > most:
                raise _TooMuch
            take(found, lines)

        command = [*self._command(), *kind, *self._files(), *self._pattern(), "--", "./"]
        async with run_streamed(command, self.request.location.path) as program:
            check = self._check_rules if self.above is not None and not self.above.are_beyond_ripgrep else None
            if await clock.follow(program, found, take_bounded, check):
                code, said = await program.wait_ended()
                if code > 1 or code < 0:
                    self._explain(code, said, found)
        return found

    async def locate(self, paths: list[str], found: FoundMatches, clock: SearchClock) -> None:
        """Ask again, for the positions in these files only: there may be millions in the others."""
        command = [*self._command(), *_POSITIONS, f"--max-count={self.request.most}", *self._pattern(), "--"]
        there = FoundMatches(is_wanted=found.counts.__contains__)
        there.positions = found.positions
        spare = SearchClock(max(clock.left, 2.0), lambda found: None)
        while paths:
            some: list[str] = []
            size = 0
            while paths and size < LONGEST_COMMAND:
                some.append(f"./{paths.pop(0)}")
                size += len(os.fsencode(some[-1]))
            async with run_streamed([*command, *some], self.request.location.path) as program:
                await spare.follow(program, there, there.take_positions)

    def _check_rules(self, stop: Callable[[], bool]) -> None:
        """Raises `_Blocked` if ripgrep may be waiting for an ignore file. Blocks, so call it in a thread."""
        found = walk(self.request.location, stop=stop)
        for _ in found.by_directory():
            pass
        if found.unread_rules:
            raise _Blocked(found.unread_rules)

    def _is_wanted(self, path: str) -> bool:
        if self.request.name:
            return path == self.request.name
        return self.request.wanted(path) and not (self.above is not None and self.above.ignores(path))

    def _command(self) -> list[str]:
        engine = "pcre2" if self.pattern.needs_pcre else "default"
        command = [self.program, "--no-config", "--color=never", "--null", "--no-mmap", f"--engine={engine}"]
        command += ["--ignore-case" if self.request.folds else "--case-sensitive"]
        return command + ([] if self.pattern.has_return else ["--crlf"])

    def _pattern(self) -> list[str]:
        return [*(["--fixed-strings"] if self.pattern.is_fixed else []), f"--regexp={self.pattern.source}"]

    def _files(self) -> list[str]:
        asked = self.request
        if asked.name:  # as one found in its directory: a file that is named is read on behind a NUL byte
            return ["--hidden", "--no-ignore", "--max-depth=1", f"--glob=/{_escape_glob(asked.name)}"]
        never = [f"--glob=!{name}" for name in sorted(NEVER)]
        names = names_for_ripgrep(asked.wanted.include, asked.include)
        types = [*(f"--type-add=wanted:{name}" for name in names), "--type=wanted"] if names else []
        if asked.include_ignored:
            return ["--hidden", "--no-ignore", *never, *types]
        skipped = [f"--glob=!{name}/" for name in sorted(SKIPPED)]
        is_beyond = self.above is not None and self.above.are_beyond_ripgrep
        return [*(["--hidden", "--no-ignore"] if is_beyond else _RULE), *never, *skipped, *types]

    def _explain(self, code: int, said: str, found: FoundMatches) -> None:
        """Handles a failure of ripgrep: because of the pattern, of some files, or of ripgrep itself."""
        if may_need_pcre(self.pattern, said):
            raise _NeedsPcre
        if "PCRE2: error matching" in said:
            found.is_too_hard = True
            return
        if not found.counts:
            if refusal := explain_refusal(self.pattern, said):
                raise refusal
            if code < 0 or "rg: " not in said:
                lines = [line.strip() for line in said.splitlines() if line.strip()]
                problem = f"the search ended with {code}: {lines[-1] if lines else 'no message'}"
                raise ToolError(problem, ErrorKind.SYSTEM, "Try a simpler pattern, or a smaller directory.")
        found.unreadable = True


def _escape_glob(name: str) -> str:
    """Returns a glob for this name; `?` stands for each byte that is not text, since options are text."""
    plain = _SPECIAL.sub(r"\\\g<0>", name)
    return re.sub("[\udc80-\udcff]", "?", plain)


class _TooMuch(Exception):
    pass


class _Blocked(Exception):
    """Signals that ignore files are no files, so that ripgrep may wait for them."""

    def __init__(self, unread_rules: list[str]) -> None:
        self.unread_rules = unread_rules


class _NeedsPcre(Exception):
    """Signals that the default engine cannot read the pattern, but PCRE2 may."""


def count_denied(request: GrepRequest, stop: Callable[[], bool]) -> int:
    """Counts all files that a rule of the person leaves out, so that the number reveals nothing of their content.

    Blocks, so call it in a thread.
    """
    wanted = request.wanted
    if wanted.is_denied is None or request.name:
        return 0
    files = walk(request.location, include_ignored=request.include_ignored, stop=stop)
    return sum(
        entry.is_file(follow_symlinks=False) and wanted.fits(path) and wanted.denies(path) for path, entry, _ in files
    )
