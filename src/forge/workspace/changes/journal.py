"""Writes notes of changes under way, so that the next process reverts what a killed process left half-done.

A note is made before anything else, and its owner holds a lock on it: a note that can be locked has a dead owner. Its
first line lists the possible temporary files. Where several files change together, the second line identifies the new
files before the first one is moved into place, and the third line says that all of them are in place. Each line is
sealed: a note that something else than Forge wrote reverts nothing.

Where files change together with a stored conversation, the database decides: the note names the row that the same
transaction writes as the conversation. Once the row is there, nothing is reverted.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import logging
import os
import re
import secrets
import sqlite3
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from forge.core.context import Scope
from forge.core.errors import ErrorKind, ToolError
from forge.workspace.paths import Location
from forge.workspace.paths.digest import LARGE
from forge.workspace.paths.locks import lock_directories
from forge.workspace.paths.open import open_directory
from forge.workspace.state import NAME, STRAY, append_whole, find_state, state_directory
from forge.workspace.state.sealing import find_problem, seal_part

log = logging.getLogger(__name__)

FOLDER = "journal"
SEAL = "seal"
LARGEST_NOTE = 16 * 1024 * 1024  # bytes of a note
NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})  # a file system without hard links

_HOLD = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC if hasattr(os, "O_PATH") else None  # it needs no permission
_TEMPORARY = re.compile(rf"{re.escape(STRAY)}[0-9a-f]{{16}}")
_NOTE = re.compile(r"[0-9a-f]{16}\.note")
_NESTED = 100  # folders in each other that are removed from the outside
_PATIENCE = 1.0  # seconds: another process may be changing files there, and the next start will do as well


class Identity(NamedTuple):
    """Identifies one state of a file: a replaced or rewritten file has another identity."""

    inode: int
    size: int
    modified: int  # nanoseconds


@dataclass(slots=True)
class Move:
    """One file being changed: the new one is made under a temporary name, the old one gets a backup name."""

    location: Location
    deletes: bool
    temporary: str
    backup: str
    found: os.stat_result | None = None  # the replaced file, as it was when the new one was staged
    new: Identity | None = None  # known once the new file is staged
    is_moved: bool = False  # the new one has no second name: a folder, or this file system knows no hard links

    @classmethod
    def to(cls, location: Location, *, deletes: bool) -> Move:
        return cls(location, deletes, temporary_name(), temporary_name())


class Decision(NamedTuple):
    """A transaction that decides about files and something else together: all of it is changed, or none."""

    store: Path  # the database
    key: str  # of the row in `rewinds` that the transaction writes
    make: Callable[[], None]  # runs the transaction, once all files are in place


class FolderMode(NamedTuple):
    """A folder that gets a mode, once everything in it is in place."""

    location: Location
    mode: int


def temporary_name() -> str:
    return f"{STRAY}{os.urandom(8).hex()}"


def status_in(directory: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None


def identity(status: os.stat_result | None) -> Identity | None:
    return Identity(status.st_ino, status.st_size, status.st_mtime_ns) if status is not None else None


def rename_if_free(directory: int, source: str, target: str) -> bool:
    """Gives `source` the name `target`, which must be free. Returns whether `source` still exists as a second name."""
    try:
        os.link(source, target, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
        return True
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
    if status_in(directory, target) is not None:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
    os.rename(source, target, src_dir_fd=directory, dst_dir_fd=directory)
    return False


def revert_move(directory: int, move: Move, since: int | None = None) -> str:
    """Reverts a move. Returns the reason where the file was changed since and had to be left as it is, else "".

    `since`: nanoseconds; a new folder in which something changed later is left as it is.
    """
    there = identity(status_in(directory, move.location.name))
    kept = status_in(directory, move.backup)
    backup = identity(kept)
    problem = ""
    if there is None and kept is not None:
        rename_if_free(directory, move.backup, move.location.name)
    elif move.deletes:
        pass
    elif move.new is not None and there == move.new and since is not None and _changed(directory, move, since):
        old = f"; the old one is beside it as {move.backup}" if kept is not None else ""
        return f"in {move.location.shown} something was changed since, and it is not touched{old}"
    elif move.new is not None and there == move.new:
        problem = _restore_backup(directory, move, backup is not None)
    elif move.new is not None and there is not None and there.inode == move.new.inode:
        problem = f"{move.location.shown} was changed since and is not touched"
    remove_temporaries(directory, move)
    return problem


def change_mode(directory: int, name: str, mode: int) -> None:
    """Changes the permission bits of a file or folder, never through a link. Raises `OSError`."""
    there = os.open(name, os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY), dir_fd=directory)
    try:
        if stat.S_ISLNK(os.fstat(there).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
        os.chmod(f"/proc/self/fd/{there}" if hasattr(os, "O_PATH") else there, mode)
    finally:
        os.close(there)


def _changed(directory: int, move: Move, since: int) -> bool:
    """Returns whether something in a folder was changed later than a time."""
    return any(status.st_ctime_ns > since for _, status in walk_statuses(directory, move.location.name))


def walk_statuses(directory: int, name: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yields what lies in a folder, by its path below it, with its status; nothing for anything else. Raises `OSError`
    for a folder that cannot be read.
    """
    found = status_in(directory, name)
    if found is None or not stat.S_ISDIR(found.st_mode):
        return
    inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        for below in sorted(os.listdir(inner)):
            if (status := status_in(inner, below)) is not None:
                yield below, status
                for deeper, its in walk_statuses(inner, below):
                    yield f"{below}/{deeper}", its
    finally:
        os.close(inner)


def _restore_backup(directory: int, move: Move, is_kept: bool) -> str:
    name, temporary = move.location.name, identity(status_in(directory, move.temporary))
    if _is_folder(directory, name) or _is_folder(directory, move.backup):
        if temporary == move.new:  # two names of one file: a rename would do nothing
            os.unlink(name, dir_fd=directory)
        else:
            os.rename(name, move.temporary, src_dir_fd=directory, dst_dir_fd=directory)
        if is_kept:
            rename_if_free(directory, move.backup, name)
    elif is_kept:
        os.rename(move.backup, name, src_dir_fd=directory, dst_dir_fd=directory)
    elif move.is_moved or temporary == move.new:  # never because of a note alone: somebody may have planted it
        os.unlink(name, dir_fd=directory)
    else:
        return f"{move.location.shown} was created and is not touched"
    return ""


def _is_folder(directory: int, name: str) -> bool:
    status = status_in(directory, name)
    return status is not None and stat.S_ISDIR(status.st_mode)


def remove_temporaries(directory: int, move: Move) -> None:
    """Removes the temporary files and folders of a move."""
    with _free_later(directory, move):
        for name in (move.temporary, move.backup):
            try:
                os.unlink(name, dir_fd=directory)
            except FileNotFoundError:
                pass
            except OSError:
                if status_in(directory, name) is None:  # a read-only file system reports another error than ENOENT
                    continue
                if not _is_folder(directory, name):
                    raise
                remove_tree(directory, name)


def remove_tree(directory: int, name: str, above: tuple[int, ...] = ()) -> None:
    """Removes a folder with all that it holds, also where its modes forbid it. Follows no link. Raises `OSError`.

    A program may nest folders deeper than a call or an open file can follow: those go up to the outermost one first.
    """
    flags = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        inner = os.open(name, os.O_RDONLY | flags, dir_fd=directory)
        os.fchmod(inner, 0o700)
    except PermissionError:
        change_mode(directory, name, 0o700)
        inner = os.open(name, os.O_RDONLY | flags, dir_fd=directory)
    try:
        names = os.listdir(inner)
        while names:
            for below in names:
                if not _is_folder(inner, below):
                    os.unlink(below, dir_fd=inner)
                elif len(above) < _NESTED:
                    remove_tree(inner, below, (*above, inner))
                else:
                    change_mode(inner, below, 0o700)
                    os.rename(below, secrets.token_hex(16), src_dir_fd=inner, dst_dir_fd=above[0])
            names = [] if above else os.listdir(inner)  # what came up
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=directory)


@contextlib.contextmanager
def _free_later(directory: int, move: Move) -> Iterator[None]:
    """Holds a large replaced file open until its name is gone, and closes it in a thread.

    The file system frees the space when nothing holds the file any more. That can take longer than to write the new
    one, and nobody has to wait for it.
    """
    held = -1
    if _HOLD is not None and move.found is not None and move.found.st_size >= LARGE:
        with contextlib.suppress(OSError):  # it is not there, or there are too many open files
            held = os.open(move.backup, _HOLD, dir_fd=directory)
    try:
        yield
    finally:
        if held >= 0:
            try:
                threading.Thread(target=os.close, args=(held,), name="forge-free", daemon=True).start()
            except RuntimeError:  # there are too many threads, or the program ends
                os.close(held)


class JournalNote:
    """The note of one commit, which its owner keeps locked."""

    def __init__(
        self,
        workspace: Path,
        moves: Sequence[Move],
        folders: Sequence[Location],
        removed: Sequence[Location] = (),
        modes: Sequence[FolderMode] = (),
        decision: Decision | None = None,
    ) -> None:
        """`folders` are made. `modes` are set and `removed` are removed in the end."""
        self._folder = state_directory(workspace, FOLDER)
        self._path, self._file = _new_note(self._folder)
        try:
            self._add(
                {
                    "moves": [_encode_move(move) for move in moves],
                    "folders": [_encode_location(one) for one in folders],
                    "removed": [_encode_location(one) for one in removed],
                    "modes": [[*_encode_location(one.location), one.mode] for one in modes],
                    "decision": None if decision is None else [str(decision.store), decision.key],
                }
            )
        except BaseException:
            self.close()
            raise

    def mark_staged(self, moves: Sequence[Move]) -> None:
        """Records that all new files are made and none is in place yet. The record is on disk when this returns."""
        self._add({"staged": [move.new for move in moves]})
        os.fsync(self._file)
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def mark_done(self) -> None:
        """Records that all files are in place: from here on nothing is reverted, only tidied up."""
        self._add({"done": True})

    def close(self, *, keep: bool = False) -> None:
        """Removes the note, or leaves it to the next start."""
        try:
            if not keep:
                with contextlib.suppress(OSError):
                    os.unlink(self._path)
        finally:
            os.close(self._file)

    def _add(self, line: dict[str, Any]) -> None:
        seal = ""
        with contextlib.suppress(ToolError):  # without a usable key, a person has to tidy up after a killed process
            seal = seal_part(_sealed_name(self._path), json.dumps(line).encode())
        append_whole(self._file, json.dumps({**line, SEAL: seal}).encode() + b"\n")


def _sealed_name(path: Path) -> Path:
    """Returns the name under which a note is sealed: that of a file in the state directory."""
    return path.parent.parent / path.name


def _new_note(folder: Path) -> tuple[Path, int]:
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        path = folder / f"{os.urandom(8).hex()}.note"
        file = os.open(path, flags, 0o600)
        try:
            if _is_locked(file):
                return path, file
        except BaseException:
            os.unlink(path)
            os.close(file)
            raise
        os.close(file)


def _is_locked(file: int) -> bool:
    """Returns whether the note is locked now; otherwise a recovering process took it for an orphan and removes it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # a file system without locks, where nobody can lock it to recover it either
    return os.fstat(file).st_nlink > 0


def recover(workspace: Path, roots: Iterable[Path] = ()) -> list[str]:
    """Reverts what killed processes left half-done in the workspace and the other roots. Returns one line for each
    change.

    Safe to call at any time, by several processes at once, and again and again.
    """
    allowed = {os.path.realpath(one) for one in (workspace, *roots)}
    said: list[str] = []
    for path in _list_notes(workspace):
        with _lock_orphan(path) as file:
            if file is not None:
                said += _recover_note(path, file, allowed, os.path.realpath(workspace))
    return said


_recovered: set[Path] = set()


def recover_once(scope: Scope) -> None:
    """Recovers before this process changes the first file of a workspace; logs what was reverted."""
    if scope.workspace in _recovered:
        return
    _recovered.add(scope.workspace)
    for line in recover(scope.workspace, [root.path for root in scope.roots]):
        log.warning("%s", line)


def _list_notes(workspace: Path) -> list[Path]:
    temporary = find_state(workspace, FOLDER)
    folders = set() if temporary is None else {temporary}
    try:
        if os.path.isdir(workspace / NAME) or not os.access(workspace, os.W_OK):
            folders.add(state_directory(workspace, FOLDER))
        return sorted(folder / name for folder in folders for name in os.listdir(folder) if _NOTE.fullmatch(name))
    except OSError:
        return []


@contextlib.contextmanager
def _lock_orphan(path: Path) -> Iterator[int | None]:
    """Yields the locked note; None if its owner lives, the note is gone, or it is not a file of this user."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        status = os.fstat(file)
        ours = stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid() and status.st_size <= LARGEST_NOTE
        yield file if ours and status.st_nlink else None
    except OSError:
        yield None
    finally:
        os.close(file)


def _recover_note(path: Path, file: int, allowed: set[str], workspace: str) -> list[str]:
    try:
        note = _decode_note(os.pread(file, LARGEST_NOTE, 0), workspace, _sealed_name(path))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        os.unlink(path)
        return [f"removed {path.name}, which is not a note of Forge: {error}"]
    if not {str(one.root) for one in note.locations} <= allowed:
        return []  # of another workspace, or of a root that is not declared now
    try:
        with lock_directories(note.locations, _PATIENCE):
            is_done = note.is_done or (note.decision is not None and _is_decided(*note.decision))
            since = os.fstat(file).st_mtime_ns
            problems = [_recover_move(move, since, is_done=is_done) for move in note.moves]
            if is_done:
                finish_folders(note.removed, note.modes)
            for folder in () if is_done else reversed(note.folders):
                _remove_empty(folder)
    except (ToolError, OSError, sqlite3.Error) as error:
        return [f"an unfinished change could not be reverted yet: {error}"]
    os.unlink(path)
    return _describe_recovery(note, [one for one in problems if one], is_done=is_done)


def _is_decided(store: str, key: str) -> bool:
    """Returns whether the transaction of a decision was made. Raises `sqlite3.Error` if the database cannot say."""
    if not os.path.exists(store):
        return False
    with contextlib.closing(sqlite3.connect(f"{Path(store).as_uri()}?mode=ro", uri=True)) as database:
        if database.execute("SELECT 1 FROM sqlite_master WHERE name = 'rewinds'").fetchone() is None:
            return False
        return database.execute("SELECT 1 FROM rewinds WHERE key = ?", (key,)).fetchone() is not None


def _recover_move(move: Move, since: int, *, is_done: bool) -> str:
    try:
        directory = open_directory(move.location.parent)
    except ToolError as error:
        if error.kind is ErrorKind.NOT_FOUND:
            return ""
        raise
    try:
        if not is_done:
            return revert_move(directory, move, since)
        remove_temporaries(directory, move)
        return ""
    finally:
        os.close(directory)


def finish_folders(removed: Sequence[Location], modes: Sequence[FolderMode]) -> None:
    """Removes folders, the innermost last in the list first, and sets modes. Raises `OSError`."""
    for folder in reversed(removed):
        _remove_empty(folder)
    for location, mode in reversed(modes):
        try:
            directory = open_directory(location)
        except ToolError:  # it was removed or replaced meanwhile
            continue
        try:
            os.fchmod(directory, mode)
        finally:
            os.close(directory)


def _remove_empty(folder: Location) -> None:
    try:
        directory = open_directory(folder.parent)
    except ToolError:
        return
    try:
        with contextlib.suppress(OSError):  # not empty, or not there
            os.rmdir(folder.name, dir_fd=directory)
    finally:
        os.close(directory)


class _Note(NamedTuple):
    """A note as it was read."""

    moves: list[Move]
    folders: list[Location]
    removed: list[Location]
    modes: list[FolderMode]
    decision: tuple[str, str] | None
    is_done: bool

    @property
    def locations(self) -> list[Location]:
        moved = [move.location for move in self.moves]
        return [*moved, *self.folders, *self.removed, *(one.location for one in self.modes)]


def _describe_recovery(note: _Note, problems: list[str], *, is_done: bool) -> list[str]:
    locations = [move.location for move in note.moves] or [*note.removed, *(one.location for one in note.modes)]
    if not locations:
        return []
    names = ", ".join(one.shown for one in locations[:5]) + (" …" if len(locations) > 5 else "")
    did = "cleaned up after" if is_done else "reverted"
    return [f"{did} a change of {names} by a process that was killed", *problems]


def _encode_move(move: Move) -> list[Any]:
    return [*_encode_location(move.location), move.deletes, move.temporary, move.backup]


def _encode_location(location: Location) -> list[str]:
    return [str(location.root), location.relative]


def _decode_note(content: bytes, workspace: str, place: Path) -> _Note:
    """Parses a note. Raises `ValueError` for content that no commit has written."""
    lines = [json.loads(line) for line in content.split(b"\n")[:-1]]  # what follows the last line end was cut off
    if not lines:
        return _Note([], [], [], [], None, False)
    for line in lines:
        seal = str(line.pop(SEAL, ""))
        if problem := find_problem(place, json.dumps(line).encode(), seal):
            raise ValueError(problem)
    first = lines[0]
    moves = [
        Move(
            _decode_location(root, relative, workspace),
            deletes is True,
            _check_temporary_name(temporary),
            _check_temporary_name(backup),
        )
        for root, relative, deletes, temporary, backup in first["moves"]
    ]
    for line in lines[1:2]:
        for move, new in zip(moves, line["staged"], strict=True):
            move.new = Identity(*map(int, new)) if new is not None else None
    folders, removed = (
        [_decode_location(root, relative, workspace) for root, relative in first.get(name, ())]
        for name in ("folders", "removed")
    )
    modes = [
        FolderMode(_decode_location(root, relative, workspace), int(mode) & 0o7777)
        for root, relative, mode in first.get("modes", ())
    ]
    store, key = first.get("decision") or ("", "")
    decision = (str(store), str(key)) if store else None
    return _Note(moves, folders, removed, modes, decision, any("done" in line for line in lines[1:]))


def _decode_location(root: str, relative: str, workspace: str) -> Location:
    if not os.path.isabs(root) or {"", ".", ".."} & set(relative.split("/")) or "\0" in relative:
        raise ValueError("a path in it leads elsewhere")
    return Location(Path(root), relative, relative if root == workspace else f"{root}/{relative}")


def _check_temporary_name(temporary: str) -> str:
    if not _TEMPORARY.fullmatch(temporary):
        raise ValueError("a name in it is not of a temporary file")
    return temporary
