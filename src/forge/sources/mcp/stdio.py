"""A server that is a program: one message a line, in and out; what it writes as errors is its log."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter

from forge.core.errors import ErrorKind, ToolError
from forge.process.environment import shell_environment
from forge.process.running.piped import Piped
from forge.sources.mcp.bounds import MIB, MOST_LINE, MOST_MESSAGE
from forge.sources.mcp.target import Target
from forge.sources.mcp.wire import Wire

Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]

DEPTH = "FORGE_MCP_DEPTH"  # the variable that says a server how many it is in
DEEPEST = 4
PATIENCE, GRACE = 0.7, 1.0  # seconds to end by itself when nothing more comes, and when it is asked to
_PIECE = MIB  # bytes read at once
_PART = 4 * 1024  # bytes kept of the beginning and of the end of a line that is too long
_TELLING = 1.0  # seconds after its last output in which we are told how it ended
_WAITING = 64  # messages that wait for it to read

_ID_FIRST = re.compile(
    rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*"?([0-9]{1,15})"?\s*,\s*"(?:result|error)"'
)
_ID_LAST = re.compile(rb'[}\]]\s*,\s*"id"\s*:\s*"?([0-9]{1,15})"?\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$')


@asynccontextmanager
async def over_stdio(target: Target, wire: Wire) -> AsyncIterator[Streams]:
    """The streams of a program that runs meanwhile; `ToolError` if it cannot be started."""
    depth = _depth() + 1
    program = await Piped.start(
        target.command,
        cwd=target.directory or Path.cwd(),
        env={**shell_environment(), **target.environment, DEPTH: str(depth)},
    )
    talk = _Talk(program, wire)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(talk.read)
            tasks.start_soon(talk.read_errors)
            tasks.start_soon(talk.write)
            try:
                yield talk.incoming, talk.outgoing
            finally:
                with anyio.CancelScope(shield=True):
                    await talk.stop()
                tasks.cancel_scope.cancel()
    finally:
        talk.close()


def _depth() -> int:
    """How many servers we are in. Raises `ToolError` where it is too many."""
    said = os.environ.get(DEPTH, "")
    depth = int(said) if said.isdecimal() and len(said) < 3 else 0
    if depth >= DEEPEST:
        raise ToolError(
            f"servers have started servers, {depth} deep",
            ErrorKind.CONFIG,
            "Check whether a project that is served has itself among its mcpServers.",
        )
    return depth


class _Talk:
    """Carries messages between a program and the SDK."""

    def __init__(self, program: Piped, wire: Wire) -> None:
        self.program = program
        self.wire = wire
        self._arrived, self.incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        self.outgoing, self._to_send = anyio.create_memory_object_stream[SessionMessage](_WAITING)
        self._errors_read = asyncio.Event()
        self._sent = asyncio.Event()
        self._wanted = True

    async def read(self) -> None:
        lines = Lines()
        while piece := await self.program.output.read(_PIECE):
            for line in lines.split(piece):
                await self._take(line)
            if lines.waiting > MOST_LINE:
                self.wire.lose(f"it wrote more than {MOST_LINE // MIB} MiB without an end of line")
                break
        else:
            await self._find_out_how_it_ended()
        self._arrived.close()

    async def read_errors(self) -> None:
        lines = Lines(most=_PART)
        try:
            while piece := await self.program.errors.read(_PART * 16):
                for line in lines.split(piece):
                    self.wire.hear("info", "stderr", line.text)
                await self.wire.calm.pause()
            if rest := lines.rest():
                self.wire.hear("info", "stderr", rest.text)
        finally:
            self._errors_read.set()

    async def write(self) -> None:
        try:
            async for item in self._to_send:
                content = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                await self.program.write(content.encode() + b"\n")
        except ConnectionError:
            self._to_send.close()  # it reads no more; if it also ended, that is told where its output ends
        finally:
            self._sent.set()

    async def stop(self) -> None:
        self._wanted = False
        self.incoming.close()
        self.outgoing.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await self._sent.wait()
        await self.program.stop(PATIENCE, GRACE)

    def close(self) -> None:
        for stream in (self._arrived, self.incoming, self.outgoing, self._to_send):
            stream.close()

    async def _take(self, line: Line) -> None:
        if not self._wanted or not line.head.strip():
            return
        item = _message(line)
        if item is None:
            self.wire.hear("warning", "stdout", line.text)
            await self.wire.calm.pause()
            return
        try:
            await self._arrived.send(item)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._wanted = False  # the rest is read all the same: it may have to write before it can end

    async def _find_out_how_it_ended(self) -> None:
        how = "it closed its output"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_TELLING):
                try:
                    how = await self.program.ended()
                except ToolError as error:
                    self.wire.unstartable = error
                await self._errors_read.wait()
        self.wire.lose(self.wire.ending(how))


class Line(NamedTuple):
    """One that came; of one that is too long, the beginning and the end."""

    head: bytes
    tail: bytes = b""
    size: int = 0  # where it is too long

    @property
    def text(self) -> str:
        return self.head[:_PART].decode(errors="replace")


class Lines:
    """Takes pieces apart into lines, and never keeps more of one than a message may have."""

    def __init__(self, most: int = MOST_MESSAGE) -> None:
        self._most = most
        self._pieces: list[bytes] = []
        self._tail = b""
        self.waiting = 0  # bytes of the line that is not complete

    def split(self, piece: bytes) -> Iterator[Line]:
        *ends, rest = piece.split(b"\n")
        for end in ends:
            self._add(end)
            if line := self.rest():
                yield line
        self._add(rest)

    def rest(self) -> Line | None:
        """What came since the last end of line."""
        pieces, tail, size = self._pieces, self._tail, self.waiting
        self._pieces, self._tail, self.waiting = [], b"", 0
        if not size:
            return None
        return Line(b"".join(pieces)) if size <= self._most else Line(pieces[0], tail, size)

    def _add(self, piece: bytes) -> None:
        if not piece:
            return
        self.waiting += len(piece)
        if self.waiting <= self._most:
            self._pieces.append(piece)
            return
        if not self._tail:
            self._pieces = [b"".join([*self._pieces, piece])[:_PART]]
        self._tail = (self._tail + piece)[-_PART:]


def _message(line: Line) -> SessionMessage | None:
    """None for what is none. What looks like the answer to a call and cannot be used becomes a failed answer."""
    problem = f"its answer has {line.size:,} bytes, and {MOST_MESSAGE:,} is the most"
    if not line.size:
        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(line.head, by_name=False))
        except ValueError:
            problem = "its answer is no valid message"
    found = _ID_FIRST.match(line.head[:_PART]) or _ID_LAST.search((line.tail or line.head)[-_PART:])
    if found is None:
        return None
    error = ErrorData(code=PARSE_ERROR, message=problem)
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=int(found[1]), error=error))
