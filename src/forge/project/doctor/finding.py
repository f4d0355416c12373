"""One thing that was looked at."""

from __future__ import annotations

from typing import NamedTuple

from forge.core.errors import ToolError


class Finding(NamedTuple):
    """`status` is ok, note, warning or broken; `fix` says what to do about whatever is not ok."""

    check: str
    status: str
    detail: str
    fix: str = ""


def broken(check: str, error: Exception, status: str = "broken") -> Finding:
    """In the words of whoever refused it."""
    return Finding(check, status, str(error), error.suggestion if isinstance(error, ToolError) else "")
