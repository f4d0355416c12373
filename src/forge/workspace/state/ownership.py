"""Which state directories were made here: one that a clone or an archive brought is not used before it is accepted.

Forge's mark in a directory holds what no other place can know beforehand: this machine's id and the directory's own
number in the file system. Whatever is copied, cloned or unpacked is another directory.
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
_HARMLESS = (".gitignore", "memory", MARK)  # notes are a project's words, as its skills are: people write them
_known: set[tuple[str, int]] = set()  # directories that this process found to be its own


def is_own(directory: Path) -> bool:
    """Whether it was made or accepted here. One that holds notes at most is, and is marked. Raises `OSError`."""
    number = os.lstat(directory).st_ino
    if (str(directory), number) in _known:
        return True
    if not _is_marked(directory, number):
        if not _is_harmless(directory):
            return False
        own(directory)
    _known.add((str(directory), number))
    return True


def own(directory: Path) -> None:
    """From now on it counts as made here. Raises `OSError`."""
    # another process, which writes the same, finds all of it or nothing
    replace_file(directory / MARK, _mark(os.lstat(directory).st_ino), lasting=False)


def is_foreign(directory: Path) -> bool:
    """A directory that is there, and was not made here. Changes nothing, never raises."""
    try:
        number = os.lstat(directory).st_ino
        known = (str(directory), number) in _known or _is_marked(directory, number)
        return directory.is_dir() and not known and not _is_harmless(directory)
    except OSError:
        return False


def _is_marked(directory: Path, number: int) -> bool:
    mark = _read(directory)
    return bool(mark) and mark == _mark(number)


def _is_harmless(directory: Path) -> bool:
    """Nothing is in it but notes, and what a process that is making it right now has put there."""
    return all(name in _HARMLESS or name.startswith(".forge-tmp-") for name in os.listdir(directory))


def _read(directory: Path) -> str:
    try:
        file = os.open(directory / MARK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    with os.fdopen(file, "rb") as stream:
        return stream.read(LONGEST).decode("ascii", "replace")


def _mark(number: int) -> str:
    from hashlib import sha256  # once for each directory

    user = os.getuid() if hasattr(os, "getuid") else 0
    return sha256(f"forge state {_machine()} {user} {number}".encode()).hexdigest()


@cache
def _machine() -> str:
    """What tells this machine from others, and is told to nobody; where there is no such thing, as in many
    containers, the directory's number has to do."""
    for path in _IDS:
        with contextlib.suppress(OSError, ValueError), open(path, encoding="ascii") as stream:
            if found := stream.read(LONGEST).strip():
                return found
    if sys.platform.startswith("linux"):
        return ""
    import uuid

    card = uuid.getnode()
    return "" if card >> 40 & 1 else f"{card:x}"  # that bit marks a number that is made up anew each time
