"""Walks or lists the files below a location: follows no link, never leaves the root, and counts ignored files."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import chain, islice
from typing import NamedTuple, Protocol

from forge.core.errors import ToolError
from forge.workspace.paths import Location
from forge.workspace.paths.open import open_directory
from forge.workspace.search.glob import Glob
from forge.workspace.search.ignore import FILES, EffectiveRules, find_unread_rules, read_rules_above
from forge.workspace.state import STRAY

NEVER = frozenset({".git", ".forge"})  # never searched
SKIPPED = frozenset({"node_modules", "vendor", "__pycache__", ".venv", "dist", "build"})  # unless named or asked for
MOST_OPEN = 32  # directories held open at once
BATCH = 1_024  # entries of a directory held at once

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_IGNORE_FILES = frozenset(FILES)


def walk(
    location: Location,
    *,
    include_ignored: bool = False,
    hidden: bool = True,
    named: Container[str] = (),
    only: Glob | None = None,
    stop: Callable[[], bool] | None = None,
) -> FileWalk:
    """Walks all files, links and special files below a directory.

    Ignore files from the root down to each directory apply, unless `include_ignored`. Names that the caller wrote
    literally (`named`) are neither skipped nor ignored. Without `hidden`, names that begin with a dot are left out.
    `only` prunes the walk to where a pattern leads. `stop` is called now and then.
    """
    return FileWalk(location, include_ignored, hidden, named, only, stop or (lambda: False))


class WalkEntry(NamedTuple):
    """A file, a link or a special file."""

    relative: str  # to the start of the walk: "a/b.txt"
    entry: os.DirEntry[str]
    directory: int  # descriptor of its directory, for `dir_fd`: valid until the next step of the walk

    def status(self) -> os.stat_result:
        """Returns the status, of a link itself. Valid until the next step of the walk; raises `OSError` if the file is
        gone.
        """
        return os.stat(self.entry.name, dir_fd=self.directory, follow_symlinks=False)


class FileWalk:
    """Iterate over it once; its counts are complete when the iteration has ended."""

    def __init__(
        self,
        location: Location,
        include_ignored: bool,
        hidden: bool,
        named: Container[str],
        only: Glob | None,
        stop: Callable[[], bool],
    ) -> None:
        self.location = location
        self.include_ignored = include_ignored
        self.hidden = hidden
        self.named = named
        self.only = only
        self.stop = stop
        self.ignored_files = 0  # that match `only`
        self.ignored_directories = 0  # not entered, so their files are not counted
        self.unreadable = 0  # directories
        self.unread_rules: list[str] = []  # paths of ignore files that are no files, such as FIFOs
        self.stopped = False

    def __iter__(self) -> Iterator[WalkEntry]:
        new = tuple.__new__  # faster than WalkEntry(…), with the same result
        for prefix, directory, entries in self.by_directory():
            for entry in entries:
                yield new(WalkEntry, (prefix + entry.name, entry, directory))

    def by_directory(self) -> Iterator[tuple[str, int, list[os.DirEntry[str]]]]:
        """Yields the entries of a directory together, which costs less: its path with a slash, its descriptor, entries.

        A large directory is yielded in several parts.
        """
        fits_name = None if self.only is None else self.only.fits_name
        is_plain = self.only is None or self.only.decided_by_name  # the name alone decides
        rules = None if self.include_ignored else read_rules_above(self.location)
        frames = [self._open_frame(open_directory(self.location), "", rules)]
        try:
            while frames and not self.stopped:
                frame = frames[-1]
                is_free = is_plain and frame.rules is None
                batch: list[os.DirEntry[str]] | None = []
                while batch is not None:
                    shown = []
                    try:
                        batch = next(frame.batches, None)
                        for entry in batch or ():
                            if entry.is_dir(follow_symlinks=False):
                                if self._enters(frame, entry.name):
                                    frame.later.append(entry.name)
                                continue
                            name = entry.name
                            if fits_name is not None and not fits_name(name):
                                continue
                            if (is_free and name[0] != ".") or self._shows(frame, name):
                                shown.append(entry)
                    except OSError:  # the directory went away, or its disk has an error
                        self.unreadable += 1
                        batch = None
                    if shown:
                        yield frame.prefix, frame.directory, shown
                self.stopped = self.stopped or self.stop()
                self._advance(frames, frame.later.pop() if frame.later else "")
        finally:
            for frame in frames:
                frame.close()

    def _advance(self, frames: list[_Frame], name: str) -> None:
        """Enters the directory `name` of the last frame, or returns to the one above."""
        frame = frames[-1]
        below = self._enter(frame, name) if name else None
        if not frame.later:  # nothing is left: a chain of directories holds one open
            frames.pop().close()
        if below is not None:
            frames.append(below)
            if len(frames) > MOST_OPEN:
                frames[-1 - MOST_OPEN].release()

    def _enter(self, frame: _Frame, name: str) -> _Frame | None:
        try:
            if frame.directory < 0:
                frame.directory = open_directory(
                    self.location.child(frame.prefix[:-1]) if frame.prefix else self.location
                )
            directory = os.open(name, _DIRECTORY, dir_fd=frame.directory)
            return self._open_frame(directory, f"{frame.prefix}{name}/", frame.rules)
        except (OSError, ToolError):
            self.unreadable += 1
            return None

    def _open_frame(self, directory: int, prefix: str, rules: EffectiveRules | None) -> _Frame:
        """Reads the entries and rules of a directory; closes the descriptor if that fails."""
        try:
            scan = os.scandir(directory)
        except BaseException:
            os.close(directory)
            raise
        frame = _Frame(directory, prefix, rules, scan)
        try:
            entries = list(islice(scan, BATCH))
            is_whole = len(entries) < BATCH
            batches = iter((entries,))
            frame.batches = batches if is_whole else chain(batches, self._remaining_batches(scan))
            if not self.include_ignored and entries:
                names = [entry.name for entry in entries] if is_whole else FILES
                if min(names) < "/" and not _IGNORE_FILES.isdisjoint(names):  # a dot comes before the slash
                    frame.rules = (rules or EffectiveRules()).inside(directory, prefix, names)
                    self.unread_rules += [prefix + name for name in find_unread_rules(directory, names)]
        except BaseException:
            frame.close()
            raise
        return frame

    def _remaining_batches(self, scan: Iterator[os.DirEntry[str]]) -> Iterator[list[os.DirEntry[str]]]:
        """Yields the rest of a large directory; the walk can be stopped in between."""
        while batch := list(islice(scan, BATCH)):
            self.stopped = self.stop()
            if self.stopped:
                return
            yield batch

    def _enters(self, frame: _Frame, name: str) -> bool:
        if name in NEVER or (not self.hidden and name[0] == "." and not self._is_unignored(frame, name, True)):
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
            if not self.hidden and not self._is_unignored(frame, name, False):
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

    def _is_unignored(self, frame: _Frame, name: str, is_directory: bool) -> bool:
        """Returns whether an ignore file keeps the name with `!`, which shows hidden files."""
        return frame.rules is not None and frame.rules.verdict(frame.prefix + name, name, is_directory) is False


class DirectoryScan(Protocol):
    """The result of `os.scandir`."""

    def close(self) -> None: ...


class _Frame:
    """A directory that is being walked."""

    __slots__ = ("_scan", "batches", "directory", "later", "prefix", "rules")

    def __init__(self, directory: int, prefix: str, rules: EffectiveRules | None, scan: DirectoryScan) -> None:
        self.directory = directory
        self.prefix = prefix
        self.rules = rules
        self.batches: Iterator[list[os.DirEntry[str]]] = iter(())
        self.later: list[str] = []  # directories to enter after the files
        self._scan = scan

    def close(self) -> None:
        self._scan.close()
        self.release()

    def release(self) -> None:
        """Closes the descriptor; it is opened again when needed."""
        if self.directory >= 0:
            os.close(self.directory)
            self.directory = -1


# Lists a directory and those below it: the first few hundred entries, upper levels first.


COUNTING = 2.0  # seconds to count the entries that are not shown


@dataclass(slots=True)
class OverviewItem:
    """An entry of a directory."""

    name: str
    relative: str  # to the listed directory
    kind: str  # "directory", "file", "link" or "special"
    size: int = 0  # bytes of a file
    target: str = ""  # the target of a link, as written in it
    skipped: bool = False  # a directory that is listed only when asked for itself
    items: list[OverviewItem] = field(default_factory=list)
    more: int = 0  # items that were left out
    unreadable: bool = False


@dataclass(slots=True)
class OverviewOptions:
    """The options of an overview: its bounds, its filters, and when to stop."""

    most: int
    depth: int = 1  # levels; 0: all
    hidden: bool = True
    ignored: bool = True  # False: ignored files are left out, ignored directories are not entered
    denied: Callable[[str], bool] = lambda shown: False
    stop: Callable[[], bool] = lambda: False


@dataclass(slots=True)
class Overview:
    """The listed directory as an item, and the numbers of entries left out."""

    top: OverviewItem
    shown: int = 0
    total: int = 0
    hidden: int = 0
    ignored: int = 0
    denied: int = 0
    stopped: bool = False
    uncounted: bool = False  # there are more than the total


class _Level(NamedTuple):
    """A directory to list."""

    location: Location
    item: OverviewItem
    rules: EffectiveRules | None
    depth: int


def make_overview(location: Location, options: OverviewOptions) -> Overview:
    """Lists breadth first, so that a large directory hides no other one of its level. Raises `ToolError` for other
    files.
    """
    found = Overview(OverviewItem(location.name, "", "directory"))
    pending = deque([_Level(location, found.top, None if options.ignored else read_rules_above(location), 1)])
    unseen: deque[_Level] = deque()
    while pending and not found.stopped:
        level = pending.popleft()
        if level.item is not found.top and found.shown >= options.most:
            unseen.append(level)
            continue
        try:
            below, beside = _fill_level(level, options, found)
        except (OSError, ToolError):
            if level.item is found.top:
                raise
            level.item.unreadable = True
            continue
        found.shown += len(level.item.items)
        found.stopped = options.stop()
        pending += below
        unseen += beside
    _count_unseen(unseen, options, found)
    found.uncounted |= found.stopped
    return found


def _count_unseen(unseen: deque[_Level], options: OverviewOptions, found: Overview) -> None:
    """Counts the entries of directories that are not shown, while there is time."""
    end = time.monotonic() + COUNTING
    while unseen and not found.stopped:
        if options.stop() or time.monotonic() > end:
            found.uncounted = True
            return
        level = unseen.popleft()
        try:
            unseen += _fill_level(
                level._replace(item=OverviewItem("", level.item.relative, "directory")), options, found
            )[1]
        except (OSError, ToolError):
            level.item.unreadable = True


def _fill_level(level: _Level, options: OverviewOptions, found: Overview) -> tuple[list[_Level], list[_Level]]:
    """Fills in the entries of a directory. Returns its directories: those that are shown, and the others."""
    location, item, rules, depth = level
    prefix = f"{item.relative}/" if item.relative else ""
    directory = open_directory(location)
    inner: list[os.DirEntry[str]] = []
    try:
        if not options.ignored:
            rules = (rules or EffectiveRules()).inside(directory, prefix)
        with os.scandir(directory) as scan:
            entries = _visible_entries(
                scan, location, item, rules, options, found, inner if depth != options.depth else None
            )
            first = nsmallest(options.most - found.shown, entries, key=_order)
            deque(entries, maxlen=0)  # nsmallest does not consume them if none are wanted
        found.total += item.more
        item.more -= len(first)
        item.items = [_item_of(entry, prefix, directory, rules, options) for entry in first]
        shown = {one.name for one in item.items}
        others = [_item_of(entry, prefix, directory, rules, options) for entry in inner if entry.name not in shown]
    finally:
        os.close(directory)
    if depth == options.depth:
        return [], []
    below = [one for one in item.items if one.kind == "directory"]
    return _levels_below(location, below, rules, depth), _levels_below(location, others, rules, depth)


def _levels_below(
    location: Location, items: list[OverviewItem], rules: EffectiveRules | None, depth: int
) -> list[_Level]:
    return [_Level(location.child(one.name), one, rules, depth + 1) for one in items if not one.skipped]


def _visible_entries(
    scan: Iterator[os.DirEntry[str]],
    location: Location,
    item: OverviewItem,
    rules: EffectiveRules | None,
    options: OverviewOptions,
    found: Overview,
    inner: list[os.DirEntry[str]] | None,
) -> Iterator[os.DirEntry[str]]:
    """Yields the visible entries and counts each as `more` until the shown ones are chosen. `inner` collects
    directories.
    """
    prefix = f"{item.relative}/" if item.relative else ""
    for entry in scan:
        name = entry.name
        if name.startswith(STRAY):
            continue
        if not options.hidden and name[0] == ".":
            found.hidden += 1
        elif rules is not None and not _is_directory(entry) and rules.verdict(prefix + name, name, False):
            found.ignored += 1
        elif options.denied(location.child(name).shown):
            found.denied += 1
        else:
            item.more += 1
            if inner is not None and _is_directory(entry):
                inner.append(entry)
            yield entry


def _item_of(
    entry: os.DirEntry[str], prefix: str, directory: int, rules: EffectiveRules | None, options: OverviewOptions
) -> OverviewItem:
    name, relative = entry.name, prefix + entry.name
    if _is_directory(entry):
        ignored = name in SKIPPED or (rules is not None and rules.verdict(relative, name, True))
        return OverviewItem(
            name, relative, "directory", skipped=name in NEVER or (bool(ignored) and not options.ignored)
        )
    try:
        if entry.is_symlink():
            return OverviewItem(name, relative, "link", target=os.readlink(name, dir_fd=directory))
        status = entry.stat(follow_symlinks=False)
    except OSError:  # gone meanwhile
        return OverviewItem(name, relative, "special")
    if entry.is_file(follow_symlinks=False):
        return OverviewItem(name, relative, "file", status.st_size)
    return OverviewItem(name, relative, "special")


def _is_directory(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False)


def _order(entry: os.DirEntry[str]) -> tuple[bool, str, str]:
    return not _is_directory(entry), entry.name.lower(), entry.name
