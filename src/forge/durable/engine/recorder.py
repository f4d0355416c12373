"""What happens in a run, written down for whoever follows it from elsewhere."""

from __future__ import annotations

import asyncio
from typing import Any

from forge.core.events import Event, TextDelta, ToolOutput, ToolProgress
from forge.durable.engine.attempt import Attempt

PAUSE = 0.03  # seconds: what is read as it comes is written so often, with all that happened in between
LONGEST = 64 * 1024  # characters of pieces that are put together
MOST = 16 * 1024 * 1024  # … that wait for a slow database: more are left out, they come again as a whole in the end
REST = 0.25  # … and if there is nothing of that kind, so often: each time costs what a step costs

Row = tuple[str | None, dict[str, Any]]

_READ_AS_IT_COMES = (TextDelta, ToolOutput, ToolProgress)


class Recorder:
    """Listens to an attempt's activity. An event that a try repeats is kept once; pieces of text are put together."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._rows: list[Row] = []
        self._held = 0  # characters of pieces among them
        self._writing = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    async def take(self, event: Event) -> None:
        """Async, so that the stream never moves it to a thread, which it does to plain listeners on a busy machine."""
        wire = event.to_dict()
        if isinstance(event, TextDelta | ToolOutput):
            if self._held + len(event.text) > MOST:
                return
            self._held += len(event.text)
        if not self._join_to_last(wire):
            self._rows.append((self._key(event), wire))
        self._write_within(PAUSE if isinstance(event, _READ_AS_IT_COMES) else REST)

    async def flush(self) -> None:
        async with self._writing:
            rows, self._rows = self._rows, []
            held = self._held
            try:
                if rows:
                    await asyncio.to_thread(self._attempt.store.add_events, self._attempt.run.id, rows)
                self._held -= held
            except BaseException:
                self._rows[:0] = rows  # the next time tries again; what has a key is kept once
                raise

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            await asyncio.wait([self._task])
        await self.flush()

    def _write_within(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            if self._timer.when() <= loop.time() + seconds:
                return
            self._timer.cancel()
        self._timer = loop.call_later(seconds, self._write)

    def _write(self) -> None:
        self._timer = None
        if self._task is not None and not self._task.done():  # a slow database: the rest goes together, afterwards
            return self._write_within(PAUSE)
        self._task = asyncio.get_running_loop().create_task(self.flush())

    def _join_to_last(self, wire: dict[str, Any]) -> bool:
        """Whether a piece of text became part of the one before it."""
        if wire["event"] not in (TextDelta.type, ToolOutput.type) or not self._rows:
            return False
        last = self._rows[-1][1]
        same = all(last.get(key) == wire.get(key) for key in ("event", "agent", "session", "call"))
        if same := same and len(last["text"]) < LONGEST:
            last["text"] += wire["text"]
        return same

    def _key(self, event: Event) -> str | None:
        """What tells it from every other event of the run, where a try repeats it."""
        if isinstance(event, _READ_AS_IT_COMES):
            return None  # only the first try tells them
        call = getattr(event, "call", None)
        which = call.id if call is not None else getattr(event, "turn", "")
        wish = f"{getattr(event, 'permission', '')}:{getattr(event, 'target', '')}"
        return key_of(self._attempt.run.segment, event.type, which, wish)


def key_of(segment: int, kind: str, which: str, wish: str = ":") -> str:
    return f"{segment}:{kind}:{which}:{wish}"
