"""One finding of the doctor."""

from __future__ import annotations

from typing import NamedTuple

from forge.core.errors import ToolError


class Finding(NamedTuple):
    """A checked part; `status` is ok, note, warning or broken; `fix` says how to repair it."""

    check: str
    status: str
    detail: str
    fix: str = ""


def finding_of_error(check: str, error: Exception, status: str = "broken") -> Finding:
    """Returns a finding with the text of an error."""
    return Finding(check, status, str(error), error.suggestion if isinstance(error, ToolError) else "")
