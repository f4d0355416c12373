"""Seals files of the state directory that decide something, so that a change from outside is noticed.

Where a sandbox cannot hide `.forge/` from programs, a program could write there what only a person decides. A seal is a
keyed digest of the content, its kind and the state directory. The key is a file in the user's configuration directory,
which no sandbox shows. An older version of the same content has a valid seal, too.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
from hashlib import sha256
from pathlib import Path

from forge.core.errors import ErrorKind, ToolError
from forge.core.regular_files import read_regular
from forge.workspace.state import NAME, write_first
from forge.workspace.user_files import config_file

KEY = "state.key"
SIZE = 32  # bytes of a key
_SHOWN = 8  # characters of a key's own digest in a seal: they say which key it was


def is_sealed_place(path: Path) -> bool:
    """Returns True for a file in a state directory of a user who has a configuration directory."""
    return path.parent.name == NAME and config_file(KEY) is not None


def seal(path: Path, content: bytes) -> str:
    """Returns the seal of the content of a file in a state directory. Raises `ToolError` without a usable key."""
    key = _read_key()
    return f"{_name_key(key)}:{_digest(key, path, content)}"


def find_change(path: Path, content: bytes, found: object) -> str:
    """Returns what is wrong with the seal that was found with this content; "" if nothing is.

    Content without a seal counts if the file was last changed before the key was made: an older Forge wrote it. The
    kernel sets that time; a program cannot choose it.
    """
    key = _read_key()
    if found is None:
        key_file = config_file(KEY)
        is_older = key_file is not None and os.stat(path).st_ctime_ns <= os.stat(key_file).st_mtime_ns
        return "" if is_older else "it has no seal, so it was changed outside Forge"
    name, _, digest = str(found).partition(":")
    if hmac.compare_digest(digest.encode(), _digest(key, path, content).encode()):
        return ""
    if name != _name_key(key):
        return f"it was sealed with another key than {config_file(KEY)}: restore that file, or decide again"
    return "it was changed outside Forge, or copied from another place"


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
            return _check_key(path, read_regular(path, 1024, os.O_NOFOLLOW))
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_first(path, secrets.token_hex(SIZE))
        return _check_key(path, read_regular(path, 1024, os.O_NOFOLLOW))
    except OSError as error:
        raise _unusable_key(path, error.strerror or str(error)) from None


def _check_key(path: Path, content: bytes) -> bytes:
    if len(content.strip()) != 2 * SIZE:
        raise _unusable_key(path, "it is damaged")
    return content.strip()


def _unusable_key(path: Path, problem: str) -> ToolError:
    return ToolError(
        f"the key of Forge's state, {path}, cannot be used: {problem}",
        ErrorKind.CONFIG,
        "Make it readable for its owner, or remove it: Forge makes a new one, and approvals are asked for again.",
    )
