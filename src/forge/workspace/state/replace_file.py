"""Replaces a file atomically, also when the power fails."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def replace_file(path: Path, content: str | bytes, mode: int = 0o600, *, lasting: bool = True) -> None:
    """Replaces a file, readable by its owner alone unless `mode` says otherwise. On `OSError` the old file stays.

    Without `lasting`, a power failure may lose the new content.
    """
    beside = path.with_name(f".forge-tmp-{os.urandom(8).hex()}")
    file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(file, "wb") as stream:
            stream.write(content.encode() if isinstance(content, str) else content)
            if mode != 0o600:
                os.fchmod(file, mode)  # whatever the umask
            stream.flush()
            if lasting:
                os.fsync(file)
        os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise
