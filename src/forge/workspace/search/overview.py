"""Lists a directory and those below it: the first few hundred entries, upper levels first."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import NamedTuple

from forge.core.errors import ToolError
from forge.workspace.paths import Location
from forge.workspace.paths.open import open_directory
from forge.workspace.search.ignore import EffectiveRules, read_rules_above
from forge.workspace.search.walk import NEVER, SKIPPED
from forge.workspace.state import STRAY

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
