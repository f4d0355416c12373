"""Copies a file of the workspace's state for reading, if the workspace cannot be written."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from forge.workspace.state import NAME
from forge.workspace.state.ownership import is_foreign


def is_writable(workspace: Path) -> bool:
    """Returns True if the state of a workspace can be written, or made."""
    folder = workspace / NAME
    return os.access(folder if folder.exists() else workspace, os.W_OK | os.X_OK)


@contextmanager
def copy_state_file(workspace: Path, name: str) -> Iterator[Path | None]:
    """Yields a temporary copy that may be changed; None if there is no usable file."""
    file = workspace / NAME / name
    if file.is_symlink() or not file.is_file() or is_foreign(file.parent):
        yield None
        return
    with TemporaryDirectory(prefix="forge-look-") as folder:
        for suffix in ("", "-wal"):  # the log holds the latest commits
            part = file.with_name(name + suffix)
            if part.is_file() and not part.is_symlink():
                shutil.copyfile(part, Path(folder, name + suffix))
        yield Path(folder, name)
