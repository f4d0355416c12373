"""Opens files by name without waiting: a FIFO, a socket or a device in the place of a file is an error.

Everything that is read from a project, from `.forge/` or from the user's settings is opened here or with the same
flags: a FIFO would block the whole process, and opening a device can have an effect.
"""

from __future__ import annotations

import errno
import os
from stat import S_ISDIR, S_ISLNK, S_ISREG

NOT_REGULAR = "it is not a regular file"


def open_regular(path: str | os.PathLike[str], flags: int = os.O_RDONLY, mode: int = 0o600) -> int:
    """Opens a regular file and returns its descriptor. Raises `OSError`, also if it is no regular file."""
    try:
        kind = os.stat(path, follow_symlinks=not flags & os.O_NOFOLLOW).st_mode
    except FileNotFoundError:
        kind = 0  # `flags` may make it
    if kind and not S_ISREG(kind) and not S_ISLNK(kind):
        raise _not_regular(path, kind)
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    kind = os.fstat(descriptor).st_mode  # it may have been replaced since
    if not S_ISREG(kind):
        os.close(descriptor)
        raise _not_regular(path, kind)
    return descriptor


def read_regular(path: str | os.PathLike[str], largest: int, flags: int = os.O_RDONLY) -> bytes:
    """Returns the content of a regular file of at most so many bytes. Raises `OSError`."""
    with os.fdopen(open_regular(path, flags), "rb") as stream:
        content = stream.read(largest + 1)
    if len(content) > largest:
        raise OSError(errno.EFBIG, f"it is larger than {largest:,} bytes", os.fspath(path))
    return content


def _not_regular(path: str | os.PathLike[str], kind: int) -> OSError:
    number = errno.EISDIR if S_ISDIR(kind) else errno.EINVAL
    return OSError(number, NOT_REGULAR, os.fspath(path))
