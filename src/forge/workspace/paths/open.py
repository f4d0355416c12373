"""Opens files at a location, so that no link put there meanwhile leads out of the root and no special file blocks."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from forge.core.context import Scope
from forge.core.errors import ErrorKind, ToolError
from forge.core.files import find_held
from forge.workspace.paths import Location, PathValidator, quote_path

_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC  # a FIFO without a writer must not hang
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_PASS_THROUGH = os.O_DIRECTORY | os.O_CLOEXEC | getattr(os, "O_PATH", 0)  # a directory that is only passed through
_OPENAT2 = 437  # the same number on every architecture
_NO_MAGIC_LINKS, _NO_LINKS, _BENEATH = 0x02, 0x04, 0x08
_SPECIAL = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def _open_unsaved(content: bytes) -> int:
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("forge-unsaved")
    else:  # macOS
        import tempfile

        with tempfile.TemporaryFile() as nameless:
            descriptor = os.dup(nameless.fileno())
    with open(os.dup(descriptor), "wb") as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def open_file(location: Location) -> int:
    """Opens a regular file, or an editor's text of it, for reading; the caller closes the descriptor."""
    if location.unsaved is not None:
        return _open_unsaved(location.unsaved)
    with explain_errors(location.shown):
        descriptor = open_at(location, _READ)
    try:
        with explain_errors(location.shown):
            _check_regular(descriptor, location.shown)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def open_directory(location: Location) -> int:
    """Opens the directory at a location, for `os.scandir` and as `dir_fd`; the caller closes the descriptor."""
    with explain_errors(location.shown):
        return open_at(location, _DIRECTORY)


def status_of(location: Location) -> os.stat_result | None:
    """Returns the status at a location, of a link itself; None if nothing exists there."""
    with explain_errors(location.shown):
        try:
            if location.relative == ".":
                held = find_held(location.root)
                return os.stat(location.root) if held is None else os.fstat(held.descriptor)
            parent = open_at(location.parent, _PASS_THROUGH)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            return os.stat(location.name, dir_fd=parent, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None
        finally:
            os.close(parent)


def is_link(location: Location) -> bool:
    status = status_of(location)
    return status is not None and stat.S_ISLNK(status.st_mode)


def read_file(scope: Scope, path: str, limit: int) -> bytes:
    """Returns the whole content of a file of the workspace, at most `limit` bytes."""
    location = PathValidator.of(scope).resolve(path)
    with open(open_file(location), "rb") as file, explain_errors(location.shown):
        content = file.read(limit + 1)
        if len(content) <= limit:
            return content
        size = os.fstat(file.fileno()).st_size
    raise ToolError(
        f"{quote_path(location.shown)} has {max(size, limit + 1):,} bytes, the limit is {limit:,}",
        ErrorKind.USER,
        "Make a smaller file of the part that matters.",
    )


def read_head(scope: Scope, path: str, size: int = 4096) -> bytes:
    """Returns the beginning of a file of the workspace: enough to tell what it is."""
    location = PathValidator.of(scope).resolve(path)
    with open(open_file(location), "rb") as file, explain_errors(location.shown):
        return file.read(size)


def open_at(location: Location, flags: int, mode: int = 0) -> int:
    """Opens a location below its root without following links; a held root is not looked up again. Raises `OSError`."""
    if (held := find_held(location.root)) is not None:
        return _open_below(held.descriptor, location.relative, flags, mode)
    try:
        top = os.open(location.root, _PASS_THROUGH)
    except OSError as error:
        problem = f"the workspace cannot be opened: {error.strerror}"
        raise ToolError(problem, ErrorKind.CONFIG, "Name an existing directory as the workspace.") from None
    try:
        return _open_below(top, location.relative, flags, mode)
    finally:
        os.close(top)


@contextmanager
def explain_errors(shown: str, doing: str = "read") -> Iterator[None]:
    """Turns an `OSError` about a path into a `ToolError` that a model can act on."""
    try:
        yield
    except OSError as error:
        number = error.errno or 0
        problem, kind, suggestion = _EXPLANATIONS.get(
            number, (f"cannot be {doing}: {error.strerror}", ErrorKind.SYSTEM, "")
        )
        past = {"read": "read", "write": "written"}.get(doing, doing)
        raise ToolError(f"{quote_path(shown)} {problem.format(doing=past)}", kind, suggestion) from None


def _open_below(top: int, relative: str, flags: int, mode: int) -> int:
    if _has_openat2():
        for _ in range(8):  # EAGAIN: something was renamed meanwhile
            descriptor, problem = _openat2(top, relative, flags, mode)
            if problem == 0:
                return descriptor
            if problem != errno.EAGAIN:
                break
        raise OSError(problem, os.strerror(problem))
    return _open_stepwise(top, relative, flags, mode)


def _openat2(top: int, relative: str, flags: int, mode: int) -> tuple[int, int]:
    """Returns a descriptor, or -1 and the error's number."""
    import ctypes  # slow to import, needed once a file is opened

    how = (ctypes.c_uint64 * 3)(flags, mode, _BENEATH | _NO_LINKS | _NO_MAGIC_LINKS)
    descriptor = _syscall()(
        ctypes.c_long(_OPENAT2),
        ctypes.c_int(top),
        ctypes.c_char_p(os.fsencode(relative)),
        ctypes.byref(how),
        ctypes.c_size_t(ctypes.sizeof(how)),
    )
    return descriptor, ctypes.get_errno() if descriptor < 0 else 0


@cache
def _syscall() -> Any:
    import ctypes

    syscall = ctypes.CDLL(None, use_errno=True).syscall
    syscall.restype = ctypes.c_long
    return syscall


@cache
def _has_openat2() -> bool:
    if sys.platform != "linux":
        return False
    top = os.open("/", _PASS_THROUGH)
    try:
        descriptor, problem = _openat2(top, ".", _DIRECTORY, 0)
    except ImportError:  # a Python built without ctypes
        return False
    finally:
        os.close(top)
    if problem == 0:
        os.close(descriptor)
    return problem not in (errno.ENOSYS, errno.EPERM)  # EPERM: a seccomp filter that does not know the call


def _open_stepwise(top: int, relative: str, flags: int, mode: int) -> int:
    """Opens each component in turn, never following a link: used if the kernel has no openat2."""
    *above, last = relative.split("/")
    here = os.dup(top)
    try:
        for name in above:
            below = os.open(name, _PASS_THROUGH | os.O_NOFOLLOW, dir_fd=here)
            os.close(here)
            here = below
        return os.open(last, flags | os.O_NOFOLLOW, mode, dir_fd=here)
    finally:
        os.close(here)


def _check_regular(descriptor: int, shown: str) -> None:
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISDIR(mode):
        raise ToolError(f"{quote_path(shown)} is a directory", ErrorKind.USER, "Name a file in it.")
    if not stat.S_ISREG(mode):
        kind = _SPECIAL.get(stat.S_IFMT(mode), "not a regular file")
        raise ToolError(f"{quote_path(shown)} is {kind} and cannot be read", ErrorKind.SECURITY, "Name a regular file.")
    os.set_blocking(descriptor, True)


_EXPLANATIONS = {
    errno.ENOENT: ("does not exist", ErrorKind.NOT_FOUND, "Check the spelling."),
    errno.ENOTDIR: ("is not a directory, or a part of its path is not one", ErrorKind.NOT_FOUND, ""),
    errno.EISDIR: ("is a directory", ErrorKind.USER, "Name a file in it."),
    errno.EACCES: ("may not be {doing} by this user", ErrorKind.PERMISSION, "Choose another, or ask the person."),
    errno.EPERM: ("may not be {doing} by this user", ErrorKind.PERMISSION, "Choose another, or ask the person."),
    errno.EROFS: ("is on a file system that is read-only", ErrorKind.PERMISSION, "Write somewhere else."),
    errno.ELOOP: (
        "is in a loop of links, or was replaced while it was opened",
        ErrorKind.SECURITY,
        "Name the file itself.",
    ),
    errno.EXDEV: ("was replaced while it was opened", ErrorKind.SECURITY, "Try again."),
    errno.EAGAIN: ("was replaced while it was opened", ErrorKind.SECURITY, "Try again."),
    errno.EOPNOTSUPP: ("is a socket or a device and cannot be {doing}", ErrorKind.SECURITY, "Name a regular file."),
    errno.ENXIO: ("is a socket or a device and cannot be {doing}", ErrorKind.SECURITY, "Name a regular file."),
    errno.ENAMETOOLONG: ("is too long", ErrorKind.VALIDATION, "Shorten it."),
    errno.ENOSPC: ("cannot be {doing}: the disk is full", ErrorKind.SYSTEM, "Free some space, then try again."),
    errno.EDQUOT: ("cannot be {doing}: the disk quota is used up", ErrorKind.SYSTEM, "Free some space first."),
    errno.EFBIG: ("cannot be {doing}: it would exceed the maximum file size", ErrorKind.SYSTEM, "Write less."),
    errno.EMFILE: ("cannot be {doing}: too many files are open", ErrorKind.SYSTEM, "Try again in a moment."),
}
