"""Finds names that a missing file may have been meant by, looking at no more of the tree than is worth it."""

from __future__ import annotations

import os
from collections.abc import Iterator

from forge.core.errors import ToolError
from forge.workspace.paths import Place
from forge.workspace.paths.open import open_directory
from forge.workspace.state import STRAY

MOST_NAMES = 5_000  # looked at in one directory
MOST_ELSEWHERE = 5_000  # looked at in the rest of the tree
ALIKE = 0.6
SKIPPED = frozenset({".git", ".forge", "node_modules", "vendor", "__pycache__", ".venv", "dist", "build"})


def similar_names(place: Place, most: int = 3) -> list[str]:
    """Files near a missing one, as they are shown: those called alike beside it, then those called the same elsewhere.

    Best first. Never raises: whatever cannot be looked at has no names.
    """
    beside = [entry for entry in _entries(place.parent, MOST_NAMES) if not entry[1]]
    found = [place.parent.child(name).shown for name in _alike(place.name, [name for name, _ in beside], most)]
    if len(found) < most:
        found += [shown for shown in _elsewhere(place, most) if shown not in found][: most - len(found)]
    return found


def _alike(wanted: str, names: list[str], most: int) -> list[str]:
    """Those that differ in case, in the extension or in a few letters, in that order."""
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


def _elsewhere(place: Place, most: int) -> list[str]:
    """Files of the same name in other directories, the ones nearest to the root first."""
    found: list[str] = []
    waiting = [Place(place.root, ".", _top(place), place.writable)]
    left = MOST_ELSEWHERE
    folded = place.name.casefold()
    for directory in waiting:  # grows while it is walked
        for name, is_directory in _entries(directory, left):
            left -= 1
            if is_directory:
                if name not in SKIPPED:
                    waiting.append(directory.child(name))
            elif name.casefold() == folded and directory.relative != place.parent.relative:
                found.append(directory.child(name).shown)
        if left <= 0 or len(found) >= most:
            break
    return found[:most]


def _top(place: Place) -> str:
    return "." if not os.path.isabs(place.shown) else str(place.root)


def _entries(directory: Place, most: int) -> Iterator[tuple[str, bool]]:
    """Names in a directory, and whether each is one itself; special files and links out of sight are passed over."""
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
