"""Limits the number of programs at once, since file descriptors are limited."""

from __future__ import annotations

import asyncio
import threading
from collections import deque

_RESERVED = 192  # descriptors reserved for other uses
_EACH = 4  # descriptors of one run: the keeper's socket and three pipes
_MOST = 256  # programs at once


class Slots:
    """Grants turns to any event loop and thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._used = 0
        self._waiting: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()

    async def __aenter__(self) -> None:
        with self._lock:
            if self._used < count_slots():
                self._used += 1
                return
            loop = asyncio.get_running_loop()
            turn = (loop, loop.create_future())
            self._waiting.append(turn)
        try:
            await turn[1]
        except BaseException:
            with self._lock:
                waits = turn in self._waiting
                if waits:
                    self._waiting.remove(turn)
            if not waits:  # the turn was granted already
                await self.__aexit__()
            raise

    async def __aexit__(self, *_: object) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._used -= 1
                    return
                loop, turn = self._waiting.popleft()
            try:
                loop.call_soon_threadsafe(_wake, turn)
                return
            except RuntimeError:  # that loop is closed
                continue


slots = Slots()


def count_slots() -> int:
    """Returns how many programs may run at once, by the descriptor limit of this process."""
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _MOST
    return max(4, min(_MOST, (soft - _RESERVED) // _EACH))


def _wake(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)
