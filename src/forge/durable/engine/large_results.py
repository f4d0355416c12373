"""Restores files of long results for a worker that resumes a run from elsewhere."""

from __future__ import annotations

from pathlib import Path

from forge.durable.engine.attempt import Attempt
from forge.durable.engine.scripts import PREFIX
from forge.workspace.state import state_directory, write_private


def restore_spilled(attempt: Attempt, workspace: Path) -> None:
    """Writes the run's files that are missing here. Raises `OSError`."""
    for name, _ in attempt.store.files(attempt.run.id):
        path = state_directory(workspace, "spill") / name
        if is_spilled(path, workspace) and not path.exists() and not name.startswith(PREFIX):
            write_private(path, attempt.store.file(attempt.run.id, name).decode("utf-8", "replace"))


def is_spilled(path: Path, workspace: Path) -> bool:
    """Returns True for a regular path in the spill directory: a row or a tool could name another."""
    return path.parent == state_directory(workspace, "spill") and path.name != ".." and not path.is_symlink()
