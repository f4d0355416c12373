"""Tapes: a file beside the test stores the results of tools, and replays them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from forge.core.errors import ErrorKind, ToolError
from forge.core.executor import Step
from forge.core.secrets import Secrets
from forge.pipeline.record import record, replay

VARIABLE = "FORGE_TAPE"

Mode = Literal["auto", "record", "replay"]


def tape(path: str | os.PathLike[str], mode: Mode | None = None, *, secrets: Secrets | None = None) -> Step:
    """Returns a step that answers from the file, or makes the file if there is none ("auto").

    "record" makes a new one; "replay" never runs a tool, and fails without a file. Without a mode, the variable
    FORGE_TAPE says which: `FORGE_TAPE=record pytest`. Registered secrets are masked in the file.
    """
    chosen = mode or os.environ.get(VARIABLE) or "auto"
    if chosen not in ("auto", "record", "replay"):
        raise ValueError(f"tape({os.fspath(path)!r}): the mode must be auto, record or replay, not {chosen!r}")
    file = Path(path)
    if chosen == "record" or (chosen == "auto" and not file.exists()):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        return record(file, secrets)
    if not file.exists():
        raise ToolError(
            f"there is no tape {os.fspath(path)!r} to replay", ErrorKind.CONFIG, f"Record it: {VARIABLE}=record pytest."
        )
    return replay(file, secrets)
