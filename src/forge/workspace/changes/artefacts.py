"""Writes files for the person to take away: completely or not at all, in a directory that no link leads out of."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from forge.core.errors import ErrorKind, ToolError
from forge.workspace.changes.journal import temporary_name
from forge.workspace.paths.open import explain_errors
from forge.workspace.state import NAME, state_directory

FOLDER = "files"
TEMPORARY = "forge-files"  # in the system's temporary directory, where the workspace cannot be written

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Artefact(NamedTuple):
    """A file that was written."""

    path: Path
    replaced: bool  # True: a file of that name existed


def write_artefact(workspace: Path, name: str, content: bytes) -> Artefact:
    """Writes a file into `.forge/files/`. Replaces a file or link of that name; refuses a directory."""
    with explain_errors(f"{NAME}/{FOLDER}/{name}", "write"), _open_folder(workspace) as (path, folder):
        replaced = _exists(name, folder)
        temporary = temporary_name()
        try:
            with open(os.open(temporary, _NEW, 0o600, dir_fd=folder), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise
        with suppress(OSError):  # the file is in place; some file systems cannot sync a directory
            os.fsync(folder)
        return Artefact(path / name, replaced)


@contextmanager
def _open_folder(workspace: Path) -> Iterator[tuple[Path, int]]:
    """Yields the directory and a descriptor of it. The last names of its path are not links."""
    if (workspace / NAME / FOLDER).is_symlink():
        raise _link_error(workspace / NAME / FOLDER)
    path = state_directory(workspace, FOLDER)
    if path.parent != workspace / NAME:
        path = _project_directory(_private_directory(Path(tempfile.gettempdir()) / TEMPORARY), workspace)
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    above = os.open(path.parent, flags if path.parent.name == NAME else flags & ~os.O_NOFOLLOW)
    try:
        folder = os.open(path.name, flags, dir_fd=above)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        raise _link_error(path) from None
    finally:
        os.close(above)
    try:
        yield path, folder
    finally:
        os.close(folder)


def _link_error(path: Path) -> ToolError:
    return ToolError(
        f"{path} is a link, or not a directory",
        ErrorKind.SECURITY,
        "The person can remove it; Forge then creates it again.",
    )


def _private_directory(path: Path) -> Path:
    """Returns a directory that only this user can use: `path`, or a new one if another user owns `path`."""
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    status = path.lstat()
    if stat.S_ISDIR(status.st_mode) and (not hasattr(os, "getuid") or status.st_uid == os.getuid()):
        path.chmod(0o700)
        return path
    return Path(tempfile.mkdtemp(prefix=f"{TEMPORARY}-"))


def _project_directory(folder: Path, workspace: Path) -> Path:
    """Makes a subdirectory for this workspace: files of the same name from two projects must not collide."""

    path = folder / sha256(os.fsencode(os.path.realpath(workspace))).hexdigest()[:16]
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    return path


def _exists(name: str, folder: int) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
