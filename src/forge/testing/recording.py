"""Tapes: what tools answered once is kept in a file beside the test, and answered again from it."""

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
    """A step that answers from the file, or makes it where there is none ("auto").

    "record" makes it anew; "replay" never runs a tool, and fails where there is no file. Without a mode, the variable
    FORGE_TAPE says which: `FORGE_TAPE=record pytest`. Registered secrets are masked in the file.
    """
    chosen = mode or os.environ.get(VARIABLE) or "auto"
    if chosen not in ("auto", "record", "replay"):
        raise ValueError(f"tape({os.fspath(path)!r}): the mode is auto, record or replay, not {chosen!r}")
    file = Path(path)
    if chosen == "record" or (chosen == "auto" and not file.exists()):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        return record(file, secrets)
    if not file.exists():
        raise ToolError(
            f"there is no tape {os.fspath(path)!r} to replay", ErrorKind.CONFIG, f"Make it: {VARIABLE}=record pytest."
        )
    return replay(file, secrets)
