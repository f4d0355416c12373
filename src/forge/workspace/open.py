"""Opens files below a root for reading, so that no link, no race and no special file leads out of it or hangs."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from forge.core.errors import ErrorKind, ToolError

MAX_NAME = 255  # bytes of one name
MAX_PATH = 4_095  # bytes of a path
MAX_LINKS = 40  # followed on the way to one file

_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC  # a FIFO without a writer must not hang
_DIRECTORY = os.O_DIRECTORY | os.O_CLOEXEC | getattr(os, "O_PATH", 0)
_OPENAT2 = 437  # the same number on every architecture
_NO_MAGIC_LINKS, _BENEATH = 0x02, 0x08
_SPECIAL = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_inside(root: Path, path: str) -> int:
    """A descriptor for reading the regular file at `path`, which must lie below `root`; the caller closes it.

    A relative path starts at the root. Links are followed as long as they stay inside.
    """
    _check_spelling(path)
    with _refusing(path), _opened(os.fspath(root), _DIRECTORY) as top:
        descriptor = _open_below(top, root, _relative(root, path))
    try:
        with _refusing(path):
            _check_regular(descriptor, path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_inside(root: Path, path: str, limit: int) -> bytes:
    """The whole content of a file below `root` that has at most `limit` bytes."""
    with open(open_inside(root, path), "rb") as file, _refusing(path):
        content = file.read(limit + 1)
        if len(content) <= limit:
            return content
        size = os.fstat(file.fileno()).st_size
    raise ToolError(
        f"{_shown(path)} has {max(size, limit + 1):,} bytes, the limit is {limit:,}",
        ErrorKind.USER,
        "Make a smaller file of the part that matters.",
    )


def outside(path: str) -> ToolError:
    """The refusal of a path that leaves the root: the same words whether or not something is there."""
    return ToolError(
        f"{_shown(path)} leads outside the workspace", ErrorKind.SECURITY, "Use a path inside the workspace."
    )


class _Outside(Exception):
    pass


def _open_below(top: int, root: Path, relative: str) -> int:
    if _kernel_can():
        for _ in range(8):  # EAGAIN: something was renamed meanwhile
            descriptor, problem = _openat2(top, relative)
            if problem == 0:
                return descriptor
            if problem != errno.EAGAIN:
                break
        if problem not in (errno.EXDEV, errno.EAGAIN, errno.ENOSYS, errno.EPERM):
            raise OSError(problem, os.strerror(problem))
    return _walk(top, root, relative)  # also decides about absolute links, which the kernel refuses even inside


def _openat2(top: int, relative: str) -> tuple[int, int]:
    """A descriptor, or -1 and the error's number."""
    import ctypes  # slow to import, needed once a file is opened

    how = (ctypes.c_uint64 * 3)(_READ, 0, _BENEATH | _NO_MAGIC_LINKS)
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
def _kernel_can() -> bool:
    if sys.platform != "linux":
        return False
    try:
        with _opened("/", _DIRECTORY) as top:
            descriptor, problem = _openat2(top, ".")
    except ImportError:  # a Python built without ctypes
        return False
    if problem == 0:
        os.close(descriptor)
    return problem not in (errno.ENOSYS, errno.EPERM)  # EPERM: a seccomp filter that does not know the call


def _walk(top: int, root: Path, relative: str) -> int:
    """Open component by component without ever following a link; links are read and walked instead."""
    above: list[int] = []  # the open directories between the root and here
    left = _components(relative)
    links = 0
    try:
        while left:
            name = left.pop()
            here = above[-1] if above else top
            if name == "..":
                if above:
                    os.close(above.pop())
                else:
                    left = _components(_back_inside(root, left))
                continue
            target = _link(name, here)
            if target is not None:
                links += 1
                if links > MAX_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                if os.path.isabs(target):
                    target = _relative(root, target)
                    while above:
                        os.close(above.pop())
                left += _components(target)
            elif left:
                above.append(os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=here))
            else:
                return os.open(name, _READ | os.O_NOFOLLOW, dir_fd=here)
        return os.open(".", _READ, dir_fd=above[-1] if above else top)
    finally:
        for descriptor in above:
            os.close(descriptor)


def _back_inside(root: Path, left: list[str]) -> str:
    """What `..` at the root followed by these components is, seen from the root again: `../ws/a` is `a` in `ws`."""
    start = os.path.realpath(root)
    return _relative(Path(start), os.path.normpath("/".join([start, "..", *reversed(left)])))


def _components(path: str) -> list[str]:
    """Last first, so that the next one is popped off the end."""
    return [name for name in reversed(path.split("/")) if name not in ("", ".")]


def _link(name: str, directory: int) -> str | None:
    try:
        return os.readlink(name, dir_fd=directory)
    except OSError as error:
        if error.errno == errno.EINVAL:  # not a link
            return None
        raise


def _relative(root: Path, path: str) -> str:
    """The path seen from the root; what it then leads to is checked while it is opened."""
    if not os.path.isabs(path):
        return path
    for start, whole in ((os.path.abspath(root), path), (os.path.realpath(root), os.path.realpath(path))):
        parts, names = Path(start).parts, Path(whole).parts
        if names[: len(parts)] == parts:
            return "/".join(names[len(parts) :]) or "."
    raise _Outside


def _check_spelling(path: str) -> None:
    if not path.strip():
        raise ToolError("the path is blank", ErrorKind.VALIDATION, "Name a file inside the workspace.")
    if "\0" in path:
        raise ToolError("the path contains a NUL byte", ErrorKind.SECURITY, "Leave it out.")
    if path.startswith("~"):
        raise ToolError(
            f"{_shown(path)}: ~ does not stand for a home directory here",
            ErrorKind.SECURITY,
            "Use a path inside the workspace; a name that begins with ~ is written ./~name.",
        )
    try:
        longest = max(len(os.fsencode(name)) for name in path.split("/"))
    except UnicodeEncodeError:
        raise ToolError("the path is not valid Unicode", ErrorKind.VALIDATION, "Write it again.") from None
    if longest > MAX_NAME:
        raise ToolError(
            f"a name in the path has {longest:,} bytes, the limit is {MAX_NAME}", ErrorKind.VALIDATION, "Shorten it."
        )
    if len(os.fsencode(path)) > MAX_PATH:
        raise ToolError("the path is too long", ErrorKind.VALIDATION, "Shorten it.")


def _check_regular(descriptor: int, path: str) -> None:
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISDIR(mode):
        raise ToolError(f"{_shown(path)} is a directory", ErrorKind.USER, "Name a file in it.")
    if not stat.S_ISREG(mode):
        kind = _SPECIAL.get(stat.S_IFMT(mode), "no regular file")
        raise ToolError(f"{_shown(path)} is {kind} and cannot be read", ErrorKind.SECURITY, "Name a regular file.")
    os.set_blocking(descriptor, True)


@contextmanager
def _opened(path: str, flags: int) -> Iterator[int]:
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        raise ToolError(f"the workspace cannot be opened: {error.strerror}", ErrorKind.CONFIG) from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _refusing(path: str) -> Iterator[None]:
    """Everything the system may say about a path, in words a model can act on."""
    try:
        yield
    except _Outside:
        raise outside(path) from None
    except OSError as error:
        problem, kind, suggestion = _MEANING.get(
            error.errno or 0, (f"cannot be read: {error.strerror}", ErrorKind.SYSTEM, "")
        )
        raise ToolError(f"{_shown(path)} {problem}", kind, suggestion) from None


_MEANING = {
    errno.ENOENT: ("does not exist", ErrorKind.NOT_FOUND, "Check the spelling."),
    errno.ENOTDIR: ("passes through something that is not a directory", ErrorKind.NOT_FOUND, "Check the spelling."),
    errno.EACCES: ("may not be read by this user", ErrorKind.PERMISSION, ""),
    errno.EPERM: ("may not be read by this user", ErrorKind.PERMISSION, ""),
    errno.ELOOP: ("is a link that goes in a circle", ErrorKind.USER, "Name the file itself."),
    errno.EOPNOTSUPP: ("is a socket or a device and cannot be read", ErrorKind.SECURITY, "Name a regular file."),
    errno.ENXIO: ("is a socket or a device and cannot be read", ErrorKind.SECURITY, "Name a regular file."),
    errno.ENAMETOOLONG: ("is too long", ErrorKind.VALIDATION, "Shorten it."),
}


def _shown(path: str) -> str:
    return f'"{path}"' if len(path) <= 200 else f'"{path[:200]}…"'
