"""Where Forge keeps what it must remember: `.forge/` in the workspace, readable by its owner alone."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from forge.core.errors import ToolError
from forge.core.held_directories import check_held
from forge.core.plain_values import sendable
from forge.workspace.state.ownership import is_foreign, is_own

NAME = ".forge"
STRAY = ".forge-tmp-"  # how the temporary files begin that are made beside their targets


def state_directory(workspace: Path, *parts: str) -> Path:
    """`.forge/parts…`, made when it is missing; a private temporary one where the workspace cannot be written.

    The same where it was not made here: a clone may bring sessions, schedules and approvals that nobody gave. And where
    another directory was put in the workspace's place.
    """
    try:
        check_held([workspace])
        return _made(workspace / NAME, parts, marked=True)
    except (OSError, ToolError):
        import tempfile  # only for a workspace that cannot be written
        from hashlib import sha256

        user = os.getuid() if hasattr(os, "getuid") else 0
        mark = sha256(os.fsencode(workspace.absolute())).hexdigest()[:16]  # what one approves or notes is not another's
        return _made(Path(tempfile.gettempdir()) / f"forge-{user}", (mark, *parts))


def why_not(workspace: Path) -> tuple[str, str]:
    """What is wrong with a workspace's own directory, which `state_directory` did not give; and a way on."""
    if is_foreign(workspace / NAME):
        return (
            f"{workspace / NAME} was not made by Forge on this machine, and is not used",
            "`forge trust` shows and accepts it; or move it away.",
        )
    return f"{workspace / NAME} cannot be written", "Make it writable, or choose another workspace."


def write_private(path: Path, content: str | bytes | Iterable[str]) -> None:
    """Write a new file that only its owner can read; an existing one, or a link planted in its place, is refused.

    All of it, or no file at all.
    """
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(file, "wb") as stream:
            for piece in [content] if isinstance(content, str | bytes) else content:
                stream.write(sendable(piece).encode() if isinstance(piece, str) else piece)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def append_whole(file: int, line: bytes) -> None:
    """Append all of a line, in one write if the system lets us, or nothing: what a full disk took is taken back."""
    written = os.write(file, line)
    if written == len(line):
        return
    start = _position(file) - written
    try:
        while written < len(line):
            written += os.write(file, line[written:])
    except OSError:
        is_last = os.fstat(file).st_size == _position(file) == start + written  # nobody else wrote meanwhile
        if is_last:
            os.ftruncate(file, start)
        raise


def keep_newest(folder: Path, files: int, size: int) -> None:
    """Remove the oldest files of a folder beyond so many, or so many bytes; the newest one stays."""
    found = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):  # another process may be cleaning up, too
                found.append((entry.stat(follow_symlinks=False), entry.path))
    found.sort(key=lambda one: one[0].st_mtime_ns, reverse=True)
    used = 0
    for position, (status, path) in enumerate(found):
        used += status.st_size
        if position and (position >= files or used > size):
            with contextlib.suppress(OSError):  # gone already, or a folder
                os.unlink(path)


def _position(file: int) -> int:
    try:
        return os.lseek(file, 0, os.SEEK_CUR)
    except OSError:  # a pipe or a terminal
        return -1


def _made(root: Path, parts: tuple[str, ...], *, marked: bool = False) -> Path:
    root.mkdir(mode=0o700, exist_ok=True)
    status = root.lstat()
    if not root.is_dir() or root.is_symlink() or (hasattr(os, "getuid") and status.st_uid != os.getuid()):
        raise OSError(f"{root} is not a directory of this user")
    if marked and not is_own(root):
        raise OSError(f"{root} was not made here")
    if status.st_mode & 0o077:
        root.chmod(0o700)
    ignore = root / ".gitignore"
    if not ignore.exists():
        with contextlib.suppress(FileExistsError):  # another process was faster
            write_private(ignore, "*\n")
    path = root
    for part in parts:
        path = path / part
        path.mkdir(mode=0o700, exist_ok=True)
        if path.is_symlink():  # of a clone, say: what is old is removed here, and must be ours
            raise OSError(f"{path} is a link")
    return path
