"""The copy-on-write layer of a trial run: where it lies, what a program changed in it, and how that is applied.

A layer covers the workspace and the other writable roots. Its program runs with `layer.mounts` in its confinement, so
that all its changes stay in the layer. Then:

    effects = layer.effects(said=output)    what it did; `unsure` tells what a layer cannot do
    layer.apply()                           makes the same changes in the real tree, all or none of them
    layer.discard()                         the real tree was never touched

A layer lies on disk, outside of every root, and can wait for an answer: `layer.keep()`, and later `find_layer(id)`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import json
import os
import re
import resource
import secrets
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from forge.core.context import LayerMount
from forge.core.errors import ErrorKind, ToolError
from forge.workspace.changes.commit import Change, commit, lock_directories
from forge.workspace.changes.journal import identity, remove_tree, walk_statuses
from forge.workspace.effects import Contents, Effect, EffectKind, Effects, PathState, PathType
from forge.workspace.history.tracking import current_call
from forge.workspace.paths import Location, quote_path
from forge.workspace.paths.digest import Digest
from forge.workspace.paths.open import open_file
from forge.workspace.state import data_file, replace_file

ROOT_OVERLAY, FUSE, COPY = "overlay of root", "fuse-overlayfs", "copy"  # how a layer covers a folder, or "overlay"
LONGEST_KEPT = 7 * 24 * 3600  # seconds that a layer waits for an answer
MOST_NAMED = 5  # paths in a message
TOLD = 64 * 1024 * 1024  # bytes of a copied file that people are told about
LARGEST_IMAGE = 16 * 1024 * 1024  # bytes of an old content that can be undone, and
ALL_IMAGES = 64 * 1024 * 1024  # of all contents of one application
_LINKED = 1024 * 1024  # bytes of a file that is moved by a hard link instead of a copy
_SYNCED_ONE_BY_ONE = 100  # files; more are synced together, with everything on the disk
_PIECE = 1024 * 1024
_FREE = 64 * 1024 * 1024  # bytes left on a disk that counts as full
_LONGEST_STEP = 0.05  # seconds
_CLONE = 0x40049409  # ioctl FICLONE
_NAME = re.compile(r"[0-9a-f]{32}")
_GONE = "gone-"
_FACTS = "layer.json"
_DELETED, _OPAQUE = ".wh.", ".wh..opq"  # names of files of fuse-overlayfs begin with the first
_OWN = (".git/hooks", ".git/config")  # empty ones are mount points of the sandbox, which protects what is missing
_STATE, _STATE_FILES = ".forge", ".forge/files"  # of Forge itself: programs see only the files made for the model
_TYPES: dict[int, PathType] = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}

_SIGNS = (
    (re.compile(r"Invalid cross-device link|EXDEV|cross-device link not permitted|Errno 18\]"),
     "it renames a folder, which a trial cannot do for an ordinary user"),
    (re.compile(r"hardlink different from source|[Hh]ard ?link .*(?:fail|differ)"),
     "it makes hard links to files, as a local clone does"),
    (re.compile(r"Value too large for defined data type|EOVERFLOW|Errno 75\]"),
     "it changes files of another owner or group, which a trial cannot do for an ordinary user"),
    (re.compile(r"File size limit exceeded|SIGXFSZ|EFBIG|Errno 27\]|File too large"),
     "it reached a limit of file sizes, perhaps while the trial copied a large file"),
    (re.compile(r"Stale file handle|ESTALE|Errno 116\]"),
     "files were changed by someone else while it ran"),
)  # fmt: skip
"""What programs say when a layer cannot do what they want, and the reason for people."""


class _Keys:
    """The marks of an overlay: its attributes, and files that say what is deleted."""

    def __init__(self, how: str) -> None:
        self._is_fuse = how == FUSE
        self.prefix = {ROOT_OVERLAY: "trusted.overlay.", FUSE: "user.fuseoverlayfs."}.get(how, "user.overlay.")
        self.opaque, self.redirect, self.origin = (f"{self.prefix}{name}" for name in ("opaque", "redirect", "origin"))

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
            return True
        return self._is_fuse and os.path.basename(path).startswith(_DELETED)

    def is_opaque(self, folder: str) -> bool:
        """Returns whether a folder of the layer hides all that was in the real one."""
        if _attribute(folder, self.opaque) == b"y":
            return True
        return self._is_fuse and os.path.lexists(os.path.join(folder, _DELETED + _OPAQUE))


@dataclass(slots=True)
class _Node:
    """A path that a program touched."""

    location: Location
    source: str = ""  # where the new file, link or folder lies; "" for what is deleted
    lower: str = ""  # a folder whose other contents belong to the new one, too: it was renamed
    status: os.stat_result | None = None  # of what is there now
    effect: Effect | None = None
    children: list[_Node] = field(default_factory=list)

    def walk(self) -> Iterator[_Node]:
        yield self
        for child in self.children:
            yield from child.walk()


class TrialLayer:
    """One layer over some folders. Its program must have ended before anything here is called but `mounts`."""

    def __init__(self, folder: Path, facts: Mapping[str, Any]) -> None:
        self.folder = folder
        self.workspace = Path(facts["workspace"])
        self.how: str = facts["how"]
        self.roots: list[str] = list(facts["roots"])
        self.started: int = facts["started"]  # nanoseconds, as the file system counts them
        self._facts = dict(facts)
        self._keys = _Keys(self.how)
        self._restored: dict[str, int] = {}  # times of files that were put back here when applying failed

    @property
    def id(self) -> str:
        return self.folder.name

    @property
    def mounts(self) -> tuple[LayerMount, ...]:
        """The layers for the confinement of the program."""
        return tuple(
            LayerMount(root, self._upper(number), str(self.folder / str(number) / "work"), self.how)
            for number, root in enumerate(self.roots)
        )

    def keep(self, **facts: Any) -> None:
        """Keeps the layer after the end of this process: it waits for an answer. `facts`: plain values to find again
        in `facts`.
        """
        self._facts |= {"waits": True, "facts": {**self.facts, **facts}}
        replace_file(self.folder / _FACTS, json.dumps(self._facts))

    @property
    def facts(self) -> dict[str, Any]:
        return dict(self._facts.get("facts", {}))

    def effects(self, said: str = "", *, processes: Sequence[str] = (), hosts: Sequence[str] = ()) -> Effects:
        """Reads what the program did. `said`: its output, which may tell what a layer could not do."""
        unsure: dict[str, None] = {}
        notes: dict[str, None] = {}
        if self.how != COPY:
            unsure |= {reason: None for signs, reason in _SIGNS if signs.search(said)}
        if "No space left on device" in said and _free_bytes(self.folder) < _FREE:
            unsure["the disk is full"] = None
        try:
            nodes = [node for top in self._scan(unsure, notes) for node in top.walk()]
            if linked := self._find_moved_link(nodes):
                unsure[f"{quote_path(linked)} has several names (hard links), and one is moved"] = None
        except (OSError, ToolError) as error:  # such as a folder that its owner may not read
            nodes = []
            unsure[f"its changes cannot be read: {error}"] = None
        files = tuple(node.effect for node in nodes if node.effect is not None)
        return Effects(files, tuple(hosts), tuple(processes), tuple(unsure), tuple(notes))

    def _find_moved_link(self, nodes: Sequence[_Node]) -> str:
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
                if self._read_origin(node.source) is not None:
                    return next(iter(linked.values()))
        return ""

    def apply(self, paths: Collection[Path] | None = None) -> Effects:
        """Makes the changes in the real tree: all of them, or those of some paths. Returns what was made.

        All or nothing: raises `ToolError` if someone changed one of the paths since the trial began, or if something
        cannot be written. Then nothing is changed, and the layer is still there.
        """
        unsure: dict[str, None] = {}
        try:
            tops = self._scan(unsure, {})
        except OSError as error:
            raise ToolError(
                f"the trial's changes cannot be read, so nothing was applied: {error}",
                ErrorKind.SYSTEM,
                "Run the line outside a trial, after asking the person.",
            ) from error
        if unsure:
            raise ToolError(
                f"a direct run may do something else, so nothing was applied: {next(iter(unsure))}",
                ErrorKind.VALIDATION,
                "Run the line outside a trial, after asking the person.",
            )
        chosen = None if paths is None else {str(path) for path in paths}
        nodes = [node for top in tops for node in top.walk() if node.effect is not None]
        wanted = [node for node in nodes if chosen is None or str(node.location.path) in chosen]
        if chosen is not None and (missing := chosen - {str(node.location.path) for node in wanted}):
            raise ToolError(
                f"{quote_path(min(missing))} is no effect of this trial; nothing was applied",
                ErrorKind.VALIDATION,
                "Choose among the paths of its effects.",
            )
        effects = Effects(tuple(node.effect for node in wanted if node.effect is not None))
        if not wanted:
            return effects
        self._check_conflicts(wanted, [node for top in tops for node in top.walk()])
        copier = _Copier(self._keys, self.folder)
        names = {str(node.location.path) for node in wanted}
        changes = [change for top in tops for change in self._plan(top, names, copier)]
        _allow_open_files(len(changes))
        try:
            with lock_directories([change.location for change in changes]):
                self._commit(changes, wanted, copier)
            copier.finish()
        finally:
            copier.close()
        return effects

    def discard(self) -> None:
        """Removes the layer, in the background. The real tree was never touched."""
        gone = self.folder.with_name(f"{_GONE}{self.folder.name}")
        try:
            os.rename(self.folder, gone)
        except FileNotFoundError:
            return
        _remove_in_background([gone])

    def _commit(self, changes: Sequence[Change], wanted: Sequence[_Node], copier: _Copier) -> None:
        now = current_call()
        recorded: list[int] = []

        def record() -> None:
            copier.sync([Path(root) for root in self.roots])
            rows = list(_history(wanted))
            if rows:
                log, call = now.state.undo, (now.session_id, now.turn, now.call_id, now.tool)
                recorded.append(log.record(*call, rows, now.root))

        try:
            commit(changes, self.workspace, record)
        except BaseException:
            self._note_restored(wanted)
            for entry in recorded:
                with contextlib.suppress(ToolError):  # the entry restores nothing then
                    now.state.undo.withdraw(entry)
            raise

    def _note_restored(self, wanted: Sequence[_Node]) -> None:
        """Remembers the times of files that are as they were: to put them back counts as a change to the system."""
        for node in wanted:
            old, now = node.status, _status(node.location.path)
            if old is not None and now is not None and identity(old) == identity(now) and old.st_mode == now.st_mode:
                self._restored[str(node.location.path)] = now.st_ctime_ns

    def _check_conflicts(self, wanted: Sequence[_Node], nodes: Sequence[_Node]) -> None:
        """Raises `ToolError` for paths that someone else changed since the trial began, and names both versions."""
        found = [(node, "was deleted") for node in self._list_vanished(wanted, nodes)]
        for node in wanted:
            status = node.status
            if status is None or stat.S_ISDIR(status.st_mode) or not self._is_later(status):
                continue
            if self._restored.get(str(node.location.path)) != status.st_ctime_ns:
                found.append((node, "was changed"))
        if found:
            raise self._conflict_error(sorted(found, key=lambda one: one[0].location.shown))

    def _list_vanished(self, wanted: Sequence[_Node], nodes: Sequence[_Node]) -> list[_Node]:
        """Returns files that the trial changed and someone else deleted meanwhile.

        A file of the layer that is a copy of a real one, and is not there, was deleted, or the trial renamed it: then
        the real one is under another name, which the trial deleted or replaced.
        """
        there = [node.status for node in nodes if node.status is not None and not self._is_later(node.status)]
        left = [status for status in there if stat.S_ISREG(status.st_mode)]
        copies = [(node, self._read_origin(node.source)) for node in wanted if node.status is None]
        unknown: list[_Node] = []
        for node, origin in copies:
            if origin is None:
                continue
            modified = os.lstat(node.source).st_mtime_ns
            source = next((one for one in left if _is_origin(origin, one) or one.st_mtime_ns == modified), None)
            if source is None:
                unknown.append(node)
            else:
                left.remove(source)
        return unknown if len(unknown) > len(left) else []

    def _is_later(self, status: os.stat_result) -> bool:
        return status.st_ctime_ns >= self.started

    def _read_origin(self, source: str) -> bytes | None:
        """Returns the handle of the real file that a file of the layer is a copy of; b"" if an ordinary user made the
        layer; None if it is no copy.
        """
        try:
            is_ours = source.startswith(f"{self.folder}/") and stat.S_ISREG(os.lstat(source).st_mode)
            return os.getxattr(source, self._keys.origin) if is_ours else None
        except OSError:
            return None

    def _conflict_error(self, found: Sequence[tuple[_Node, str]]) -> ToolError:
        named = "; ".join(
            f"{quote_path(node.location.shown)} {what} (the trial's version: {node.source or 'deleted'})"
            for node, what in found[:MOST_NAMED]
        )
        more = f"; and {len(found) - MOST_NAMED:,} more" if len(found) > MOST_NAMED else ""
        return ToolError(
            f"someone else changed files since the trial began, so nothing was applied: {named}{more}",
            ErrorKind.VALIDATION,
            "Both versions are kept. Read the current one, then run the line again.",
        )

    def _check_below(self, location: Location) -> Callable[[int, str], None]:
        """Returns the check of a deleted or replaced folder once it is moved aside: nobody can reach it by its name."""

        def check(directory: int, name: str) -> None:
            for inner, status in walk_statuses(directory, name):
                if self._is_later(status):
                    node = _Node(location.child(inner))
                    raise self._conflict_error([(node, "was changed")])

        return check

    def _plan(self, node: _Node, wanted: Collection[str], copier: _Copier) -> Iterator[Change]:
        """Yields the changes that apply what is wanted: a file, or a whole folder, at a time."""
        effect, location, status = node.effect, node.location, node.status
        is_folder = effect is not None and effect.kind == "mode" and effect.type == "folder"
        if is_folder and effect is not None and effect.after is not None and str(location.path) in wanted:
            yield Change(location, None, None, status=status, folder="mode", new_mode=effect.after.mode)
        is_whole = effect is not None and not is_folder
        if is_whole and all(str(one.location.path) in wanted for one in node.walk() if one.effect is not None):
            check = self._check_below(location) if status is not None and stat.S_ISDIR(status.st_mode) else None
            link = os.readlink(location.path) if status is not None and stat.S_ISLNK(status.st_mode) else None
            make = None
            if node.source:
                make = functools.partial(copier.make, str(location.root), node.source, node.lower)
            yield Change(location, None, None, status=status, link=link, make=make, check=check)
            return
        if is_whole and effect is not None and str(location.path) in wanted and effect.type != "folder":
            raise ToolError(  # a folder that became a file, of which only some files are to be deleted
                f"{quote_path(location.shown)} can only be applied with everything in it; nothing was applied",
                ErrorKind.VALIDATION,
                "Choose all of its paths, or none.",
            )
        for child in node.children:
            yield from self._plan(child, wanted, copier)

    def _upper(self, number: int) -> str:
        return str(self.folder / str(number) / "upper")

    def _scan(self, unsure: dict[str, None], notes: dict[str, None]) -> list[_Node]:
        scan = _Scan(self, unsure, notes)
        found = []
        for number, root in enumerate(self.roots):
            location = Location(Path(root), ".", "." if root == str(self.workspace) else root)
            found.append(scan.read_folder(location, self._upper(number), root))
        return found


class _Scan:
    """Compares the layer with the real tree."""

    def __init__(self, layer: TrialLayer, unsure: dict[str, None], notes: dict[str, None]) -> None:
        self.layer, self.unsure, self.notes = layer, unsure, notes
        self.keys = layer._keys
        self.names: dict[tuple[int, int], int] = {}  # of files with several names, those found

    def read_folder(self, location: Location, upper: str, lower: str) -> _Node:
        """Reads a root: its folder in the layer, and where the rest of its contents lies."""
        status, now = os.lstat(upper), os.lstat(location.path)
        node = _Node(location, upper, status=now)
        if stat.S_IMODE(status.st_mode) != stat.S_IMODE(now.st_mode):
            self.unsure[f"it changes the mode of {quote_path(str(location.path))} itself"] = None
        self._read_children(node, upper, lower, is_opaque=self.layer.how == COPY)
        for (_, _), missing in self.names.items():
            if missing:
                self.unsure["it makes hard links between new and old files"] = None
        return node

    def _read_children(self, node: _Node, upper: str, lower: str, *, is_opaque: bool) -> None:
        """Reads a folder that exists in both. `lower`: where its other contents lie; another path after a rename."""
        real = str(node.location.path)
        names = set()
        for name, path in self.keys.list_folder(upper):
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

    def _read_entry(self, location: Location, source: str, lower: str) -> _Node | None:
        status = os.lstat(source)
        if self.keys.is_whiteout(source, status):
            return self._read_deleted(location)
        now = _status(location.path)
        kind = stat.S_IFMT(status.st_mode)
        if kind not in _TYPES:
            self.unsure[f"it makes {quote_path(location.shown)}, a FIFO, a socket or a device"] = None
            return None
        if kind == stat.S_IFDIR:
            return self._read_directory(location, source, lower, status, now)
        if location.relative in _OWN and now is None and not status.st_size:
            return None
        node = _Node(location, source, status=now)
        if kind == stat.S_IFREG:
            self._note_links(location, status, now)
        self._compare(node, status, now)
        if now is not None and stat.S_ISDIR(now.st_mode):
            node.children = self._list_deleted(location)
        return node

    def _read_directory(
        self, location: Location, source: str, lower: str, status: os.stat_result, now: os.stat_result | None
    ) -> _Node | None:
        redirect = _attribute(source, self.keys.redirect)
        is_opaque = self.layer.how == COPY or self.keys.is_opaque(source)
        if redirect:
            root = str(location.root)
            old = os.fsdecode(redirect)
            lower = root + old if old.startswith("/") else os.path.join(os.path.dirname(lower), old)
        elif now is None or not stat.S_ISDIR(now.st_mode) or is_opaque:
            lower = str(location.path) if now is not None and stat.S_ISDIR(now.st_mode) else ""
        node = _Node(location, source, lower if redirect else "", status=now)
        if now is not None and stat.S_ISDIR(now.st_mode):
            if stat.S_IMODE(status.st_mode) != stat.S_IMODE(now.st_mode):
                node.effect = self._effect(node, "mode", status, now)
            if redirect:
                node.effect = self._effect(node, "change", status, now)
            elif _attributes(source, self.keys) != _attributes(str(location.path), self.keys):
                self.unsure[f"it changes attributes of the folder {quote_path(location.shown)}"] = None
        else:
            if location.relative in _OWN and not os.listdir(source):
                return None
            self._compare(node, status, now)
        if redirect or lower:
            self._read_children(node, source, lower, is_opaque=is_opaque and not redirect)
        else:
            found = self.keys.list_folder(source)
            children = [self._read_entry(location.child(name), path, "") for name, path in found]
            node.children = [child for child in children if child is not None]
        return node

    def _read_moved(self, location: Location, lower: str) -> _Node:
        """Reads what came along with a renamed folder: its content lies in the real tree, under another name."""
        status, now = os.lstat(lower), _status(location.path)
        node = _Node(location, lower, status=now)
        self._compare(node, status, now)
        if stat.S_ISDIR(status.st_mode):
            names = sorted(os.listdir(lower))
            node.children = [self._read_moved(location.child(name), os.path.join(lower, name)) for name in names]
        return node

    def _read_deleted(self, location: Location) -> _Node | None:
        now = _status(location.path)
        if now is None or (location.relative.startswith(_STATE) and not location.relative.startswith(_STATE_FILES)):
            return None
        if self.layer.how == COPY and now.st_ctime_ns >= self.layer.started and not stat.S_ISDIR(now.st_mode):
            self.unsure[f"{quote_path(location.shown)} was made or changed by someone else while it ran"] = None
            return None
        node = _Node(location, status=now)
        node.effect = self._effect(node, "delete", None, now)
        if stat.S_ISDIR(now.st_mode):
            node.children = self._list_deleted(location)
        return node

    def _list_deleted(self, location: Location) -> list[_Node]:
        found = (self._read_deleted(location.child(name)) for name in sorted(os.listdir(location.path)))
        return [one for one in found if one is not None]

    def _compare(self, node: _Node, status: os.stat_result, now: os.stat_result | None) -> None:
        """Sets the effect of a file, link or new folder; none if it is as before."""
        if now is None:
            node.effect = self._effect(node, "create", status, None)
        elif stat.S_IFMT(now.st_mode) != stat.S_IFMT(status.st_mode):
            node.effect = self._effect(node, "change", status, now)
        elif self._is_untouched(status):
            pass
        elif not _is_same(node, status, now, self.keys):
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
        self, node: _Node, kind: EffectKind, status: os.stat_result | None, now: os.stat_result | None
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


def _status(path: Path | str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _is_origin(handle: bytes, status: os.stat_result) -> bool:
    return status.st_ino.to_bytes(8, "little")[:4] in handle


def _attribute(path: str, name: str) -> bytes:
    try:
        return os.getxattr(path, name, follow_symlinks=False)
    except OSError:
        return b""


def _attributes(path: str, keys: _Keys) -> dict[str, bytes]:
    """Returns the attributes of a file that are not the overlay's own."""
    found = {}
    with contextlib.suppress(OSError):
        for name in os.listxattr(path, follow_symlinks=False):
            if not name.startswith(("user.overlay.", "trusted.overlay.", "user.fuseoverlayfs.")):
                found[name] = os.getxattr(path, name, follow_symlinks=False)
    return found


def _state(path: str, status: os.stat_result | None) -> PathState | None:
    if status is None:
        return None
    kind: PathType = _TYPES.get(stat.S_IFMT(status.st_mode), "other")
    target = ""
    with contextlib.suppress(OSError):
        target = os.readlink(path) if kind == "link" else ""
    mark = f"{status.st_dev}-{status.st_ino}-{status.st_mtime_ns}-{status.st_ctime_ns}" if kind == "file" else ""
    return PathState(kind, stat.S_IMODE(status.st_mode), status.st_size if kind == "file" else 0, target, mark)


def _is_same(node: _Node, status: os.stat_result, now: os.stat_result, keys: _Keys) -> bool:
    """Returns whether content and attributes of two things of one type are the same."""
    source, real = node.source, str(node.location.path)
    if stat.S_ISLNK(now.st_mode):
        return os.readlink(source) == os.readlink(real)
    if stat.S_ISDIR(now.st_mode):
        return True
    if status.st_size != now.st_size or _attributes(source, keys) != _attributes(real, keys):
        return False
    return _have_same_bytes(source, node.location)


def _have_same_bytes(source: str, location: Location) -> bool:
    """Compares two files of one size. Holes in both are skipped."""
    with open(_open_source(source), "rb", buffering=0) as new, open(open_file(location), "rb", buffering=0) as old:
        while piece := new.read(_PIECE):
            if piece != old.read(len(piece)):
                return False
        return not old.read(1)


def _open_source(source: str) -> int:
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


def _read_both(node: _Node, before: PathState | None, after: PathState | None) -> Contents:
    old = new = None
    if before is not None and before.type == "file":
        with open(open_file(node.location), "rb") as file:
            old = file.read()
    if after is not None and after.type == "file":
        with open(_open_source(node.source), "rb") as file:
            new = file.read()
    return old, new


def _history(nodes: Sequence[_Node]) -> Iterator[Change]:
    """Yields the changes of each file, link and folder, for the undo log. Contents over the limits are left out."""
    left = ALL_IMAGES
    for node in nodes:
        effect = node.effect
        assert effect is not None
        before, after, status = effect.before, effect.after, node.status
        old_type, new_type = (one.type if one is not None else "" for one in (before, after))
        mode = after.mode if after is not None else None
        new_mode = mode if before is not None and before.mode != mode else None
        if {old_type, new_type} <= {"folder", ""}:
            what: Literal["make", "remove", "mode"] = "make" if not old_type else "remove" if not new_type else "mode"
            yield Change(node.location, None, None, mode, status=status, folder=what, new_mode=new_mode)
            continue
        link = before.target if before is not None and old_type == "link" else None
        new_link = after.target if after is not None and new_type == "link" else None
        if link is None:
            link, new_link = new_link, None
        old = new = old_digest = new_digest = None
        if before is not None and old_type == "file":
            if before.size <= min(LARGEST_IMAGE, left):
                left -= before.size
                with open(open_file(node.location), "rb") as file:
                    old = file.read()
            else:
                old_digest = _digest_file(open_file(node.location))
        if new_type == "file":
            new, new_digest = b"", _digest_file(_open_source(node.source))
        elif new_type:
            new = b""
        yield Change(
            node.location,
            old,
            new,
            mode,
            link,
            status,
            old_digest,
            new_digest,
            new_mode if new_type else None,
            new_link,
        )


def _digest_file(descriptor: int) -> Digest:
    with open(descriptor, "rb", buffering=0) as file:
        return Digest.of_file(file)


class _Copier:
    """Makes copies of what lies in a layer, beside its place in the real tree."""

    def __init__(self, keys: _Keys, layer: Path | None = None) -> None:
        self._keys = keys
        self._layer = f"{layer}/" if layer is not None else ""
        self._linked: dict[tuple[int, int], tuple[int, str]] = {}  # files with several names -> their first copy
        self._unsynced: list[int] = []
        self._moved: list[str] = []  # files of the layer that share their content with the real tree now

    def make(self, root: str, source: str, lower: str, directory: int, name: str) -> None:
        """Copies a file, link or folder. `lower`: a folder whose other contents belong to it, too; it may be named
        from the `root`. Raises `OSError`.
        """
        status = os.lstat(source)
        if stat.S_ISLNK(status.st_mode):
            os.symlink(os.readlink(source), name, dir_fd=directory)
            self._own(directory, name, status)
        elif stat.S_ISDIR(status.st_mode):
            self._make_folder(root, source, lower, status, directory, name)
        elif stat.S_ISREG(status.st_mode):
            self._make_file(source, status, directory, name)

    def sync(self, roots: Sequence[Path]) -> None:
        """Writes everything to the disk."""
        if len(self._unsynced) > _SYNCED_ONE_BY_ONE or not hasattr(os, "fsync"):
            for root in roots:
                _sync_file_system(root)
        for file in self._unsynced:
            if len(self._unsynced) <= _SYNCED_ONE_BY_ONE:
                os.fsync(file)

    def close(self) -> None:
        while self._unsynced:
            os.close(self._unsynced.pop())
        while self._linked:
            os.close(self._linked.popitem()[1][0])

    def finish(self) -> None:
        """Removes the layer's names of files that are in the real tree now."""
        for path in self._moved:
            with contextlib.suppress(OSError):
                os.unlink(path)

    def _make_folder(
        self, root: str, source: str, lower: str, status: os.stat_result, directory: int, name: str
    ) -> None:
        os.mkdir(name, 0o700, dir_fd=directory)
        inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
        try:
            inside = self._keys.list_folder(source)
            names = {below for below, _ in inside}
            for below, path in inside:
                found = os.lstat(path)
                if self._keys.is_whiteout(path, found):
                    continue
                deeper = ""
                if stat.S_ISDIR(found.st_mode) and not self._keys.is_opaque(path):
                    old = os.fsdecode(_attribute(path, self._keys.redirect))
                    deeper = root + old if old.startswith("/") else os.path.join(lower, old or below) if lower else ""
                self.make(root, path, deeper if os.path.isdir(deeper) else "", inner, below)
            for below in sorted(set(os.listdir(lower)) - names) if lower else ():
                self.make(root, os.path.join(lower, below), "", inner, below)
            self._copy_attributes(source, inner)
            self._own(directory, name, status)
            os.fchmod(inner, stat.S_IMODE(status.st_mode))
            os.utime(inner, ns=(status.st_atime_ns, status.st_mtime_ns))
        except BaseException:
            os.close(inner)
            raise
        self._unsynced.append(inner) if len(self._unsynced) <= _SYNCED_ONE_BY_ONE else os.close(inner)

    def _make_file(self, source: str, status: os.stat_result, directory: int, name: str) -> None:
        key = (status.st_dev, status.st_ino)
        if status.st_nlink > 1 and key in self._linked:
            first, first_name = self._linked[key]
            os.link(first_name, name, src_dir_fd=first, dst_dir_fd=directory)
            return
        is_linked = self._link_large(source, status, directory, name)
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory) if is_linked else -1
        if not is_linked:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            file = os.open(name, flags, 0o600, dir_fd=directory)
        try:
            if not is_linked:
                opened = _open_source(source)
                try:
                    _copy_content(opened, file, status.st_size)
                finally:
                    os.close(opened)
                self._own(directory, name, status)
                self._copy_attributes(source, file)
                os.fchmod(file, stat.S_IMODE(status.st_mode))
                os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
            if status.st_nlink > 1:
                self._linked[key] = (os.dup(directory), name)
        except BaseException:
            os.close(file)
            raise
        self._unsynced.append(file) if len(self._unsynced) <= _SYNCED_ONE_BY_ONE else os.close(file)

    def _link_large(self, source: str, status: os.stat_result, directory: int, name: str) -> bool:
        """Gives a large file a second name in the real tree, instead of a copy. Returns whether that was possible."""
        is_ours = bool(self._layer) and source.startswith(self._layer)
        if status.st_size < _LINKED or status.st_nlink > 1 or not is_ours or not status.st_mode & 0o400:
            return False
        try:
            os.link(source, name, dst_dir_fd=directory, follow_symlinks=False)
        except OSError:
            return False
        for attribute in os.listxattr(source, follow_symlinks=False):
            if attribute.startswith(self._keys.prefix):
                os.removexattr(source, attribute, follow_symlinks=False)
        self._moved.append(source)
        return True

    def _own(self, directory: int, name: str, status: os.stat_result) -> None:
        made = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if (made.st_uid, made.st_gid) != (status.st_uid, status.st_gid):
            os.chown(name, status.st_uid, status.st_gid, dir_fd=directory, follow_symlinks=False)

    def _copy_attributes(self, source: str, file: int) -> None:
        for name, value in _attributes(source, self._keys).items():
            os.setxattr(file, name, value)


def _copy_content(source: int, target: int, size: int) -> None:
    """Copies a file: shared blocks where the file system can, holes as holes."""
    with contextlib.suppress(OSError):
        fcntl.ioctl(target, _CLONE, source)
        return
    os.ftruncate(target, size)
    at = 0
    while at < size:
        try:
            at = os.lseek(source, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # the rest is a hole
                return
            raise
        end = os.lseek(source, at, os.SEEK_HOLE)
        os.lseek(target, at, os.SEEK_SET)
        while at < end:
            os.lseek(source, at, os.SEEK_SET)
            piece = memoryview(os.read(source, min(_PIECE, end - at)))
            if not piece:
                return
            at += len(piece)
            while piece:
                piece = piece[os.write(target, piece) :]


def _sync_file_system(root: Path) -> None:
    import ctypes

    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(folder) < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    finally:
        os.close(folder)


def _allow_open_files(number: int) -> None:
    """Raises this process's own limit of open files, where it may: each directory is held open, and locked."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * number + 256
    if soft != resource.RLIM_INFINITY and soft < needed:
        most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))


# Where layers lie.


def find_places(roots: Iterable[Path]) -> list[Path]:
    """Returns directories for layers, made if missing, the best first: outside of all roots, of this user alone, and
    on the same file system as the first root if possible.
    """
    real = [os.path.realpath(root) for root in roots]
    user = os.getuid()
    home = data_file("trials")
    wanted = [*([home] if home is not None else []), Path("/var/tmp", f"forge-{user}", "trials")]  # noqa: S108
    wanted.append(Path(tempfile.gettempdir(), f"forge-{user}", "trials"))
    found = {}
    for place in wanted:
        with contextlib.suppress(OSError):
            if _make_place(place, real):
                found[place] = os.stat(place).st_dev
    device = os.stat(real[0]).st_dev
    return sorted(found, key=lambda place: found[place] != device)


def _make_place(place: Path, roots: Sequence[str]) -> bool:
    real = os.path.realpath(place)
    if any(real == root or real.startswith(f"{root.rstrip('/')}/") for root in roots):
        return False
    for folder in (place.parent, place):
        folder.mkdir(mode=0o700, parents=folder == place.parent, exist_ok=True)
    status = os.lstat(place)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or os.lstat(place.parent).st_uid != os.getuid():
        return False
    os.chmod(place, 0o700)
    return True


def open_layer(workspace: Path, roots: Iterable[Path], how: str, place: Path) -> TrialLayer:
    """Makes a layer over folders: the workspace and the other writable roots, each covered once.

    Raises `ToolError` if it cannot be made; nothing has run then.
    """
    _tidy(place)
    folder = place / secrets.token_hex(16)
    tops = _outermost(os.path.realpath(root) for root in roots)
    try:
        if _free_bytes(place) < _FREE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.mkdir(folder, 0o700)
        for number, root in enumerate(tops):
            _make_upper(folder / str(number), root, how)
        facts = {
            "workspace": os.path.realpath(workspace),
            "roots": tops,
            "how": how,
            "started": _stamp(folder),
            "process": os.getpid(),
        }
        (folder / _FACTS).write_text(json.dumps(facts))
    except BaseException as error:
        _remove_in_background([folder])
        if not isinstance(error, OSError):
            raise
        raise ToolError(
            f"the trial could not begin, so nothing was run: {error.strerror or error}",
            ErrorKind.SYSTEM,
            "Run it outside a trial, after asking the person.",
        ) from error
    return TrialLayer(folder, facts)


def find_layer(id_: str, places: Iterable[Path]) -> TrialLayer | None:
    """Returns a layer that was kept; None if it is gone."""
    if not _NAME.fullmatch(id_):
        return None
    for place in places:
        with contextlib.suppress(OSError, ValueError, KeyError):
            return TrialLayer(place / id_, json.loads((place / id_ / _FACTS).read_text()))
    return None


def _outermost(roots: Iterable[str]) -> list[str]:
    found = sorted(dict.fromkeys(roots), key=len)
    return [one for one in found if not any(one.startswith(f"{other.rstrip('/')}/") for other in found)]


def _make_upper(folder: Path, root: str, how: str) -> None:
    upper, work = folder / "upper", folder / "work"
    os.mkdir(folder, 0o700)
    status = os.stat(root)
    if how == COPY:
        copier = _Copier(_Keys(how))
        above = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            copier.make(root, root, "", above, upper.name)
        finally:
            copier.close()
            os.close(above)
        return
    os.mkdir(work, 0o700)
    os.mkdir(upper, 0o700)
    made = os.stat(upper)
    if (made.st_uid, made.st_gid) != (status.st_uid, status.st_gid):
        os.chown(upper, status.st_uid, status.st_gid)
    for name, value in _attributes(root, _Keys(how)).items():
        with contextlib.suppress(OSError):
            os.setxattr(upper, name, value)
    os.chmod(upper, stat.S_IMODE(status.st_mode))
    os.utime(upper, ns=(status.st_atime_ns, status.st_mtime_ns))


def _stamp(folder: Path) -> int:
    """Returns the time as the file system counts it: all earlier changes have an earlier time, and no later one has.

    Newer kernels count exactly, once someone has looked at a time; older ones in steps of some milliseconds, so that
    this waits for the next step.
    """
    first, until = os.lstat(folder).st_ctime_ns, time.monotonic() + _LONGEST_STEP
    while True:
        os.chmod(folder, 0o700)
        now = os.lstat(folder).st_ctime_ns
        if now > first or time.monotonic() > until:
            return now


def _free_bytes(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


@functools.cache
def _tidy(place: Path) -> None:
    """Removes layers of processes that are gone, once, in the background; those that wait stay for some days."""
    gone = []
    for name in os.listdir(place):
        path = place / name
        try:
            if not name.startswith(_GONE):
                if not _NAME.fullmatch(name) or not _is_orphan(path):
                    continue
                os.rename(path, place / f"{_GONE}{name}")
                path = place / f"{_GONE}{name}"
        except (OSError, ValueError, KeyError):
            continue
        gone.append(path)
    _remove_in_background(gone)


def _is_orphan(folder: Path) -> bool:
    age = time.time() - os.lstat(folder).st_mtime
    try:
        facts = json.loads((folder / _FACTS).read_text())
    except FileNotFoundError:
        return age > 60
    if facts.get("waits"):
        return age > LONGEST_KEPT
    try:
        os.kill(int(facts["process"]), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _remove_in_background(folders: Sequence[Path]) -> None:
    def remove() -> None:
        for folder in folders:
            with contextlib.suppress(OSError):  # the next start tries again
                above = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                try:
                    remove_tree(above, folder.name)
                finally:
                    os.close(above)

    if not folders:
        return
    try:
        threading.Thread(target=remove, name="forge-trial-cleanup", daemon=True).start()
    except RuntimeError:  # there are too many threads, or the program ends
        remove()
