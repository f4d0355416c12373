"""Serves the protocol over the standard streams, one message per line; uses no threads if the system can poll."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import select
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self

import anyio
from mcp.shared.message import SessionMessage
from mcp_types.jsonrpc import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter
from pydantic import ValidationError

from forge.core.execution.threads import in_thread

if TYPE_CHECKING:
    from forge.exports.mcp_server.offer import Offer

MAX_LINE = 8 * 1024 * 1024  # bytes of one message to us
PIECE = 256 * 1024
ATOMIC = getattr(select, "PIPE_BUF", 512)  # bytes that a writable pipe accepts without blocking


async def serve(offer: Offer) -> None:
    """Serves until the input ends, or this is cancelled."""
    server = offer.server()
    with _own_streams() as (given, taken):
        output = Output(taken)
        async with offer.open():
            try:
                await server.run(Input(given, output), output, server.create_initialization_options())
            except* (anyio.BrokenResourceError, anyio.ClosedResourceError):
                pass  # if cancelled while messages wait, the SDK finds its own streams closed


class Input:
    """Reads the client's messages. An unreadable message is answered with an error and skipped."""

    def __init__(self, file: int, output: Output) -> None:
        self._file = file
        self._output = output
        self._lines: deque[bytes] = deque()
        self._part: list[bytes] = []
        self._size = 0
        self._polls = True

    async def receive(self) -> SessionMessage:
        while True:
            while not self._lines:
                piece = await self._read()
                if not piece:
                    raise anyio.EndOfStream
                self._split_lines(piece)
            line = self._lines.popleft()
            if len(line) > MAX_LINE:
                await self._complain(INVALID_REQUEST, f"A message of more than {MAX_LINE:,} bytes is not read.")
            elif line.strip():
                try:
                    return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
                except (ValidationError, ValueError, RecursionError):
                    await self._complain(PARSE_ERROR, "The line is no JSON-RPC message.")

    def _split_lines(self, piece: bytes) -> None:
        *ended, rest = piece.split(b"\n")
        for line in ended:
            self._buffer(line)
            self._lines.append(b"".join(self._part))
            self._part, self._size = [], 0
        self._buffer(rest)

    def _buffer(self, part: bytes) -> None:
        """Buffers a part of a line; of a line that is too long, just enough to notice."""
        if part and self._size <= MAX_LINE:
            self._part.append(part)
            self._size += len(part)

    async def _read(self) -> bytes:
        if self._polls:
            try:
                await _await_readable(self._file)
                return os.read(self._file, PIECE)
            except PermissionError:  # a file or the null device: the system cannot poll it
                self._polls = False
        piece: bytes = await in_thread(lambda: os.read(self._file, PIECE))
        return piece

    async def _complain(self, code: int, message: str) -> None:
        error = JSONRPCError(jsonrpc="2.0", id=None, error=ErrorData(code=code, message=message))
        await self._output.send(SessionMessage(error))

    async def aclose(self) -> None:
        return

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return


class Output:
    """Writes our messages in order. A client that does not read delays the sender, not the event loop."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._turn = asyncio.Lock()
        self._writing: set[asyncio.Task[None]] = set()
        self._closed = False

    async def send(self, item: SessionMessage, /) -> None:
        line = f"{item.message.model_dump_json(by_alias=True, exclude_unset=True)}\n".encode()
        if len(line) <= ATOMIC and not self._turn.locked() and select.select([], [self._file], [], 0)[1]:
            self._write(line)
            return
        writing = asyncio.create_task(self._write_in_turn(line))
        self._writing.add(writing)
        writing.add_done_callback(self._forget_write)
        await asyncio.shield(writing)  # even if cancelled: half a line would break the stream

    async def _write_in_turn(self, line: bytes) -> None:
        async with self._turn:
            await in_thread(lambda: self._write(line))

    def _write(self, line: bytes) -> None:
        if self._closed:
            raise anyio.ClosedResourceError
        view = memoryview(line)
        try:
            while view:
                view = view[os.write(self._file, view) :]
        except OSError:  # the client is gone
            self._closed = True
            raise anyio.BrokenResourceError from None

    def _forget_write(self, writing: asyncio.Task[None]) -> None:
        self._writing.discard(writing)
        if not writing.cancelled():
            writing.exception()  # the sender received it, or is gone

    async def aclose(self) -> None:
        self._closed = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


async def _await_readable(file: int) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(file, _wake, ready)
    try:
        await ready
    finally:
        loop.remove_reader(file)


def _wake(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


@contextmanager
def _own_streams() -> Iterator[tuple[int, int]]:
    """Reserves the standard streams for the protocol: other writes to the standard output go to the standard error."""
    given, taken = (fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 3) for number in (0, 1))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    try:
        yield given, taken
    finally:
        with contextlib.suppress(OSError):
            os.dup2(given, 0)
            os.dup2(taken, 1)
