"""Changes files together or not at all, whatever fails and whenever the process is killed.

Every new content is written to a temporary file beside its target, which a rename then replaces, so that a reader
sees the old file or the new one, whole. The old file stays under a temporary name until all are in place. A file that
has several names (hard links) gets new content under this one; the others keep the old content.

A whole folder is made, replaced or deleted in the same way, by two renames.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal

from forge.core.errors import ErrorKind, ToolError
from forge.workspace.changes.journal import (
    NO_LINKS,
    Decision,
    FolderMode,
    JournalNote,
    Move,
    finish_folders,
    identity,
    recover,
    remove_temporaries,
    rename_if_free,
    revert_move,
    status_in,
)
from forge.workspace.paths import Location, quote_path
from forge.workspace.paths.digest import Digest
from forge.workspace.paths.locks import lock_directories
from forge.workspace.paths.open import open_directory

__all__ = ["Change", "commit", "lock_directories", "recover"]

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FRESH = 20_000_000  # nanoseconds: a file written so lately may be written again without its time changing


@dataclass(frozen=True, slots=True)
class Change:
    """The old and the new content of one file; None: no file. Or a folder that is made, removed or gets a mode."""

    location: Location
    before: bytes | None
    after: bytes | None
    mode: int | None = None  # permission bits of what did not exist; None: what the umask leaves
    link: str | None = None  # the target of a link that is deleted or replaced, or put back (`after` is b"" then)
    status: os.stat_result | None = None  # of what was there; spares comparing its content
    before_digest: Digest | None = None  # of the contents, where it is begun already: hashing takes as long as writing
    after_digest: Digest | None = None
    new_mode: int | None = None  # permission bits that something existing gets; None: it keeps them
    new_link: str | None = None  # the target of a link that replaces another link
    folder: Literal["", "make", "remove", "mode"] = ""
    make: Callable[[int, str], None] | None = None  # makes the new file, link or folder there, instead of `after`
    check: Callable[[int, str], None] | None = None  # raises if what was there, now under that name, must stay

    @property
    def deletes(self) -> bool:
        return self.after is None and self.make is None

    @property
    def had_link(self) -> bool:
        if self.link is None:
            return False
        return self.after is None or (self.status is not None and stat.S_ISLNK(self.status.st_mode))

    @property
    def makes_link(self) -> bool:
        return self.new_link is not None or (self.link is not None and not self.had_link)

    @property
    def made_target(self) -> str:
        """The target of the link that is made."""
        return self.new_link if self.new_link is not None else self.link or ""

    @property
    def finds(self) -> bool:
        """True if a file, link or special file existed before."""
        return self.before is not None or self.status is not None or self.had_link


def commit(
    changes: Sequence[Change],
    workspace: Path,
    ready: Callable[[], object] = lambda: None,
    decision: Decision | None = None,
) -> None:
    """Makes all changes, or none of them and raises `ToolError`. The caller holds the locks of their directories.

    The files must still be as the changes found them. `workspace` holds the journal note meanwhile. `ready`
    is called once all new content is on disk and no file is replaced yet; if it raises, nothing is changed.
    `decision` is made once all files are in place; if it fails, or the process dies before, they are reverted. In the
    end folders get their modes and are removed, unless something is in them.
    """
    wanted = [change for change in changes if not change.folder and (change.finds or not change.deletes)]
    moves = [Move.to(change.location, deletes=change.deletes) for change in wanted]
    tree = _FolderChanges(changes)
    if not moves and not tree:
        return
    with Folders([*(change.location.parent for change in wanted), *tree.made]) as folders:
        with _explain_errors(changes[0].location.shown):
            note = JournalNote(workspace, moves, folders.missing, tree.removed, tree.modes, decision)
        try:
            _make_changes(list(zip(wanted, moves, strict=True)), tree, folders, note, ready, decision)
        except BaseException as error:
            _roll_back(error, moves, folders, note)
            raise
        _tidy_up(moves, tree, folders, note)


class _FolderChanges:
    """The changes of folders among others, the outermost first."""

    def __init__(self, changes: Sequence[Change]) -> None:
        found = sorted((one for one in changes if one.folder), key=lambda one: one.location.relative.count("/"))
        self.made = [one.location for one in found if one.folder == "make"]
        self.removed = [one.location for one in found if one.folder == "remove"]
        modes = [(one.location, one.mode if one.folder == "make" else one.new_mode) for one in found]
        self.modes = [FolderMode(location, mode) for location, mode in modes if mode is not None]

    def __bool__(self) -> bool:
        return bool(self.made or self.removed or self.modes)


def _make_changes(
    pairs: Sequence[tuple[Change, Move]],
    tree: _FolderChanges,
    folders: Folders,
    note: JournalNote,
    ready: Callable[[], object],
    decision: Decision | None,
) -> None:
    for folder in folders.missing:
        with _explain_errors(folder.shown):
            folders.make(folder)
    for change, move in pairs:
        with _explain_errors(change.location.shown):
            _stage(folders.of(change.location), change, move)
    ready()
    is_joint = len(pairs) != 1 or pairs[0][0].make is not None or bool(tree) or decision is not None
    shown = pairs[0][0].location.shown if pairs else "."
    if is_joint:
        with _explain_errors(shown):
            note.mark_staged([move for _, move in pairs])
    for change, move in pairs:
        with _explain_errors(change.location.shown):
            _move_into_place(folders.of(change.location), change, move)
    with _explain_errors(shown):
        folders.sync()
        if is_joint and decision is None:
            note.mark_done()
    if decision is not None:
        decision.make()
        with suppress(OSError):  # the decision counts
            note.mark_done()


def _stage(directory: int, change: Change, move: Move) -> None:
    """Makes the new file beside its target."""
    found = _check_unchanged(directory, change, change.status)
    move.found = found
    if change.make is not None:
        change.make(directory, move.temporary)
        move.new = identity(status_in(directory, move.temporary))
        return
    if change.after is None:
        return
    old = found if found is not None and stat.S_ISREG(found.st_mode) else None
    if old is not None and not old.st_mode & 0o222 and change.new_mode is None:
        raise _read_only_error(change.location, old)
    if change.makes_link:
        os.symlink(change.made_target, move.temporary, dir_fd=directory)
    else:
        _write(directory, move.temporary, change, old)
    move.new = identity(status_in(directory, move.temporary))


def _move_into_place(directory: int, change: Change, move: Move) -> None:
    """Moves the new file to its path, or the old one away. Keeps a backup of the old file."""
    name = move.location.name
    if not change.finds:
        try:
            move.is_moved = not rename_if_free(directory, move.temporary, name)
        except FileExistsError:
            raise _conflict_error(change.location, "was made") from None
        return
    found = _check_unchanged(directory, change, move.found)
    if move.deletes:
        os.rename(name, move.backup, src_dir_fd=directory, dst_dir_fd=directory)
    elif not _keep_backup(directory, change, move):
        os.rename(name, move.backup, src_dir_fd=directory, dst_dir_fd=directory)
        move.is_moved = not rename_if_free(directory, move.temporary, name)
    else:
        os.rename(move.temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    backup = status_in(directory, move.backup)
    if backup is None or found is None or (backup.st_size, backup.st_mtime_ns) != (found.st_size, found.st_mtime_ns):
        raise _conflict_error(change.location, "was changed")
    if change.check is not None:
        change.check(directory, move.backup)


def _keep_backup(directory: int, change: Change, move: Move) -> bool:
    """Gives the old file a second name, or copies it where files have only one. Returns False if it has to be moved: a
    folder is replaced, or becomes one.
    """
    name = move.location.name
    found = [status_in(directory, one) for one in (name, move.temporary)]
    if any(one is not None and stat.S_ISDIR(one.st_mode) for one in found):
        return False
    try:
        os.link(name, move.backup, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        if change.make is not None:
            return False
        if change.had_link:
            os.symlink(change.link or "", move.backup, dir_fd=directory)
            return True
        old = os.stat(name, dir_fd=directory, follow_symlinks=False)
        _write(directory, move.backup, Change(change.location, None, change.before), old)
        os.utime(move.backup, ns=(old.st_atime_ns, old.st_mtime_ns), dir_fd=directory, follow_symlinks=False)
    return True


def _write(directory: int, name: str, change: Change, old: os.stat_result | None) -> None:
    """Writes the whole content to a new file on disk, with the mode and, where possible, the owner of the old file."""
    content = memoryview(change.after or b"")
    file = os.open(name, _NEW, 0o666 if old is None and change.mode is None else 0o600, dir_fd=directory)
    try:
        while content:
            content = content[os.write(file, content) :]
        if old is not None:
            _copy_ownership(directory, change.location.name, file, old)
            if change.new_mode is not None:
                os.fchmod(file, change.new_mode & 0o777)
        elif change.mode is not None:
            os.fchmod(file, change.mode & 0o777)
        os.fsync(file)
    finally:
        os.close(file)


def _copy_ownership(directory: int, name: str, file: int, old: os.stat_result) -> None:
    made = os.fstat(file)
    mode = stat.S_IMODE(old.st_mode)
    if (made.st_uid, made.st_gid) != (old.st_uid, old.st_gid):
        try:
            os.fchown(file, old.st_uid, old.st_gid)
        except PermissionError:
            if not os.access(name, os.W_OK, dir_fd=directory):
                raise  # a rename would succeed in our own directory, and would take the file away from its owner
            mode &= 0o777  # a setuid program of the old owner must not run as the new one
    if hasattr(os, "listxattr"):
        _copy_attributes(directory, name, file)
    os.fchmod(file, mode)


def _copy_attributes(directory: int, name: str, file: int) -> None:
    """Copies access lists and other extended attributes; a file system without them raises an error, which is
    ignored.
    """
    with suppress(OSError):
        old = os.open(name, _OLD, dir_fd=directory)
        try:
            for attribute in os.listxattr(old):
                with suppress(OSError):
                    os.setxattr(file, attribute, os.getxattr(old, attribute))
        finally:
            os.close(old)


def _check_unchanged(directory: int, change: Change, seen: os.stat_result | None) -> os.stat_result | None:
    """Returns the status of the file if it is still as the change found it; otherwise raises `ToolError`.

    Compares the content only where the status does not decide.
    """
    location = change.location
    there = status_in(directory, location.name)
    if not change.finds:
        if there is not None:
            raise _conflict_error(location, "was made")
        return None
    if there is None:
        raise _conflict_error(location, "was removed")
    if seen is not None and identity(seen) == identity(there) and seen.st_mode == there.st_mode:
        if time.time_ns() - there.st_mtime_ns > _FRESH or change.before is None:
            return there
    elif change.before is None and not change.had_link:
        raise _conflict_error(location, "was changed")
    if not _is_unchanged(directory, change, there):
        raise _conflict_error(location, "was changed")
    return there


def _is_unchanged(directory: int, change: Change, there: os.stat_result) -> bool:
    if change.had_link:
        return stat.S_ISLNK(there.st_mode) and os.readlink(change.location.name, dir_fd=directory) == change.link
    if not stat.S_ISREG(there.st_mode) or there.st_size != len(change.before or b""):
        return False
    file = os.open(change.location.name, _OLD, dir_fd=directory)
    with open(file, "rb", buffering=0) as old:
        return old.read(there.st_size + 1) == change.before


def _roll_back(error: BaseException, moves: Sequence[Move], folders: Folders, note: JournalNote) -> None:
    """Puts the old files back. Where that fails too, the note stays and the next start tries again."""
    try:
        for move in reversed(moves):
            if folders.has(move.location):
                revert_move(folders.of(move.location), move)
        folders.unmake()
    except OSError as second:
        note.close(keep=True)
        raise ToolError(
            f"{_message_of(error)}; and the old files could not be restored: {second.strerror}",
            ErrorKind.SYSTEM,
            "Forge tries again at its next start. Check the files before you continue.",
        ) from error
    except BaseException:
        note.close(keep=True)
        raise
    note.close()


def _tidy_up(moves: Sequence[Move], tree: _FolderChanges, folders: Folders, note: JournalNote) -> None:
    """Removes temporary files and folders once the changes are made; what remains is removed at the next start."""
    is_tidy = False
    try:
        for move in moves:
            remove_temporaries(folders.of(move.location), move)
        finish_folders(tree.removed, tree.modes)
        is_tidy = True
    except OSError:
        pass
    finally:
        note.close(keep=not is_tidy)


def _conflict_error(location: Location, what: str) -> ToolError:
    return ToolError(
        f"{quote_path(location.shown)} {what} by another program just now; nothing was written",
        ErrorKind.VALIDATION,
        "Read it again before you change it.",
    )


def _read_only_error(location: Location, found: os.stat_result) -> ToolError:
    return ToolError(
        f"{quote_path(location.shown)} is read-only (mode {stat.S_IMODE(found.st_mode):04o})",
        ErrorKind.PERMISSION,
        "Ask the person whether it may be changed; chmod u+w would make it writable.",
    )


def _message_of(error: BaseException) -> str:
    return error.message if isinstance(error, ToolError) else str(error) or type(error).__name__


@contextmanager
def _explain_errors(shown: str) -> Iterator[None]:
    """Turns an `OSError` into a `ToolError` that a model can act on."""
    try:
        yield
    except OSError as error:
        number = error.errno or 0
        problem, kind, suggestion = _EXPLANATIONS.get(
            number, (error.strerror or str(error), ErrorKind.SYSTEM, "Try again.")
        )
        raise ToolError(
            f"{quote_path(shown)} cannot be written: {problem}; nothing was changed",
            kind,
            suggestion,
            passing=number in (errno.EMFILE, errno.ENFILE),
        ) from error


_SPACE = "Free some space or write less, then try again."
_ELSEWHERE = "Write somewhere else, or ask the person to permit it."
_EXPLANATIONS = {
    errno.ENOSPC: ("the disk is full", ErrorKind.SYSTEM, _SPACE),
    errno.EDQUOT: ("the disk quota of this user is used up", ErrorKind.SYSTEM, _SPACE),
    errno.EFBIG: ("it would exceed the maximum file size", ErrorKind.SYSTEM, "Write less, or several files."),
    errno.EROFS: ("it is on a file system that is read-only", ErrorKind.PERMISSION, _ELSEWHERE),
    errno.EACCES: ("this user may not write there", ErrorKind.PERMISSION, _ELSEWHERE),
    errno.EPERM: ("this user may not write there", ErrorKind.PERMISSION, _ELSEWHERE),
    errno.EMFILE: ("too many files are open", ErrorKind.SYSTEM, "Try again in a moment, with fewer files at once."),
    errno.ENFILE: ("too many files are open", ErrorKind.SYSTEM, "Try again in a moment."),
    errno.EBUSY: ("it is in use by the system; is it a mount point?", ErrorKind.SYSTEM, _ELSEWHERE),
    errno.ENOTDIR: ("a part of its path is not a directory", ErrorKind.USER, "Choose another path."),
    errno.EISDIR: ("it is a directory", ErrorKind.USER, "Name a file."),
    errno.EIO: ("the disk reported an error", ErrorKind.SYSTEM, "Tell the person: the disk may be failing."),
}


# Holds the directories of a commit open, so that they cannot be replaced meanwhile, and makes missing ones.


_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CANNOT_SYNC = frozenset({errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS})


class Folders:
    """A context manager that closes all directories at its end. Raises `ToolError` for a path that cannot be opened as
    one.
    """

    def __init__(self, wanted: Iterable[Location]) -> None:
        self._open: dict[Path, int] = {}
        self._made: list[Location] = []
        missing: dict[Path, Location] = {}
        try:
            for folder in wanted:
                self._find(folder, missing)
        except BaseException:
            self._close()
            raise
        self.missing = sorted(missing.values(), key=lambda one: one.relative.count("/"))  # the outermost first

    def __enter__(self) -> Folders:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._close()

    def of(self, location: Location) -> int:
        """Returns the descriptor of the directory that contains a location."""
        return self._open[location.parent.path]

    def has(self, location: Location) -> bool:
        return location.parent.path in self._open

    def make(self, folder: Location) -> None:
        """Makes a missing directory. Raises `OSError`."""
        above = self._open[folder.parent.path]
        with suppress(FileExistsError):  # another process made it
            os.mkdir(folder.name, dir_fd=above)
            self._made.append(folder)
        self._open[folder.path] = os.open(folder.name, _FLAGS, dir_fd=above)

    def unmake(self) -> None:
        """Removes the directories made here, if they are empty."""
        while self._made:
            folder = self._made.pop()
            with suppress(OSError):
                os.rmdir(folder.name, dir_fd=self._open[folder.parent.path])

    def sync(self) -> None:
        """Makes names survive a power failure, if the file system can."""
        for descriptor in self._open.values():
            try:
                os.fsync(descriptor)
            except OSError as error:
                if error.errno not in _CANNOT_SYNC:
                    raise

    def _find(self, folder: Location, missing: dict[Path, Location]) -> None:
        while folder.path not in self._open and folder.path not in missing:
            try:
                self._open[folder.path] = open_directory(folder)
            except ToolError as error:
                if error.kind is not ErrorKind.NOT_FOUND or folder.relative == ".":
                    raise
                missing[folder.path] = folder
                folder = folder.parent

    def _close(self) -> None:
        while self._open:
            os.close(self._open.popitem()[1])
