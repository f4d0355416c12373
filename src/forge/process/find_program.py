"""Where a program is that may be started without asking: never one that the model could have put there."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path


def trusted_program(name: str, writable: Iterable[Path] = ()) -> str | None:
    """The program beside this Python, or else the first one on PATH that lies in none of the `writable` roots."""
    roots = [Path(os.path.realpath(root)).parts for root in writable]
    for folder, ours in _folders():
        path = os.path.join(folder, name)
        if os.path.isfile(path) and os.access(path, os.X_OK) and (ours or not _inside(roots, folder, path)):
            return path
    return None


def packaged_program(name: str, writable: Iterable[Path] = ()) -> str | None:
    """The program that an installed Python package brought, or else a trusted one.

    In a virtual environment a package's programs are beside this Python; elsewhere they have directories of their own.
    """
    if sys.prefix == sys.base_prefix:
        roots = [Path(os.path.realpath(root)).parts for root in writable]
        for folder in _script_folders():
            path = os.path.join(folder, name)
            if os.path.isfile(path) and os.access(path, os.X_OK) and not _inside(roots, folder, path):
                return path
    return trusted_program(name, writable)


def _script_folders() -> Iterator[str]:
    import sysconfig  # slow to load, and rarely needed

    yield sysconfig.get_path("scripts")
    yield sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user"))


def _folders() -> Iterator[tuple[str, bool]]:
    if sys.executable:
        yield os.path.dirname(sys.executable), True  # whoever can write there has this process already
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        if os.path.isabs(folder):
            yield folder, False


def _inside(roots: list[tuple[str, ...]], *paths: str) -> bool:
    """Whether one of the paths, as it is written or where it leads, lies in one of the roots."""
    spellings = [Path(one).parts for path in paths for one in (os.path.normpath(path), os.path.realpath(path))]
    return any(parts[: len(root)] == root for parts in spellings for root in roots)
