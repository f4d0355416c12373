"""The protocol over the standard streams, a message a line: without threads where the system can say what is ready."""

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
ATOMIC = getattr(select, "PIPE_BUF", 512)  # bytes that a pipe said to be writable takes without waiting


async def serve(offer: Offer) -> None:
    """Until the input ends, or this is cancelled."""
    server = offer.server()
    with _own_streams() as (given, taken):
        output = Output(taken)
        async with offer.open():
            try:
                await server.run(Input(given, output), output, server.create_initialization_options())
            except* (anyio.BrokenResourceError, anyio.ClosedResourceError):
                pass  # cancelled while messages wait, the SDK finds its own streams closed


class Input:
    """The client's messages. What cannot be read is answered with an error and skipped."""

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
                self._take(piece)
            line = self._lines.popleft()
            if len(line) > MAX_LINE:
                await self._complain(INVALID_REQUEST, f"A message of more than {MAX_LINE:,} bytes is not read.")
            elif line.strip():
                try:
                    return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
                except (ValidationError, ValueError, RecursionError):
                    await self._complain(PARSE_ERROR, "The line is no JSON-RPC message.")

    def _take(self, piece: bytes) -> None:
        *ended, rest = piece.split(b"\n")
        for line in ended:
            self._keep(line)
            self._lines.append(b"".join(self._part))
            self._part, self._size = [], 0
        self._keep(rest)

    def _keep(self, part: bytes) -> None:
        """Of a line that is too long no more than shows that it is."""
        if part and self._size <= MAX_LINE:
            self._part.append(part)
            self._size += len(part)

    async def _read(self) -> bytes:
        if self._polls:
            try:
                await _readable(self._file)
                return os.read(self._file, PIECE)
            except PermissionError:  # a file or the null device: the system cannot say when it is ready
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
    """Our messages, one after another. A client that does not read makes us wait, not the event loop."""

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
        writing.add_done_callback(self._written)
        await asyncio.shield(writing)  # cancelled or not: after half a line nothing could be read any more

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
        except OSError:  # nobody reads any more
            self._closed = True
            raise anyio.BrokenResourceError from None

    def _written(self, writing: asyncio.Task[None]) -> None:
        self._writing.discard(writing)
        if not writing.cancelled():
            writing.exception()  # whoever sent it was told, or has gone

    async def aclose(self) -> None:
        self._closed = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


async def _readable(file: int) -> None:
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
    """The client's two ends for us alone: whatever else writes to the standard output gets to the standard error."""
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
