"""Reads the log of events for `forge audit` and the console: filtered, followed, counted by tool and by day.

The NDJSON files are the record. Queries for few of many events find them with an index, which is made when it is
missing; the events themselves are read from the record. Only the counts of `--summary` come from the index.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

from forge.project.audit.log_events import (
    Event,
    EventFilter,
    LogEntry,
    is_error,
    is_refusal,
    number_of,
    read_line,
    text_of,
    tool_of,
)
from forge.project.audit.log_index import NAME as INDEX
from forge.project.audit.log_index import (
    PAGE,
    EventCount,
    EventIndex,
    EventPosition,
    IndexedFile,
    Tail,
    is_damage,
    lines_from,
    modification_time,
    open_log,
    read_piece,
    rotations,
    unpack,
)
from forge.workspace.state import is_foreign
from forge.workspace.state.store import StoreError

NAME = "audit.ndjson"
LATER = 60.0  # seconds by which the last event of a rotated log may be newer than the file's time
DAMAGED = "the index of the event log was damaged; Forge is rebuilding it from the log"

T = TypeVar("T")


def index_beside(path: Path) -> EventIndex | None:
    """Returns the index of a log in a state directory that was made here; None elsewhere, where it may be planted."""
    folder = path.parent
    is_usable = os.access(folder, os.W_OK | os.X_OK) and not folder.is_symlink() and not is_foreign(folder)
    return EventIndex(folder / INDEX) if path.name == NAME and is_usable and os.path.lexists(path) else None


class Log:
    """The events of a file and of its rotated files, the oldest first. `unreadable` counts lines that are not events.

    `notes` has messages about the index for a person.
    """

    def __init__(
        self, path: Path, wanted: EventFilter | None = None, *, rotated: bool = True, index: EventIndex | None = None
    ) -> None:
        self.path = path
        self.wanted = wanted if wanted is not None else EventFilter()
        self.unreadable = 0
        self.notes: list[str] = []
        self._rotated = rotated
        self._index = index

    @property
    def files(self) -> list[Path]:
        """The existing files. Raises `ToolError` if they cannot be listed."""
        return [*(rotations(self.path) if self._rotated else ()), *([self.path] if os.path.lexists(self.path) else ())]

    def __iter__(self) -> Iterator[LogEntry]:
        """Yields matching events. Raises `ToolError` for a file that cannot be read. Never holds more than a line."""
        for path in self._candidate_files(self.wanted.is_narrow):
            with open_log(path) as stream:
                file = self._update_index(stream, path) if self.wanted.is_narrow else None
                yield from self._find_by_index(stream, path, file) if file is not None else self._scan(stream, path, 0)

    def last(self, count: int) -> list[LogEntry]:
        """Returns the last matching events."""
        found: list[LogEntry] = []
        for path in reversed(self._candidate_files()):
            with open_log(path) as stream:
                file = self._update_index(stream, path)
                rest = list(deque(self._scan(stream, path, file.read if file else 0), count - len(found)))
                found = [*rest, *found]
                if file is not None and len(found) < count:
                    found = [*self._last_by_index(stream, path, file, count - len(found)), *found]
            if len(found) >= count:
                break
        return found

    def summary(self) -> LogSummary:
        """Counts the matching events."""
        summary = LogSummary()
        for path in self._candidate_files():
            with open_log(path) as stream:
                start = self._count(summary, stream, path)
                for entry in self._scan(stream, path, start):
                    summary.add(entry.event)
        return summary

    def trends(self, tool: str = "", agent: str = "") -> Trends | None:
        """Counts calls by day, tool and session, from the index alone; None if the index cannot be used."""
        files: list[IndexedFile] = []
        for path in self._candidate_files():
            with open_log(path) as stream:
                file = self._update_index(stream, path)
            if file is None:
                return None
            files.append(file)
        return self._query(lambda index: read_trends(index, files, self.wanted.since, tool, agent))

    def page(self, session: str, after: int, limit: int) -> tuple[list[tuple[int, Event]], int | None]:
        """Returns the events of a session with numbers above `after`, counted from 1, and the number after which there
        are more; None at the end. Raises `ToolError`.
        """
        page: list[tuple[int, Event]] = []
        number, last = 0, after + limit
        if self._index is None:
            self._index = EventIndex(None)
        for path in self._candidate_files():
            with open_log(path) as stream:
                skipped = max(0, after - number)
                count, positions = self._session_positions(stream, path, session, skipped, last - number - skipped)
                for number_in_session, entry in enumerate(self._events(stream, path, positions), number + skipped + 1):
                    if entry is not None and text_of(entry.event.get("session")) == session:
                        page.append((number_in_session, entry.event))
                number += count
        return page, last if number > last else None

    def select(self, lines: Iterable[bytes]) -> Iterator[LogEntry]:
        for line in lines:
            if not self.wanted.may_match(line):
                continue
            entry, _, is_damaged = read_line(line)
            self.unreadable += is_damaged
            if entry is not None and self.wanted.matches(entry.event):
                yield entry

    def follow(self, wait: Callable[[], bool], last: int) -> Iterator[LogEntry]:
        """Yields the last events, then new ones until `wait` returns False. Also follows a log that is rotated,
        truncated or not there yet.
        """
        tail = Tail(self.path)
        with closing(tail):
            recent = list(self.select(tail.recent()))
            yield from recent[max(0, len(recent) - last) :]
            while wait():
                yield from self.select(tail.more())

    def _candidate_files(self, use_index: bool = True) -> list[Path]:
        """Returns the files that may hold matching events."""
        files = self.files
        if use_index and self._rotated and files:
            self._query(lambda index: index.keep_only(files))
        since = self.wanted.since
        return [path for path in files if path == self.path or modification_time(path) + LATER >= since]

    def _update_index(self, stream: IO[bytes], path: Path) -> IndexedFile | None:
        """Indexes the file to its end; returns None if there is no index and the file must be read instead."""
        return self._query(lambda index: index.catch_up(stream, path)) or self._query(
            lambda index: index.catch_up(stream, path)  # again, in case the index was damaged
        )

    def _query(self, question: Callable[[EventIndex], T]) -> T | None:
        """Queries the index; returns None if it cannot be used. A damaged index is deleted, and a note is added."""
        if self._index is None:
            return None
        try:
            return question(self._index)
        except StoreError as error:
            if is_damage(error):
                self._discard_index()
            else:
                self._index = None  # busy, or the disk is full
        return None

    def _discard_index(self) -> None:
        """Deletes the index; the next query rebuilds it."""
        if self._index is not None:
            self._index.discard()
        if DAMAGED not in self.notes:
            self.notes.append(DAMAGED)

    def _scan(self, stream: IO[bytes], path: Path, start: int) -> Iterator[LogEntry]:
        return self.select(line for _, line in lines_from(stream, path, start))

    def _find_by_index(self, stream: IO[bytes], path: Path, file: IndexedFile) -> Iterator[LogEntry]:
        """Yields events found by the index, and reads the rest of the file if the index fails."""
        position, after = 0, -1
        while (positions := self._query(lambda index: index.positions(file, self.wanted, after))) is not None:  # noqa: B023
            is_whole = True
            for found_at, entry in zip(positions, self._events(stream, path, positions), strict=False):
                is_whole = entry is not None
                if entry is None:
                    break
                position, after = found_at.start + found_at.length, found_at.start
                if self.wanted.matches(entry.event):
                    yield entry
            if is_whole and len(positions) < PAGE:
                self.unreadable += file.damaged
                position = file.read
            if not is_whole or len(positions) < PAGE:
                break
        yield from self._scan(stream, path, position)

    def _count(self, summary: LogSummary, stream: IO[bytes], path: Path) -> int:
        """Adds the indexed counts; returns the position from which the file must be read."""
        file = self._update_index(stream, path)
        counts = self._query(lambda index: index.counts(file, self.wanted)) if file is not None else None
        if file is None or counts is None:
            return 0
        for count in counts:
            summary.add_count(count)
        self.unreadable += file.damaged
        return file.read

    def _last_by_index(self, stream: IO[bytes], path: Path, file: IndexedFile, count: int) -> list[LogEntry]:
        found: list[LogEntry] = []
        before = file.read
        while len(found) < count:
            positions = self._query(lambda index: index.last_positions(file, self.wanted, before, count - len(found)))  # noqa: B023
            entries = None if positions is None else list(self._events(stream, path, positions[::-1]))
            if entries is None or None in entries:
                return list(deque(self._scan(stream, path, 0), count))
            if not positions:
                break
            found = [*(one for one in entries if one is not None and self.wanted.matches(one.event)), *found]
            before = positions[-1].start
        self.unreadable += file.damaged
        return found

    def _session_positions(
        self, stream: IO[bytes], path: Path, session: str, offset: int, limit: int
    ) -> tuple[int, Sequence[EventPosition]]:
        """Finds positions of a session's events, with an index in memory if there is no other."""
        file = self._update_index(stream, path)
        found = self._query(lambda index: index.page(file, session, offset, limit)) if file is not None else None
        if found is not None:
            return found
        self._index = EventIndex(None)
        return self._index.page(self._index.catch_up(stream, path), session, offset, limit)

    def _events(self, stream: IO[bytes], path: Path, positions: Sequence[EventPosition]) -> Iterator[LogEntry | None]:
        """Reads the events at positions of the record; yields None for a position without an event, where the index is
        wrong.
        """
        plain = unpack(stream, path) if positions else stream
        for position in positions:
            plain.seek(position.start)
            entry, start, is_damaged = read_line(read_piece(plain, path, position.length))
            if entry is None or start or is_damaged:
                self._discard_index()
                entry = None
            yield entry


# Counts the events of the log by tool, and the ends of runs by reason.


MOST_TOOLS = 1_000  # tools that are counted separately: a model may invent names
OTHERS = "(others)"


class ToolTally:
    """The calls of one tool in numbers."""

    def __init__(self) -> None:
        self.calls = self.errors = self.denied = self.asked = self.started = 0
        self.seconds = 0.0

    @property
    def unfinished(self) -> int:
        """The calls without an end: still running, or the process was killed."""
        return max(0, self.started - self.calls)

    def to_dict(self) -> dict[str, Any]:
        return {
            "calls": self.calls,
            "errors": self.errors,
            "denied": self.denied,
            "asked": self.asked,
            "unfinished": self.unfinished,
            "seconds": round(self.seconds, 3),
        }


class LogSummary:
    """Counts events by tool, and the ends of runs. Its size does not depend on the number of events."""

    COUNTED = ("permission_asked", "run_finished", "tool_call_*")

    def __init__(self) -> None:
        self.tools: dict[str, ToolTally] = {}
        self.runs: dict[str, int] = {}  # reason -> number
        self.first: float | None = None
        self.last: float | None = None

    def add(self, event: Event) -> None:
        at = number_of(event.get("ts"))
        self.first = at if self.first is None else min(self.first, at)
        self.last = at if self.last is None else max(self.last, at)
        kind = event.get("event")
        if kind == "run_finished":
            reason = text_of(event.get("reason"))[:40]
            self.runs[reason] = self.runs.get(reason, 0) + 1
        elif kind in ("tool_call_start", "tool_call_end", "permission_asked"):
            self._count(self._tally_of(tool_of(event)), event)

    def add_count(self, count: EventCount) -> None:
        """Adds many events of one kind and tool at once."""
        self.first = count.first if self.first is None else min(self.first, count.first)
        self.last = count.last if self.last is None else max(self.last, count.last)
        if count.kind == "run_finished":
            self.runs[count.reason] = self.runs.get(count.reason, 0) + count.number
        elif count.kind == "tool_call_start":
            self._tally_of(count.tool).started += count.number
        elif count.kind == "permission_asked":
            self._tally_of(count.tool).asked += count.number
        elif count.kind == "tool_call_end":
            tally = self._tally_of(count.tool)
            tally.calls += count.number
            tally.errors += count.failed
            tally.denied += count.refused
            tally.seconds += count.seconds

    @property
    def total(self) -> ToolTally:
        total = ToolTally()
        for one in self.tools.values():
            for name, value in vars(one).items():
                setattr(total, name, getattr(total, name) + value)
        return total

    def to_dict(self) -> dict[str, Any]:
        return {
            "from": self.first,
            "to": self.last,
            "runs": dict(sorted(self.runs.items())),
            "tools": [{"tool": name, **one.to_dict()} for name, one in self.tools_by_calls()],
            "total": self.total.to_dict(),
        }

    def tools_by_calls(self) -> list[tuple[str, ToolTally]]:
        """Returns the tools, the most used first."""
        return sorted(self.tools.items(), key=lambda one: (-one[1].calls, one[0]))

    def _tally_of(self, name: str) -> ToolTally:
        if name not in self.tools and len(self.tools) >= MOST_TOOLS:
            name = OTHERS
        return self.tools.setdefault(name, ToolTally())

    def _count(self, tally: ToolTally, event: Event) -> None:
        kind = event["event"]
        if kind == "tool_call_start":
            tally.started += 1
        elif kind == "permission_asked":
            tally.asked += 1
        else:
            tally.calls += 1
            tally.errors += is_error(event)
            tally.denied += is_refusal(event)
            tally.seconds += max(0.0, number_of(event.get("seconds")))


# Counts calls, errors, refusals and times by day and by tool, from the index alone.


# calls that wait for a person or a run are not over: they end again later
_ENDS = """WITH ends AS (
    SELECT date(ts, 'unixepoch', 'localtime') AS day, tool, session, agent, wrong, seconds FROM audit_events
    WHERE file IN ({files}) AND ts >= ? AND wrong & 4 = 0
    AND kind = (SELECT id FROM audit_names WHERE text = 'tool_call_end') {chosen})"""
_COUNTS = """ SELECT day, text, count(*), sum(wrong & 3 = 2), sum(wrong & 1) FROM ends
    JOIN audit_names ON id = tool GROUP BY day, tool ORDER BY day, text"""
_TIMES = """, ranked AS (SELECT {key} AS part, seconds, row_number() OVER (PARTITION BY {key} ORDER BY seconds) AS rank,
    count(*) OVER (PARTITION BY {key}) AS number FROM ends)
    SELECT {shown}, max(CASE WHEN rank = (number + 1) / 2 THEN seconds END),
    max(CASE WHEN rank = (number * 95 + 99) / 100 THEN seconds END) FROM ranked GROUP BY part"""


_SESSIONS = """ SELECT (SELECT text FROM audit_names WHERE id = session),
    (SELECT text FROM audit_names WHERE id = agent), count(*), sum(wrong & 3 = 2), sum(wrong & 1)
    FROM ends GROUP BY session, agent ORDER BY 3 DESC LIMIT ?"""
MOST_SESSIONS = 20_000  # sessions whose calls are counted singly, those with the most calls


class SessionCount(NamedTuple):
    """The finished calls of an agent in a session."""

    session: str
    agent: str
    calls: int
    errors: int  # without refusals
    denied: int


class DayCount(NamedTuple):
    """The finished calls of a tool on a local day, as `YYYY-MM-DD`."""

    day: str
    tool: str
    calls: int
    errors: int  # without refusals
    denied: int


class CallTimes(NamedTuple):
    """The seconds that half of the calls take at most, and 95 of 100."""

    p50: float
    p95: float


class Trends(NamedTuple):
    """Figures of calls since a time."""

    counts: Sequence[DayCount]
    by_day: dict[str, CallTimes]
    by_tool: dict[str, CallTimes]
    sessions: Sequence[SessionCount]


def read_trends(
    index: EventIndex, files: Sequence[IndexedFile], since: float, tool: str = "", agent: str = ""
) -> Trends:
    """Counts the calls since a time, of one tool and one agent or of all. No line of the log is read. Raises
    `StoreError`.
    """
    wanted = {name: text for name, text in (("tool", tool), ("agent", agent)) if text}
    chosen = " ".join(f"AND {name} = (SELECT id FROM audit_names WHERE text = ?)" for name in wanted)  # noqa: S608
    ends = _ENDS.format(files=", ".join(str(one.id) for one in files), chosen=chosen)
    values: list[Any] = [since, *wanted.values()]
    tool_name = "(SELECT text FROM audit_names WHERE id = part)"
    return Trends(
        [DayCount(*row) for row in index.query(ends + _COUNTS, values)],
        _read_times(index, ends + _TIMES.format(key="day", shown="part"), values),
        _read_times(index, ends + _TIMES.format(key="tool", shown=tool_name), values),
        [SessionCount(*row) for row in index.query(ends + _SESSIONS, [*values, MOST_SESSIONS])],
    )


def _read_times(index: EventIndex, query: str, values: Sequence[Any]) -> dict[str, CallTimes]:
    return {str(name): CallTimes(p50, p95) for name, p50, p95 in index.query(query, values)}
