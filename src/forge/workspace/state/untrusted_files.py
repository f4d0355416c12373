"""Keeps when files were written from untrusted text, so that they are still untrusted when they are read again.

A mark is a span of time and an origin: all files of the workspace that were last changed in it are untrusted. So it
does not matter how a program names the files that it writes. The kernel sets the time of the last change (ctime); a
program cannot choose it. A person who changes such a file later takes the mark off; a call that names it does not.

The marks are kept twice: in the state directory, which some sandboxes cannot hide, and in the user's data directory,
where no program in a sandbox writes. A file is untrusted if either says so: whoever changes or removes the first
copy takes no mark off.
"""

from __future__ import annotations

import json
import logging
import os
import stat
import time
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from forge.core.files import open_regular
from forge.core.result import LONGEST_ORIGIN
from forge.workspace.state import NAME, append_whole, data_file, find_state, keep_newest, state_directory, write_first

FILE = "untrusted.jsonl"
KEPT = "labels"  # the folder of the second copies, one a workspace
MOST_WORKSPACES, MOST_BYTES = 10_000, 1024 * 1024 * 1024  # of second copies
MOST_MARKS = 20_000  # marks that are kept; the oldest go first
LARGEST_FILE = 32 * 1024 * 1024  # bytes of a file that are read: its end
SLACK = 20_000_000  # nanoseconds: the kernel's clock for files may be a tick behind


class Mark(NamedTuple):
    """A span of time, in nanoseconds, in which untrusted text was written, and where the text comes from."""

    first: int
    last: int
    origin: str


_Marks = tuple[tuple[int, int], list[Mark]]  # the number and the size of a file, and its marks


class _KnownMarks:
    """The marks that this process has read. They are read again only where a file has changed."""

    def __init__(self) -> None:
        self.read: dict[str, _Marks] = {}  # by file
        self.all: dict[str, tuple[object, list[Mark]]] = {}  # by workspace: marks of both files, and of which state
        self.elsewhere: dict[str, str] = {}  # by workspace: the file, where `.forge` cannot be written
        self.reported: set[str] = set()  # files


_known = _KnownMarks()

log = logging.getLogger(__name__)


def mark_span(workspace: Path, first: int, origin: str) -> None:
    """Marks all files that were changed since `first`, a time of `time.time_ns`. Raises `OSError`."""
    mark = Mark(first - SLACK, time.time_ns(), origin[:LONGEST_ORIGIN])
    problem = None
    try:
        path = state_directory(workspace) / FILE
        if path.parent != workspace / NAME:
            _known.elsewhere[str(workspace)] = str(path)
        _append(path, [mark])
    except OSError as error:
        problem = error
    is_kept = _keep(workspace, [mark])  # after the first copy: what is in this one alone was removed there
    if problem is not None and not is_kept:
        raise problem


def has_marks(workspace: Path) -> bool:
    """Returns whether untrusted text was ever written here."""
    return bool(_marks_of(workspace))


def find_origin(workspace: Path, path: str, *, folders: bool = False) -> str:
    """Returns where the text of a file comes from; empty if no untrusted text was written to it.

    `folders`: a folder counts, too, if files were added to it.
    """
    marks = _marks_of(workspace)
    if not marks:
        return ""
    try:
        status = os.stat(os.path.join(workspace, path))
    except (OSError, ValueError):
        return ""
    if not (folders or stat.S_ISREG(status.st_mode)):
        return ""
    changed = status.st_ctime_ns
    return next((mark.origin for mark in reversed(marks) if mark.first <= changed <= mark.last), "")


def _marks_of(workspace: Path) -> list[Mark]:
    path = _find_file(workspace)
    kept_file = _kept_file(str(workspace))
    kept = _read_file(str(kept_file)) if kept_file is not None else None  # first: a mark is added here last
    found = _read_file(path)
    if kept is None or found is None:
        if kept is None and found is not None and found[1]:
            _keep(workspace, [])  # the workspace was moved here, or the second copy was removed
        elif kept is not None and kept_file is not None:
            _tell_missing(path, kept_file, kept[1])
        one = kept or found
        return one[1] if one is not None else []
    stamps = kept[0], found[0]
    joined = _known.all.get(str(workspace))
    if joined is None or joined[0] != stamps:
        there, here = set(found[1]), set(kept[1])
        missing = [mark for mark in kept[1] if mark not in there]
        if missing and len(found[1]) < MOST_MARKS and kept_file is not None:
            _tell_missing(path, kept_file, missing)
        if len(_known.all) > 100:
            _known.all.clear()
        joined = _known.all[str(workspace)] = stamps, [*(mark for mark in found[1] if mark not in here), *kept[1]]
    return joined[1]


def _find_file(workspace: Path) -> str:
    """Returns the first copy of the marks."""
    return _known.elsewhere.get(str(workspace)) or os.path.join(find_state(workspace) or workspace / NAME, FILE)


def _tell_missing(path: str, kept_file: Path, missing: list[Mark]) -> None:
    """Reports once that marks were removed, and puts them back."""
    if path in _known.reported or not missing:
        return
    _known.reported.add(path)
    log.warning(
        "%s was changed outside Forge: %s marks of untrusted files are missing. They still count, since Forge keeps"
        " them in %s, too. Find out which program did this. To trust these files, change them yourself, or remove both"
        " files",
        path,
        len(missing),
        kept_file,
    )
    try:
        _append(path, missing)
    except OSError as error:
        log.info("%s could not be written: %s", path, error.strerror)


@cache
def _kept_file(workspace: str) -> Path | None:
    """Returns the second copy of a workspace; None without a home directory."""
    return data_file(f"{KEPT}/{sha256(os.fsencode(os.path.realpath(workspace))).hexdigest()[:32]}.jsonl")


def _keep(workspace: Path, marks: list[Mark]) -> bool:
    """Adds marks to the second copy. The first time, it gets all marks of the first one. Returns False if it cannot."""
    path = _kept_file(str(workspace))
    if path is None:
        return False
    try:
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            before = _read_file(_find_file(workspace))
            write_first(path, _format_marks(one for one in (before[1] if before else []) if one not in marks))
            keep_newest(path.parent, MOST_WORKSPACES, MOST_BYTES)
        _append(path, marks)
    except OSError as error:
        if str(path) not in _known.reported:
            _known.reported.add(str(path))
            log.warning(
                "the marks of untrusted files cannot be kept in %s (%s): a program that can write to %s/ can remove"
                " them. Make that directory writable",
                path,
                error.strerror,
                NAME,
            )
        return False
    return True


def _append(path: Path | str, marks: list[Mark]) -> None:
    if not marks:
        return
    file = open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW)
    try:
        append_whole(file, _format_marks(marks))
    finally:
        os.close(file)


def _format_marks(marks: Iterable[Mark]) -> bytes:
    return "".join(f"\n{json.dumps(mark)}\n" for mark in marks).encode()  # each on its own line, also after a cut one


def _read_file(path: str) -> _Marks | None:
    """Returns the marks in a file; None if there is no such file."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    stamp = status.st_ino, status.st_size
    known = _known.read.get(path)
    if known is None or known[0] != stamp:
        is_longer = known is not None and known[0][0] == stamp[0] and known[0][1] < stamp[1]
        start, before = (known[0][1], known[1]) if known is not None and is_longer else (0, [])
        if len(_known.read) > 100:
            _known.read.clear()
        start = max(start, stamp[1] - LARGEST_FILE)
        known = _known.read[path] = (stamp, [*before, *_load(path, start, stamp[1])][-MOST_MARKS:])
    return known


def _load(path: str, start: int, end: int) -> Iterator[Mark]:
    """Reads the marks in a part of the file: it only grows, and by whole lines."""
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            file.seek(start)
            lines = file.read(end - start).splitlines()
    except OSError:
        return
    for line in lines:
        try:
            first, last, origin = json.loads(line)
            yield Mark(int(first), int(last), str(origin))
        except (ValueError, TypeError, OverflowError, RecursionError):  # a line that was cut
            continue
