"""Reads the layer of a trial run: what a program did in it, compared with the real tree."""

from __future__ import annotations

import contextlib
import functools
import gettext
import os
import re
import stat
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forge.core.errors import ErrorKind, ToolError
from forge.workspace.effects import Contents, Effect, EffectKind, PathState, PathType
from forge.workspace.paths import Location, quote_path
from forge.workspace.paths.open import open_file

ROOT_OVERLAY, FUSE, COPY = "overlay of root", "fuse-overlayfs", "copy"  # how a layer covers a folder, or "overlay"
TOLD = 64 * 1024 * 1024  # bytes of a copied file that people are told about
LARGEST = 4 * 1024**3  # bytes of a file that is compared, hashed and copied; holes count
MOST_NESTED = 150  # folders in each other: each is some calls in each other here
_PIECE = 1024 * 1024
_DELETED, _OPAQUE = ".wh.", ".wh..opq"  # names of files of fuse-overlayfs begin with the first
_OWN = (".git/hooks", ".git/config")  # empty ones are mount points of the sandbox, which protects what is missing
_STATE, _STATE_FILES = ".forge", ".forge/files"  # of Forge itself: programs see only the files made for the model
_TYPES: dict[int, PathType] = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}

_SIGNS = (
    (("Invalid cross-device link",), r"EXDEV|cross-device link not permitted|Errno 18\]",
     "it renames a folder, which a trial cannot do for an ordinary user"),
    (("hardlink different from source at '%s'",), r"hardlink different from source|[Hh]ard ?link .*(?:fail|differ)",
     "it makes hard links to files, as a local clone does"),
    (("Value too large for defined data type",), r"EOVERFLOW|Errno 75\]",
     "it changes files of another owner or group, which a trial cannot do for an ordinary user"),
    (("File size limit exceeded", "File too large"), r"SIGXFSZ|EFBIG|Errno 27\]",
     "it reached a limit of file sizes, perhaps while the trial copied a large file"),
    (("Stale file handle",), r"ESTALE|Errno 116\]",
     "files were changed by someone else while it ran"),
)  # fmt: skip
"""What programs say when a layer cannot do what they want, and the reason for people."""
_FULL = "No space left on device"
_TRANSLATIONS = ("/usr/share/locale", "/usr/share/locale-langpack")
_DOMAINS = ("libc", "git")


def find_signs(said: str) -> list[str]:
    """Returns what a layer could not do, as far as a program's output says it, in English or in the language of the
    environment.
    """
    languages = _find_languages()
    return [reason for signs, reason in _write_patterns(languages) if signs.search(said)]


def says_full(said: str) -> bool:
    """Returns whether a program says that the disk is full."""
    return any(words in said for words in _translate(_FULL, _find_languages()))


def _find_languages() -> tuple[str, ...]:
    """Returns the languages of messages that programs inherit."""
    found = (os.environ.get(name, "") for name in ("LC_ALL", "LC_MESSAGES", "LANG"))
    return tuple(dict.fromkeys(one for one in found if one and not one.startswith(("C", "POSIX", "en"))))


@functools.cache
def _write_patterns(languages: tuple[str, ...]) -> list[tuple[re.Pattern[str], str]]:
    found = []
    for messages, more, reason in _SIGNS:
        words = (one.partition(" '%s'")[0] for message in messages for one in _translate(message, languages))
        found.append((re.compile("|".join([*map(re.escape, words), more])), reason))
    return found


@functools.cache
def _translate(message: str, languages: tuple[str, ...]) -> list[str]:
    """Returns a message in English, and in those languages that are installed."""
    found = {message: None}
    for domain in _DOMAINS if languages else ():
        for folder in _TRANSLATIONS:
            with contextlib.suppress(OSError, ValueError, struct.error):  # a damaged file
                catalogue = gettext.translation(domain, folder, languages, fallback=True)
                found[catalogue.gettext(message)] = None
    return list(found)


class Marks:
    """The marks of an overlay: its attributes, and files that say what is deleted."""

    def __init__(self, how: str) -> None:
        self._is_fuse, self._is_copy, self._has_redirects = how == FUSE, how == COPY, how == ROOT_OVERLAY
        self.prefix = {ROOT_OVERLAY: "trusted.overlay.", FUSE: "user.fuseoverlayfs."}.get(how, "user.overlay.")
        self.opaque, self._redirect, self.origin = (f"{self.prefix}{name}" for name in ("opaque", "redirect", "origin"))

    def list_folder(self, folder: str) -> list[tuple[str, str]]:
        """Returns name and path of what lies in a folder of the layer, deletions included, sorted."""
        found = {name: os.path.join(folder, name) for name in os.listdir(folder)}
        if self._is_fuse:
            deleted = {name.removeprefix(_DELETED): path for name, path in found.items() if name.startswith(_DELETED)}
            found = {name: path for name, path in found.items() if not name.startswith(_DELETED)}
            found |= {name: path for name, path in deleted.items() if name not in (*found, ".opq", _OPAQUE)}
        return sorted(found.items())

    def is_whiteout(self, path: str, status: os.stat_result) -> bool:
        """Returns whether it stands for a deletion: a device without a number, or a file with a certain name."""
        if stat.S_ISCHR(status.st_mode) and status.st_rdev == 0:
            return not self._is_copy  # in a copy, the program made it
        return self._is_fuse and os.path.basename(path).startswith(_DELETED)

    def is_opaque(self, folder: str) -> bool:
        """Returns whether a folder of the layer hides all that was in the real one."""
        if self._is_copy or read_attribute(folder, self.opaque) == b"y":
            return True
        return self._is_fuse and os.path.lexists(os.path.join(folder, _DELETED + _OPAQUE))

    def read_redirect(self, folder: str) -> str:
        """Returns the path from which a folder of the layer was renamed; "" if it was not.

        The kernel writes it for root only. Where a program can write the attribute, it means nothing.
        """
        return os.fsdecode(read_attribute(folder, self._redirect)) if self._has_redirects else ""


@dataclass(slots=True)
class Node:
    """A path that a program touched."""

    location: Location
    source: str = ""  # where the new file, link or folder lies; "" for what is deleted
    lower: str = ""  # a folder whose other contents belong to the new one, too: it was renamed
    status: os.stat_result | None = None  # of what is there now
    effect: Effect | None = None
    children: list[Node] = field(default_factory=list)

    def walk(self) -> Iterator[Node]:
        yield self
        for child in self.children:
            yield from child.walk()


class Layer:
    """A layer on disk over some folders, and what can be read from it."""

    def __init__(self, folder: Path, facts: Mapping[str, Any]) -> None:
        self.folder = folder
        self.workspace = Path(facts["workspace"])
        self.how: str = facts["how"]
        self.roots: list[str] = list(facts["roots"])
        self.started: int = facts["started"]  # nanoseconds, as the file system counts them
        self.marks = Marks(self.how)

    def scan(self, unsure: dict[str, None], notes: dict[str, None]) -> list[Node]:
        """Returns what the program touched, one node a root. Adds reasons to `unsure` and words for people to `notes`.

        Raises `OSError` or `ToolError` if it cannot be read.
        """
        scan = _Scan(self, unsure, notes)
        found = []
        for number, root in enumerate(self.roots):
            location = Location(Path(root), ".", "." if root == str(self.workspace) else root)
            found.append(scan.read_folder(location, self.upper(number), root))
        return found

    def upper(self, number: int) -> str:
        """Returns the folder with the changes of a root."""
        return str(self.folder / str(number) / "upper")

    def is_later(self, status: os.stat_result) -> bool:
        """Returns whether a real path was changed since the trial began."""
        return status.st_ctime_ns >= self.started

    def read_origin(self, source: str) -> bytes | None:
        """Returns the handle of the real file that a file of the layer is a copy of; b"" if an ordinary user made the
        layer; None if it is no copy.
        """
        try:
            is_ours = source.startswith(f"{self.folder}/") and stat.S_ISREG(os.lstat(source).st_mode)
            return os.getxattr(source, self.marks.origin) if is_ours else None
        except OSError:
            return None

    def find_moved_link(self, nodes: Sequence[Node]) -> str:
        """Returns a file with several names of which the trial may have moved one; "" if there is none."""
        gone = [node for node in nodes if node.status is not None and node.effect and node.effect.kind == "delete"]
        linked = {
            node.location.name: node.location.shown
            for node in gone
            if node.status and stat.S_ISREG(node.status.st_mode) and node.status.st_nlink > 1
        }
        for node in nodes if linked else ():
            if node.effect is not None and node.effect.kind == "create" and node.effect.type == "file":
                if node.location.name in linked:
                    return linked[node.location.name]
                if self.read_origin(node.source) is not None:
                    return next(iter(linked.values()))
        return ""


class _Scan:
    """Compares the layer with the real tree."""

    def __init__(self, layer: Layer, unsure: dict[str, None], notes: dict[str, None]) -> None:
        self.layer, self.unsure, self.notes = layer, unsure, notes
        self.marks = layer.marks
        self.names: dict[tuple[int, int], int] = {}  # of files with several names, those found

    def read_folder(self, location: Location, upper: str, lower: str) -> Node:
        """Reads a root: its folder in the layer, and where the rest of its contents lies."""
        status, now = os.lstat(upper), os.lstat(location.path)
        node = Node(location, upper, status=now)
        if stat.S_IMODE(status.st_mode) != stat.S_IMODE(now.st_mode):
            self.unsure[f"it changes the mode of {quote_path(str(location.path))} itself"] = None
        if _user_attributes(upper, self.marks) != _user_attributes(str(location.path), self.marks):
            self.unsure[f"it changes attributes of {quote_path(str(location.path))} itself"] = None
        self._read_children(node, upper, lower, is_opaque=self.layer.how == COPY)
        for (_, _), missing in self.names.items():
            if missing:
                self.unsure["it makes hard links between new and old files"] = None
        return node

    def _read_children(self, node: Node, upper: str, lower: str, *, is_opaque: bool) -> None:
        """Reads a folder that exists in both. `lower`: where its other contents lie; another path after a rename."""
        real = str(node.location.path)
        names = set()
        for name, path in self.marks.list_folder(upper):
            names.add(name)
            child = self._read_entry(node.location.child(name), path, os.path.join(lower, name))
            if child is not None:
                node.children.append(child)
        if lower != real and not is_opaque:
            with contextlib.suppress(FileNotFoundError):
                for name in sorted(set(os.listdir(lower)) - names):
                    names.add(name)
                    node.children.append(self._read_moved(node.location.child(name), os.path.join(lower, name)))
            is_opaque = True
        if is_opaque:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                for name in sorted(set(os.listdir(real)) - names):
                    if (gone := self._read_deleted(node.location.child(name))) is not None:
                        node.children.append(gone)
        has_effects = any(child.effect is not None for child in node.children)
        if has_effects and node.effect is None and not os.access(real, os.W_OK):
            self.unsure[f"it changes what is in {quote_path(node.location.shown)}, which is read-only"] = None

    def _read_entry(self, location: Location, source: str, lower: str) -> Node | None:
        _check_depth(location)
        status = os.lstat(source)
        if self.marks.is_whiteout(source, status):
            return self._read_deleted(location)
        now = status_of(location.path)
        kind = stat.S_IFMT(status.st_mode)
        if kind not in _TYPES:
            self.unsure[f"it makes {quote_path(location.shown)}, a FIFO, a socket or a device"] = None
            return None
        if kind == stat.S_IFDIR:
            return self._read_directory(location, source, lower, status, now)
        if location.relative in _OWN and now is None and not status.st_size:
            return None
        node = Node(location, source, status=now)
        if kind == stat.S_IFREG:
            self._note_links(location, status, now)
        self._compare(node, status, now)
        if now is not None and stat.S_ISDIR(now.st_mode):
            node.children = self._list_deleted(location)
        return node

    def _read_directory(
        self, location: Location, source: str, lower: str, status: os.stat_result, now: os.stat_result | None
    ) -> Node | None:
        redirect, is_opaque = self.marks.read_redirect(source), self.marks.is_opaque(source)
        if redirect:
            root = str(location.root)
            lower = root + redirect if redirect.startswith("/") else os.path.join(os.path.dirname(lower), redirect)
        elif now is None or not stat.S_ISDIR(now.st_mode) or is_opaque:
            lower = str(location.path) if now is not None and stat.S_ISDIR(now.st_mode) else ""
        node = Node(location, source, lower if redirect else "", status=now)
        if now is not None and stat.S_ISDIR(now.st_mode):
            if stat.S_IMODE(status.st_mode) != stat.S_IMODE(now.st_mode):
                node.effect = self._effect(node, "mode", status, now)
            if redirect:
                node.effect = self._effect(node, "change", status, now)
            elif read_attributes(source, self.marks) != read_attributes(str(location.path), self.marks):
                self.unsure[f"it changes attributes of the folder {quote_path(location.shown)}"] = None
        else:
            if location.relative in _OWN and not os.listdir(source):
                return None
            self._compare(node, status, now)
        if redirect or lower:
            self._read_children(node, source, lower, is_opaque=is_opaque and not redirect)
        else:
            found = self.marks.list_folder(source)
            children = [self._read_entry(location.child(name), path, "") for name, path in found]
            node.children = [child for child in children if child is not None]
        return node

    def _read_moved(self, location: Location, lower: str) -> Node:
        """Reads what came along with a renamed folder: its content lies in the real tree, under another name."""
        _check_depth(location)
        status, now = os.lstat(lower), status_of(location.path)
        node = Node(location, lower, status=now)
        self._compare(node, status, now)
        if stat.S_ISDIR(status.st_mode):
            names = sorted(os.listdir(lower))
            node.children = [self._read_moved(location.child(name), os.path.join(lower, name)) for name in names]
        return node

    def _read_deleted(self, location: Location) -> Node | None:
        now = status_of(location.path)
        if now is None or (_is_in(location, _STATE) and not _is_in(location, _STATE_FILES)):
            return None
        _check_depth(location)
        if self.layer.how == COPY and now.st_ctime_ns >= self.layer.started and not stat.S_ISDIR(now.st_mode):
            self.unsure[f"{quote_path(location.shown)} was made or changed by someone else while it ran"] = None
            return None
        if self.layer.how == COPY and stat.S_IFMT(now.st_mode) not in _TYPES:
            return None  # it was never copied
        node = Node(location, status=now)
        node.effect = self._effect(node, "delete", None, now)
        if stat.S_ISDIR(now.st_mode):
            node.children = self._list_deleted(location)
        return node

    def _list_deleted(self, location: Location) -> list[Node]:
        found = (self._read_deleted(location.child(name)) for name in sorted(os.listdir(location.path)))
        return [one for one in found if one is not None]

    def _compare(self, node: Node, status: os.stat_result, now: os.stat_result | None) -> None:
        """Sets the effect of a file, link or new folder; none if it is as before."""
        is_untouched = now is not None and self._is_untouched(status)
        if stat.S_ISREG(status.st_mode) and status.st_size > LARGEST and not is_untouched:
            name = quote_path(node.location.shown)
            self.unsure[f"{name} has {status.st_size:,} bytes, too many for a trial"] = None
        elif now is None:
            node.effect = self._effect(node, "create", status, None)
        elif stat.S_IFMT(now.st_mode) != stat.S_IFMT(status.st_mode):
            node.effect = self._effect(node, "change", status, now)
        elif is_untouched:
            pass
        elif not _is_same(node, status, now, self.marks):
            node.effect = self._effect(node, "change", status, now)
            if stat.S_ISREG(now.st_mode) and now.st_nlink > 1:
                reason = f"{quote_path(node.location.shown)} has several names (hard links), and only one is changed"
                self.unsure[reason] = None
        elif stat.S_IMODE(now.st_mode) != stat.S_IMODE(status.st_mode) and not stat.S_ISLNK(now.st_mode):
            node.effect = self._effect(node, "mode", status, now)
        if now is not None and stat.S_ISREG(now.st_mode) and status.st_size >= TOLD and self.layer.how != COPY:
            self.notes[f"{quote_path(node.location.shown)} ({now.st_size:,} bytes) was copied for the trial"] = None

    def _is_untouched(self, status: os.stat_result) -> bool:
        """Returns whether a copy is as it was made."""
        return self.layer.how == COPY and status.st_ctime_ns < self.layer.started

    def _effect(
        self, node: Node, kind: EffectKind, status: os.stat_result | None, now: os.stat_result | None
    ) -> Effect:
        path = node.location.path
        before, after = _state(str(path), now), _state(node.source, status)
        return Effect(
            path, node.location.shown, kind, before, after, functools.partial(_read_both, node, before, after)
        )

    def _note_links(self, location: Location, status: os.stat_result, now: os.stat_result | None) -> None:
        """Counts the names of a new file: all of them must be new, and in the layer."""
        if status.st_nlink > 1 and (now is None or now.st_nlink == 1):
            key = (status.st_dev, status.st_ino)
            self.names[key] = self.names.get(key, status.st_nlink) - 1
            if now is not None:
                self.unsure[f"it makes a hard link to {quote_path(location.shown)}"] = None


def _check_depth(location: Location) -> None:
    if location.relative.count("/") > MOST_NESTED:
        raise ToolError(
            f"{quote_path(location.shown)[:100]}… has more than {MOST_NESTED} folders in each other",
            ErrorKind.VALIDATION,
            "Run the line outside a trial, after asking the person.",
        )


def _is_in(location: Location, folder: str) -> bool:
    return location.relative == folder or location.relative.startswith(f"{folder}/")


def status_of(path: Path | str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def is_origin(handle: bytes, status: os.stat_result) -> bool:
    return status.st_ino.to_bytes(8, "little")[:4] in handle


def read_attribute(path: str, name: str) -> bytes:
    try:
        return os.getxattr(path, name, follow_symlinks=False)
    except OSError:
        return b""


def read_attributes(path: str, marks: Marks) -> dict[str, bytes]:
    """Returns the attributes of a file that are not the overlay's own."""
    found = {}
    with contextlib.suppress(OSError):
        for name in os.listxattr(path, follow_symlinks=False):
            if not name.startswith(("user.overlay.", "trusted.overlay.", "user.fuseoverlayfs.")):
                found[name] = os.getxattr(path, name, follow_symlinks=False)
    return found


def _user_attributes(path: str, marks: Marks) -> dict[str, bytes]:
    return {name: value for name, value in read_attributes(path, marks).items() if name.startswith("user.")}


def _state(path: str, status: os.stat_result | None) -> PathState | None:
    if status is None:
        return None
    kind: PathType = _TYPES.get(stat.S_IFMT(status.st_mode), "other")
    target = ""
    with contextlib.suppress(OSError):
        target = os.readlink(path) if kind == "link" else ""
    mark = f"{status.st_dev}-{status.st_ino}-{status.st_mtime_ns}-{status.st_ctime_ns}" if kind == "file" else ""
    return PathState(kind, stat.S_IMODE(status.st_mode), status.st_size if kind == "file" else 0, target, mark)


def _is_same(node: Node, status: os.stat_result, now: os.stat_result, marks: Marks) -> bool:
    """Returns whether content and attributes of two things of one type are the same."""
    source, real = node.source, str(node.location.path)
    if stat.S_ISLNK(now.st_mode):
        return os.readlink(source) == os.readlink(real)
    if stat.S_ISDIR(now.st_mode):
        return True
    if status.st_size != now.st_size or read_attributes(source, marks) != read_attributes(real, marks):
        return False
    return _have_same_bytes(source, node.location)


def _have_same_bytes(source: str, location: Location) -> bool:
    """Compares two files of one size. Holes in both are skipped."""
    with open(open_source(source), "rb", buffering=0) as new, open(open_file(location), "rb", buffering=0) as old:
        while piece := new.read(_PIECE):
            if piece != old.read(len(piece)):
                return False
        return not old.read(1)


def open_source(source: str) -> int:
    """Opens a file of the layer for reading; its owner may have taken the permission away."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        return os.open(source, flags)
    except PermissionError:
        mode = stat.S_IMODE(os.lstat(source).st_mode)
        os.chmod(source, mode | 0o400)
        try:
            return os.open(source, flags)
        finally:
            os.chmod(source, mode)


def _read_both(node: Node, before: PathState | None, after: PathState | None) -> Contents:
    old = new = None
    if before is not None and before.type == "file":
        with open(open_file(node.location), "rb") as file:
            old = file.read()
    if after is not None and after.type == "file":
        with open(open_source(node.source), "rb") as file:
            new = file.read()
    return old, new
