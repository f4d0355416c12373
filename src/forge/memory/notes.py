"""The notes themselves: Markdown files in one directory, which people edit as they like."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import NamedTuple

from forge.core.arguments.checks import near
from forge.core.context import Scope
from forge.core.errors import ErrorKind, ToolError
from forge.workspace.paths import PathValidator, Place, quoted
from forge.workspace.paths.open import explained, open_directory, open_file
from forge.workspace.state import NAME, state_directory, why_not
from forge.workspace.text import Text, decode, split_lines

EVERGREEN = "MEMORY.md"
LARGEST = 8 * 1024 * 1024  # bytes of a note
DEEPEST = 5  # directories inside each other
SETTLED = 2_000_000_000  # nanoseconds: a file written later than this may be written again without a new time

_DATED = re.compile(r"(\d{4})-(\d{2})-(\d{2})(?!\d)")


class Note(NamedTuple):
    """A note as it was read: its content, and a stamp that changes with it. No stamp: it was written just now."""

    content: bytes
    stamp: str


class Notes:
    """The directory `.forge/memory/` of a project, or any other one."""

    def __init__(self, directory: Path, *, writes: bool = True) -> None:
        self.directory = Path(os.path.abspath(directory))
        self._in_project = self.directory.parent.name == NAME
        self.workspace = self.directory.parents[1] if self._in_project else self.directory
        self._prefix = f"{NAME}/{self.directory.name}/" if self._in_project else ""
        self._paths = PathValidator(self.workspace, writes=writes)
        self.has_folders = False  # as of the last listing

    @property
    def exists(self) -> bool:
        return self.directory.is_dir()

    def stamps(self) -> dict[str, str]:
        """Every note with its stamp. Links, hidden files and what is no `.md` are no notes."""
        if not self.exists:
            return {}
        top = open_directory(self._top())
        folders: list[str] = []
        try:
            found = dict(_stamps(top, "", DEEPEST, folders))
            self.has_folders = bool(folders)
            return found
        except OSError as error:
            problem = f"the notes in {self.directory} cannot be listed: {error.strerror}"
            raise ToolError(problem, ErrorKind.SYSTEM, "Check the directory's permissions.") from None
        finally:
            os.close(top)

    def read(self, name: str) -> Note | None:
        """A note by its name; None if it is gone. Raises `ToolError` for what is no text, or too much of it."""
        try:
            descriptor = open_file(self.place(name))
        except ToolError as error:
            if error.kind is ErrorKind.NOT_FOUND:
                return None
            raise
        with open(descriptor, "rb") as file, explained(name):
            before = os.fstat(descriptor)
            content = file.read(LARGEST + 1)
            after = os.fstat(descriptor)
        if len(content) > LARGEST:
            raise ToolError(
                f"{quoted(name)} has {max(after.st_size, LARGEST + 1):,} bytes; the most for a note are {LARGEST:,}",
                ErrorKind.USER,
                "Make several notes of it.",
            )
        needs_no_worker = _stamp(before) == _stamp(after) and time.time_ns() - after.st_mtime_ns > SETTLED
        return Note(content, _stamp(after) if needs_no_worker else "")

    def text(self, path: str) -> str:
        """What a note says; the path as somebody spelled it. Raises `ToolError`."""
        place = self.place(path)
        name = self.name_of(place)
        note = self.read(name)
        if note is None:
            raise self._missing(path)
        return decoded(name, note.content).text

    def append(self, name: str, entry: str) -> tuple[int, int]:
        """Add a paragraph to a note, atomically, whoever else writes; the lines it stands on."""
        from forge.workspace.changes.commit import Change, commit  # they load what only writing needs
        from forge.workspace.changes.journal import recover_once
        from forge.workspace.paths.locks import locked

        self._make_directory()
        place = self._paths.resolve_for_writing(f"{self._prefix}{name}")
        self._check_inside(place, name)
        recover_once(Scope(workspace=self.workspace))
        with locked([place]):
            note = self.read(name)
            after, lines = extended(decoded(name, note.content) if note else None, entry)
            if len(after) > LARGEST:
                raise ToolError(
                    f"{quoted(name)} would have {len(after):,} bytes; the most for a note are {LARGEST:,}",
                    ErrorKind.USER,
                    "Write less, or ask the person to tidy the note up.",
                )
            commit([Change(place, note.content if note else None, after, mode=0o600)], self.workspace)
        return lines

    def place(self, path: str) -> Place:
        """Where a note is. Its name may be spelled from the notes' directory or from the workspace."""
        spelled = path.removeprefix("./")
        if not os.path.isabs(spelled) and not spelled.startswith("~") and not spelled.startswith(self._prefix):
            spelled = f"{self._prefix}{spelled}" if spelled.strip() else spelled
        try:
            place = self._paths.resolve(spelled)
        except ToolError as error:
            raise _outside(path) if "leads outside" in error.message else error from None
        self._check_inside(place, path)
        return place

    def name_of(self, place: Place) -> str:
        return place.relative.removeprefix(self._prefix)

    def shown(self, path: str) -> str:
        """The path as rules see it: from the workspace."""
        spelled = path.removeprefix("./")
        is_whole = os.path.isabs(spelled) or spelled.startswith(self._prefix)
        return spelled if is_whole else f"{self._prefix}{spelled}"

    def _check_inside(self, place: Place, path: str) -> None:
        if not place.relative.startswith(self._prefix):
            raise _outside(path)
        name = self.name_of(place)
        if not _is_note(name):
            raise ToolError(f"{quoted(path)} is no note", ErrorKind.USER, "Notes are the .md files in the memory.")

    def _missing(self, path: str) -> ToolError:
        names = sorted(self.stamps(), reverse=True)
        hints = near(path, names)
        if hints:
            return ToolError("no such note", ErrorKind.NOT_FOUND, f"Did you mean {' or '.join(hints)}?")
        listed = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
        return ToolError("no such note", ErrorKind.NOT_FOUND, f"There are: {listed}." if names else "There are none.")

    def _top(self) -> Place:
        return Place(self._paths.workspace, self._prefix.rstrip("/") or ".", str(self.directory))

    def _make_directory(self) -> None:
        if not self._in_project:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        elif state_directory(self.workspace, self.directory.name) != self.directory:
            problem, way = why_not(self.workspace)
            raise ToolError(problem, ErrorKind.PERMISSION, f"Tell the person: nothing was remembered. {way}")


def day_of(name: str) -> date | None:
    """The date that a note's name begins with; None for one that does not age."""
    found = _DATED.match(name.rpartition("/")[2])
    if found is None:
        return None
    try:
        return date(*map(int, found.groups()))
    except ValueError:
        return None


def decoded(name: str, content: bytes) -> Text:
    try:
        return decode(content)
    except ToolError as error:
        raise ToolError(f"{quoted(name)}: {error.message}", error.kind, error.suggestion) from None


def extended(old: Text | None, entry: str) -> tuple[bytes, tuple[int, int]]:
    """A note with a paragraph more, a blank line before it, in its own encoding; and the lines of the paragraph."""
    before = old.text if old is not None else ""
    end = "\r\n" if "\r\n" in before else "\n"
    gap = "" if not before else end if before.endswith(("\n", "\r")) else end * 2
    first = len(split_lines(before + gap)) + 1
    lines = entry.strip("\r\n").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    text = f"{before}{gap}{end.join(lines)}{end}"
    return (old or Text("")).encoded(text), (first, first + len(lines) - 1)


def _stamps(directory: int, above: str, depth: int, folders: list[str]) -> Iterator[tuple[str, str]]:
    with os.scandir(directory) as entries:
        for entry in entries:
            name = entry.name
            if name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                folders.append(name)
                if depth:
                    yield from _below(directory, name, above, depth, folders)
            elif name.endswith(".md"):
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                if stat.S_ISREG(status.st_mode) and name.isprintable():
                    yield f"{above}{name}", _stamp(status)


def _below(directory: int, name: str, above: str, depth: int, folders: list[str]) -> Iterator[tuple[str, str]]:
    try:
        inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    except OSError:
        return
    try:
        yield from _stamps(inner, f"{above}{name}/", depth - 1, folders)
    finally:
        os.close(inner)


def _is_note(name: str) -> bool:
    return name.endswith(".md") and name.isprintable() and not any(one.startswith(".") for one in name.split("/"))


def _stamp(status: os.stat_result) -> str:
    return f"{status.st_mtime_ns}.{status.st_ctime_ns}.{status.st_size}.{status.st_ino}"


def _outside(path: str) -> ToolError:
    problem = f"{quoted(path)} leads outside the memory"
    return ToolError(problem, ErrorKind.SECURITY, "Name a note, such as MEMORY.md; file_read reads other files.")
