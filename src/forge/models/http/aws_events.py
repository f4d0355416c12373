"""Reads the binary event streams of AWS: messages with a length, headers and two checksums."""

from __future__ import annotations

import json
import struct
from typing import Any
from zlib import crc32

from forge.models.http.sse import LONGEST_EVENT, Event, TooLong

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

    def feed(self, chunk: bytes) -> list[Event]:
        """Adds bytes and returns the complete events. Raises `TooLong`."""
        if self._is_damaged:
            return []
        if self._rest:
            self._rest += chunk
            if len(self._rest) < self._wanted:
                return []
            chunk = bytes(self._rest)
            self._rest.clear()
        events: list[Event] = []
        at = 0
        while (event := self._read(chunk, at)) is not None:
            events.append(event[0])
            at += event[1]
            if at == len(chunk) or self._is_damaged:
                return events
        self._rest += chunk[at:]
        return events

    def finish(self) -> list[Event]:
        """Ends the stream. Half a message is no event: the answer then lacks its end."""
        return []

    def _read(self, data: bytes, at: int) -> tuple[Event, int] | None:
        """Returns the message at a position and its length; None if it is not complete. Raises `TooLong`."""
        self._wanted = _PRELUDE
        if len(data) - at < _PRELUDE:
            return None
        total, size, checksum = _unpack(data, at)
        if crc32(data[at : at + 8]) != checksum or total < _PRELUDE + 4 + size:
            return self._damaged(), 0
        if total > LONGEST_EVENT:
            raise TooLong
        if len(data) - at < total:
            self._wanted = total
            return None
        end = at + total - 4
        if crc32(data[at:end]) != int.from_bytes(data[end : end + 4]):
            return self._damaged(), 0
        start = at + _PRELUDE + size
        raw = data[at + _PRELUDE : start]
        if (name := self._names.get(raw)) is not None:  # nearly always
            return Event(name, data[start:end].decode(errors="replace")), total
        try:
            headers = _read_headers(raw)
        except (struct.error, KeyError, ValueError):
            return self._damaged(), 0
        if headers.get(":message-type", "event") not in ("error", "exception") and len(self._names) < MOST_KNOWN:
            self._names[raw] = str(headers.get(":event-type", "message"))
        return _event(headers, data[start:end]), total

    def _damaged(self) -> Event:
        self._is_damaged = True
        return _error({"message": "a part of the response was damaged on its way: its checksum is wrong"})


def _event(headers: dict[str, Any], payload: bytes) -> Event:
    kind, text = headers.get(":message-type", "event"), payload.decode(errors="replace")
    if kind == "error":  # without a payload of its own
        return _error({"type": headers.get(":error-code", ""), "message": headers.get(":error-message", "")})
    if kind != "exception":
        return Event(str(headers.get(":event-type", "message")), text)
    name = str(headers.get(":exception-type", ""))
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    message = found.get("message") or found.get("Message") if isinstance(found, dict) else text
    return _error({"type": name, "message": str(message or name), "code": _STATUS.get(name, 500)})


def _error(said: dict[str, Any]) -> Event:
    return Event("error", json.dumps({"error": said}))


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
