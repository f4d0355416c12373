"""Tells a client how its call goes: in order, no faster than it reads, and nothing once the call is answered."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any

from forge.core.events import ToolOutput, ToolProgress
from forge.sources.untrusted import clean

INTERVAL = 0.1  # seconds between two messages; what comes meanwhile is put together
LONGEST = 2_000  # characters of a message: of output the end, which is the newest
PATIENCE = 1.0  # seconds that the last message may take

Send = Callable[[float, float | None, str], Awaitable[None]]


class Reporter:
    """For one call. Only the newest title, and the end of the output, wait to be sent."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._said: tuple[str, Any, Any] | None = None
        self._output = ""
        self._last = 0.0
        self._counts = False  # whether the tool itself says how far it is
        self._over = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def hear(self, event: ToolOutput | ToolProgress) -> None:
        if self._over.is_set():
            return
        if isinstance(event, ToolOutput):
            self._output = (self._output + event.text)[-LONGEST:]
        else:
            self._said = (event.title, event.data.get("done"), event.data.get("total"))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._tell())

    async def close(self) -> None:
        """What was heard last is sent; from now on nothing."""
        self._over.set()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=PATIENCE)
            self._task.cancel()

    async def _tell(self) -> None:
        while self._said is not None or self._output:
            said, self._said = self._said, None
            output, self._output = self._output, ""
            if said is not None:
                await self._send(self._next(said[1]), _number(said[2]), clean(said[0], LONGEST))
            if text := clean(output, LONGEST):
                await self._send(self._next(None), None, text)
            try:
                await asyncio.wait_for(self._over.wait(), INTERVAL)
            except TimeoutError:
                continue

    def _next(self, done: Any) -> float:
        """Always more than before, as the protocol wants it, whatever the tool counts, or if it does not count."""
        count = _number(done)
        self._counts = self._counts or count is not None
        if not self._counts:
            count = self._last + 1
        more = count is not None and count > self._last
        self._last = count if more and count is not None else math.nextafter(self._last, math.inf)
        return self._last


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
