"""What a server may cost: sizes, counts and rates, whoever wrote it."""

from __future__ import annotations

import asyncio
import time

MIB = 1024 * 1024
MOST_MESSAGE = 64 * MIB  # bytes of one message; a longer one is dropped, and the call that it answers fails
MOST_LINE = 4 * MOST_MESSAGE  # bytes without an end of line: such a server is ended
MOST_TOOLS = 5_000
MOST_PAGES = 100
MOST_LISTED = 32 * MIB  # bytes of all definitions together
LISTING = 30.0  # seconds for all pages
MOST_ASKING = 8  # questions of a server (elicitation, sampling) that are open at once
MOST_ROUNDS = 10  # times that a server may ask for more before it answers one call
WORDS = 2_000  # characters kept of what it wrote last as errors
LINE = 1_000  # characters shown of one line or message of a log
INSTRUCTIONS = 4_000  # characters

_BURST = 400
_A_SECOND = 200.0
_PAUSE = 0.05  # seconds in which nothing more is read of a server that says too much


class Calm:
    """How much a server may say without being asked: what is too much is dropped, and it is made to wait."""

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
        """Meanwhile its pipe or its connection fills up, and it has to wait."""
        if self.dropped % 100 == 1:
            await asyncio.sleep(_PAUSE)
