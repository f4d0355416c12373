"""Finds existing names similar to a missing file's name, in a bounded part of the tree."""

from __future__ import annotations

import os
from collections.abc import Iterator

from forge.core.errors import ToolError
from forge.workspace.paths import Location
from forge.workspace.paths.open import open_directory
from forge.workspace.state import STRAY

MOST_NAMES = 5_000  # compared in one directory
MOST_ELSEWHERE = 5_000  # compared in the rest of the tree
ALIKE = 0.6
SKIPPED = frozenset({".git", ".forge", "node_modules", "vendor", "__pycache__", ".venv", "dist", "build"})


def find_similar_names(location: Location, most: int = 3) -> list[str]:
    """Returns paths similar to a missing one: similar names beside it, then the same name elsewhere.

    Best first. Never raises: a directory that cannot be read has no names.
    """
    beside = [entry for entry in _list_entries(location.parent, MOST_NAMES) if not entry[1]]
    found = [
        location.parent.child(name).shown for name in _rank_alike(location.name, [name for name, _ in beside], most)
    ]
    if len(found) < most:
        found += [shown for shown in _find_elsewhere(location, most) if shown not in found][: most - len(found)]
    return found


def _rank_alike(wanted: str, names: list[str], most: int) -> list[str]:
    """Returns names that differ in case, in the extension or in a few letters, in that order."""
    from difflib import get_close_matches  # slow to import, needed only here

    folded, stem = wanted.casefold(), _stem(wanted)
    same = sorted(name for name in names if name.casefold() == folded and name != wanted)
    same += sorted(name for name in names if _stem(name) == stem and name not in same and name != wanted)
    if len(same) < most:
        close = {name.casefold(): name for name in names if name not in same and name != wanted}
        same += [close[name] for name in get_close_matches(folded, close, most, ALIKE)]
    return same[:most]


def _stem(name: str) -> str:
    return os.path.splitext(name)[0].casefold()


def _find_elsewhere(location: Location, most: int) -> list[str]:
    """Returns files of the same name in other directories, those nearest to the root first."""
    found: list[str] = []
    waiting = [Location(location.root, ".", _top(location), location.writable)]
    left = MOST_ELSEWHERE
    folded = location.name.casefold()
    for directory in waiting:  # grows while it is walked
        for name, is_directory in _list_entries(directory, left):
            left -= 1
            if is_directory:
                if name not in SKIPPED:
                    waiting.append(directory.child(name))
            elif name.casefold() == folded and directory.relative != location.parent.relative:
                found.append(directory.child(name).shown)
        if left <= 0 or len(found) >= most:
            break
    return found[:most]


def _top(location: Location) -> str:
    return "." if not os.path.isabs(location.shown) else str(location.root)


def _list_entries(directory: Location, most: int) -> Iterator[tuple[str, bool]]:
    """Yields names in a directory, with True for directories; skips special files."""
    try:
        descriptor = open_directory(directory)
    except ToolError:
        return
    try:
        with os.scandir(descriptor) as entries:
            for entry, _ in zip(entries, range(most), strict=False):
                if entry.name.startswith(STRAY):
                    continue
                is_directory = entry.is_dir(follow_symlinks=False)
                if is_directory or entry.is_file(follow_symlinks=False) or entry.is_symlink():
                    yield entry.name, is_directory
    except OSError:
        return
    finally:
        os.close(descriptor)
