"""What is in a directory and in those below it: the first few hundred entries, the upper levels before the lower."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import NamedTuple

from forge.core.errors import ToolError
from forge.workspace.paths import Place
from forge.workspace.paths.open import open_directory
from forge.workspace.search.ignore import Ignored, rules_above
from forge.workspace.search.walk import NEVER, SKIPPED
from forge.workspace.state import STRAY

COUNTING = 2.0  # seconds in which what is not shown is counted


@dataclass(slots=True)
class Item:
    """Something in a directory."""

    name: str
    relative: str  # to the place that was looked at
    kind: str  # "directory", "file", "link" or "special"
    size: int = 0  # bytes of a file
    target: str = ""  # where a link leads, as it says itself
    skipped: bool = False  # a directory that is never shown from above
    items: list[Item] = field(default_factory=list)
    more: int = 0  # items that were left out
    unreadable: bool = False


@dataclass(slots=True)
class Wish:
    """What to look at."""

    most: int
    depth: int = 1  # levels; 0: all
    hidden: bool = True
    ignored: bool = True  # False: what ignore files name is left out, directories are not entered
    denied: Callable[[str], bool] = lambda shown: False
    stop: Callable[[], bool] = lambda: False


@dataclass(slots=True)
class Overview:
    """The place as an item, and what was left out of it."""

    top: Item
    shown: int = 0
    total: int = 0
    hidden: int = 0
    ignored: int = 0
    denied: int = 0
    stopped: bool = False
    uncounted: bool = False  # there are more than the total


class _Level(NamedTuple):
    """A directory to look into."""

    place: Place
    item: Item
    rules: Ignored | None
    depth: int


def overview(place: Place, wish: Wish) -> Overview:
    """Breadth first, so that a large directory hides no other one of its level. Raises `ToolError` where it is none."""
    found = Overview(Item(place.name, "", "directory"))
    pending = deque([_Level(place, found.top, None if wish.ignored else rules_above(place), 1)])
    unseen: deque[_Level] = deque()
    while pending and not found.stopped:
        level = pending.popleft()
        if level.item is not found.top and found.shown >= wish.most:
            unseen.append(level)
            continue
        try:
            below, beside = _look(level, wish, found)
        except (OSError, ToolError):
            if level.item is found.top:
                raise
            level.item.unreadable = True
            continue
        found.shown += len(level.item.items)
        found.stopped = wish.stop()
        pending += below
        unseen += beside
    _count(unseen, wish, found)
    found.uncounted |= found.stopped
    return found


def _count(unseen: deque[_Level], wish: Wish, found: Overview) -> None:
    """Count what is in directories that are not shown, as far as there is time."""
    end = time.monotonic() + COUNTING
    while unseen and not found.stopped:
        if wish.stop() or time.monotonic() > end:
            found.uncounted = True
            return
        level = unseen.popleft()
        try:
            unseen += _look(level._replace(item=Item("", level.item.relative, "directory")), wish, found)[1]
        except (OSError, ToolError):
            level.item.unreadable = True


def _look(level: _Level, wish: Wish, found: Overview) -> tuple[list[_Level], list[_Level]]:
    """Fill in what is directly in a directory. Returns the directories in it: those that are shown, and the others."""
    place, item, rules, depth = level
    prefix = f"{item.relative}/" if item.relative else ""
    directory = open_directory(place)
    inner: list[os.DirEntry[str]] = []
    try:
        if not wish.ignored:
            rules = (rules or Ignored()).inside(directory, prefix)
        with os.scandir(directory) as scan:
            entries = _shown(scan, place, item, rules, wish, found, inner if depth != wish.depth else None)
            first = nsmallest(wish.most - found.shown, entries, key=_order)
            deque(entries, maxlen=0)  # nsmallest leaves them where none are wanted
        found.total += item.more
        item.more -= len(first)
        item.items = [_item(entry, prefix, directory, rules, wish) for entry in first]
        shown = {one.name for one in item.items}
        others = [_item(entry, prefix, directory, rules, wish) for entry in inner if entry.name not in shown]
    finally:
        os.close(directory)
    if depth == wish.depth:
        return [], []
    below = [one for one in item.items if one.kind == "directory"]
    return _levels(place, below, rules, depth), _levels(place, others, rules, depth)


def _levels(place: Place, items: list[Item], rules: Ignored | None, depth: int) -> list[_Level]:
    return [_Level(place.child(one.name), one, rules, depth + 1) for one in items if not one.skipped]


def _shown(
    scan: Iterator[os.DirEntry[str]],
    place: Place,
    item: Item,
    rules: Ignored | None,
    wish: Wish,
    found: Overview,
    inner: list[os.DirEntry[str]] | None,
) -> Iterator[os.DirEntry[str]]:
    """What may be seen; each is counted as `more` until it is known which ones are shown. `inner` gets directories."""
    prefix = f"{item.relative}/" if item.relative else ""
    for entry in scan:
        name = entry.name
        if name.startswith(STRAY):
            continue
        if not wish.hidden and name[0] == ".":
            found.hidden += 1
        elif rules is not None and not _is_directory(entry) and rules.verdict(prefix + name, name, False):
            found.ignored += 1
        elif wish.denied(place.child(name).shown):
            found.denied += 1
        else:
            item.more += 1
            if inner is not None and _is_directory(entry):
                inner.append(entry)
            yield entry


def _item(entry: os.DirEntry[str], prefix: str, directory: int, rules: Ignored | None, wish: Wish) -> Item:
    name, relative = entry.name, prefix + entry.name
    if _is_directory(entry):
        ignored = name in SKIPPED or (rules is not None and rules.verdict(relative, name, True))
        return Item(name, relative, "directory", skipped=name in NEVER or (bool(ignored) and not wish.ignored))
    try:
        if entry.is_symlink():
            return Item(name, relative, "link", target=os.readlink(name, dir_fd=directory))
        status = entry.stat(follow_symlinks=False)
    except OSError:  # gone meanwhile
        return Item(name, relative, "special")
    if entry.is_file(follow_symlinks=False):
        return Item(name, relative, "file", status.st_size)
    return Item(name, relative, "special")


def _is_directory(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False)


def _order(entry: os.DirEntry[str]) -> tuple[bool, str, str]:
    return not _is_directory(entry), entry.name.lower(), entry.name
