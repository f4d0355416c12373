"""At most so many programs at once: descriptors are not endless."""

from __future__ import annotations

import asyncio
import threading
from collections import deque

_RESERVED = 192  # descriptors that are for others
_EACH = 4  # descriptors of one run: the keeper's socket and three pipes
_MOST = 256  # programs at once


class Slots:
    """Turns, from whatever loops and threads they are asked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._used = 0
        self._waiting: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()

    async def __aenter__(self) -> None:
        with self._lock:
            if self._used < most_at_once():
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
            if not waits:  # it was our turn already
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


def most_at_once() -> int:
    """How many programs may run at once, by the descriptors this process may have."""
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _MOST
    return max(4, min(_MOST, (soft - _RESERVED) // _EACH))


def _wake(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)
