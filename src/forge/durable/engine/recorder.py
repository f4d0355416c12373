"""Stores the events of a run, for readers elsewhere."""

from __future__ import annotations

import asyncio
from typing import Any

from forge.core.events import (
    Event,
    MessageReceived,
    ReasoningDelta,
    Retrying,
    TextDelta,
    ToolArgumentsDelta,
    ToolOutput,
    ToolProgress,
)
from forge.durable.engine.attempt import Attempt

PAUSE = 0.03  # seconds between writes of streamed events, with all events in between
LONGEST = 64 * 1024  # characters of joined pieces
MOST = 16 * 1024 * 1024  # … that wait for a slow database: more are dropped, since the final message repeats them
REST = 0.25  # seconds between writes of other events: each write costs as much as a step

Row = tuple[str | None, dict[str, Any]]

_PIECES = (TextDelta, ReasoningDelta, ToolArgumentsDelta, ToolOutput)
_PIECE_TYPES = tuple(kind.type for kind in _PIECES)
_READ_AS_IT_COMES = (*_PIECES, ToolProgress, Retrying)


class Recorder:
    """Subscribes to an attempt's activity. Stores a repeated event once; joins pieces of text."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._rows: list[Row] = []
        self._held = 0  # characters of text pieces in them
        self._heard = 0  # messages of a person
        self._writing = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    async def take(self, event: Event) -> None:
        """Receives an event. Async, so that the stream never moves it to a thread, as it does with slow plain
        listeners.
        """
        wire = event.to_dict()
        if isinstance(event, _PIECES):
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
                self._rows[:0] = rows  # the next write retries; an event with a key is stored once
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
        if self._task is not None and not self._task.done():  # a slow database: the rest is written together later
            return self._write_within(PAUSE)
        self._task = asyncio.get_running_loop().create_task(self.flush())

    def _join_to_last(self, wire: dict[str, Any]) -> bool:
        """Joins a piece of text to the one before it; returns True if it did."""
        if wire["event"] not in _PIECE_TYPES or not self._rows:
            return False
        last = self._rows[-1][1]
        same = all(last.get(key) == wire.get(key) for key in ("event", "agent", "session", "call"))
        if same := same and len(last["text"]) < LONGEST:
            last["text"] += wire["text"]
        return same

    def _key(self, event: Event) -> str | None:
        """Returns a key that identifies the event in the run, if an attempt may repeat it."""
        if isinstance(event, _READ_AS_IT_COMES):
            return None  # only the first attempt emits them
        call = getattr(event, "call", None)
        which = call.id if call is not None else getattr(event, "turn", "")
        if isinstance(event, MessageReceived):  # every attempt begins with the same ones
            self._heard += 1
            which = self._heard
        detail = f"{getattr(event, 'permission', '')}:{getattr(event, 'target', '')}"
        return key_of(self._attempt.run.segment, event.type, which, detail)


def key_of(segment: int, kind: str, which: str, detail: str = ":") -> str:
    return f"{segment}:{kind}:{which}:{detail}"
