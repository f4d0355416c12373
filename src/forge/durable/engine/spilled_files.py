"""Keeps the files of long results as rows, so that every worker of a run has them, and its client."""

from __future__ import annotations

import logging
from pathlib import Path

from forge.core.errors import ToolError
from forge.durable.engine.attempt import Attempt
from forge.durable.engine.scripts import PREFIX
from forge.workspace.state import state_directory, write_private

log = logging.getLogger("forge.durable")


def keep_spilled(attempt: Attempt, path: Path, workspace: Path) -> None:
    """Stores the file of a long result."""
    if not is_spilled(path, workspace):
        return
    try:
        attempt.store.put_file(attempt.run.id, path.name, path.read_bytes())
    except (OSError, ToolError) as error:  # the call itself succeeded
        log.warning("run %s: %s is stored on this worker only: %s", attempt.run.id, path.name, error)


def restore_spilled(attempt: Attempt, workspace: Path) -> None:
    """Writes the run's files that are missing here. Raises `OSError`."""
    for name, _ in attempt.store.files(attempt.run.id):
        path = state_directory(workspace, "spill") / name
        if is_spilled(path, workspace) and not path.exists() and not name.startswith(PREFIX):
            write_private(path, attempt.store.file(attempt.run.id, name))


def is_spilled(path: Path, workspace: Path) -> bool:
    """Returns whether a path is a regular file in the spill directory: a row or a tool could name another."""
    return path.parent == state_directory(workspace, "spill") and path.name != ".." and not path.is_symlink()
