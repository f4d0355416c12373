"""Manages the state directory `.forge/` of a workspace, readable by its owner alone."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from forge.core.context import CurrentDirectory
from forge.core.errors import ToolError
from forge.core.files import check_held
from forge.core.plain_values import sendable

NAME = ".forge"
KEY = "state.key"  # of the seals, in the user's configuration directory
STRAY = ".forge-tmp-"  # prefix of temporary files beside their targets


def state_directory(workspace: Path, *parts: str) -> Path:
    """Returns `.forge/parts…`, made if missing; a private temporary directory if the workspace cannot be written.

    Also returns a temporary one if nobody gave the workspace and it has no `.forge`, if `.forge` was not made here,
    since a clone may bring sessions, schedules and approvals that nobody gave, and if the workspace's directory was
    replaced.
    """
    if not isinstance(workspace, CurrentDirectory) or (workspace / NAME).is_dir():
        with contextlib.suppress(OSError, ToolError):
            check_held([workspace])
            return _make_directory(workspace / NAME, parts, marked=True)
    root, mark = _temporary_directory(workspace)
    return _make_directory(root, (mark, *parts))


def find_state(workspace: Path, *parts: str) -> Path | None:
    """Returns the temporary directory of a workspace that nobody gave, if it is there; makes nothing."""
    if not isinstance(workspace, CurrentDirectory):
        return None
    path = Path(*_temporary_directory(workspace), *parts)
    return path if path.is_dir() else None


def _temporary_directory(workspace: Path) -> tuple[Path, str]:
    import tempfile  # only for a workspace without a directory of its own
    from hashlib import sha256

    user = os.getuid() if hasattr(os, "getuid") else 0
    mark = sha256(os.fsencode(workspace.absolute())).hexdigest()[:16]  # workspaces must not share approvals or notes
    return Path(tempfile.gettempdir()) / f"forge-{user}", mark


def explain_unusable(workspace: Path) -> tuple[str, str]:
    """Returns why a workspace's own directory is not used, and a suggestion."""
    if is_foreign(workspace / NAME):
        return (
            f"{workspace / NAME} was not made by Forge on this machine, and is not used",
            "Run `forge trust` to review and trust it, or move it away.",
        )
    return f"{workspace / NAME} cannot be written", "Make it writable, or choose another workspace."


def write_private(path: Path, content: str | bytes | Iterable[str | bytes]) -> None:
    """Writes a new file that only its owner can read; refuses an existing one or a planted link.

    Writes all of it, or no file at all.
    """
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(file, "wb") as stream:
            for piece in [content] if isinstance(content, str | bytes) else content:
                stream.write(sendable(piece).encode() if isinstance(piece, str) else piece)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def write_first(path: Path, content: str | bytes) -> None:
    """Writes a new private file, whole or not at all. Of several processes that make one, the first wins."""
    beside = path.with_name(f"{STRAY}{os.urandom(8).hex()}")
    write_private(beside, content)
    try:
        with contextlib.suppress(FileExistsError):
            os.link(beside, path)
    finally:
        beside.unlink()


def append_whole(file: int, line: bytes) -> None:
    """Appends a whole line, in one write if possible, or nothing: a partial write on a full disk is undone."""
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
    """Removes the oldest files of a folder beyond `files` files or `size` bytes; keeps the newest one."""
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


def make_key() -> None:
    """Makes the key of the seals before a program runs, which could make one that it knows."""
    key_file = config_file(KEY)
    if key_file is not None and not os.path.lexists(key_file):
        from forge.workspace.state.sealing import is_sealed_place  # once for each user

        is_sealed_place(Path(NAME, KEY))


def _make_directory(root: Path, parts: tuple[str, ...], *, marked: bool = False) -> Path:
    root.mkdir(mode=0o700, exist_ok=True)
    status = root.lstat()
    if not root.is_dir() or root.is_symlink() or (hasattr(os, "getuid") and status.st_uid != os.getuid()):
        raise OSError(f"{root} is not a directory of this user")
    if marked and not is_own(root):
        raise OSError(f"{root} was not made here")
    if marked:
        make_key()
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
        if path.is_symlink():  # a clone may bring links: old files are removed here, and must be ours
            raise OSError(f"{path} is a link")
    return path


# State directories that a clone or an archive brought are not used before they are trusted. Forge's mark in a directory
# holds values that nobody else can know in advance: this machine's id and the directory's own inode number. A copied,
# cloned or unpacked directory has another number.


MARK = "made-here"
LONGEST_MARK = 200  # bytes of a mark
_IDS = ("/etc/machine-id", "/var/lib/dbus/machine-id")
_HARMLESS = (".gitignore", "memory", MARK)  # notes are written by people and belong to the project, as its skills do
_known: set[tuple[str, int]] = set()  # directories that this process found to be its own


def is_own(directory: Path) -> bool:
    """Returns whether the directory was made or trusted here. Marks one that holds only notes. Raises `OSError`."""
    number = os.lstat(directory).st_ino
    if (str(directory), number) in _known:
        return True
    if not _is_marked(directory, number):
        if not _is_harmless(directory):
            return False
        mark_own(directory)
    _known.add((str(directory), number))
    return True


def mark_own(directory: Path) -> None:
    """Marks the directory as made here. Raises `OSError`."""
    # another process, which writes the same mark, never sees a part of it
    replace_file(directory / MARK, _compute_mark(os.lstat(directory).st_ino), lasting=False)


def is_foreign(directory: Path) -> bool:
    """Returns whether the directory exists and was not made here. Changes nothing, never raises."""
    try:
        number = os.lstat(directory).st_ino
        known = (str(directory), number) in _known or _is_marked(directory, number)
        return directory.is_dir() and not known and not _is_harmless(directory)
    except OSError:
        return False


def _is_marked(directory: Path, number: int) -> bool:
    mark = _read_mark(directory)
    return bool(mark) and mark == _compute_mark(number)


def _is_harmless(directory: Path) -> bool:
    """Returns whether the directory holds only notes, and files of a process that is making it right now."""
    return all(name in _HARMLESS or name.startswith(STRAY) for name in os.listdir(directory))


def _read_mark(directory: Path) -> str:
    try:
        file = os.open(directory / MARK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    with os.fdopen(file, "rb") as stream:
        return stream.read(LONGEST_MARK).decode("ascii", "replace")


def _compute_mark(number: int) -> str:
    from hashlib import sha256  # needed once for each directory

    user = os.getuid() if hasattr(os, "getuid") else 0
    return sha256(f"forge state {_machine_id()} {user} {number}".encode()).hexdigest()


@cache
def _machine_id() -> str:
    """Returns an id of this machine, which is never shown; empty where there is none, as in many containers: then the
    directory's number alone identifies it.
    """
    for path in _IDS:
        with contextlib.suppress(OSError, ValueError), open(path, encoding="ascii") as stream:
            if found := stream.read(LONGEST_MARK).strip():
                return found
    if sys.platform.startswith("linux"):
        return ""
    import uuid

    card = uuid.getnode()
    return "" if card >> 40 & 1 else f"{card:x}"  # that bit marks a number that is random each time


# Replaces a file atomically, also when the power fails.


def replace_file(path: Path, content: str | bytes, mode: int = 0o600, *, lasting: bool = True) -> None:
    """Replaces a file, readable by its owner alone unless `mode` says otherwise. On `OSError` the old file stays.

    Without `lasting`, a power failure may lose the new content.
    """
    beside = path.with_name(f"{STRAY}{os.urandom(8).hex()}")
    file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(file, "wb") as stream:
            stream.write(content.encode() if isinstance(content, str) else content)
            if mode != 0o600:
                os.fchmod(file, mode)  # whatever the umask
            stream.flush()
            if lasting:
                os.fsync(file)
        os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise


# Finds Forge's files in the home directory of the user, as the XDG standard places them.


def config_file(name: str, environment: Mapping[str, str] = os.environ) -> Path | None:
    """Returns `$XDG_CONFIG_HOME/forge/NAME` or `~/.config/forge/NAME`; None without a home directory."""
    return _file_in_home(environment, "XDG_CONFIG_HOME", ".config", name)


def data_file(name: str, environment: Mapping[str, str] = os.environ) -> Path | None:
    """Returns `$XDG_DATA_HOME/forge/NAME` or `~/.local/share/forge/NAME`; None without a home directory."""
    return _file_in_home(environment, "XDG_DATA_HOME", ".local/share", name)


def _file_in_home(environment: Mapping[str, str], variable: str, folder: str, name: str) -> Path | None:
    if (given := environment.get(variable, "")).startswith("/"):  # the standard ignores relative paths
        return Path(given, "forge", name)
    home_directory = environment.get("HOME", "")
    return Path(home_directory, folder, "forge", name) if home_directory.startswith("/") else None
