"""Reads the streams of model servers, server-sent events and AWS's binary ones, into the parts of an answer."""

from __future__ import annotations

import json
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from zlib import crc32

from pydantic_core import from_json

from forge.core.events import ReasoningDelta, TextDelta, ToolArgumentsDelta
from forge.core.messages import Message
from forge.core.provider import ProviderError

LONGEST_EVENT = 64 * 1024 * 1024  # bytes of one line, and of the data of one event: some repeat the whole answer

_BOM = b"\xef\xbb\xbf"


class SentEvent(NamedTuple):
    """One server-sent event."""

    name: str
    data: str


def read_json(text: str) -> Any:
    """Reads the data of an event, as `json.loads` does. Raises ValueError and RecursionError."""
    try:
        return from_json(text)
    except ValueError:  # also for half a character, which `json` accepts
        return json.loads(text)


def object_in(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Returns the object of that name in a server's answer; an empty one if there is none."""
    found = data.get(name)
    return found if isinstance(found, dict) else {}


def list_in(data: Mapping[str, Any], name: str) -> list[Any]:
    """Returns the list of that name in a server's answer; an empty one if there is none."""
    found = data.get(name)
    return found if isinstance(found, list) else []


def count_of(value: Any) -> int:
    """Returns a number of tokens as a server reports it; 0 for anything else."""
    return value if type(value) is int and value > 0 else 0


class EventTooLong(Exception):
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

    def feed(self, chunk: bytes) -> list[SentEvent]:
        """Adds bytes and returns the complete events. Raises `TooLong`."""
        chunk = chunk if self._begun else self._without_mark(chunk)
        if not chunk:
            return []
        if self._is_between_events and chunk.endswith(b"\n\n") and b"\r" not in chunk:
            if chunk.startswith(b"data: ") and chunk.find(b"\n") == len(chunk) - 2 and len(chunk) < LONGEST_EVENT:
                return [SentEvent("message", chunk[6:-2].decode(errors="replace"))]  # as nearly all chunks
            return self._read_whole(chunk)
        return self._read_lines(chunk)

    @property
    def _is_between_events(self) -> bool:
        return not (self._parts or self._data or self._name or self._after_cr)

    def _read_whole(self, chunk: bytes) -> list[SentEvent]:
        """Reads a chunk of whole events: nearly all events have one or two lines."""
        events: list[SentEvent] = []
        for block in chunk[:-2].split(b"\n\n"):
            name, data = b"message", block
            if block.startswith(b"event: "):
                name, _, data = block[7:].partition(b"\n")
            if name and data.startswith(b"data: ") and b"\n" not in data and len(data) < LONGEST_EVENT:
                events.append(SentEvent(name.decode(errors="replace"), data[6:].decode(errors="replace")))
            else:
                events += self._read_lines(block + b"\n\n")
        return events

    def _read_lines(self, chunk: bytes) -> list[SentEvent]:
        ended = chunk.endswith(b"\r")
        chunk = chunk.removeprefix(b"\n") if self._after_cr else chunk
        self._after_cr = ended
        events: list[SentEvent] = []
        for line in chunk.splitlines(keepends=True):
            self._parts.append(line)
            self._kept += len(line)
            if self._kept > LONGEST_EVENT:
                raise EventTooLong
            if line.endswith((b"\n", b"\r")):
                self._end_line(events)
        return events

    def finish(self) -> list[SentEvent]:
        """Ends the stream and returns the last event."""
        events: list[SentEvent] = []
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

    def _end_line(self, events: list[SentEvent]) -> None:
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
                raise EventTooLong
            self._data.append(value)
        elif field == "event":
            self._name = value

    def _dispatch(self, events: list[SentEvent]) -> None:
        if self._data:
            events.append(SentEvent(self._name or "message", "\n".join(self._data)))
        self._name, self._data, self._size = "", [], 0


# --- Reads the binary event streams of AWS: messages with a length, headers and two checksums.


AWS_EVENTS = "application/vnd.amazon.eventstream"

MOST_KNOWN = 64  # kinds of headers that are remembered

_unpack = struct.Struct(">III").unpack_from
_PRELUDE = 12  # bytes: the length of all, the length of the headers, their checksum
_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}  # bytes of a header's value, by its type
_TEXT, _BYTES = 7, 6
_STATUS = {  # HTTP statuses of exceptions inside a stream
    "throttlingException": 429,
    "validationException": 400,
    "accessDeniedException": 403,
    "resourceNotFoundException": 404,
    "modelTimeoutException": 408,
    "modelNotReadyException": 503,
    "serviceUnavailableException": 503,
    "internalServerException": 500,
    "modelStreamErrorException": 500,
}


class AwsEventReader:
    """Reads events: `feed` it bytes as they arrive, `finish` it at the end; both return the complete events.

    An exception and a damaged message are events named "error"; nothing is read after a damaged one.
    """

    def __init__(self) -> None:
        self._rest = bytearray()  # of a message that is not complete
        self._wanted = _PRELUDE  # bytes before there is more to read
        self._names: dict[bytes, str] = {}  # of events, by their headers, which repeat
        self._is_damaged = False

    def feed(self, chunk: bytes) -> list[SentEvent]:
        """Adds bytes and returns the complete events. Raises `TooLong`."""
        if self._is_damaged:
            return []
        if self._rest:
            self._rest += chunk
            if len(self._rest) < self._wanted:
                return []
            chunk = bytes(self._rest)
            self._rest.clear()
        events: list[SentEvent] = []
        at = 0
        while (event := self._read(chunk, at)) is not None:
            events.append(event[0])
            at += event[1]
            if at == len(chunk) or self._is_damaged:
                return events
        self._rest += chunk[at:]
        return events

    def finish(self) -> list[SentEvent]:
        """Ends the stream. Half a message is no event: the answer then lacks its end."""
        return []

    def _read(self, data: bytes, at: int) -> tuple[SentEvent, int] | None:
        """Returns the message at a position and its length; None if it is not complete. Raises `TooLong`."""
        self._wanted = _PRELUDE
        if len(data) - at < _PRELUDE:
            return None
        total, size, checksum = _unpack(data, at)
        if crc32(data[at : at + 8]) != checksum or total < _PRELUDE + 4 + size:
            return self._damaged(), 0
        if total > LONGEST_EVENT:
            raise EventTooLong
        if len(data) - at < total:
            self._wanted = total
            return None
        end = at + total - 4
        if crc32(data[at:end]) != int.from_bytes(data[end : end + 4]):
            return self._damaged(), 0
        start = at + _PRELUDE + size
        raw = data[at + _PRELUDE : start]
        if (name := self._names.get(raw)) is not None:  # nearly always
            return SentEvent(name, data[start:end].decode(errors="replace")), total
        try:
            headers = _read_headers(raw)
        except (struct.error, KeyError, ValueError):
            return self._damaged(), 0
        if headers.get(":message-type", "event") not in ("error", "exception") and len(self._names) < MOST_KNOWN:
            self._names[raw] = str(headers.get(":event-type", "message"))
        return _event(headers, data[start:end]), total

    def _damaged(self) -> SentEvent:
        self._is_damaged = True
        return _error({"message": "a part of the response was damaged on its way: its checksum is wrong"})


def _event(headers: dict[str, Any], payload: bytes) -> SentEvent:
    kind, text = headers.get(":message-type", "event"), payload.decode(errors="replace")
    if kind == "error":  # without a payload of its own
        return _error({"type": headers.get(":error-code", ""), "message": headers.get(":error-message", "")})
    if kind != "exception":
        return SentEvent(str(headers.get(":event-type", "message")), text)
    name = str(headers.get(":exception-type", ""))
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    message = found.get("message") or found.get("Message") if isinstance(found, dict) else text
    return _error({"type": name, "message": str(message or name), "code": _STATUS.get(name, 500)})


def _error(said: dict[str, Any]) -> SentEvent:
    return SentEvent("error", json.dumps({"error": said}))


def _read_headers(raw: bytes) -> dict[str, Any]:
    """Returns the headers; only texts are of interest. Raises for headers that break their own rules."""
    found: dict[str, Any] = {}
    at = 0
    while at < len(raw):
        end = at + 1 + raw[at]
        name, kind = raw[at + 1 : end].decode(), raw[end] if end < len(raw) else -1
        at = end + 1
        if kind in (_TEXT, _BYTES):
            (size,) = struct.unpack_from(">H", raw, at)
            value, at = raw[at + 2 : at + 2 + size], at + 2 + size
            found[name] = value.decode() if kind == _TEXT else value
        else:
            at += _SIZES[kind]
        if at > len(raw):
            raise ValueError("a header is longer than its message")
    return found


# --- Holds what every reader of a streamed answer needs.


Delta = TextDelta | ReasoningDelta | ToolArgumentsDelta


class StreamedAnswer(ABC):
    """Assembles an answer: `take` events as they come and get the new pieces, then read the whole `message`."""

    begun = False  # something of the answer was read
    done = False  # nothing of interest follows

    def __init__(
        self, origin: str, taken: set[str], error: Callable[[Any], ProviderError], action: str = "asking the model"
    ) -> None:
        """`taken`: ids of earlier calls. `error` returns the error for an error object inside the stream."""
        self._origin, self._taken, self._error, self._action = origin, set(taken), error, action
        self._prepare()

    @abstractmethod
    def _prepare(self) -> None:
        """Sets the reader's own state."""

    @abstractmethod
    def take(self, event: SentEvent) -> Sequence[Delta]:
        """Returns the new pieces. Raises `ProviderError` for an error inside the stream, or unreadable data."""

    @abstractmethod
    def message(self) -> Message:
        """Returns the message. Raises `ProviderError` if the stream ended early: half an answer looks complete."""
