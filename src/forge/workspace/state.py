"""Where Forge keeps what it must remember: `.forge/` in the workspace, readable by its owner alone."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from forge.core.plain import sendable

NAME = ".forge"


def state_directory(workspace: Path, *parts: str) -> Path:
    """`.forge/parts…`, made when it is missing; a private temporary one where the workspace cannot be written."""
    try:
        return _made(workspace / NAME, parts)
    except OSError:
        user = os.getuid() if hasattr(os, "getuid") else 0
        return _made(Path(tempfile.gettempdir()) / f"forge-{user}", parts)


def write_private(path: Path, text: str) -> None:
    """Write a new file that only its owner can read; an existing one, or a link planted in its place, is refused."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(file, "w", encoding="utf-8", newline="") as stream:
        stream.write(sendable(text))


def _made(root: Path, parts: tuple[str, ...]) -> Path:
    root.mkdir(mode=0o700, exist_ok=True)
    status = root.lstat()
    if not root.is_dir() or root.is_symlink() or (hasattr(os, "getuid") and status.st_uid != os.getuid()):
        raise OSError(f"{root} is not a directory of this user")
    if status.st_mode & 0o077:
        root.chmod(0o700)
    ignore = root / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n")
    path = root
    for part in parts:
        path = path / part
        path.mkdir(mode=0o700, exist_ok=True)
    return path
