"""Stores the events of runs. Every function works inside the caller's transaction.

Events that are written together are one row, and packed: a row of six events needs about as much of the write-ahead log
as one event did before. The number of an event is made of the row's number and its place in the row. Rows of versions
before 5 have one event each, and its number is that of the row.
"""

from __future__ import annotations

import json
import threading
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import islice
from typing import Any, NamedTuple
from zlib import crc32

import sqlalchemy as sa

from forge.core.errors import ErrorKind
from forge.core.plain_values import plain
from forge.durable.store.check_input import LONGEST_NAME
from forge.durable.store.encoding import object_of
from forge.durable.store.find import clamp_limit, insert_rows, missing_error
from forge.durable.store.tables import events, runs
from forge.workspace.state.store import StoreError

_PLACES = 1_024  # numbers for the events of a row
_MOST_IN_ROW = 1_000  # events
_LARGEST_ROW = 256 * 1024  # characters; a longer event has a row of its own
_ROWS = 50  # that are read at once
_MOST_REMEMBERED = 1_000  # runs whose keys are remembered
_SEGMENTS = 2  # of each, the latest
_LAST = 2**62  # above every number
_EVENTS = 0x666F7267  # namespace of our advisory locks
_LOCK = sa.text("SELECT pg_advisory_xact_lock(:namespace, key) FROM unnest(CAST(:keys AS integer[])) AS key")

NewEvent = tuple[str | None, Mapping[str, Any]]
"""A key, with which it is stored once per segment, and the event in its wire form."""

NewEvents = Sequence[NewEvent]

SegmentKey = tuple[str, int]
"""A run and the number of a segment."""


class StoredEvent(NamedTuple):
    """A stored event."""

    number: int
    run: str
    text: str  # JSON
    row: int


class Added(NamedTuple):
    """The result of `add_events`. `EventKeys.note` reads it."""

    errors: dict[str, StoreError]  # for runs that do not exist
    before: dict[str, int]  # the last rows of runs, before and after it
    after: dict[str, int]
    keys: dict[
        SegmentKey, tuple[set[str], set[str]]
    ]  # of each segment, those that were stored before, and the new ones


class EventKeys:
    """Remembers the keys that the events of busy runs have, so that they are not read again for each write.

    They are known up to a row. If the run has another last row, somebody else wrote, and they are read again.
    """

    def __init__(self) -> None:
        self._runs: OrderedDict[str, tuple[int, dict[int, set[str]]]] = OrderedDict()
        self._lock = threading.Lock()

    def known(self, segment: SegmentKey, last: int) -> set[str] | None:
        """Returns the keys of a segment; None if they must be read."""
        run, number = segment
        with self._lock:
            row, segments = self._runs.get(run, (0, {}))
            return segments.get(number) if row == last else None

    def note(self, added: Added) -> None:
        """Notes what was added, once it is committed."""
        with self._lock:
            for (run, number), (old, new) in added.keys.items():
                row, segments = self._runs.pop(run, (0, {}))
                if row == added.before[run]:
                    segments = {one: keys for one, keys in segments.items() if one > number - _SEGMENTS}
                elif row != added.after[run]:  # nothing was known, or another thread wrote meanwhile
                    segments = {}
                old |= new
                self._runs[run] = (added.after[run], {**segments, number: old})
            while len(self._runs) > _MOST_REMEMBERED:
                self._runs.popitem(last=False)


def add_events(connection: sa.Connection, batch: Mapping[SegmentKey, NewEvents], remembered: EventKeys) -> Added:
    """Adds events of several runs. Those whose keys are stored already are left out."""
    names = list(dict.fromkeys(run for run, _ in batch))
    lock_events(connection, *names)
    last = sa.select(sa.func.max(events.c.number)).where(events.c.run == runs.c.id).scalar_subquery()
    found = connection.execute(sa.select(runs.c.id, sa.func.coalesce(last, 0)).where(runs.c.id.in_(names)))
    before: dict[str, int] = {row[0]: row[1] for row in found}
    keys: dict[SegmentKey, tuple[set[str], set[str]]] = {}
    new: dict[SegmentKey, NewEvents] = {}
    for segment, wanted in batch.items():
        run, _ = segment
        if run not in before:
            continue
        old = remembered.known(segment, before[run]) if before[run] else set()
        if old is None:
            old = set(_read_keys(connection, segment))
        new[segment], added = _leave_out(wanted, old)
        keys[segment] = (old, added)
    after = before | insert_events(connection, new)
    return Added({run: missing_error(connection, run) for run in names if run not in before}, before, after, keys)


def insert_events(connection: sa.Connection, batch: Mapping[SegmentKey, NewEvents]) -> dict[str, int]:
    """Inserts events of runs that exist, and returns the last row of each. Lock their numbering first."""
    rows = [
        {"run": run, "segment": segment, "size": len(lines), "packed": pack(lines)}
        for (run, segment), new in batch.items()
        for lines in _rows_of(new)
    ]
    return dict(sorted(insert_rows(connection, events, rows, returning=(events.c.run, events.c.number))))


def lock_events(connection: sa.Connection, *run_ids: str) -> None:
    """Locks the numbering of these runs' events until the end of the transaction.

    So numbers become visible in ascending order: a reader of number 7 never gets a 6 later. (Numbers of other runs may
    come late, which does not matter.) SQLite has one writer at a time anyway.
    """
    if connection.dialect.name != "sqlite":
        keys = sorted({crc32(run_id.encode()) - 2**31 for run_id in run_ids})  # one order, so that nobody deadlocks
        connection.execute(_LOCK, {"namespace": _EVENTS, "keys": keys})


def events_of(connection: sa.Connection, run_id: str, after: int, limit: int) -> list[tuple[int, dict[str, Any]]]:
    found = read_events(connection, [run_id], after, clamp_limit(limit))
    return [(one.number, json.loads(one.text)) for one in found]


def read_events(
    connection: sa.Connection, ids: Sequence[str] | None, after: int, limit: int, also: Iterable[int] = ()
) -> list[StoredEvent]:
    """Reads events numbered above `after`, ascending: of these runs, or of all.

    `also`: rows that are read, too, whole; then there may be more events than `limit`.
    """
    after = max(-1, min(after, _LAST))
    c = events.c
    wanted = c.number >= after // _PLACES
    extra = set(also)
    if extra:
        wanted = sa.or_(wanted, c.number.in_(extra))
    query = _query(ids).where(wanted).order_by(c.number)
    found: list[StoredEvent] = []
    row = -1
    while len(found) < limit:
        rows = connection.execute(query.where(c.number > row).limit(min(_ROWS, limit))).all()
        for some in rows:
            found += [one for one in _read_row(some) if one.number > after or one.row in extra]
            if len(found) >= limit and not extra:  # the rest stays packed
                return found[:limit]
        if len(rows) < min(_ROWS, limit):
            break
        row = rows[-1].number
    return found


def read_last_events(connection: sa.Connection, ids: Sequence[str], limit: int) -> list[StoredEvent]:
    """Reads the newest events of these runs, ascending."""
    newest = _newest_events(_newest_rows(connection, ids, limit))
    return list(islice(newest, limit))[::-1]  # the rest stays packed


def find_events(connection: sa.Connection, texts: Sequence[str], rows: int, limit: int) -> list[StoredEvent]:
    """Finds the newest events of all runs that contain one of these texts, the newest first, in so many rows."""
    newest = _newest_events(islice(_newest_rows(connection, None, rows), rows))
    return list(islice((one for one in newest if any(text in one.text for text in texts)), limit))


def read_event(connection: sa.Connection, ids: Sequence[str], number: int) -> StoredEvent | None:
    """Reads one event of these runs by its number."""
    found = read_events(connection, ids, max(0, min(number, _LAST)) - 1, 1)
    return found[0] if found and found[0].number == number else None


def find_event(connection: sa.Connection, segment: SegmentKey, key: str) -> dict[str, Any] | None:
    """Finds an event of a segment by its key."""
    wanted = _shorten(key)
    text = next((one for stored, one in _lines_of(connection, segment) if stored == wanted), None)
    return None if text is None else dict(json.loads(text))


def newest_event(connection: sa.Connection) -> tuple[int, int]:
    """Returns the highest number, and that of its row; zeros where there are no events."""
    c = events.c
    row = connection.execute(sa.select(c.number, c.size).order_by(c.number.desc()).limit(1)).first()
    return (0, 0) if row is None else (_number(row.number, row.size - 1), row.number)


def span_of_events(connection: sa.Connection, ids: Sequence[str]) -> tuple[int, int, int]:
    """Returns the first and the last number of these runs, and how many events they have."""
    c = events.c
    rows = connection.execute(sa.select(c.number, c.size).where(c.run.in_(ids)).order_by(c.number)).all()
    if not rows:
        return 0, 0, 0
    first, last = rows[0], rows[-1]
    return _number(first.number, 0), _number(last.number, last.size - 1), sum(row.size for row in rows)


def _query(ids: Sequence[str] | None) -> sa.Select[Any]:
    query = sa.select(events.c.number, events.c.run, events.c.packed)
    return query if ids is None else query.where(events.c.run.in_(ids))


def _newest_rows(connection: sa.Connection, ids: Sequence[str] | None, wanted: int) -> Iterator[sa.Row[Any]]:
    """Yields rows, the newest first. No more than `wanted` are needed, so no more are read at once."""
    newest_first = _query(ids).order_by(events.c.number.desc()).limit(min(_ROWS, wanted))
    before = _LAST
    while rows := connection.execute(newest_first.where(events.c.number < before)).all():
        yield from rows
        before = rows[-1].number


def _newest_events(rows: Iterable[sa.Row[Any]]) -> Iterator[StoredEvent]:
    for row in rows:
        yield from reversed(list(_read_row(row)))


def _read_row(row: sa.Row[Any]) -> Iterator[StoredEvent]:
    for place, (_, text) in enumerate(unpack(row.packed)):
        yield StoredEvent(_number(row.number, place), row.run, text, row.number)


def _number(row: int, place: int) -> int:
    return row * _PLACES + place


def _rows_of(new: NewEvents) -> Iterator[list[tuple[str | None, str]]]:
    """Yields the keys and the texts of each row."""
    lines: list[tuple[str | None, str]] = []
    size = 0
    for key, event in new:
        text = json.dumps(plain(object_of(event)), ensure_ascii=False, separators=(",", ":"))
        if lines and (len(lines) >= _MOST_IN_ROW or size + len(text) > _LARGEST_ROW):
            yield lines
            lines, size = [], 0
        lines.append((_shorten(key), text))
        size += len(text)
    if lines:
        yield lines


def _leave_out(wanted: NewEvents, old: set[str]) -> tuple[list[NewEvent], set[str]]:
    """Returns the events whose keys are new, and these keys."""
    found: list[NewEvent] = []
    added: set[str] = set()
    for key, event in wanted:
        key = _shorten(key)
        if key is None or (key not in old and key not in added):
            found.append((key, event))
        if key is not None and key not in old:
            added.add(key)
    return found, added


def _read_keys(connection: sa.Connection, segment: SegmentKey) -> Iterator[str]:
    yield from (key for key, _ in _lines_of(connection, segment) if key is not None)


def _lines_of(connection: sa.Connection, segment: SegmentKey) -> Iterator[tuple[str | None, str]]:
    run, number = segment
    query = sa.select(events.c.packed).where(events.c.run == run, events.c.segment == number)
    for packed in connection.execute(query).scalars():
        yield from unpack(packed)


def _shorten(key: str | None) -> str | None:
    """Hashes a long key."""
    if key is None or len(key) <= LONGEST_NAME:
        return key
    return sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


# Packs the events of a row: a line each, compressed.
#
# Events are small and much alike. Postgres compresses only rows of more than 2 kB, and SQLite compresses nothing. The
# compression knows the words that most events have, so that it makes even a single event half as long.


_FORMAT = b"\x01"  # the first byte; another dictionary needs another one
_LEVEL = 6
_RAW = -15  # no header and no checksum: the database has its own
# What a row may refer to; the most frequent words last. It must never change for a format.
_DICTIONARY = (
    b"text_delta reasoning_delta tool_arguments_delta tool_output_chunk tool_progress approval_requested permission"
    b' target retrying message_received run_started compacted "reason":" "error_type":"permission_error'
    b'","suggestion":" "is_error":true "success":false "for_user":" "progress":" "total":null,"message":"'
    b' "labels":[["untrusted","path":" "output":" "data":{" "exit_code":0, "duration": "truncated":false'
    b'"1:turn_started::"\t{"event":"turn_started","ts":1790000000. ,"seq": ,"session":" ","agent":"main","turn":'
    b'\n"1:text::"\t{"event":"text","ts":17 ,"seq": ,"session":" ","agent":"main","text":"'
    b'\n"1:turn_finished: ::"\t{"event":"turn_finished","ts":17 ,"seq": ,"session":" ","agent":"main","turn": '
    b',"usage":{"input":0,"output":0,"cached":0,"cache_writes":0,"reasoning":0},"cost":0.'
    b'\n"1:tool_call_start: ::"\t{"event":"tool_call_start","ts":17 ,"seq": ,"session":" ","agent":"main",'
    b'"call":{"id":"call_ ","name":"file_read","arguments":{"path":" "}}}'
    b'\n"1:tool_call_end: ::"\t{"event":"tool_call_end","ts":17 ,"seq": ,"session":" ","agent":"main","call":{"id":"'
    b'call_ ","name":" ","arguments":{"command":" "}},"success":true,"result":{"id":" ","name":" ","success":true,'
    b'"is_error":false,"for_llm":" ","silent":false,"async":false,"title":" ","data":{},"attachments":[],"error":""},'
    b'"seconds":0.000'
)


def pack(lines: Iterable[tuple[str | None, str]]) -> bytes:
    """Packs events: of each the key and its JSON, which has no line ends and no tabs as such."""
    text = "\n".join(f"{json.dumps(key)}\t{event}" for key, event in lines)
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _RAW, zdict=_DICTIONARY)
    return b"".join((_FORMAT, packer.compress(text.encode()), packer.flush()))


def unpack(packed: bytes) -> Iterator[tuple[str | None, str]]:
    """Yields the key and the JSON of each event."""
    if not packed.startswith(_FORMAT):
        message = "a row of events was packed by a newer Forge"
        raise StoreError(message, ErrorKind.CONFIG, "Update Forge on this machine.")
    text = zlib.decompressobj(_RAW, zdict=_DICTIONARY).decompress(memoryview(packed)[1:]).decode()
    for line in text.split("\n"):
        key, _, event = line.partition("\t")
        yield json.loads(key), event
