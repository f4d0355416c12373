"""Reports the progress of a call to its client: in order, rate-limited, and not after the answer."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from forge.core.events import ToolOutput, ToolProgress
from forge.sources.untrusted import clean

INTERVAL = 0.1  # seconds between two batches of messages
MOST_STEPS = 20  # steps of a batch; of more, the last ones are sent
LONGEST = 2_000  # characters of a message; of output the end is sent
PATIENCE = 1.0  # seconds that the last message may take

Send = Callable[[float, float | None, str], Awaitable[None]]


class Reporter:
    """Reports one call. Only the latest steps and the end of the output are queued."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._steps: deque[tuple[str, Any, Any]] = deque(maxlen=MOST_STEPS)
        self._output = ""
        self._last = 0.0
        self._counts = False  # True if the tool itself reports its progress
        self._over = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def receive(self, event: ToolOutput | ToolProgress) -> None:
        if self._over.is_set():
            return
        if isinstance(event, ToolOutput):
            self._output = (self._output + event.text)[-LONGEST:]
        else:
            self._steps.append((event.title, event.data.get("done"), event.data.get("total")))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._send_queued())

    async def close(self) -> None:
        """Sends the last events; nothing is sent afterwards."""
        self._over.set()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=PATIENCE)
            self._task.cancel()

    async def _send_queued(self) -> None:
        while self._steps or self._output:
            output, self._output = self._output, ""
            steps = list(self._steps)
            self._steps.clear()
            for title, done, total in steps:
                await self._send(self._next(done), _number(total), clean(title, LONGEST))
            if text := clean(output, LONGEST):
                await self._send(self._next(None), None, text)
            try:
                await asyncio.wait_for(self._over.wait(), INTERVAL)
            except TimeoutError:
                continue

    def _next(self, done: Any) -> float:
        """Returns the next progress value; it always increases, as the protocol requires, whatever the tool reports."""
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
