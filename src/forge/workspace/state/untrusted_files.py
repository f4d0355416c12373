"""Keeps when files were written from untrusted text, so that they are still untrusted when they are read again.

A mark is a span of time and an origin: all files of the workspace that were last changed in it are untrusted. So it
does not matter how a program names the files that it writes. The kernel sets the time of the last change (ctime); a
program cannot choose it. A person who changes such a file later takes the mark off; a call that names it does not.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from forge.core.label import LONGEST_ORIGIN
from forge.core.regular_files import open_regular
from forge.workspace.state import NAME, append_whole, find_state, state_directory

FILE = "untrusted.jsonl"
MOST = 20_000  # marks that are kept; the oldest go first
SLACK = 20_000_000  # nanoseconds: the kernel's clock for files may be a tick behind


class Mark(NamedTuple):
    """A span of time, in nanoseconds, in which untrusted text was written, and where the text comes from."""

    first: int
    last: int
    origin: str


_read: dict[str, tuple[tuple[int, int], list[Mark]]] = {}  # by file: its number and size, and its marks
_elsewhere: dict[str, str] = {}  # by workspace: the file, where `.forge` cannot be written


def mark_span(workspace: Path, first: int, origin: str) -> None:
    """Marks all files that were changed since `first`, a time of `time.time_ns`."""
    mark = json.dumps([first - SLACK, time.time_ns(), origin[:LONGEST_ORIGIN]])
    line = f"\n{mark}\n"  # on a line of its own, also after one that was cut
    path = state_directory(workspace) / FILE
    if path.parent != workspace / NAME:
        _elsewhere[str(workspace)] = str(path)
    file = open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW)
    try:
        append_whole(file, line.encode())
    finally:
        os.close(file)


def has_marks(workspace: Path) -> bool:
    """Says whether untrusted text was ever written here."""
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
    path = _elsewhere.get(str(workspace)) or os.path.join(find_state(workspace) or workspace / NAME, FILE)
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return []
    stamp = status.st_ino, status.st_size
    known = _read.get(path)
    if known is None or known[0] != stamp:
        is_longer = known is not None and known[0][0] == stamp[0] and known[0][1] < stamp[1]
        start, before = (known[0][1], known[1]) if known is not None and is_longer else (0, [])
        if len(_read) > 100:
            _read.clear()
        known = _read[path] = (stamp, [*before, *_load(path, start, stamp[1])][-MOST:])
    return known[1]


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
        except (ValueError, TypeError):  # a line that was cut
            continue
