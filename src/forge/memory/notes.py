"""Reads, lists and extends the notes: Markdown files in one directory, which people may edit."""

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
from forge.workspace.paths import Location, PathValidator, quote_path
from forge.workspace.paths.open import explain_errors, open_directory, open_file
from forge.workspace.state import NAME, explain_unusable, state_directory
from forge.workspace.text import DecodedText, decode, split_lines

EVERGREEN = "MEMORY.md"
LARGEST = 8 * 1024 * 1024  # bytes of a note
DEEPEST = 5  # levels of nested directories
STABLE_AFTER = 2_000_000_000  # nanoseconds: a younger file may be written again without a new timestamp

_DATED = re.compile(r"(\d{4})-(\d{2})-(\d{2})(?!\d)")


class Note(NamedTuple):
    """The content of a note, and a stamp that changes with it. The stamp is "" if the note was written just now."""

    content: bytes
    stamp: str


class Notes:
    """The notes in `.forge/memory/` of a project, or in any other directory."""

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
        """Returns every note with its stamp. Links, hidden files and files that do not end in `.md` are not notes."""
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
        """Reads a note by its name; None if it does not exist. Raises `ToolError` if it is too large or unreadable."""
        try:
            descriptor = open_file(self.resolve(name))
        except ToolError as error:
            if error.kind is ErrorKind.NOT_FOUND:
                return None
            raise
        with open(descriptor, "rb") as file, explain_errors(name):
            before = os.fstat(descriptor)
            content = file.read(LARGEST + 1)
            after = os.fstat(descriptor)
        if len(content) > LARGEST:
            raise ToolError(
                f"{quote_path(name)} has {max(after.st_size, LARGEST + 1):,} bytes; the maximum for a note is"
                f" {LARGEST:,}",
                ErrorKind.USER,
                "Split it into several notes.",
            )
        is_stable = _stamp(before) == _stamp(after) and time.time_ns() - after.st_mtime_ns > STABLE_AFTER
        return Note(content, _stamp(after) if is_stable else "")

    def text(self, path: str) -> str:
        """Returns the text of a note. The path may be spelled as in `resolve`. Raises `ToolError`."""
        location = self.resolve(path)
        name = self.name_of(location)
        note = self.read(name)
        if note is None:
            raise self._missing_error(path)
        return decode_note(name, note.content).text

    def append(self, name: str, entry: str) -> tuple[int, int]:
        """Appends a paragraph to a note, atomically. Returns the first and the last line of the paragraph."""
        from forge.workspace.changes.commit import Change, commit  # needed only for writing
        from forge.workspace.changes.journal import recover_once
        from forge.workspace.paths.locks import lock_directories

        self._make_directory()
        location = self._paths.resolve_for_writing(f"{self._prefix}{name}")
        self._check_inside(location, name)
        recover_once(Scope(workspace=self.workspace))
        with lock_directories([location]):
            note = self.read(name)
            after, lines = append_entry(decode_note(name, note.content) if note else None, entry)
            if len(after) > LARGEST:
                raise ToolError(
                    f"{quote_path(name)} would have {len(after):,} bytes; the maximum for a note is {LARGEST:,}",
                    ErrorKind.USER,
                    "Write less, or ask the person to shorten the note.",
                )
            commit([Change(location, note.content if note else None, after, mode=0o600)], self.workspace)
        return lines

    def resolve(self, path: str) -> Location:
        """Resolves the path of a note, which may be relative to the notes' directory or to the workspace."""
        spelled = path.removeprefix("./")
        if not os.path.isabs(spelled) and not spelled.startswith("~") and not spelled.startswith(self._prefix):
            spelled = f"{self._prefix}{spelled}" if spelled.strip() else spelled
        try:
            location = self._paths.resolve(spelled)
        except ToolError as error:
            raise _outside_error(path) if "leads outside" in error.message else error from None
        self._check_inside(location, path)
        return location

    def name_of(self, location: Location) -> str:
        return location.relative.removeprefix(self._prefix)

    def workspace_path(self, path: str) -> str:
        """Returns the path relative to the workspace, as permission rules see it."""
        spelled = path.removeprefix("./")
        is_whole = os.path.isabs(spelled) or spelled.startswith(self._prefix)
        return spelled if is_whole else f"{self._prefix}{spelled}"

    def _check_inside(self, location: Location, path: str) -> None:
        if not location.relative.startswith(self._prefix):
            raise _outside_error(path)
        name = self.name_of(location)
        if not _is_note(name):
            raise ToolError(
                f"{quote_path(path)} is not a note", ErrorKind.USER, "Notes are the .md files in the memory."
            )

    def _missing_error(self, path: str) -> ToolError:
        names = sorted(self.stamps(), reverse=True)
        hints = near(path, names)
        if hints:
            return ToolError("no such note", ErrorKind.NOT_FOUND, f"Did you mean {' or '.join(hints)}?")
        listed = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
        return ToolError(
            "no such note", ErrorKind.NOT_FOUND, f"There are: {listed}." if names else "There are no notes."
        )

    def _top(self) -> Location:
        return Location(self._paths.workspace, self._prefix.rstrip("/") or ".", str(self.directory))

    def _make_directory(self) -> None:
        if not self._in_project:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        elif state_directory(self.workspace, self.directory.name) != self.directory:
            problem, way = explain_unusable(self.workspace)
            raise ToolError(problem, ErrorKind.PERMISSION, f"Tell the person: nothing was remembered. {way}")


def day_of(name: str) -> date | None:
    """Returns the date that a note's name begins with; None for a note that does not age."""
    found = _DATED.match(name.rpartition("/")[2])
    if found is None:
        return None
    try:
        return date(*map(int, found.groups()))
    except ValueError:
        return None


def decode_note(name: str, content: bytes) -> DecodedText:
    try:
        return decode(content)
    except ToolError as error:
        raise ToolError(f"{quote_path(name)}: {error.message}", error.kind, error.suggestion) from None


def append_entry(old: DecodedText | None, entry: str) -> tuple[bytes, tuple[int, int]]:
    """Appends a blank line and a paragraph, in the note's own encoding. Returns the bytes and the paragraph's lines."""
    before = old.text if old is not None else ""
    end = "\r\n" if "\r\n" in before else "\n"
    gap = "" if not before else end if before.endswith(("\n", "\r")) else end * 2
    first = len(split_lines(before + gap)) + 1
    lines = entry.strip("\r\n").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    text = f"{before}{gap}{end.join(lines)}{end}"
    return (old or DecodedText("")).encode_whole(text), (first, first + len(lines) - 1)


def _stamps(directory: int, above: str, depth: int, folders: list[str]) -> Iterator[tuple[str, str]]:
    with os.scandir(directory) as entries:
        for entry in entries:
            name = entry.name
            if name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                folders.append(name)
                if depth:
                    yield from _stamps_below(directory, name, above, depth, folders)
            elif name.endswith(".md"):
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                if stat.S_ISREG(status.st_mode) and name.isprintable():
                    yield f"{above}{name}", _stamp(status)


def _stamps_below(directory: int, name: str, above: str, depth: int, folders: list[str]) -> Iterator[tuple[str, str]]:
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


def _outside_error(path: str) -> ToolError:
    problem = f"{quote_path(path)} is outside the memory"
    return ToolError(problem, ErrorKind.SECURITY, "Name a note, such as MEMORY.md; file_read reads other files.")
