"""Runs ripgrep for grep_search. It only says where lines match; the lines themselves are read by Forge."""

from __future__ import annotations

import os
import re
import sys
import time
from asyncio import Future, ensure_future, wait
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from threading import Event

from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.threads import in_thread
from forge.process.environment import find_packaged_program
from forge.process.running.pipes import StreamedProgram, run_streamed
from forge.tools.grep_search.pattern import (
    SearchPattern,
    convert_to_pcre,
    explain_refusal,
    install_advice,
    may_need_pcre,
)
from forge.workspace.paths import Location, PathValidator
from forge.workspace.paths.open import open_directory, status_of
from forge.workspace.search.glob import Glob, compile_glob, plain_readings
from forge.workspace.search.ignore import EffectiveRules, read_rules_above
from forge.workspace.search.walk import NEVER, SKIPPED, walk
from forge.workspace.state import STRAY

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
    pattern: SearchPattern
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

    async def search(self, clock: RipgrepClock) -> FoundMatches:
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

    async def _search(self, clock: RipgrepClock) -> FoundMatches:
        """Searches for positions at once, unless there are so many that counting first is cheaper."""
        if self.request.most:
            try:
                return await self._run(clock, _POSITIONS, FoundMatches.take_positions, MOST_OUTPUT)
            except _TooMuch:
                pass
        return await self._run(clock, ["--count"], FoundMatches.take_counts)

    async def _run(
        self,
        clock: RipgrepClock,
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

    async def locate(self, paths: list[str], found: FoundMatches, clock: RipgrepClock) -> None:
        """Ask again, for the positions in these files only: there may be millions in the others."""
        command = [*self._command(), *_POSITIONS, f"--max-count={self.request.most}", *self._pattern(), "--"]
        there = FoundMatches(is_wanted=found.counts.__contains__)
        there.positions = found.positions
        spare = RipgrepClock(max(clock.left, 2.0), lambda found: None)
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


# Filters the files that ripgrep finds: by globs, the person's rules, and ignore files above.

Globs = str | list[str]


class FileFilter:
    """Decides for every file found, by its path relative to the searched location."""

    def __init__(
        self, location: Location, include: Globs, exclude: Globs, is_denied: Callable[[str], bool] | None = None
    ) -> None:
        included, excluded = _as_list(include), _as_list(exclude)
        self.include = [_read_glob(text) for text in included if not text.startswith("!")]
        self.exclude = [
            _read_glob(text) for text in (*excluded, *(text[1:] for text in included if text.startswith("!")))
        ]
        self.is_denied = is_denied
        self.is_all = not (self.include or self.exclude or is_denied)
        self._above = "" if location.shown == "." else f"{location.shown}/"

    def __call__(self, path: str) -> bool:
        if STRAY in path and path.rpartition("/")[2].startswith(STRAY):
            return False
        return self.is_all or (self.fits(path) and not self.denies(path))

    def denies(self, path: str) -> bool:
        """Returns whether a rule of the person forbids reading the file."""
        return self.is_denied is not None and self.is_denied(self._above + path)

    def fits(self, path: str) -> bool:
        """Matches globs from the searched location or from the workspace: models mean either."""
        spellings = (path, self._above + path) if self._above else (path,)
        if self.include and not any(glob.fits(one) for glob in self.include for one in spellings):
            return False
        return not self.exclude or not any(self._is_excluded(one) for one in spellings)

    def _is_excluded(self, path: str) -> bool:
        """Returns whether the file, or a directory that contains it, is excluded."""
        ends = [index for index, char in enumerate(path) if char == "/"]
        return any(glob.fits(path[:end]) for glob in self.exclude for end in (*ends, len(path)))


def _as_list(globs: Globs) -> list[str]:
    return [text for text in ([globs] if isinstance(globs, str) else globs) if text.strip()]


def _read_glob(text: str) -> Glob:
    """Makes a name alone match at any depth, as in ignore files."""
    return compile_glob(text if "/" in text.rstrip("/") else f"**/{text}")


def make_readable(include: Globs) -> Globs:
    """Returns the globs; brackets that are not valid, such as `[2024-01-15]`, are plain characters."""
    try:
        for text in _as_list(include):
            _read_glob(text.removeprefix("!"))
    except ToolError:
        plain = escape_brackets(include)
        if not plain:
            raise
        return plain
    return include


def escape_brackets(include: Globs) -> list[str]:
    """Returns the globs with brackets as plain characters, `app/[slug]/*.tsx`; empty if none has any."""
    listed = _as_list(include)
    readings = [[text] if text.startswith("!") else plain_readings(text) or [text] for text in listed]
    plain = [text for reading in readings for text in reading]
    return plain if plain != listed else []


def names_for_ripgrep(globs: Iterable[Glob], texts: Globs) -> list[str]:
    """Returns the globs if all are for names alone: ripgrep can then leave out other files itself."""
    listed = [text for text in _as_list(texts) if not text.startswith("!")]
    simple = all(text.isascii() and not set(text) & set("/\\[]!,: ") for text in listed)
    return listed if simple and all(glob.decided_by_name for glob in globs) else []


class RulesAbove:
    """The ignore files between the root and the searched directory. ripgrep does not read them.

    (It would also read those above the root.) A rule counts only if no ignore file nearer to a file overrides it, so
    the whole chain decides about every file found.
    """

    def __init__(self, location: Location) -> None:
        self.location = location
        self.top = read_rules_above(location)
        self.decides_alone = False  # ripgrep reads no ignore file

    @property
    def are_beyond_ripgrep(self) -> bool:
        """True if these files override every .gitignore, also those that ripgrep reads on its way down.

        Then ripgrep searches everything, and `ignores` alone decides.
        """
        if self.decides_alone:
            return True
        above = self.location
        while self.top is not None and above.relative != ".":
            above = above.parent
            if any(status_of(above.child(name)) is not None for name in (".rgignore", ".ignore")):
                return True
        return False

    def ignores(self, path: str) -> bool:
        if self.top is None and not self.decides_alone:
            return False
        directory, _, name = path.rpartition("/")
        rules, is_ignored = self._of(directory)
        return is_ignored or (rules is not None and rules.verdict(path, name, False) is True)

    @lru_cache(maxsize=4_096)  # noqa: B019 - lives as long as one search
    def _of(self, directory: str) -> tuple[EffectiveRules | None, bool]:
        """Returns the rules in a directory, and True if the directory itself is ignored."""
        rules, prefix = self.top, ""
        if directory:
            above, _, name = directory.rpartition("/")
            rules, is_ignored = self._of(above)
            if is_ignored or (rules is not None and rules.verdict(directory, name, True)):
                return rules, True
            prefix = f"{directory}/"
        try:
            file = open_directory(self.location.child(directory) if directory else self.location)
        except ToolError:  # it is gone, or a link by now
            return rules, True
        try:
            return (rules or EffectiveRules()).inside(file, prefix), False
        finally:
            os.close(file)


# Reads ripgrep's output for grep_search as it comes, and limits the time.

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


class RipgrepClock:
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
