"""Unpacks compressed bodies piece by piece, up to a limit."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, Protocol

from forge.core.errors import ErrorKind, ToolError

ACCEPTED = "gzip, deflate"  # sent as Accept-Encoding
MOST_LAYERS = 3
_PIECE = 64 * 1024  # bytes unpacked at a time


class Unpacker:
    """Unpacks a body as it arrives and stores up to `limit` bytes."""

    def __init__(self, encodings: list[str], limit: int) -> None:
        self.limit = limit
        self.full = False  # there was more
        self.body = bytearray()
        self._layers = [
            _make_layer(encoding) for encoding in reversed(encodings)
        ]  # the last one applied comes off first
        self._passed = [0] * len(self._layers)  # bytes each layer gave: a bomb may hide inside another

    def feed(self, chunk: bytes) -> None:
        self._push(0, chunk)

    def finish(self) -> None:
        """Raises `ToolError` if the body ended too early."""
        if not self.full and not all(layer.complete for layer in self._layers):
            raise _broken_body_error("it ends too early")

    def _push(self, depth: int, chunk: bytes) -> None:
        if depth == len(self._layers):
            room = self.limit - len(self.body)
            self.full = self.full or len(chunk) > room
            self.body += chunk[:room]
            return
        try:
            for piece in self._layers[depth].unpack(chunk):
                self._passed[depth] += len(piece)
                self._push(depth + 1, piece)
                if self._passed[depth] > self.limit:
                    self.full = True
                if self.full:
                    return
        except (zlib.error, ValueError, EOFError) as error:
            raise _broken_body_error(str(error)) from None


class _Layer(Protocol):
    @property
    def complete(self) -> bool: ...

    def unpack(self, chunk: bytes) -> Iterator[bytes]: ...


def read_encodings(value: str) -> list[str]:
    """Returns the layers that a Content-Encoding header names, in the order of their application."""
    found = [name for part in value.split(",") if (name := part.strip().lower()) not in ("", "identity")]
    if len(found) > MOST_LAYERS:
        raise _encoding_error(f"compressed {len(found)} times over")
    return found


def _make_layer(encoding: str) -> _Layer:
    if encoding in ("gzip", "x-gzip"):
        return _Gzip()
    if encoding == "deflate":
        return _Deflate()
    raise _encoding_error(f"compressed with {encoding[:30]!r}")


class _Gzip:
    """Unpacks one gzip member after another; bytes after the last member are padding."""

    def __init__(self) -> None:
        self._member: Any = None
        self._any = False
        self._padding = False
        self._held = b""  # the first byte of what may be another member

    @property
    def complete(self) -> bool:
        return self._member is None

    def unpack(self, chunk: bytes) -> Iterator[bytes]:
        chunk, self._held = self._held + chunk, b""
        while chunk and not self._padding:
            if self._member is None:
                if self._any and len(chunk) == 1 and chunk == b"\x1f":
                    self._held = chunk
                    return
                if self._any and chunk[:2] != b"\x1f\x8b":
                    self._padding = True
                    return
                self._member, self._any = zlib.decompressobj(31), True
            yield from _inflate(self._member, chunk)
            if not self._member.eof:
                return
            chunk, self._member = self._member.unused_data, None


class _Deflate:
    """Unpacks zlib's format, as the standard says, or raw deflate, as some servers send it."""

    def __init__(self) -> None:
        self._stream: Any = None
        self._held = b""

    @property
    def complete(self) -> bool:
        return self._stream.eof if self._stream is not None else not self._held

    def unpack(self, chunk: bytes) -> Iterator[bytes]:
        if self._stream is None:
            chunk = self._held + chunk
            if len(chunk) < 2:
                self._held = chunk
                return
            wrapped = chunk[0] & 0x0F == 8 and int.from_bytes(chunk[:2], "big") % 31 == 0
            self._stream = zlib.decompressobj(15 if wrapped else -15)
        if not self._stream.eof:
            yield from _inflate(self._stream, chunk)


def _inflate(stream: Any, chunk: bytes) -> Iterator[bytes]:
    while True:
        piece = stream.decompress(chunk, _PIECE)
        chunk = stream.unconsumed_tail
        if piece:
            yield piece
        if stream.eof or (not chunk and len(piece) < _PIECE):
            return


def _encoding_error(how: str) -> ToolError:
    return ToolError(
        f"the response is {how}, which is not supported",
        ErrorKind.SYSTEM,
        f"The server was asked for {ACCEPTED} and ignored it; look for the same content elsewhere.",
    )


def _broken_body_error(why: str) -> ToolError:
    return ToolError(
        f"the response cannot be decompressed: {why}",
        ErrorKind.SYSTEM,
        "Try again, or look for the same content elsewhere.",
    )
