"""Reads the log of events: chosen, followed, summed up, a session's page by page; for `forge audit` and the console.

The NDJSON files are the record. Queries for few of many events find them with an index, which is made when it is
missing; the events themselves are read from the record. Only the counts of `--summary` come from the index.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import IO, TypeVar

from forge.project.audit.log_events import Entry, Event, Wanted, read_line, text_of
from forge.project.audit.log_files import Tail, changed, lines_from, open_log, read_piece, rotations, unpack
from forge.project.audit.log_index import NAME as INDEX
from forge.project.audit.log_index import PAGE, EventIndex, IndexedFile, Place, is_damage
from forge.project.audit.log_summary import Summary
from forge.workspace.state.ownership import is_foreign
from forge.workspace.state.store import StoreError

NAME = "audit.ndjson"
LATER = 60.0  # seconds by which a rotated log's last event may be younger than the file says
DAMAGED = "the index of the log of events was damaged, and is built again from the log"

T = TypeVar("T")


def index_beside(path: Path) -> EventIndex | None:
    """The index of a log in a state directory that was made here; None elsewhere, where one may have been planted."""
    folder = path.parent
    is_usable = os.access(folder, os.W_OK | os.X_OK) and not folder.is_symlink() and not is_foreign(folder)
    return EventIndex(folder / INDEX) if path.name == NAME and is_usable and os.path.lexists(path) else None


class Log:
    """The events of a file and of those it was rotated to, the oldest first. `unreadable` counts what was no event.

    `notes` says what a person should know of the index.
    """

    def __init__(
        self, path: Path, wanted: Wanted | None = None, *, rotated: bool = True, index: EventIndex | None = None
    ) -> None:
        self.path = path
        self.wanted = wanted if wanted is not None else Wanted()
        self.unreadable = 0
        self.notes: list[str] = []
        self._rotated = rotated
        self._index = index

    @property
    def files(self) -> list[Path]:
        """Those there are. Raises `ToolError` where they cannot be listed."""
        return [*(rotations(self.path) if self._rotated else ()), *([self.path] if os.path.lexists(self.path) else ())]

    def __iter__(self) -> Iterator[Entry]:
        """Raises `ToolError` for a file that cannot be read. Never holds more than a line."""
        for path in self._prepared(self.wanted.is_narrow):
            with open_log(path) as stream:
                file = self._indexed(stream, path) if self.wanted.is_narrow else None
                yield from self._narrowed(stream, path, file) if file is not None else self._scanned(stream, path, 0)

    def last(self, count: int) -> list[Entry]:
        """The last few of them."""
        found: list[Entry] = []
        for path in reversed(self._prepared()):
            with open_log(path) as stream:
                file = self._indexed(stream, path)
                rest = list(deque(self._scanned(stream, path, file.read if file else 0), count - len(found)))
                found = [*rest, *found]
                if file is not None and len(found) < count:
                    found = [*self._last_indexed(stream, path, file, count - len(found)), *found]
            if len(found) >= count:
                break
        return found

    def summary(self) -> Summary:
        """Counts what is asked for."""
        summary = Summary()
        for path in self._prepared():
            with open_log(path) as stream:
                start = self._count(summary, stream, path)
                for entry in self._scanned(stream, path, start):
                    summary.add(entry.event)
        return summary

    def page(self, session: str, after: int, limit: int) -> tuple[list[tuple[int, Event]], int | None]:
        """Events of a session numbered above `after`, counted from 1, and the number after which there are more; None
        at the end. Raises `ToolError`."""
        page: list[tuple[int, Event]] = []
        number, last = 0, after + limit
        if self._index is None:
            self._index = EventIndex(None)
        for path in self._prepared():
            with open_log(path) as stream:
                skipped = max(0, after - number)
                count, places = self._places_of(stream, path, session, skipped, last - number - skipped)
                for position, entry in enumerate(self._events(stream, path, places), number + skipped + 1):
                    if entry is not None and text_of(entry.event.get("session")) == session:
                        page.append((position, entry.event))
                number += count
        return page, last if number > last else None

    def chosen(self, lines: Iterable[bytes]) -> Iterator[Entry]:
        for line in lines:
            if not self.wanted.may_match(line):
                continue
            entry, _, is_damaged = read_line(line)
            self.unreadable += is_damaged
            if entry is not None and self.wanted.matches(entry.event):
                yield entry

    def follow(self, wait: Callable[[], bool], last: int) -> Iterator[Entry]:
        """The last few events, then those that come, until `wait` says no. A log that is rotated or emptied meanwhile,
        or is not there yet, is followed all the same."""
        tail = Tail(self.path)
        with closing(tail):
            recent = list(self.chosen(tail.recent()))
            yield from recent[max(0, len(recent) - last) :]
            while wait():
                yield from self.chosen(tail.more())

    def _prepared(self, use_index: bool = True) -> list[Path]:
        """The files that may hold what is asked for."""
        files = self.files
        if use_index and self._rotated and files:
            self._ask(lambda index: index.keep_only(files))
        since = self.wanted.since
        return [path for path in files if path == self.path or changed(path) + LATER >= since]

    def _indexed(self, stream: IO[bytes], path: Path) -> IndexedFile | None:
        """How far the file is indexed, which is to its end now; None: there is no index, and it is read instead."""
        return self._ask(lambda index: index.catch_up(stream, path)) or self._ask(
            lambda index: index.catch_up(stream, path)  # once more, where it was damaged
        )

    def _ask(self, question: Callable[[EventIndex], T]) -> T | None:
        """None where the index cannot be used. A damaged one is deleted, and that is said."""
        if self._index is None:
            return None
        try:
            return question(self._index)
        except StoreError as error:
            if is_damage(error):
                self._distrust()
            else:
                self._index = None  # it is busy, or the disk is full, say
        return None

    def _distrust(self) -> None:
        """The index is deleted; the next look builds it again."""
        if self._index is not None:
            self._index.discard()
        if DAMAGED not in self.notes:
            self.notes.append(DAMAGED)

    def _scanned(self, stream: IO[bytes], path: Path, start: int) -> Iterator[Entry]:
        return self.chosen(line for _, line in lines_from(stream, path, start))

    def _narrowed(self, stream: IO[bytes], path: Path, file: IndexedFile) -> Iterator[Entry]:
        """By the index, and from where that fails on by reading on."""
        position, after = 0, -1
        while (places := self._ask(lambda index: index.places(file, self.wanted, after))) is not None:  # noqa: B023
            is_whole = True
            for place, entry in zip(places, self._events(stream, path, places), strict=False):
                is_whole = entry is not None
                if entry is None:
                    break
                position, after = place.start + place.length, place.start
                if self.wanted.matches(entry.event):
                    yield entry
            if is_whole and len(places) < PAGE:
                self.unreadable += file.damaged
                position = file.read
            if not is_whole or len(places) < PAGE:
                break
        yield from self._scanned(stream, path, position)

    def _count(self, summary: Summary, stream: IO[bytes], path: Path) -> int:
        """Add what is indexed. Up to where that is; the rest is read."""
        file = self._indexed(stream, path)
        counts = self._ask(lambda index: index.counts(file, self.wanted)) if file is not None else None
        if file is None or counts is None:
            return 0
        for count in counts:
            summary.add_count(count)
        self.unreadable += file.damaged
        return file.read

    def _last_indexed(self, stream: IO[bytes], path: Path, file: IndexedFile, count: int) -> list[Entry]:
        found: list[Entry] = []
        before = file.read
        while len(found) < count:
            places = self._ask(lambda index: index.last_places(file, self.wanted, before, count - len(found)))  # noqa: B023
            entries = None if places is None else list(self._events(stream, path, places[::-1]))
            if entries is None or None in entries:
                return list(deque(self._scanned(stream, path, 0), count))
            if not places:
                break
            found = [*(one for one in entries if one is not None and self.wanted.matches(one.event)), *found]
            before = places[-1].start
        self.unreadable += file.damaged
        return found

    def _places_of(
        self, stream: IO[bytes], path: Path, session: str, offset: int, limit: int
    ) -> tuple[int, Sequence[Place]]:
        """By an index in memory where there is no other."""
        file = self._indexed(stream, path)
        found = self._ask(lambda index: index.page(file, session, offset, limit)) if file is not None else None
        if found is not None:
            return found
        self._index = EventIndex(None)
        return self._index.page(self._index.catch_up(stream, path), session, offset, limit)

    def _events(self, stream: IO[bytes], path: Path, places: Sequence[Place]) -> Iterator[Entry | None]:
        """What the record has there; None where it is no event, so that the index is wrong."""
        plain = unpack(stream, path) if places else stream
        for place in places:
            plain.seek(place.start)
            entry, start, is_damaged = read_line(read_piece(plain, path, place.length))
            if entry is None or start or is_damaged:
                self._distrust()
                entry = None
            yield entry
