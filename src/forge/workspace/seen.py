"""Which files a session has read and written, and whether they changed since."""

from __future__ import annotations

import os
from collections import OrderedDict
from pathlib import Path
from typing import NamedTuple

from forge.core.errors import ErrorKind, ToolError

MOST_FILES = 10_000  # remembered a session
MOST_SESSIONS = 1_000


class Seen(NamedTuple):
    """A file as it was when the session last touched it."""

    modified: int  # nanoseconds
    size: int
    written: bool


class FileLedger:
    """Keyed by session and real path. Of too many sessions the one that touched nothing for longest is forgotten."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, OrderedDict[str, Seen]] = OrderedDict()

    def note(self, session_id: str, path: Path, *, written: bool) -> None:
        """Remember the file as it is now; forget it when it is gone."""
        real = os.path.realpath(path)
        files = self._seen[session_id] = self._seen.pop(session_id, OrderedDict())  # the latest is the last
        if len(self._seen) > MOST_SESSIONS:
            self._seen.popitem(last=False)
        try:
            status = os.stat(real)
        except OSError:
            files.pop(real, None)
            return
        files[real] = Seen(status.st_mtime_ns, status.st_size, written)
        files.move_to_end(real)
        if len(files) > MOST_FILES:
            files.popitem(last=False)

    def check(self, session_id: str, path: Path, shown: str) -> None:
        """Raise `ToolError` unless the file is new, or was seen and is still the same."""
        real = os.path.realpath(path)
        try:
            status = os.stat(real)
        except OSError:
            return
        files = self._seen.get(session_id)
        seen = files.get(real) if files else None
        if seen is None:
            raise ToolError(
                f"{shown} exists and was not read in this session",
                ErrorKind.VALIDATION,
                "Read it first, so that nothing in it is lost unseen.",
            )
        if (seen.modified, seen.size) != (status.st_mtime_ns, status.st_size):
            raise ToolError(
                f"{shown} changed on disk since it was read", ErrorKind.VALIDATION, "Read it again, then decide anew."
            )

    def files(self, session_id: str) -> dict[str, Seen]:
        return dict(self._seen.get(session_id, {}))

    def forget(self, session_id: str = "") -> None:
        if session_id:
            self._seen.pop(session_id, None)
        else:
            self._seen.clear()
