"""A tiny HTTP server on loopback that plays what it is told, good or hostile, and remembers what it was asked."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ssl import SSLContext
from typing import Any

RESET = "reset"  # in the parts of a reply: the connection is reset here
CUT = "cut"  # the connection is closed here, in the middle of the body

Part = bytes | str | Callable[[], Awaitable[Any]]


@dataclass
class Reply:
    """What is sent back. `parts` go out one by one; a callable among them is awaited in its place."""

    parts: Sequence[Part] = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    framing: str = "chunked"  # "length", or "close": the body ends where the connection does
    before: Callable[[], Awaitable[Any]] | None = None  # awaited before anything is sent


@dataclass
class Asked:
    """One request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> Any:
        return json.loads(self.raw)


class Server:
    """`url` is where it listens, `asked` what came, `left` is set when a client goes away before its reply is over."""

    def __init__(self, replies: Iterable[Reply | Callable[[Asked], Reply]]) -> None:
        self.replies = list(replies)
        self.asked: list[Asked] = []
        self.left = asyncio.Event()
        self.url = ""
        self.opened = 0  # connections
        self.connections: set[asyncio.Task[None]] = set()

    @property
    def bodies(self) -> list[Any]:
        return [asked.body for asked in self.asked]

    def noticed(self, watch: asyncio.Future[bytes]) -> None:
        if not watch.cancelled():
            watch.exception()
            self.left.set()

    def next_reply(self) -> Reply:
        """One after the other; the last one again and again. A function makes its reply from the request."""
        reply = self.replies[min(len(self.asked), len(self.replies)) - 1]
        return reply if isinstance(reply, Reply) else reply(self.asked[-1])


@asynccontextmanager
async def serving(*replies: Reply | Callable[[Asked], Reply], tls: SSLContext | None = None) -> AsyncIterator[Server]:
    """Serves these replies, one a request."""
    server = Server(replies)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        server.connections.add(task)
        server.opened += 1
        try:
            while await _one(server, reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            server.connections.discard(task)
            writer.transport.abort()

    listening = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
    host, port = listening.sockets[0].getsockname()[:2]
    server.url = f"{'https' if tls else 'http'}://{host}:{port}"
    try:
        yield server
    finally:
        listening.close()
        for task in [*server.connections]:
            task.cancel()
        await asyncio.gather(*server.connections, return_exceptions=True)


def sse(*data: Any, done: bool = True, end: str = "\n") -> bytes:
    """Events as the OpenAI API writes them: objects as JSON, texts as they are."""
    lines = [f"data: {one if isinstance(one, str) else json.dumps(one)}" for one in data]
    return "".join(f"{line}{end}{end}" for line in [*lines, *(["data: [DONE]"] if done else [])]).encode()


def named_sse(*events: tuple[str, Any], end: str = "\n") -> bytes:
    """Events with names, as the Anthropic API writes them."""
    return "".join(f"event: {name}{end}data: {json.dumps(data)}{end}{end}" for name, data in events).encode()


def stream(body: bytes, *, every: int = 0, **changes: Any) -> Reply:
    """An event stream, in pieces of so many bytes."""
    pieces = [body[at : at + every] for at in range(0, len(body), every)] if every else [body]
    return Reply(pieces, headers={"Content-Type": "text/event-stream"}, **changes)


def refusal(status: int, body: Any = b"", **headers: str) -> Reply:
    """An error. Header names are written with underscores."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    kind = "text/html" if raw[:1] == b"<" else "application/json"
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply([raw], status, {"Content-Type": kind, **named}, "length")


async def _one(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Answers one request; whether the connection can take another."""
    asked = await _read(reader)
    if asked is None:
        return False
    server.asked.append(asked)
    reply = server.next_reply()
    watch = asyncio.ensure_future(reader.read(1))
    watch.add_done_callback(server.noticed)
    try:
        if reply.before is not None:
            await reply.before()
        whole = await _send(reply, writer)
    finally:
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
    return whole and reply.framing != "close"


async def _read(reader: asyncio.StreamReader) -> Asked | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.rstrip().split("\r\n")
    method, path, _ = first.split(" ", 2)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Asked(method, path, headers, await reader.readexactly(int(headers.get("content-length", "0"))))


async def _send(reply: Reply, writer: asyncio.StreamWriter) -> bool:
    """Whether the reply was sent to its end."""
    writer.transport.set_write_buffer_limits(0)
    headers = dict(reply.headers)
    if reply.framing == "chunked":
        headers["Transfer-Encoding"] = "chunked"
    elif reply.framing == "length":
        headers["Content-Length"] = str(sum(len(part) for part in reply.parts if isinstance(part, bytes)))
    else:
        headers["Connection"] = "close"
    lines = [f"HTTP/1.1 {reply.status} Whatever", *(f"{name}: {value}" for name, value in headers.items())]
    writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
    for part in reply.parts:
        if callable(part):
            await part()
        elif part == RESET:
            await writer.drain()
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return False
        elif part == CUT:
            await writer.drain()
            writer.close()
            return False
        elif part:
            assert isinstance(part, bytes)
            writer.write(b"%x\r\n%b\r\n" % (len(part), part) if reply.framing == "chunked" else part)
            await writer.drain()
    if reply.framing == "chunked":
        writer.write(b"0\r\n\r\n")
    await writer.drain()
    if reply.framing == "close":
        writer.close()
    return True
