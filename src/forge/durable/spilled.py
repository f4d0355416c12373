"""Files of long results, for a worker that goes on with a run that began elsewhere."""

from __future__ import annotations

from pathlib import Path

from forge.durable.attempt import Attempt
from forge.workspace.state import state_directory, write_private


def restore_spilled(attempt: Attempt, workspace: Path) -> None:
    """Those of the run that are not here yet. Raises `OSError`."""
    if attempt.run.segment == 1 and not attempt.run.parent:
        return
    for name, _ in attempt.store.files(attempt.run.id):
        path = state_directory(workspace, "spill") / name
        if not path.exists():
            write_private(path, attempt.store.file(attempt.run.id, name).decode("utf-8", "replace"))
