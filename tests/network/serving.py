"""A small web server on loopback that plays what it is told, good or hostile, and remembers what it was asked."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from forge.network.egress import Egress

HERE = Egress(private=("127.0.0.1",))  # the explicit allowance of these tests

Part = bytes | Callable[[], Awaitable[Any]]


@dataclass
class Reply:
    """What is sent back. `parts` go out one by one; a callable among them is awaited in its place."""

    parts: Sequence[Part] = ()
    status: int = 200
    headers: Sequence[tuple[str, str]] = ()
    framing: str = "length"  # "chunked", or "close": the body ends where the connection does
    raw: bool = False  # the parts are all that is sent, head included; the connection is closed after them


@dataclass
class Asked:
    """One request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    names: list[str]  # of its headers, as often as they came


Answer = Callable[[Asked], Reply]


@dataclass
class Server:
    """`left` is set when a client goes away before its reply is over."""

    answer: Answer
    url: str = ""
    port: int = 0
    asked: list[Asked] = field(default_factory=list)
    opened: int = 0  # connections
    came: asyncio.Event = field(default_factory=asyncio.Event)  # a request
    left: asyncio.Event = field(default_factory=asyncio.Event)
    names: list[str | None] = field(default_factory=list)  # that TLS was spoken to
    at_work: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def paths(self) -> list[str]:
        return [asked.path for asked in self.asked]


def page(body: bytes | str = b"hello", kind: str = "text/plain; charset=utf-8", **headers: str) -> Reply:
    """An ordinary answer. Header names are written with underscores."""
    raw = body if isinstance(body, bytes) else body.encode()
    return Reply([raw], headers=[("Content-Type", kind), *((k.replace("_", "-"), v) for k, v in headers.items())])


def redirect(to: str, status: int = 302, **headers: str) -> Reply:
    return Reply(status=status, headers=[("Location", to), *((k.replace("_", "-"), v) for k, v in headers.items())])


def site(pages: dict[str, Reply]) -> Answer:
    """By path; anything else is missing."""
    return lambda asked: pages.get(asked.path, Reply([b"missing"], 404))


@asynccontextmanager
async def serving(
    answer: Answer | Reply, *, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Server]:
    """Serves until the end of the block."""
    server = Server(_always(answer) if isinstance(answer, Reply) else answer)
    if tls is not None:
        tls.sni_callback = lambda _, name, __: server.names.append(name)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        server.at_work.add(task)
        server.opened += 1
        try:
            while await _one(server, reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass
        finally:
            server.at_work.discard(task)
            writer.transport.abort()

    listening = await asyncio.start_server(connected, host, port, ssl=tls)
    server.port = listening.sockets[0].getsockname()[1]
    server.url = f"http{'s' if tls else ''}://{host}:{server.port}"
    try:
        yield server
    finally:
        listening.close()
        for task in [*server.at_work]:
            task.cancel()
        await asyncio.gather(*server.at_work, return_exceptions=True)


def _always(reply: Reply) -> Answer:
    return lambda _: reply


async def _one(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Answers one request; whether the connection can take another."""
    asked = await _read(reader)
    if asked is None:
        return False
    server.asked.append(asked)
    server.came.set()
    reply = server.answer(asked)
    watch = asyncio.ensure_future(reader.read(1))
    watch.add_done_callback(lambda done: None if done.cancelled() else server.left.set())
    try:
        await _send(reply, writer)
    except OSError:
        server.left.set()
        raise
    finally:
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
    return not reply.raw and reply.framing != "close"


async def _read(reader: asyncio.StreamReader) -> Asked | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.rstrip().split("\r\n")
    method, path, _ = first.split(" ", 2)
    pairs = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    headers = dict(pairs)
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Asked(method, path, headers, body, [name for name, _ in pairs])


async def _send(reply: Reply, writer: asyncio.StreamWriter) -> None:
    writer.transport.set_write_buffer_limits(0)
    if not reply.raw:
        writer.write(_head(reply))
    for part in reply.parts:
        if callable(part):
            await part()
        else:
            writer.write(b"%x\r\n%b\r\n" % (len(part), part) if reply.framing == "chunked" and part else part)
            await writer.drain()
    if reply.framing == "chunked" and not reply.raw:
        writer.write(b"0\r\n\r\n")
    await writer.drain()
    if reply.raw or reply.framing == "close":
        writer.close()


def _head(reply: Reply) -> bytes:
    headers = list(reply.headers)
    if reply.framing == "chunked":
        headers.append(("Transfer-Encoding", "chunked"))
    elif reply.framing == "close":
        headers.append(("Connection", "close"))
    elif not any(name.lower() == "content-length" for name, _ in headers):
        headers.append(("Content-Length", str(sum(len(part) for part in reply.parts if isinstance(part, bytes)))))
    lines = [f"HTTP/1.1 {reply.status} Whatever", *(f"{name}: {value}" for name, value in headers)]
    return "\r\n".join([*lines, "", ""]).encode()


@asynccontextmanager
async def connection(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A bare connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


@asynccontextmanager
async def unfinished(port: int, number: int) -> AsyncIterator[list[asyncio.StreamReader]]:
    """Connections that begin a request and never finish it."""
    async with AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(connection(port)) for _ in range(number)]
        for _, writer in opened:
            writer.write(b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
        yield [reader for reader, _ in opened]


async def is_closed(reader: asyncio.StreamReader) -> bool:
    """Waits for the end of a connection that ends soon."""
    try:
        await asyncio.wait_for(reader.read(), 30)
    except ConnectionError:
        return True
    return reader.at_eof()
