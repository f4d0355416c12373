"""The binary event streams of AWS, written by hand; tests check them with AWS's own reader."""

from __future__ import annotations

import json
import struct
from typing import Any
from zlib import crc32

from tests.models.serving import Reply


def frame(payload: bytes, **headers: str) -> bytes:
    """One message; header names are written without their colon, and with underscores."""
    raw = b""
    for name, value in headers.items():
        named, text = f":{name.replace('_', '-')}".encode(), value.encode()
        raw += struct.pack(">B", len(named)) + named + struct.pack(">BH", 7, len(text)) + text
    prelude = struct.pack(">II", 16 + len(raw) + len(payload), len(raw))
    message = prelude + struct.pack(">I", crc32(prelude)) + raw + payload
    return message + struct.pack(">I", crc32(message))


def event(name: str, **fields: Any) -> bytes:
    kinds = {"event_type": name, "content_type": "application/json", "message_type": "event"}
    return frame(json.dumps({**fields, "p": "abcdef"}).encode(), **kinds)


def exception(name: str, message: str) -> bytes:
    kinds = {"exception_type": name, "content_type": "application/json", "message_type": "exception"}
    return frame(json.dumps({"message": message}).encode(), **kinds)


def aws_stream(body: bytes, *, every: int = 0, **changes: Any) -> Reply:
    pieces = [body[at : at + every] for at in range(0, len(body), every)] if every else [body]
    return Reply(pieces, headers={"Content-Type": "application/vnd.amazon.eventstream"}, **changes)
