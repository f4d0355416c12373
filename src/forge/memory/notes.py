"""Reads, lists and extends the notes: Markdown files in one directory, which people may edit.

Entries written after untrusted or private text carry a mark. Where the system can, it reports which notes changed.
"""

from __future__ import annotations

import errno
import io
import os
import re
import stat
import struct
import sys
import time
from collections.abc import Iterable, Iterator
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from forge.core.arguments.names import near
from forge.core.context import Scope
from forge.core.errors import ErrorKind, ToolError
from forge.core.result import LONGEST_ORIGIN, Label, merge_labels, read_labels
from forge.workspace.paths import Location, PathValidator, quote_path
from forge.workspace.paths.open import explain_errors, open_directory, open_file
from forge.workspace.state import NAME, explain_unusable, state_directory
from forge.workspace.text import DecodedText, decode, split_lines

EVERGREEN = "MEMORY.md"
LARGEST_NOTE = 8 * 1024 * 1024  # bytes of a note
DEEPEST_FOLDERS = 5  # levels of nested directories
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
            found = dict(_stamps(top, "", DEEPEST_FOLDERS, folders))
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
            content = file.read(LARGEST_NOTE + 1)
            after = os.fstat(descriptor)
        if len(content) > LARGEST_NOTE:
            raise ToolError(
                f"{quote_path(name)} has {max(after.st_size, LARGEST_NOTE + 1):,} bytes; the maximum for a note is"
                f" {LARGEST_NOTE:,}",
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
            if len(after) > LARGEST_NOTE:
                raise ToolError(
                    f"{quote_path(name)} would have {len(after):,} bytes; the maximum for a note is {LARGEST_NOTE:,}",
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


# Marks an entry of a note that was written after untrusted or private text was read, and reads the marks again.
#
# A mark is a comment of Markdown, which people can read and remove:
#
# <!-- labels: untrusted web_fetch shop.example -->
# The shop delivers on Mondays.
# <!-- /labels -->


BEGIN, END = "<!-- labels: ", "<!-- /labels -->"
MOST_LABELS = 10  # labels in a mark

_BEGIN = re.compile(r"\s*<!-- labels: (.*?)\s*(?:-->)?\s*")
_UNSAFE = re.compile(r"[^\w .:/@*-]|--+")  # of an origin: it must not end the comment or the label


class _Span(NamedTuple):
    """The lines of a marked entry, counted from 1, and its labels."""

    first: int
    last: float
    labels: tuple[Label, ...]


def mark_entry(content: str, labels: Iterable[Label]) -> str:
    """Puts the content between marks with its labels. A mark inside the content loses its meaning."""
    listed = [f"{label.kind} {_UNSAFE.sub('_', label.origin)[:LONGEST_ORIGIN]}" for label in dict.fromkeys(labels)]
    if not listed:
        return content
    inner = content.replace("<!-- /labels", "<!-- (/labels")
    return f"{BEGIN}{'; '.join(listed[:MOST_LABELS])} -->\n{inner}\n{END}"


def find_entry_labels(text: str, first: int = 1, last: float = float("inf")) -> tuple[Label, ...]:
    """Returns the labels of the marked entries in these lines of a note. An entry without an end ends with the note."""
    if BEGIN not in text:
        return ()
    return merge_labels(*(one.labels for one in _find_spans(text) if one.first <= last and one.last >= first))


def _find_spans(text: str) -> list[_Span]:
    spans: list[_Span] = []
    open_spans: list[_Span] = []
    for number, raw in enumerate(io.StringIO(text, newline=""), 1):  # splits lines as the index does
        if (begin := _BEGIN.fullmatch(raw)) is not None:
            pairs = [one.strip().split(" ", 1) for one in begin[1].split(";")]
            open_spans.append(_Span(number, float("inf"), read_labels([[*pair, ""][:2] for pair in pairs])))
        elif raw.strip() == END:
            spans += [one._replace(last=number) for one in open_spans]
            open_spans = []
    return spans + open_spans


# Reports the notes that changed since the last call, if the system supports it: then no directory is read.
#
# This uses Linux's inotify on local file systems; other file systems may change without an event.


_EVENTS = (
    0x2 | 0x4 | 0x8 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800
)  # modified, attributes, closed, moved, created …
_ONLY_DIRECTORY, _NO_LINK = 0x01000000, 0x02000000
_OF_DIRECTORY = 0x40000000
_LOST = 0x4000 | 0x2000 | 0x8000 | 0x400 | 0x800  # queue overflow, unmounted, no longer watched, moved, deleted
_HEAD = struct.Struct("iIII")
_LOCAL = frozenset(
    {0xEF53, 0x58465342, 0x9123683E, 0x01021994, 0x794C7630, 0xF2F52010, 0x2FC12FC1}
)  # ext, xfs, btrfs, tmpfs, overlay, f2fs, zfs


class NotesWatch:
    """Watches one directory and nothing below it. The first call starts the watch."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._descriptor = -1
        self._process = 0

    def take_changes(self) -> set[str] | None:
        """Returns the names of changed, new and removed files; None if they are unknown."""
        if self._process != os.getpid():
            self._descriptor = -1  # after a fork the descriptor is the parent's
        if self._descriptor < 0:
            self._begin()
            return None
        names = self._read()
        if names is None:
            self.close()
            self._begin()
        return names

    def close(self) -> None:
        if self._descriptor >= 0 and self._process == os.getpid():
            os.close(self._descriptor)
        self._descriptor = -1

    def __del__(self) -> None:
        if getattr(self, "_descriptor", -1) >= 0:
            self.close()

    def _begin(self) -> None:
        self._process = os.getpid()
        if sys.platform != "linux" or not (library := _library()) or not _is_local(library, self._directory):
            return
        descriptor = library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if descriptor < 0:
            return
        mask = _EVENTS | _ONLY_DIRECTORY | _NO_LINK
        if library.inotify_add_watch(descriptor, os.fsencode(self._directory), mask) < 0:
            os.close(descriptor)
            return
        self._descriptor = descriptor

    def _read(self) -> set[str] | None:
        names: set[str] = set()
        while True:
            try:
                events = os.read(self._descriptor, 64 * 1024)
            except BlockingIOError:
                return names
            except OSError as error:
                if error.errno == errno.EINTR:
                    continue
                return None
            at = 0
            while at < len(events):
                _, mask, _, length = _HEAD.unpack_from(events, at)
                name = events[at + _HEAD.size : at + _HEAD.size + length].rstrip(b"\0")
                if mask & (_LOST | _OF_DIRECTORY):
                    return None
                names.add(os.fsdecode(name))
                at += _HEAD.size + length


def _library() -> Any:
    try:
        import ctypes  # slow to import, and not in every Python

        library = ctypes.CDLL(None, use_errno=True)
        return library if hasattr(library, "inotify_init1") else None
    except (ImportError, OSError):
        return None


def _is_local(library: Any, directory: Path) -> bool:
    import ctypes

    status = (ctypes.c_long * 64)()  # more than enough: the type is the first field
    if library.statfs(os.fsencode(directory), status) != 0:
        return False
    return (status[0] & 0xFFFFFFFF) in _LOCAL
