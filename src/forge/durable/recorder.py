"""What happens in a run, written down for whoever follows it from elsewhere."""

from __future__ import annotations

import asyncio
from typing import Any

from forge.core.events import Event, TextDelta, ToolOutput, ToolProgress
from forge.durable.attempt import Attempt

PAUSE = 0.05  # seconds: what happens in between is written at once

Row = tuple[str | None, dict[str, Any]]


class Recorder:
    """Listens to an attempt's activity. An event that a try repeats is kept once; pieces of text are put together."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._rows: list[Row] = []
        self._writing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def take(self, event: Event) -> None:
        wire = event.to_dict()
        if not self._joined(wire):
            self._rows.append((self._key(event), wire))
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._soon())

    async def flush(self) -> None:
        async with self._writing:
            rows, self._rows = self._rows, []
            if rows:
                await asyncio.to_thread(self._attempt.store.add_events, self._attempt.run.id, rows)

    async def close(self) -> None:
        if self._task is not None:
            await asyncio.wait([self._task])
        await self.flush()

    async def _soon(self) -> None:
        await asyncio.sleep(PAUSE)
        await self.flush()

    def _joined(self, wire: dict[str, Any]) -> bool:
        """Whether a piece of text became part of the one before it."""
        if wire["event"] not in (TextDelta.type, ToolOutput.type) or not self._rows:
            return False
        last = self._rows[-1][1]
        same = all(last.get(key) == wire.get(key) for key in ("event", "agent", "session", "call"))
        if same:
            last["text"] += wire["text"]
        return same

    def _key(self, event: Event) -> str | None:
        """What tells it from every other event of the run, where a try repeats it."""
        if isinstance(event, TextDelta | ToolOutput | ToolProgress):
            return None  # only the first try tells them
        call = getattr(event, "call", None)
        which = call.id if call is not None else getattr(event, "turn", "")
        return f"{self._attempt.run.segment}:{event.type}:{which}:{getattr(event, 'target', '')}"[:300]
