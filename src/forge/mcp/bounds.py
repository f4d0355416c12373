"""Bounds for untrusted servers: sizes, counts and rates."""

from __future__ import annotations

import asyncio
import time

MIB = 1024 * 1024
MOST_MESSAGE = 64 * MIB  # bytes of one message; a longer one is dropped, and its call fails
MOST_LINE = 4 * MOST_MESSAGE  # bytes without a line break; then the server is stopped
MOST_VALUES = 1_000_000  # values of one message: an empty list takes forty times as much memory as its text
MOST_TOOLS = 5_000
MOST_PAGES = 100
MOST_LISTED = 32 * MIB  # bytes of all definitions together
LISTING = 30.0  # seconds for all pages
MOST_ASKING = 8  # questions of a server (elicitation, sampling) that are open at once
MOST_ROUNDS = 10  # requests for more input before a server answers one call
WORDS = 2_000  # characters of the last error output
LINE = 1_000  # characters of one log line or message
INSTRUCTIONS = 4_000  # characters

_BURST = 400
_A_SECOND = 200.0
_PAUSE = 0.05  # seconds without reading from a server that sends too much


class RateLimit:
    """Limits the rate of a server's notifications: excess ones are dropped, and the server is slowed down."""

    def __init__(self) -> None:
        self._left = float(_BURST)
        self._looked = time.monotonic()
        self.dropped = 0

    def admits(self) -> bool:
        now = time.monotonic()
        self._left = min(float(_BURST), self._left + (now - self._looked) * _A_SECOND)
        self._looked = now
        if self._left < 1:
            self.dropped += 1
            return False
        self._left -= 1
        return True

    async def pause(self) -> None:
        """Pauses reading: the server's pipe or connection fills up, and the server has to wait."""
        if self.dropped % 100 == 1:
            await asyncio.sleep(_PAUSE)
