"""A file of the workspace's state for looking at, also where nothing can be written: then a copy of it."""

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
    """Whether the state of a workspace can be written, or made."""
    folder = workspace / NAME
    return os.access(folder if folder.exists() else workspace, os.W_OK | os.X_OK)


@contextmanager
def copied(workspace: Path, name: str) -> Iterator[Path | None]:
    """A copy, gone afterwards, that may be changed like the file; None where there is nothing that is used."""
    place = workspace / NAME / name
    if place.is_symlink() or not place.is_file() or is_foreign(place.parent):
        yield None
        return
    with TemporaryDirectory(prefix="forge-look-") as folder:
        for suffix in ("", "-wal"):  # what was committed last is in the log
            part = place.with_name(name + suffix)
            if part.is_file() and not part.is_symlink():
                shutil.copyfile(part, Path(folder, name + suffix))
        yield Path(folder, name)
