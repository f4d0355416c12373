"""Walks the files below a place: no link is followed, no race leads out of the root, and what is ignored is counted."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterator
from itertools import chain, islice
from typing import NamedTuple, Protocol

from forge.core.errors import ToolError
from forge.workspace.paths import Place
from forge.workspace.paths.open import open_directory
from forge.workspace.search.glob import Glob
from forge.workspace.search.ignore import FILES, Ignored, rules_above
from forge.workspace.state import STRAY

NEVER = frozenset({".git", ".forge"})  # not searched, whatever was asked for
SKIPPED = frozenset({"node_modules", "vendor", "__pycache__", ".venv", "dist", "build"})  # unless named or asked for
MOST_OPEN = 32  # directories held open on the way down
BATCH = 1_024  # entries of a directory held at once

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_IGNORE_FILES = frozenset(FILES)


def walk(
    place: Place,
    *,
    include_ignored: bool = False,
    hidden: bool = True,
    named: Container[str] = (),
    only: Glob | None = None,
    stop: Callable[[], bool] | None = None,
) -> Walk:
    """Everything below a directory that is no directory itself.

    Ignore files from the root down to each directory count, unless `include_ignored`. What the caller wrote literally
    (`named`) is neither skipped nor ignored. Without `hidden` names that begin with a dot are left out. `only` prunes
    the walk to where a pattern leads. `stop` is asked now and then.
    """
    return Walk(place, include_ignored, hidden, named, only, stop or (lambda: False))


class Entry(NamedTuple):
    """A file, a link or a special file."""

    relative: str  # to the place that is walked: "a/b.txt"
    entry: os.DirEntry[str]
    directory: int  # descriptor of the directory it is in, for `dir_fd`: only until the walk goes on

    def status(self) -> os.stat_result:
        """A link's own. Only until the walk goes on; raises `OSError` when it is gone."""
        return os.stat(self.entry.name, dir_fd=self.directory, follow_symlinks=False)


class Walk:
    """Iterate over it once; the numbers are right when it has ended."""

    def __init__(
        self,
        place: Place,
        include_ignored: bool,
        hidden: bool,
        named: Container[str],
        only: Glob | None,
        stop: Callable[[], bool],
    ) -> None:
        self.place = place
        self.include_ignored = include_ignored
        self.hidden = hidden
        self.named = named
        self.only = only
        self.stop = stop
        self.ignored_files = 0  # that `only` would have let through
        self.ignored_directories = 0  # not entered, so nobody knows what is in them
        self.unreadable = 0  # directories
        self.stopped = False

    def __iter__(self) -> Iterator[Entry]:
        fits_name = None if self.only is None else self.only.fits_name
        is_plain = self.only is None or self.only.decided_by_name  # the path says nothing more than the name
        new = tuple.__new__  # quicker than Entry(…), which does the same
        rules = None if self.include_ignored else rules_above(self.place)
        frames = [self._frame(open_directory(self.place), "", rules)]
        try:
            while frames and not self.stopped:
                frame = frames[-1]
                prefix, directory = frame.prefix, frame.directory
                is_free = is_plain and frame.rules is None
                try:
                    for entry in frame.entries:
                        if entry.is_dir(follow_symlinks=False):
                            if self._enters(frame, entry.name):
                                frame.later.append(entry.name)
                            continue
                        name = entry.name
                        if fits_name is not None and not fits_name(name):
                            continue
                        if (is_free and name[0] != ".") or self._shows(frame, name):
                            yield new(Entry, (prefix + name, entry, directory))
                except OSError:  # the directory went away, or its disk has an error
                    self.unreadable += 1
                self.stopped = self.stopped or self.stop()
                self._go_on(frames, frame.later.pop() if frame.later else "")
        finally:
            for frame in frames:
                frame.close()

    def _go_on(self, frames: list[_Frame], name: str) -> None:
        """Into the directory `name` of the last frame, or back to the one above."""
        frame = frames[-1]
        below = self._entered(frame, name) if name else None
        if not frame.later:  # nothing is left: a chain of directories holds one open
            frames.pop().close()
        if below is not None:
            frames.append(below)
            if len(frames) > MOST_OPEN:
                frames[-1 - MOST_OPEN].shut()

    def _entered(self, frame: _Frame, name: str) -> _Frame | None:
        try:
            if frame.directory < 0:
                frame.directory = open_directory(self.place.child(frame.prefix[:-1]) if frame.prefix else self.place)
            directory = os.open(name, _DIRECTORY, dir_fd=frame.directory)
            return self._frame(directory, f"{frame.prefix}{name}/", frame.rules)
        except (OSError, ToolError):
            self.unreadable += 1
            return None

    def _frame(self, directory: int, prefix: str, rules: Ignored | None) -> _Frame:
        """The directory with its entries and rules; the descriptor is closed if that fails."""
        try:
            scan = os.scandir(directory)
        except BaseException:
            os.close(directory)
            raise
        frame = _Frame(directory, prefix, rules, scan)
        try:
            entries = list(islice(scan, BATCH))
            is_whole = len(entries) < BATCH
            frame.entries = iter(entries) if is_whole else chain(entries, self._rest(scan))
            if not self.include_ignored and entries:
                names = [entry.name for entry in entries] if is_whole else FILES
                if min(names) < "/" and not _IGNORE_FILES.isdisjoint(names):  # a dot comes before the slash
                    frame.rules = (rules or Ignored()).inside(directory, prefix, names)
        except BaseException:
            frame.close()
            raise
        return frame

    def _rest(self, scan: Iterator[os.DirEntry[str]]) -> Iterator[os.DirEntry[str]]:
        """Of a directory so large that it must not wait for its end to be stopped."""
        while batch := list(islice(scan, BATCH)):
            self.stopped = self.stop()
            if self.stopped:
                return
            yield from batch

    def _enters(self, frame: _Frame, name: str) -> bool:
        if name in NEVER or (not self.hidden and name[0] == "." and not self._is_kept(frame, name, True)):
            return False
        if self.only is not None and not (self.only.leads_anywhere or self.only.leads_below(frame.prefix + name)):
            return False
        if self.include_ignored or not self._is_ignored(frame, name, True):
            return True
        self.ignored_directories += 1
        return False

    def _shows(self, frame: _Frame, name: str) -> bool:
        if name[0] == ".":
            if name in NEVER or name.startswith(STRAY):
                return False
            if not self.hidden and not self._is_kept(frame, name, False):
                return False
        if self.only is not None and not self.only.decided_by_name and not self.only.fits(frame.prefix + name):
            return False
        if frame.rules is None or not self._is_ignored(frame, name, False):
            return True
        self.ignored_files += 1
        return False

    def _is_ignored(self, frame: _Frame, name: str, is_directory: bool) -> bool:
        skipped = is_directory and name in SKIPPED
        if not skipped and (frame.rules is None or not frame.rules.verdict(frame.prefix + name, name, is_directory)):
            return False
        return name not in self.named

    def _is_kept(self, frame: _Frame, name: str, is_directory: bool) -> bool:
        """Whether an ignore file says `!` about it, which shows what is hidden."""
        return frame.rules is not None and frame.rules.verdict(frame.prefix + name, name, is_directory) is False


class Scan(Protocol):
    """What `os.scandir` returns."""

    def close(self) -> None: ...


class _Frame:
    """A directory that is being walked."""

    __slots__ = ("_scan", "directory", "entries", "later", "prefix", "rules")

    def __init__(self, directory: int, prefix: str, rules: Ignored | None, scan: Scan) -> None:
        self.directory = directory
        self.prefix = prefix
        self.rules = rules
        self.entries: Iterator[os.DirEntry[str]] = iter(())
        self.later: list[str] = []  # directories to enter when the files are through
        self._scan = scan

    def close(self) -> None:
        self._scan.close()
        self.shut()

    def shut(self) -> None:
        """Let go of the descriptor; it is opened again when it is needed."""
        if self.directory >= 0:
            os.close(self.directory)
            self.directory = -1
