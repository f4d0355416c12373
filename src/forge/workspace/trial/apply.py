"""Applies what a program did in the layer of a trial run: all of it to the real tree, or nothing."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import os
import resource
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Literal

from forge.core.errors import ErrorKind, ToolError
from forge.workspace.changes.commit import Change, commit, lock_directories
from forge.workspace.changes.journal import identity, walk_statuses
from forge.workspace.effects import Effects
from forge.workspace.history.tracking import current_call
from forge.workspace.history.undo import CAP
from forge.workspace.paths import Location, quote_path
from forge.workspace.paths.digest import Digest
from forge.workspace.paths.open import open_file
from forge.workspace.trial.scan import (
    LARGEST,
    Layer,
    Marks,
    Node,
    is_origin,
    open_source,
    read_attributes,
    status_of,
)

MOST_NAMED = 5  # paths in a message
_LINKED = 1024 * 1024  # bytes of a file that is moved by a hard link instead of a copy
_SYNCED_ONE_BY_ONE = 100  # files; more are synced together, with everything on the disk
_PIECE = 1024 * 1024
_CLONE = 0x40049409  # ioctl FICLONE


class Application:
    """Applies the changes of one layer. It may be tried again after it failed."""

    def __init__(self, layer: Layer) -> None:
        self._layer = layer
        self._restored: dict[str, int] = {}  # times of files that were put back here when applying failed

    def run(self, paths: Collection[Path] | None = None, expect: Effects | None = None) -> Effects:
        """Makes the changes in the real tree: all of them, or those of some paths. Returns what was made.

        All or nothing: raises `ToolError` if the layer no longer has the effects that are expected, if someone changed
        one of the paths since the trial began, or if something cannot be written. Then nothing is changed, and the
        layer is still there.
        """
        unsure: dict[str, None] = {}
        try:
            tops = self._layer.scan(unsure, {})
        except (OSError, ToolError) as error:
            reason = error.message if isinstance(error, ToolError) else error
            raise ToolError(
                f"the trial's changes cannot be read, so nothing was applied: {reason}",
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
        found = [(one.effect.path, one.effect.after) for one in nodes if one.effect is not None]
        if expect is not None and found != [(one.path, one.after) for one in expect.files]:
            raise ToolError(
                "its effects changed after they were judged; nothing was applied",
                ErrorKind.SECURITY,
                "Run it again, without programs that stay behind.",
            )
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
        copier = Copier(self._layer.marks, self._layer.folder)
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

    def _commit(self, changes: Sequence[Change], wanted: Sequence[Node], copier: Copier) -> None:
        now = current_call()
        recorded: list[int] = []

        def record() -> None:
            copier.sync([Path(root) for root in self._layer.roots])
            rows = list(_list_history(wanted))
            if rows:
                log, call = now.state.undo, (now.session_id, now.turn, now.call_id, now.tool)
                recorded.append(log.record(*call, rows, now.root))

        try:
            commit(changes, self._layer.workspace, record)
        except BaseException:
            self._note_restored(wanted)
            for entry in recorded:
                with contextlib.suppress(ToolError):  # the entry restores nothing then
                    now.state.undo.withdraw(entry)
            raise

    def _note_restored(self, wanted: Sequence[Node]) -> None:
        """Remembers the times of files that are as they were: to put them back counts as a change to the system."""
        for node in wanted:
            old, now = node.status, status_of(node.location.path)
            if old is not None and now is not None and identity(old) == identity(now) and old.st_mode == now.st_mode:
                self._restored[str(node.location.path)] = now.st_ctime_ns

    def _check_conflicts(self, wanted: Sequence[Node], nodes: Sequence[Node]) -> None:
        """Raises `ToolError` for paths that someone else changed since the trial began, and names both versions."""
        found = [(node, "was deleted") for node in self._list_vanished(wanted, nodes)]
        for node in wanted:
            status = node.status
            if status is None or stat.S_ISDIR(status.st_mode) or not self._layer.is_later(status):
                continue
            if self._restored.get(str(node.location.path)) != status.st_ctime_ns:
                found.append((node, "was changed"))
        if found:
            raise self._conflict_error(sorted(found, key=lambda one: one[0].location.shown))

    def _list_vanished(self, wanted: Sequence[Node], nodes: Sequence[Node]) -> list[Node]:
        """Returns files that the trial changed and someone else deleted meanwhile.

        A file of the layer that is a copy of a real one, and is not there, was deleted, or the trial renamed it: then
        the real one is under another name, which the trial deleted or replaced.
        """
        there = [node.status for node in nodes if node.status is not None and not self._layer.is_later(node.status)]
        left = [status for status in there if stat.S_ISREG(status.st_mode)]
        copies = [(node, self._layer.read_origin(node.source)) for node in wanted if node.status is None]
        unknown: list[Node] = []
        for node, origin in copies:
            if origin is None:
                continue
            modified = os.lstat(node.source).st_mtime_ns
            source = next((one for one in left if is_origin(origin, one) or one.st_mtime_ns == modified), None)
            if source is None:
                unknown.append(node)
            else:
                left.remove(source)
        return unknown if len(unknown) > len(left) else []

    def _conflict_error(self, found: Sequence[tuple[Node, str]]) -> ToolError:
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
                if self._layer.is_later(status):
                    node = Node(location.child(inner))
                    raise self._conflict_error([(node, "was changed")])

        return check

    def _plan(self, node: Node, wanted: Collection[str], copier: Copier) -> Iterator[Change]:
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


def _list_history(nodes: Sequence[Node]) -> Iterator[Change]:
    """Yields the changes of each file, link and folder, for the undo log. Contents over the limits are left out."""
    left = CAP
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
            if before.size <= left:
                left -= before.size
                with open(open_file(node.location), "rb") as file:
                    old = file.read()
            else:
                is_hashed = before.size <= LARGEST  # it cannot come back in any case
                old_digest = _digest_file(open_file(node.location)) if is_hashed else Digest(b"")
        if new_type == "file":
            new, new_digest = b"", _digest_file(open_source(node.source))
        elif new_type:
            new = b""
        if new_type == "folder":  # the undo log names it, and does not restore it
            yield Change(node.location, old, None, mode, link, status, old_digest, folder="make")
            continue
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


class Copier:
    """Makes copies of what lies in a layer, beside its place in the real tree."""

    def __init__(self, marks: Marks, layer: Path | None = None) -> None:
        self._marks = marks
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
            inside = self._marks.list_folder(source)
            names = {below for below, _ in inside}
            for below, path in inside:
                found = os.lstat(path)
                if self._marks.is_whiteout(path, found):
                    continue
                deeper = ""
                if stat.S_ISDIR(found.st_mode) and not self._marks.is_opaque(path):
                    old = self._marks.read_redirect(path)
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
                opened = open_source(source)
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
            if attribute.startswith(self._marks.prefix):
                os.removexattr(source, attribute, follow_symlinks=False)
        self._moved.append(source)
        return True

    def _own(self, directory: int, name: str, status: os.stat_result) -> None:
        made = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if (made.st_uid, made.st_gid) != (status.st_uid, status.st_gid):
            os.chown(name, status.st_uid, status.st_gid, dir_fd=directory, follow_symlinks=False)

    def _copy_attributes(self, source: str, file: int) -> None:
        for name, value in read_attributes(source, self._marks).items():
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
