"""Delivers to a file that a person reads: appends entries, and saves attachments beside the file."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from forge.core.errors import ErrorKind, ToolError
from forge.core.plain_values import sendable
from forge.core.result import Attachment

_UNSAFE = re.compile(r"[^\w.-]+")


class FileChannel:
    """Appends Markdown. An entry is written completely or, if the disk is full, not at all.

    A process killed in between may leave a partial entry; the next entry still begins on its own line.
    """

    def __init__(self, path: Path | str, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.path = Path(path)
        self._clock = clock

    async def send(self, text: str, attachments: Sequence[Attachment] = (), *, to: str = "") -> None:
        from forge.core.execution.threads import in_thread  # it imports asyncio

        await in_thread(lambda: self._append(text, attachments, to))

    def _append(self, text: str, attachments: Sequence[Attachment], to: str) -> None:
        now = self._clock()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            links = [f"- [{path.name}]({path.parent.name}/{path.name})" for path in self._save_all(attachments, now)]
            heading = f"## {now.isoformat(timespec='seconds')}" + (f" to {' '.join(to.split())}" if to else "")
            entry = "\n".join([heading, "", sendable(text).strip(), *(["", *links] if links else []), "", ""])
            _append(self.path, entry.encode())
        except OSError as error:
            raise ToolError(
                f"writing to {self.path}: {error.strerror or error}",
                ErrorKind.SYSTEM,
                "Ask the person to check the file.",
            ) from None

    def _save_all(self, attachments: Sequence[Attachment], now: datetime) -> list[Path]:
        if not attachments:
            return []
        folder = self.path.with_name(f"{self.path.name}.files")
        folder.mkdir(mode=0o700, exist_ok=True)
        return [_save(folder, one, f"{now:%Y%m%d-%H%M%S}") for one in attachments]


def _append(path: Path, content: bytes) -> None:
    """Appends under a lock, so that two processes do not mix lines. Removes a partial entry if the disk is full."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # a pipe would wait
    descriptor = os.open(path, flags, 0o600)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        before = os.fstat(descriptor).st_size
        if before and os.pread(descriptor, 1, before - 1) != b"\n":
            content = b"\n\n" + content
        try:
            written = 0
            while written < len(content):
                written += os.write(descriptor, content[written:])
        except OSError:
            os.ftruncate(descriptor, before)
            raise
    finally:
        os.close(descriptor)


def _save(folder: Path, attachment: Attachment, stamp: str) -> Path:
    """Saves an attachment under a new, safe name, since a tool or a model chose the given one."""
    name = _UNSAFE.sub("-", Path(attachment.name or "file").name).lstrip(".-")[:100] or "file"
    for number in range(1, 10_000):
        path = folder / (f"{stamp}-{name}" if number == 1 else f"{stamp}-{number}-{name}")
        try:
            with open(path, "xb") as file:
                try:
                    file.write(attachment.data)
                except OSError:
                    path.unlink(missing_ok=True)
                    raise
            return path
        except FileExistsError:
            continue
    raise OSError(None, f"{folder} already has too many files of this second")
