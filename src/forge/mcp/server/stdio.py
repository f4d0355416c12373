"""Serves the protocol over the standard streams, one message per line; uses no threads if the system can poll."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import TYPE_CHECKING, Self

import anyio
from mcp.shared.message import SessionMessage
from mcp_types.jsonrpc import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from forge.mcp.server.first_answer import FirstAnswer
from forge.mcp.server.handlers import make_server
from forge.process.running.standard_streams import InputLines, OutputLines

if TYPE_CHECKING:
    from forge.mcp.server.offer import Offer

log = logging.getLogger(__name__)

NOTHING_READ = FirstAnswer()
MAX_LINE = 8 * 1024 * 1024  # bytes of one message to us
LAST_LINES = 5.0  # seconds for a client to read what was sent before the end


async def serve(offer: Offer, given: int, taken: int, first: FirstAnswer = NOTHING_READ) -> None:
    """Serves until the input ends, or this is cancelled. `first` was read and answered already."""
    server = make_server(offer)
    output = StreamOutput(taken, first)
    async with offer.open():
        try:
            await server.run(StreamInput(given, output, first.read), output, server.create_initialization_options())
        except* (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # if cancelled while messages wait, the SDK finds its own streams closed


class StreamInput:
    """Reads the client's messages. An unreadable message is answered with an error and skipped."""

    def __init__(self, file: int, output: StreamOutput, read: bytes = b"") -> None:
        """`read` was read from the file already."""
        self._lines = InputLines(file, MAX_LINE, read)
        self._output = output

    async def receive(self) -> SessionMessage:
        while True:
            line = await self._lines.next()
            if line is None:
                raise anyio.EndOfStream
            if len(line) > MAX_LINE:
                await self._complain(INVALID_REQUEST, f"A message may have at most {MAX_LINE:,} bytes.")
            elif line.strip():
                try:
                    return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
                except (ValidationError, ValueError, RecursionError):
                    await self._complain(PARSE_ERROR, "The line is not a JSON-RPC message.")

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


class StreamOutput:
    """Writes our messages."""

    def __init__(self, file: int, first: FirstAnswer = NOTHING_READ) -> None:
        """`first` was sent already: the SDK's own answer to the same request is not sent."""
        self._lines = OutputLines(file)
        self._first: FirstAnswer | None = first if first.result is not None else None

    async def send(self, item: SessionMessage, /) -> None:
        if self._first is not None and _is_answer(item.message, self._first):
            self._first = None
            return
        line = f"{item.message.model_dump_json(by_alias=True, exclude_unset=True)}\n".encode()
        try:
            await self._lines.write(line)
        except ConnectionError:
            raise anyio.BrokenResourceError from None

    async def aclose(self) -> None:
        with anyio.CancelScope(shield=True):  # half a line would be no message
            await self._lines.finish(LAST_LINES)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _is_answer(message: JSONRPCMessage, first: FirstAnswer) -> bool:
    """Returns whether the SDK answers the request that was answered already."""
    if not isinstance(message, JSONRPCResponse | JSONRPCError) or message.id != first.request:
        return False
    if not isinstance(message, JSONRPCResponse) or message.result != first.result:
        log.warning("the first answer to the client was not the one that the SDK gives")
    return True
