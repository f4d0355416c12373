"""Polls the store once for all pages: the newest events, and the rows that changed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa

from forge.console.event_entries import EventEntry, entries_after, newest_numbers
from forge.core.errors import ToolError
from forge.core.execution.threads import in_thread
from forge.durable.store import RunStore
from forge.durable.store.heartbeats import list_workers
from forge.durable.store.rows import OVER, SCHEDULED
from forge.durable.store.tables import questions, runs

log = logging.getLogger("forge.console")

SHORTEST = 0.02  # seconds between two looks, whatever happens
BUSY, IDLE = 0.05, 0.5  # … while something happens, and after a while without
ROWS = 0.2  # seconds between two looks at rows, unless an event says that they changed
OTHERS = 1.0  # … at workers and files
MOST_KEPT = 5_000  # events that a page which was away is sent
LARGEST_KEPT = 16_000_000  # characters of them together
MOST_AT_ONCE = 1_000
LATE = 10.0  # seconds that a number may be missing: Postgres counts before it commits
TURNING = ('{"event":"run_', '{"event":"permission_')  # events that come with another state of their run


class BufferedEvent(NamedTuple):
    """An event in the buffer."""

    place: int  # grows by one with each: the order in which they were seen
    number: int
    data: str


class Listener:
    """One page: its position in the buffer, and its pending notice."""

    def __init__(self, place: int) -> None:
        self.place = place
        self.before: list[BufferedEvent] = []  # what it missed, and nobody else needs any more
        self.notice = Notice(set(EVERYTHING))
        self.news = asyncio.Event()
        self.news.set()


class Hub:
    """Polls only while a page listens. Slow readers are not waited for and miss old events."""

    def __init__(self, store: RunStore, log: Path | None = None) -> None:
        """`log` is the log of events, which has the events of terminals."""
        self.store = store
        self.kept: deque[BufferedEvent] = deque()
        self.place = 0  # of the next event
        self.last = 0  # the highest number seen
        self._last_row = 0  # … and its row
        self._holes: dict[int, float] = {}
        self._size = 0
        self._listeners: set[Listener] = set()
        self._heard: set[str] = set()  # runs that something happened in since the last look at rows
        self._changes = Changes(store, log)
        self._looked = self._looked_at_others = 0.0
        self._nudged = asyncio.Event()
        self._looking = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing = False

    @property
    def waiting(self) -> int:
        """The number of questions that wait for a person."""
        return self._changes.waiting

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    @property
    def closing(self) -> bool:
        return self._closing

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        self._loop = asyncio.get_running_loop()
        self.last, self._last_row = await in_thread(lambda: newest_numbers(self.store))
        looking = asyncio.create_task(self._look_on())
        try:
            yield
        finally:
            self.close()
            looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await looking

    def close(self) -> None:
        """Ends every stream, so that the server can end."""
        self._closing = True
        for listener in self._listeners:
            listener.news.set()

    def nudge(self) -> None:
        """Polls soon. Safe from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            with contextlib.suppress(RuntimeError):  # the loop is closing
                self._loop.call_soon_threadsafe(self._nudged.set)

    def on_loop(self, work: Callable[[], object]) -> None:
        """Runs work on the loop's thread; no one waits for it."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(work)

    def tell(self, *what: str, runs: tuple[str, ...] = ()) -> None:
        """Announces a change that is not in the store. Safe from any thread."""
        self.on_loop(lambda: self._notify_listeners(Notice(set(what), set(runs))))

    @asynccontextmanager
    async def listener(self, after: int | None) -> AsyncIterator[tuple[Listener, tuple[int, int] | None]]:
        """Yields a listener from that number on, and the gap, if too much has happened since."""
        if not self._listeners:
            await self._catch_up()
        listener, gap = Listener(self.place), None
        found = self._position_after(after) if after is not None else self.place
        if found is not None:
            listener.place = found
        elif after is not None:
            gap = await self._send_again(listener, after)
        self._listeners.add(listener)
        self.nudge()
        try:
            yield listener, gap
        finally:
            self._listeners.discard(listener)

    def take(self, listener: Listener, most: int = 200) -> tuple[list[BufferedEvent], tuple[int, int] | None]:
        """Returns the new events of a listener, and the gap, if it was too slow."""
        if listener.before:
            found, listener.before = listener.before[:most], listener.before[most:]
            return found, None
        if not self.kept or listener.place >= self.place:
            listener.place = self.place
            return [], None
        first = self.kept[0].place
        gap = None
        if listener.place < first:
            gap = (0, self.kept[0].number)
            listener.place = first
        start = listener.place - first
        found = [self.kept[index] for index in range(start, min(start + most, len(self.kept)))]
        listener.place = found[-1].place + 1
        return found, gap

    async def _catch_up(self) -> None:
        """Skips events that happened while no one listened; pages request what they need."""
        newest, row = await in_thread(lambda: newest_numbers(self.store))
        if row - self._last_row > MOST_AT_ONCE:
            self.kept.clear()
            self._size, self.last, self._last_row = 0, newest, row
        await self._look()

    async def _send_again(self, listener: Listener, after: int) -> tuple[int, int] | None:
        """Reads events after that number from the store, for example after a restart. Returns the gap if there are too
        many.
        """
        upto = self.kept[0].number if self.kept else self.last + 1
        listener.place = self.kept[0].place if self.kept else self.place
        missed = await in_thread(lambda: entries_after(self.store, after, (), MOST_KEPT + 1))
        missed = [one for one in missed if one.number < upto]
        if len(missed) > MOST_KEPT:
            listener.place = self.place
            return after, self.last
        listener.before = [BufferedEvent(0, one.number, one.line()) for one in missed]
        return None

    def _position_after(self, number: int) -> int | None:
        """Returns the position after the event of that number; None if it is no longer known."""
        for one in reversed(self.kept):
            if one.number == number:
                return one.place + 1
        if self.kept and self.kept[0].number <= number:
            return next((one.place for one in self.kept if one.number > number), self.place)
        return self.place if number >= self.last else None

    async def _look_on(self) -> None:
        quiet_since = time.monotonic()
        while True:
            busy = time.monotonic() - quiet_since < 2.0
            if self._listeners:
                try:
                    if await self._look():
                        quiet_since, busy = time.monotonic(), True
                except ToolError as error:  # the database is away: pages keep what they have
                    log.warning("%s", error.message)
                except Exception:
                    log.exception("the console could not look at its runs")
            await asyncio.sleep(SHORTEST)
            pause = (BUSY if busy else IDLE) - SHORTEST
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause if self._listeners else 5.0):
                    await self._nudged.wait()
            self._nudged.clear()

    async def _look(self) -> bool:
        """Polls. Calls must not overlap: two would buffer the same events twice."""
        async with self._looking:
            return await self._looked_around()

    async def _looked_around(self) -> bool:
        entries = await in_thread(self._new_entries)
        for entry in entries:
            self._keep(entry)
            self._heard.add(entry.run)
        if entries:
            self._notify_listeners(Notice())  # at once: what else changed is read from more tables
        notice = Notice()
        if time.monotonic() - self._looked > ROWS or any(one.text.startswith(TURNING) for one in entries):
            self._looked = time.monotonic()
            heard, self._heard = self._heard, set()
            notice.merge(await in_thread(lambda: self._changes.of_runs(heard)))
        if time.monotonic() - self._looked_at_others > OTHERS:
            self._looked_at_others = time.monotonic()
            notice.merge(await in_thread(self._changes.of_others))
        if notice:
            self._notify_listeners(notice)
        return bool(entries or notice)

    def _notify_listeners(self, notice: Notice) -> None:
        for listener in self._listeners:
            listener.notice.merge(notice)
            listener.news.set()

    def _keep(self, entry: EventEntry) -> None:
        data = entry.line()
        self.kept.append(BufferedEvent(self.place, entry.number, data))
        self.place += 1
        self._size += len(data)
        while len(self.kept) > MOST_KEPT or (self._size > LARGEST_KEPT and len(self.kept) > 1):
            self._size -= len(self.kept.popleft().data)

    def _new_entries(self) -> list[EventEntry]:
        now = time.monotonic()
        self._holes = {row: until for row, until in self._holes.items() if until > now}
        found = entries_after(self.store, self.last, tuple(self._holes), MOST_AT_ONCE)
        for entry in found:
            self._holes.pop(entry.row, None)
            self.last = max(self.last, entry.number)
            if entry.row > self._last_row:
                if not self.store.database.is_sqlite:
                    missing = range(max(self._last_row + 1, entry.row - MOST_AT_ONCE), entry.row)
                    self._holes.update(dict.fromkeys(missing, now + LATE))
                self._last_row = entry.row
        return found


# Finds the rows of the store that changed since the last look, for notices to pages.


MOST_OPEN = 1_000  # runs that are watched
MOST_NAMED = 200  # runs that one notice names
EVERYTHING = ("runs", "questions", "workers", "schedules", "sessions", "policy", "memory")

_OPEN_QUESTIONS = (  # their names alone: what they are about may be long, and this is asked often
    sa.select(questions.c.id)
    .join(runs, runs.c.id == questions.c.run)
    .where(questions.c.answered.is_(None), runs.c.status.not_in(OVER))
)


@dataclass(slots=True)
class Notice:
    """The changes since a page was last notified."""

    what: set[str] = field(default_factory=set)
    runs: set[str] = field(default_factory=set)

    def merge(self, other: Notice) -> None:
        self.what |= other.what
        self.runs |= other.runs

    def __bool__(self) -> bool:
        return bool(self.what)

    def to_dict(self, waiting: int) -> dict[str, Any]:
        named = sorted(self.runs) if len(self.runs) <= MOST_NAMED else ["*"]
        return {"what": [one for one in EVERYTHING if one in self.what], "runs": named, "waiting": waiting}


class Changes:
    """Finds changes since the last call. Calls must not overlap: it remembers what it saw."""

    def __init__(self, store: RunStore, log: Path | None) -> None:
        self.waiting = 0  # how much waits for a person
        self._store, self._log = store, log
        self._open: dict[str, tuple[Any, ...]] = {}
        self._questions: frozenset[str] = frozenset()
        self._workers: tuple[Any, ...] = ()
        self._log_was: tuple[int, int] | None = None

    def of_runs(self, heard: Collection[str]) -> Notice:
        """Returns changed runs; `heard` are runs with new events, which may be over already."""
        c = runs.c
        query = sa.select(c.id, c.status, c.segment, c.updated, c.cancelling)
        query = query.where(c.status.not_in(OVER)).order_by(c.created.desc()).limit(MOST_OPEN)
        rows = self._store.database.read(lambda connection: connection.execute(query).all())
        now = {row.id: (row.status, row.segment, row.updated, row.cancelling) for row in rows}
        changed = {one for one, state in now.items() if self._open.get(one) != state}
        changed |= {one for one in self._open if one not in now}
        changed |= {one for one in heard if one not in now and one not in self._open}
        request = self._store.database.read(lambda connection: connection.execute(_OPEN_QUESTIONS).scalars().all())
        asking = self._store.count_asking()
        notice = Notice({"runs"} if changed else set(), changed)
        if any(one.startswith(SCHEDULED) for one in changed):
            notice.what.add("schedules")
        if frozenset(request) != self._questions or len(request) + asking != self.waiting:
            notice.what.add("questions")
        self._open, self._questions, self.waiting = now, frozenset(request), len(request) + asking
        return notice

    def of_others(self) -> Notice:
        notice = Notice()
        workers = tuple((one.id, one.state, one.running) for one in list_workers(self._store.database))
        if workers != self._workers:
            notice.what.add("workers")
        log_is = _state_of(self._log)
        if log_is != self._log_was:
            notice.what.add("sessions")
        self._workers, self._log_was = workers, log_is
        return notice


def _state_of(path: Path | None) -> tuple[int, int] | None:
    try:
        status = path.stat() if path is not None else None
    except OSError:  # there is none yet
        return None
    return (status.st_size, status.st_mtime_ns) if status is not None else None
