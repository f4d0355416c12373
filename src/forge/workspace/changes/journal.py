"""Notes of changes under way, so that what a killed process left half-way is taken back by the next one.

A note is made before anything else and its owner keeps a lock on it: a note that can be locked has a dead owner. Its
first line says which temporaries there may be. Where several files change together, the second says what the new ones
look like, before the first is put in its place, and the third that all of them are.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import logging
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from forge.core.context import Scope
from forge.core.errors import ErrorKind, ToolError
from forge.workspace.paths import Place
from forge.workspace.paths.locks import locked
from forge.workspace.paths.open import open_directory
from forge.workspace.state import NAME, STRAY, append_whole, state_directory

log = logging.getLogger(__name__)

FOLDER = "journal"
LONGEST = 16 * 1024 * 1024  # bytes of a note
NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})  # a file system without hard links

_TEMPORARY = re.compile(rf"{re.escape(STRAY)}[0-9a-f]{{16}}")
_NOTE = re.compile(r"[0-9a-f]{16}\.note")
_PATIENCE = 1.0  # seconds: another process may be changing files there, and the next start will do as well


class Identity(NamedTuple):
    """What tells a file from any other that took its place, or from itself after someone wrote to it."""

    inode: int
    size: int
    modified: int  # nanoseconds


@dataclass(slots=True)
class Move:
    """One file on its way: the new one is made under a temporary name, the old one is kept under another."""

    place: Place
    deletes: bool
    temporary: str
    kept: str
    found: os.stat_result | None = None  # what it replaces, as it was when the new one was staged
    new: Identity | None = None  # known once it is staged
    is_moved: bool = False  # the new one has no second name: this file system knows no hard links

    @classmethod
    def to(cls, place: Place, *, deletes: bool) -> Move:
        return cls(place, deletes, temporary_name(), temporary_name())


def temporary_name() -> str:
    return f"{STRAY}{os.urandom(8).hex()}"


def status_in(directory: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None


def identity(status: os.stat_result | None) -> Identity | None:
    return Identity(status.st_ino, status.st_size, status.st_mtime_ns) if status is not None else None


def put_in_gap(directory: int, source: str, target: str) -> bool:
    """Give `source` the name `target`, which must be free. Whether `source` is still there, as a second name."""
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


def take_back(directory: int, move: Move) -> str:
    """Make it as if the move had not begun. What could not be, in words: somebody else has changed the file since."""
    there = identity(status_in(directory, move.place.name))
    kept = identity(status_in(directory, move.kept))
    problem = ""
    if move.deletes:
        if kept is not None and there is None:
            put_in_gap(directory, move.kept, move.place.name)
    elif move.new is not None and there == move.new:
        problem = _replaced_back(directory, move, kept is not None)
    elif move.new is not None and there is not None and there.inode == move.new.inode:
        problem = f"{move.place.shown} was changed since and is left as it is"
    sweep(directory, move)
    return problem


def _replaced_back(directory: int, move: Move, is_kept: bool) -> str:
    name, temporary = move.place.name, identity(status_in(directory, move.temporary))
    if is_kept:
        os.rename(move.kept, name, src_dir_fd=directory, dst_dir_fd=directory)
    elif move.is_moved or temporary == move.new:  # never on the word of a note alone: it may be a planted one
        os.unlink(name, dir_fd=directory)
    else:
        return f"{move.place.shown} was made and is left as it is"
    return ""


def sweep(directory: int, move: Move) -> None:
    """Remove the temporaries of a move."""
    for name in (move.temporary, move.kept):
        try:
            os.unlink(name, dir_fd=directory)
        except FileNotFoundError:
            pass
        except OSError:
            if status_in(directory, name) is not None:  # where nothing can be written, not even ENOENT is said
                raise


class Note:
    """The note of one commit, locked by its owner as long as it lives."""

    def __init__(self, workspace: Path, moves: Sequence[Move], folders: Sequence[Place]) -> None:
        self._folder = state_directory(workspace, FOLDER)
        self._path, self._file = _new_note(self._folder)
        try:
            self._add({"moves": [_written(move) for move in moves], "folders": [_where(one) for one in folders]})
        except BaseException:
            self.close()
            raise

    def staged(self, moves: Sequence[Move]) -> None:
        """Everything is made and nothing in its place yet. On the disk before this returns."""
        self._add({"staged": [move.new for move in moves]})
        os.fsync(self._file)
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def done(self) -> None:
        """Everything is in its place: from here on there is no way back, only tidying up."""
        self._add({"done": True})

    def close(self, *, keep: bool = False) -> None:
        """Remove it, or leave it to the next start."""
        try:
            if not keep:
                with contextlib.suppress(OSError):
                    os.unlink(self._path)
        finally:
            os.close(self._file)

    def _add(self, line: dict[str, Any]) -> None:
        append_whole(self._file, json.dumps(line).encode() + b"\n")


def _new_note(folder: Path) -> tuple[Path, int]:
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        path = folder / f"{os.urandom(8).hex()}.note"
        file = os.open(path, flags, 0o600)
        try:
            if _is_held(file):
                return path, file
        except BaseException:
            os.unlink(path)
            os.close(file)
            raise
        os.close(file)


def _is_held(file: int) -> bool:
    """Whether the note is locked now; otherwise somebody who recovers took it for a dead owner's, and removes it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # a file system without locks, where nobody can lock it to recover it either
    return os.fstat(file).st_nlink > 0


def recover(workspace: Path, roots: Iterable[Path] = ()) -> list[str]:
    """Take back what killed processes left half-way in the workspace and the further roots. What was done, in words.

    Safe to call at any time, by several processes at once, and again and again.
    """
    allowed = {os.path.realpath(one) for one in (workspace, *roots)}
    said: list[str] = []
    for path in _notes(workspace):
        with _orphan(path) as file:
            if file is not None:
                said += _settled(path, file, allowed, os.path.realpath(workspace))
    return said


_recovered: set[Path] = set()


def recover_once(scope: Scope) -> None:
    """The same before a process changes the first file of a workspace; what was done is logged."""
    if scope.workspace in _recovered:
        return
    _recovered.add(scope.workspace)
    for line in recover(scope.workspace, [root.path for root in scope.roots]):
        log.warning("%s", line)


def _notes(workspace: Path) -> list[Path]:
    is_there = os.path.isdir(workspace / NAME)
    if not is_there and os.access(workspace, os.W_OK):
        return []
    try:
        folder = state_directory(workspace, FOLDER)
        return sorted(folder / name for name in os.listdir(folder) if _NOTE.fullmatch(name))
    except OSError:
        return []


@contextlib.contextmanager
def _orphan(path: Path) -> Iterator[int | None]:
    """The note, locked; None when its owner lives, or it is gone, or no file of this user."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        status = os.fstat(file)
        ours = stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid() and status.st_size <= LONGEST
        yield file if ours and status.st_nlink else None
    except OSError:
        yield None
    finally:
        os.close(file)


def _settled(path: Path, file: int, allowed: set[str], workspace: str) -> list[str]:
    try:
        moves, folders, is_done = _read(os.pread(file, LONGEST, 0), workspace)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        os.unlink(path)
        return [f"removed {path.name}, which is no note of Forge's: {error}"]
    if not {str(one.root) for one in [*folders, *(move.place for move in moves)]} <= allowed:
        return []  # of another workspace, or of a root that is not declared now
    try:
        with locked([move.place for move in moves], _PATIENCE):
            problems = [_resolved(move, is_done=is_done) for move in moves]
            for folder in () if is_done else reversed(folders):
                _remove_empty(folder)
    except (ToolError, OSError) as error:
        return [f"a change that was left half-way could not be taken back yet: {error}"]
    os.unlink(path)
    return _report(moves, [one for one in problems if one], is_done=is_done)


def _resolved(move: Move, *, is_done: bool) -> str:
    try:
        directory = open_directory(move.place.parent)
    except ToolError as error:
        if error.kind is ErrorKind.NOT_FOUND:
            return ""
        raise
    try:
        if not is_done:
            return take_back(directory, move)
        sweep(directory, move)
        return ""
    finally:
        os.close(directory)


def _remove_empty(folder: Place) -> None:
    try:
        directory = open_directory(folder.parent)
    except ToolError:
        return
    try:
        with contextlib.suppress(OSError):  # not empty, or not there
            os.rmdir(folder.name, dir_fd=directory)
    finally:
        os.close(directory)


def _report(moves: Sequence[Move], problems: list[str], *, is_done: bool) -> list[str]:
    if not moves:
        return []
    names = ", ".join(move.place.shown for move in moves[:5]) + (" …" if len(moves) > 5 else "")
    did = "tidied up after" if is_done else "took back"
    return [f"{did} a change of {names} by a process that was killed", *problems]


def _written(move: Move) -> list[Any]:
    return [*_where(move.place), move.deletes, move.temporary, move.kept]


def _where(place: Place) -> list[str]:
    return [str(place.root), place.relative]


def _read(content: bytes, workspace: str) -> tuple[list[Move], list[Place], bool]:
    """What a note says. Raises `ValueError` for what no commit has written."""
    lines = [json.loads(line) for line in content.split(b"\n")[:-1]]  # what follows the last line end was cut off
    if not lines:
        return [], [], False
    moves = [
        Move(_place(root, relative, workspace), deletes is True, _named(temporary), _named(kept))
        for root, relative, deletes, temporary, kept in lines[0]["moves"]
    ]
    for line in lines[1:2]:
        for move, new in zip(moves, line["staged"], strict=True):
            move.new = Identity(*map(int, new)) if new is not None else None
    folders = [_place(root, relative, workspace) for root, relative in lines[0]["folders"]]
    return moves, folders, any("done" in line for line in lines[1:])


def _place(root: str, relative: str, workspace: str) -> Place:
    if not os.path.isabs(root) or {"", ".", ".."} & set(relative.split("/")) or "\0" in relative:
        raise ValueError("a path in it leads elsewhere")
    return Place(Path(root), relative, relative if root == workspace else f"{root}/{relative}")


def _named(temporary: str) -> str:
    if not _TEMPORARY.fullmatch(temporary):
        raise ValueError("a name in it is none of a temporary file")
    return temporary
