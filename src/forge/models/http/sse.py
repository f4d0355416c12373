"""Reads server-sent events from bytes that arrive in pieces of any size."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from pydantic_core import from_json

LONGEST_EVENT = 64 * 1024 * 1024  # bytes of one line, and of the data of one event: some repeat the whole answer

_BOM = b"\xef\xbb\xbf"


class Event(NamedTuple):
    """One server-sent event."""

    name: str
    data: str


def read_json(text: str) -> Any:
    """Reads the data of an event, as `json.loads` does. Raises ValueError and RecursionError."""
    try:
        return from_json(text)
    except ValueError:  # also for half a character, which `json` accepts
        return json.loads(text)


class TooLong(Exception):
    """A line, or the data of one event, exceeds the limit."""


class EventReader:
    """Reads events: `feed` it bytes as they arrive, `finish` it at the end; both return the complete events.

    As the specification says: lines end in CR LF, LF or CR, a comment and an unknown field are skipped, an event
    without data is none. One rule is more lenient: an event that lacks its blank line at the end of the stream counts.
    """

    def __init__(self) -> None:
        self._begun = False
        self._start = b""  # may become a byte order mark
        self._parts: list[bytes] = []  # pieces of an unfinished line
        self._kept = 0  # bytes in them
        self._after_cr = False
        self._name = ""
        self._data: list[str] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[Event]:
        """Adds bytes and returns the complete events. Raises `TooLong`."""
        chunk = chunk if self._begun else self._without_mark(chunk)
        if not chunk:
            return []
        if self._is_between_events and chunk.endswith(b"\n\n") and b"\r" not in chunk:
            if chunk.startswith(b"data: ") and chunk.find(b"\n") == len(chunk) - 2 and len(chunk) < LONGEST_EVENT:
                return [Event("message", chunk[6:-2].decode(errors="replace"))]  # as nearly all chunks
            return self._read_whole(chunk)
        return self._read_lines(chunk)

    @property
    def _is_between_events(self) -> bool:
        return not (self._parts or self._data or self._name or self._after_cr)

    def _read_whole(self, chunk: bytes) -> list[Event]:
        """Reads a chunk of whole events: nearly all events have one or two lines."""
        events: list[Event] = []
        for block in chunk[:-2].split(b"\n\n"):
            name, data = b"message", block
            if block.startswith(b"event: "):
                name, _, data = block[7:].partition(b"\n")
            if name and data.startswith(b"data: ") and b"\n" not in data and len(data) < LONGEST_EVENT:
                events.append(Event(name.decode(errors="replace"), data[6:].decode(errors="replace")))
            else:
                events += self._read_lines(block + b"\n\n")
        return events

    def _read_lines(self, chunk: bytes) -> list[Event]:
        ended = chunk.endswith(b"\r")
        chunk = chunk.removeprefix(b"\n") if self._after_cr else chunk
        self._after_cr = ended
        events: list[Event] = []
        for line in chunk.splitlines(keepends=True):
            self._parts.append(line)
            self._kept += len(line)
            if self._kept > LONGEST_EVENT:
                raise TooLong
            if line.endswith((b"\n", b"\r")):
                self._end_line(events)
        return events

    def finish(self) -> list[Event]:
        """Ends the stream and returns the last event."""
        events: list[Event] = []
        if self._start:
            self._parts, self._start = [self._start], b""
        if self._parts:
            self._end_line(events)
        self._dispatch(events)
        return events

    def _without_mark(self, chunk: bytes) -> bytes:
        chunk = self._start + chunk
        if len(chunk) < len(_BOM) and _BOM.startswith(chunk):
            self._start = chunk
            return b""
        self._start, self._begun = b"", True
        return chunk.removeprefix(_BOM)

    def _end_line(self, events: list[Event]) -> None:
        line = b"".join(self._parts).rstrip(b"\r\n").decode(errors="replace")
        self._parts, self._kept = [], 0
        if not line:
            self._dispatch(events)
            return
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._size += len(value) + 1
            if self._size > LONGEST_EVENT:
                raise TooLong
            self._data.append(value)
        elif field == "event":
            self._name = value

    def _dispatch(self, events: list[Event]) -> None:
        if self._data:
            events.append(Event(self._name or "message", "\n".join(self._data)))
        self._name, self._data, self._size = "", [], 0
