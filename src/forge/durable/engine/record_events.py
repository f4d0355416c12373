"""Records the events of a run, for readers elsewhere."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from forge.core.events import (
    Event,
    MessageReceived,
    ReasoningDelta,
    Retrying,
    RunFinished,
    TextDelta,
    ToolArgumentsDelta,
    ToolOutput,
    ToolProgress,
    ToolReconciled,
)
from forge.core.execution.threads import in_thread
from forge.core.plain_values import text_of
from forge.durable.store import RunStore
from forge.durable.store.events import SegmentKey
from forge.workspace.state.store import StoreError

STREAMED_PAUSE = 0.03  # seconds between writes of streamed events, with all events in between
OTHER_PAUSE = 0.25  # … of other events: each write costs as much as a recorded step
LONGEST_PIECE = 64 * 1024  # characters of joined pieces
MOST_WAITING = 16 * 1024 * 1024  # … that wait for a slow database: more are dropped, as the final message repeats them
RETRY = 1.0  # seconds until events that could not be stored are written again

log = logging.getLogger("forge.durable")

Row = tuple[str | None, dict[str, Any]]

_PIECES = (TextDelta, ReasoningDelta, ToolArgumentsDelta, ToolOutput)
_PIECE_TYPES = tuple(kind.type for kind in _PIECES)
_READ_AS_IT_COMES = (*_PIECES, ToolProgress, Retrying)


class EventRecorder:
    """Subscribes to the activity of a segment. Stores a repeated event once; joins pieces of text."""

    def __init__(self, segment: SegmentKey, writer: EventWriter) -> None:
        self.segment = segment
        self._rows: list[Row] = []
        self._held = 0  # characters of text pieces in them
        self.last: Row | None = None  # the end of the run, which is stored with the end of the segment
        self._heard = 0  # messages of a person
        self._writer = writer

    async def take(self, event: Event) -> None:
        """Receives an event. Async, so that the stream never moves it to a thread, as it does with slow plain
        listeners.
        """
        wire = event.to_dict()
        if isinstance(event, RunFinished):
            self.last = (self._key(event), wire)
            return
        if isinstance(event, _PIECES):
            if self._held + len(event.text) > MOST_WAITING:
                return
            self._held += len(event.text)
        if not self._join_to_last(wire):
            self._rows.append((self._key(event), wire))
        self._writer.write_within(STREAMED_PAUSE if isinstance(event, _READ_AS_IT_COMES) else OTHER_PAUSE, self)

    async def close(self) -> None:
        """Stores all that is left."""
        while self._rows or self._writer.is_writing(self):
            await self._writer.flush(self)

    def take_rows(self) -> tuple[list[Row], int]:
        """Hands over the rows, with the number of characters that they hold."""
        rows, self._rows = self._rows, []
        return rows, self._held

    def put_back(self, rows: list[Row]) -> None:
        """Takes rows back that could not be stored; an event with a key is stored once."""
        self._rows[:0] = rows

    def note_stored(self, characters: int) -> None:
        self._held -= characters

    def _join_to_last(self, wire: dict[str, Any]) -> bool:
        """Joins a piece of text to the one before it; returns whether it did."""
        if wire["event"] not in _PIECE_TYPES or not self._rows:
            return False
        last = self._rows[-1][1]
        same = all(last.get(key) == wire.get(key) for key in ("event", "agent", "task", "session", "call"))
        if same := same and len(last["text"]) < LONGEST_PIECE:
            last["text"] += wire["text"]
        return same

    def _key(self, event: Event) -> str | None:
        """Returns a key that identifies the event in the run, if an attempt may repeat it."""
        if isinstance(event, (*_READ_AS_IT_COMES, ToolReconciled)):
            return None  # not repeated when recorded steps are replayed
        call = getattr(event, "call", None)
        which = call.id if call is not None else getattr(event, "turn", "")
        if isinstance(event, MessageReceived):  # every attempt begins with the same ones
            self._heard += 1
            which = self._heard
        which = f"{event.task}/{which}" if event.task else which  # agents that work for calls count for themselves
        detail = f"{getattr(event, 'permission', '')}:{getattr(event, 'target', '')}"
        return key_of(self.segment[1], event.type, which, detail)


def key_of(segment: int, kind: str, which: str, detail: str = ":") -> str:
    """Returns the key of an event: its segment, its type, which one it is (such as the call), and more details."""
    return f"{segment}:{kind}:{which}:{detail}"


class EventWriter:
    """Writes the events of all runs of a process together: a transaction costs as much as a recorded step.

    Recorders with new rows wait for the timer, which begins a write of all of them. One whose segment ends does not
    wait for the timer: it asks for a write. There is one write at a time, so several that ask share the next one.
    """

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._waiting: dict[EventRecorder, None] = {}  # for the timer; in order, as in a set that has one
        self._asked: dict[EventRecorder, None] = {}
        self._written: set[EventRecorder] = set()  # by the transaction under way
        self._writing = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._not_before = 0.0  # in the loop's time: no write begins earlier, since one has just failed
        self._task: asyncio.Task[None] | None = None  # the write that the timer began last

    def write_within(self, seconds: float, recorder: EventRecorder) -> None:
        self._waiting[recorder] = None
        self._set_timer(seconds)

    def is_writing(self, recorder: EventRecorder) -> bool:
        return recorder in self._written

    async def flush(self, asked: EventRecorder) -> None:
        """Writes the rows of `asked`, with those of others that ask meanwhile. Raises if its rows cannot be stored.

        The events of others still wait: the more of them are written together, the fewer rows there are.
        """
        self._asked[asked] = None
        async with self._writing:
            if asked in self._asked:
                await self._write(list(self._asked), asked)

    async def _write(self, recorders: list[EventRecorder], asked: EventRecorder | None = None) -> None:
        for recorder in recorders:
            self._waiting.pop(recorder, None)
            self._asked.pop(recorder, None)
        taken = {recorder: recorder.take_rows() for recorder in recorders}
        batch: dict[SegmentKey, list[Row]] = {}
        for recorder, (rows, _) in taken.items():
            batch.setdefault(recorder.segment, []).extend(rows)
        self._written = set(recorders)
        try:
            missing = await in_thread(lambda: self._add({segment: rows for segment, rows in batch.items() if rows}))
        except BaseException:
            for recorder, (rows, _) in taken.items():
                recorder.put_back(rows)
                if rows and recorder is not asked:
                    self._waiting[recorder] = None
            raise
        finally:
            self._written = set()
        for recorder, (_, characters) in taken.items():
            recorder.note_stored(characters)
        if asked is not None and (error := missing.get(asked.segment[0])) is not None:
            raise error

    def _add(self, batch: Mapping[SegmentKey, Sequence[Row]]) -> dict[str, StoreError]:
        return self._store.add_events_of(batch) if batch else {}

    def _set_timer(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        when = max(loop.time() + seconds, self._not_before)
        if self._timer is not None and not self._timer.cancelled():
            if self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = loop.call_at(when, self._begin)

    def _begin(self) -> None:
        self._timer = None
        if self._task is not None and not self._task.done():  # a slow database: the rest is written together later
            return self._set_timer(STREAMED_PAUSE)
        self._task = asyncio.get_running_loop().create_task(self._write_waiting())

    async def _write_waiting(self) -> None:
        try:
            async with self._writing:
                if self._waiting:
                    await self._write(list(self._waiting))
        except Exception as error:
            log.warning("events of runs are stored later: %s", text_of(error))
            self._not_before = asyncio.get_running_loop().time() + RETRY
            if self._timer is not None:  # set by events that came during the write
                self._timer.cancel()
            self._set_timer(RETRY)
