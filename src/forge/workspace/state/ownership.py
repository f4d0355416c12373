"""Detects state directories that a clone or an archive brought: they are not used before they are trusted.

Forge's mark in a directory holds values that nobody else can know in advance: this machine's id and the directory's own
inode number. A copied, cloned or unpacked directory has another number.
"""

from __future__ import annotations

import contextlib
import os
import sys
from functools import cache
from pathlib import Path

from forge.workspace.state.replace_file import replace_file

MARK = "made-here"
LONGEST = 200  # bytes of a mark
_IDS = ("/etc/machine-id", "/var/lib/dbus/machine-id")
_HARMLESS = (".gitignore", "memory", MARK)  # notes are written by people and belong to the project, as its skills do
_known: set[tuple[str, int]] = set()  # directories that this process found to be its own


def is_own(directory: Path) -> bool:
    """Returns True if the directory was made or trusted here. Marks one that holds only notes. Raises `OSError`."""
    number = os.lstat(directory).st_ino
    if (str(directory), number) in _known:
        return True
    if not _is_marked(directory, number):
        if not _is_harmless(directory):
            return False
        mark_own(directory)
    _known.add((str(directory), number))
    return True


def mark_own(directory: Path) -> None:
    """Marks the directory as made here. Raises `OSError`."""
    # another process, which writes the same mark, never sees a part of it
    replace_file(directory / MARK, _compute_mark(os.lstat(directory).st_ino), lasting=False)


def is_foreign(directory: Path) -> bool:
    """Returns True for an existing directory that was not made here. Changes nothing, never raises."""
    try:
        number = os.lstat(directory).st_ino
        known = (str(directory), number) in _known or _is_marked(directory, number)
        return directory.is_dir() and not known and not _is_harmless(directory)
    except OSError:
        return False


def _is_marked(directory: Path, number: int) -> bool:
    mark = _read_mark(directory)
    return bool(mark) and mark == _compute_mark(number)


def _is_harmless(directory: Path) -> bool:
    """Returns True if the directory holds only notes, and files of a process that is making it right now."""
    return all(name in _HARMLESS or name.startswith(".forge-tmp-") for name in os.listdir(directory))


def _read_mark(directory: Path) -> str:
    try:
        file = os.open(directory / MARK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    with os.fdopen(file, "rb") as stream:
        return stream.read(LONGEST).decode("ascii", "replace")


def _compute_mark(number: int) -> str:
    from hashlib import sha256  # needed once for each directory

    user = os.getuid() if hasattr(os, "getuid") else 0
    return sha256(f"forge state {_machine_id()} {user} {number}".encode()).hexdigest()


@cache
def _machine_id() -> str:
    """Returns an id of this machine, which is never shown; empty where there is none, as in many containers: then the
    directory's number alone identifies it.
    """
    for path in _IDS:
        with contextlib.suppress(OSError, ValueError), open(path, encoding="ascii") as stream:
            if found := stream.read(LONGEST).strip():
                return found
    if sys.platform.startswith("linux"):
        return ""
    import uuid

    card = uuid.getnode()
    return "" if card >> 40 & 1 else f"{card:x}"  # that bit marks a number that is random each time
