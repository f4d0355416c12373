"""Finds programs that may be started without asking: never one that the model could have put there."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path


def find_trusted_program(name: str, writable: Iterable[Path] = ()) -> str | None:
    """Returns the program beside this Python, or else the first one on PATH outside the `writable` roots."""
    roots = [Path(os.path.realpath(root)).parts for root in writable]
    for folder, ours in _folders():
        path = os.path.join(folder, name)
        if os.path.isfile(path) and os.access(path, os.X_OK) and (ours or not _is_inside_any(roots, folder, path)):
            return path
    return None


def find_packaged_program(name: str, writable: Iterable[Path] = ()) -> str | None:
    """Returns the program that an installed Python package brought, or else a trusted one.

    In a virtual environment a package's programs are beside this Python; elsewhere they have directories of their own.
    """
    if sys.prefix == sys.base_prefix:
        roots = [Path(os.path.realpath(root)).parts for root in writable]
        for folder in _script_folders():
            path = os.path.join(folder, name)
            if os.path.isfile(path) and os.access(path, os.X_OK) and not _is_inside_any(roots, folder, path):
                return path
    return find_trusted_program(name, writable)


def _script_folders() -> Iterator[str]:
    import sysconfig  # slow to load, and rarely needed

    yield sysconfig.get_path("scripts")
    yield sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user"))


def _folders() -> Iterator[tuple[str, bool]]:
    if sys.executable:
        yield os.path.dirname(sys.executable), True  # who can write there controls this process anyway
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        if os.path.isabs(folder):
            yield folder, False


def _is_inside_any(roots: list[tuple[str, ...]], *paths: str) -> bool:
    """Returns True if one of the paths, as written or resolved, lies in one of the roots."""
    spellings = [Path(one).parts for path in paths for one in (os.path.normpath(path), os.path.realpath(path))]
    return any(parts[: len(root)] == root for parts in spellings for root in roots)
