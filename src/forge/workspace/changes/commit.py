"""Changes of files that are made together or not at all, whatever fails and whenever the process is killed.

Every new content is written to a temporary file beside its target and takes its place by a rename, so that a reader
sees the old file or the new one, whole. The old file stays under a temporary name until all are in place. A file that
has several names (hard links) gets new content under this one; the others keep what they had.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from forge.core.errors import ErrorKind, ToolError
from forge.workspace.changes.journal import (
    NO_LINKS,
    Move,
    Note,
    identity,
    put_in_gap,
    recover,
    status_in,
    sweep,
    take_back,
)
from forge.workspace.paths import Place, quoted
from forge.workspace.paths.digest import Digest
from forge.workspace.paths.held_folders import Folders
from forge.workspace.paths.locks import locked

__all__ = ["Change", "commit", "locked", "recover"]

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FRESH = 20_000_000  # nanoseconds: a file written so lately may be written again without its time changing


@dataclass(frozen=True, slots=True)
class Change:
    """What was there, and what is to be there; None: nothing."""

    place: Place
    before: bytes | None
    after: bytes | None
    mode: int | None = None  # permission bits of a file that did not exist; None: what the umask leaves
    link: str | None = None  # the target of a link that is deleted or replaced, or put back (`after` is b"" then)
    status: os.stat_result | None = None  # of what was there; spares comparing its content
    before_digest: Digest | None = None  # of the contents, where it is begun already: hashing takes as long as writing
    after_digest: Digest | None = None

    @property
    def had_link(self) -> bool:
        if self.link is None:
            return False
        return self.after is None or (self.status is not None and stat.S_ISLNK(self.status.st_mode))

    @property
    def makes_link(self) -> bool:
        return self.link is not None and not self.had_link

    @property
    def finds(self) -> bool:
        """Whether something was there."""
        return self.before is not None or self.status is not None or self.had_link


def commit(changes: Sequence[Change], workspace: Path, ready: Callable[[], object] = lambda: None) -> None:
    """Make all of the changes, or none of them and raise `ToolError`. The caller holds `locked` for their places.

    What is there must still be what the changes found. `workspace` is where the note of it is kept meanwhile. `ready`
    is called once all new content is on the disk and nothing is in its place yet; if it raises, nothing is changed.
    """
    wanted = [change for change in changes if change.finds or change.after is not None]
    moves = [Move.to(change.place, deletes=change.after is None) for change in wanted]
    if not moves:
        return
    with Folders([change.place.parent for change in wanted]) as folders:
        with _explained(moves[0].place.shown):
            note = Note(workspace, moves, folders.missing)
        try:
            _make(list(zip(wanted, moves, strict=True)), folders, note, ready)
        except BaseException as error:
            _give_up(error, moves, folders, note)
            raise
        _tidy_up(moves, folders, note)


def _make(pairs: Sequence[tuple[Change, Move]], folders: Folders, note: Note, ready: Callable[[], object]) -> None:
    for folder in folders.missing:
        with _explained(folder.shown):
            folders.make(folder)
    for change, move in pairs:
        with _explained(change.place.shown):
            _stage(folders.of(change.place), change, move)
    ready()
    if len(pairs) > 1:
        with _explained(pairs[0][0].place.shown):
            note.staged([move for _, move in pairs])
    for change, move in pairs:
        with _explained(change.place.shown):
            _put(folders.of(change.place), change, move)
    with _explained(pairs[0][0].place.shown):
        folders.sync()
        if len(pairs) > 1:
            note.done()


def _stage(directory: int, change: Change, move: Move) -> None:
    """Make the new file beside its target."""
    found = _check_unchanged(directory, change, change.status)
    move.found = found
    if change.after is None:
        return
    old = found if found is not None and stat.S_ISREG(found.st_mode) else None
    if old is not None and not old.st_mode & 0o222:
        raise _read_only(change.place, old)
    if change.makes_link:
        os.symlink(change.link or "", move.temporary, dir_fd=directory)
    else:
        _write(directory, move.temporary, change, old)
    move.new = identity(status_in(directory, move.temporary))


def _put(directory: int, change: Change, move: Move) -> None:
    """Bring the new file to its place, or the old one out of it. What was there is kept."""
    name = move.place.name
    if not change.finds:
        try:
            move.is_moved = not put_in_gap(directory, move.temporary, name)
        except FileExistsError:
            raise _changed(change.place, "was made") from None
        return
    found = _check_unchanged(directory, change, move.found)
    if move.deletes:
        os.rename(name, move.kept, src_dir_fd=directory, dst_dir_fd=directory)
    else:
        _keep(directory, change, move)
        os.rename(move.temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    kept = status_in(directory, move.kept)
    if kept is None or found is None or (kept.st_size, kept.st_mtime_ns) != (found.st_size, found.st_mtime_ns):
        raise _changed(change.place, "changed")


def _keep(directory: int, change: Change, move: Move) -> None:
    """Give the old file a second name, or copy it where files have only one."""
    name = move.place.name
    try:
        os.link(name, move.kept, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        if change.had_link:
            return os.symlink(change.link or "", move.kept, dir_fd=directory)
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
        _write(directory, move.kept, Change(change.place, None, change.before), found)
        os.utime(move.kept, ns=(found.st_atime_ns, found.st_mtime_ns), dir_fd=directory, follow_symlinks=False)


def _write(directory: int, name: str, change: Change, old: os.stat_result | None) -> None:
    """The whole content in a new file, on the disk, with the mode and where possible the owner of the old one."""
    content = memoryview(change.after or b"")
    file = os.open(name, _NEW, 0o666 if old is None and change.mode is None else 0o600, dir_fd=directory)
    try:
        while content:
            content = content[os.write(file, content) :]
        if old is not None:
            _take_after(directory, change.place.name, file, old)
        elif change.mode is not None:
            os.fchmod(file, change.mode & 0o777)
        os.fsync(file)
    finally:
        os.close(file)


def _take_after(directory: int, name: str, file: int, old: os.stat_result) -> None:
    made = os.fstat(file)
    mode = stat.S_IMODE(old.st_mode)
    if (made.st_uid, made.st_gid) != (old.st_uid, old.st_gid):
        try:
            os.fchown(file, old.st_uid, old.st_gid)
        except PermissionError:
            if not os.access(name, os.W_OK, dir_fd=directory):
                raise  # in a directory of one's own a rename would do, and take the file away from its owner
            mode &= 0o777  # what ran as its old owner must not run as its new one
    if hasattr(os, "listxattr"):
        _copy_attributes(directory, name, file)
    os.fchmod(file, mode)


def _copy_attributes(directory: int, name: str, file: int) -> None:
    """Access lists and the like; a file system that has none says so."""
    with suppress(OSError):
        old = os.open(name, _OLD, dir_fd=directory)
        try:
            for attribute in os.listxattr(old):
                with suppress(OSError):
                    os.setxattr(file, attribute, os.getxattr(old, attribute))
        finally:
            os.close(old)


def _check_unchanged(directory: int, change: Change, seen: os.stat_result | None) -> os.stat_result | None:
    """What is there, if it is still what the change found; otherwise `ToolError`. Content is compared where it must."""
    place = change.place
    there = status_in(directory, place.name)
    if not change.finds:
        if there is not None:
            raise _changed(place, "was made")
        return None
    if there is None:
        raise _changed(place, "was removed")
    if seen is not None and identity(seen) == identity(there) and seen.st_mode == there.st_mode:
        if time.time_ns() - there.st_mtime_ns > _FRESH or change.before is None:
            return there
    elif change.before is None and not change.had_link:
        raise _changed(place, "changed")
    if not _is_same(directory, change, there):
        raise _changed(place, "changed")
    return there


def _is_same(directory: int, change: Change, there: os.stat_result) -> bool:
    if change.had_link:
        return stat.S_ISLNK(there.st_mode) and os.readlink(change.place.name, dir_fd=directory) == change.link
    if not stat.S_ISREG(there.st_mode) or there.st_size != len(change.before or b""):
        return False
    file = os.open(change.place.name, _OLD, dir_fd=directory)
    with open(file, "rb", buffering=0) as old:
        return old.read(there.st_size + 1) == change.before


def _give_up(error: BaseException, moves: Sequence[Move], folders: Folders, note: Note) -> None:
    """Put back what was there. Where that fails too, the note stays and the next start tries again."""
    try:
        for move in reversed(moves):
            if folders.has(move.place):
                take_back(folders.of(move.place), move)
        folders.unmake()
    except OSError as second:
        note.close(keep=True)
        raise ToolError(
            f"{_words(error)}; and what was there could not be put back: {second.strerror}",
            ErrorKind.SYSTEM,
            "Forge tries it again at its next start. Look at the files before you go on.",
        ) from error
    except BaseException:
        note.close(keep=True)
        raise
    note.close()


def _tidy_up(moves: Sequence[Move], folders: Folders, note: Note) -> None:
    """The changes are made; what cannot be removed now is removed at the next start."""
    is_tidy = False
    try:
        for move in moves:
            sweep(folders.of(move.place), move)
        is_tidy = True
    except OSError:
        pass
    finally:
        note.close(keep=not is_tidy)


def _changed(place: Place, what: str) -> ToolError:
    return ToolError(
        f"{quoted(place.shown)} {what} by somebody else in this moment; nothing was written",
        ErrorKind.VALIDATION,
        "Read it again, then decide anew.",
    )


def _read_only(place: Place, found: os.stat_result) -> ToolError:
    return ToolError(
        f"{quoted(place.shown)} is read-only (mode {stat.S_IMODE(found.st_mode):04o})",
        ErrorKind.PERMISSION,
        "Ask the person whether it may be changed; chmod u+w would make it writable.",
    )


def _words(error: BaseException) -> str:
    return error.message if isinstance(error, ToolError) else str(error) or type(error).__name__


@contextmanager
def _explained(shown: str) -> Iterator[None]:
    """What the system said, in words a model can act on."""
    try:
        yield
    except OSError as error:
        number = error.errno or 0
        problem, kind, suggestion = _MEANING.get(number, (error.strerror or str(error), ErrorKind.SYSTEM, "Try again."))
        raise ToolError(
            f"{quoted(shown)} cannot be written: {problem}; nothing was changed",
            kind,
            suggestion,
            passing=number in (errno.EMFILE, errno.ENFILE),
        ) from error


_SPACE = "Free some space or write less, then try again."
_ELSEWHERE = "Write somewhere else, or ask the person to permit it."
_MEANING = {
    errno.ENOSPC: ("the disk is full", ErrorKind.SYSTEM, _SPACE),
    errno.EDQUOT: ("the disk quota of this user is used up", ErrorKind.SYSTEM, _SPACE),
    errno.EFBIG: ("it would be larger than files may be here", ErrorKind.SYSTEM, "Write less, or several files."),
    errno.EROFS: ("it is on a file system that is read-only", ErrorKind.PERMISSION, _ELSEWHERE),
    errno.EACCES: ("this user may not write there", ErrorKind.PERMISSION, _ELSEWHERE),
    errno.EPERM: ("this user may not write there", ErrorKind.PERMISSION, _ELSEWHERE),
    errno.EMFILE: ("too many files are open", ErrorKind.SYSTEM, "Try again in a moment, with fewer files at once."),
    errno.ENFILE: ("too many files are open", ErrorKind.SYSTEM, "Try again in a moment."),
    errno.EBUSY: ("the system holds it in use; is it a mount point?", ErrorKind.SYSTEM, _ELSEWHERE),
    errno.ENOTDIR: ("something that is no directory is in its way", ErrorKind.USER, "Choose another path."),
    errno.EISDIR: ("it is a directory", ErrorKind.USER, "Name a file."),
    errno.EIO: ("the disk reported an error", ErrorKind.SYSTEM, "Tell the person: the disk may be failing."),
}
