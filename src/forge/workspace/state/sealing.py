"""Seals files of the state directory that decide something, so that a change from outside is noticed.

Where a sandbox cannot hide `.forge/` from programs, a program could write there what only a person decides. A seal is a
keyed digest of the content, its kind and the state directory. The key is a file in the user's configuration directory,
which no sandbox shows. An older version of the same content has a valid seal, too.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import os
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from forge.core.errors import ErrorKind, ToolError
from forge.core.files import read_regular
from forge.workspace.state import KEY, NAME, config_file, write_first

SIZE = 32  # bytes of a key
_NO_PLACE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR)  # no key can be made there
_SHOWN = 8  # characters of a key's own digest in a seal: they say which key it was


def is_sealed_place(path: Path) -> bool:
    """Returns whether a file is in a state directory of a user who has a key, or can have one."""
    key_file = config_file(KEY)
    if path.parent.name != NAME or key_file is None:
        return False
    if os.path.lexists(key_file):
        return True
    try:
        _make_key(key_file)
    except OSError as error:
        return error.errno not in _NO_PLACE  # a full disk is no reason to do without
    return True


def seal(path: Path, content: bytes) -> str:
    """Returns the seal of the content of a file in a state directory. Raises `ToolError` without a usable key."""
    key = _read_key()
    return f"{_name_key(key)}:{_digest(key, path, content)}"


def find_change(path: Path, content: bytes, found: object) -> str:
    """Returns what is wrong with the seal that was found with this content, None without one; "" if nothing is."""
    if found is None:
        return "it has no seal, so it was changed outside Forge"
    key = _read_key()
    name, _, digest = str(found).partition(":")
    if hmac.compare_digest(digest.encode(), _digest(key, path, content).encode()):
        return ""
    if name != _name_key(key):
        return f"it was sealed with another key than {config_file(KEY)}: restore that file, or decide again"
    return "it was changed outside Forge, or copied from another place"


def seal_part(path: Path, content: bytes) -> str:
    """Returns the seal of a part of a store in a state directory; "" elsewhere. Raises `ToolError` without a key."""
    return seal(path, content) if is_sealed_place(path) else ""


def find_problem(path: Path, content: bytes, found: str) -> str:
    """Returns why a part of a store does not count; "" if it does. In a state directory it needs a seal."""
    if not is_sealed_place(path):
        is_readable = not found or path.parent.name != NAME
        return "" if is_readable else f"it is sealed, and there is no {KEY} here: set HOME or XDG_CONFIG_HOME"
    if not found:
        return "it has no seal, so something else than Forge stored it"
    try:
        return find_change(path, content, found)
    except ToolError as error:
        return f"{error.message}. {error.suggestion}"


def _digest(key: bytes, path: Path, content: bytes) -> str:
    place = os.stat(path.parent).st_ino  # a copied state directory has another number
    return hmac.new(key, f"forge {path.name} {place}\0".encode() + content, sha256).hexdigest()


def _name_key(key: bytes) -> str:
    return sha256(b"forge state key " + key).hexdigest()[:_SHOWN]


def _read_key() -> bytes:
    """Reads the key; makes it if there is none. Of several processes that make one, the first wins."""
    path = config_file(KEY)
    if path is None:
        raise ToolError("there is no home directory for the key of Forge's state", ErrorKind.CONFIG, "Set HOME.")
    try:
        with contextlib.suppress(FileNotFoundError):
            return _read_key_file(path)
        _make_key(path)
        return _read_key_file(path)
    except OSError as error:
        raise _unusable_key(path, error.strerror or str(error)) from None


def _make_key(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_first(path, os.urandom(SIZE).hex())


def _read_key_file(path: Path) -> bytes:
    status = os.lstat(path)
    return _read_once(path, (status.st_ino, status.st_ctime_ns, status.st_size))


@lru_cache(maxsize=1)
def _read_once(path: Path, stamp: tuple[int, int, int]) -> bytes:
    """Reads a key once, until its file is another one (`stamp`)."""
    content = read_regular(path, 1024, os.O_NOFOLLOW)
    if len(content.strip()) != 2 * SIZE:
        raise _unusable_key(path, "it is damaged")
    return content.strip()


def _unusable_key(path: Path, problem: str) -> ToolError:
    return ToolError(
        f"the key of Forge's state, {path}, cannot be used: {problem}",
        ErrorKind.CONFIG,
        "Make it readable for its owner, or remove it: Forge makes a new one, and approvals are asked for again.",
    )
