"""Delivers to the terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TextIO

from forge.core.plain_values import sendable
from forge.core.result import Attachment


class Terminal:
    """Writes lines and names attachments; `show` makes a text safe for the terminal."""

    def __init__(self, stream: TextIO | None = None, show: Callable[[str], str] | None = None) -> None:
        self._stream = stream
        self._show = show or _remove_control

    async def send(self, text: str, attachments: Sequence[Attachment] = (), *, to: str = "") -> None:
        head = f"[{to}] " if to else ""
        lines = [
            head + text,
            *(f"[{one.name or 'attachment'}: {one.media_type}, {len(one.data):,} bytes]" for one in attachments),
        ]
        stream = self._stream if self._stream is not None else sys.stdout
        stream.write("".join(f"{self._show(sendable(line))}\n" for line in lines))
        stream.flush()


def _remove_control(text: str) -> str:
    return "".join(char if char.isprintable() or char in "\n\t" else "�" for char in text)
