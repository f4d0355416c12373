"""Connections that never finish a request do not stay, and those of patient clients do."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from forge.network import serve
from forge.network.serve import serve_app
from tests.network.serving import connection, is_closed, unfinished

GET = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
HEAD = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 6\r\n\r\n"


class Echo:
    """Returns the body; a GET is a stream of two events, the second after `more` is set."""

    def __init__(self) -> None:
        self.more, self.bodies = asyncio.Event(), list[bytes]()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        if scope["method"] == "GET":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"one", "more_body": True})
            await self.more.wait()
            await send({"type": "http.response.body", "body": b"two"})
            return
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body, more = body + message.get("body", b""), message.get("more_body", False)
        self.bodies.append(body)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})


@asynccontextmanager
async def served(app: Any, **settings: Any) -> AsyncIterator[int]:
    ready = asyncio.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = asyncio.create_task(serve_app(app, listening, ready.set, lifespan="off", **settings))
        try:
            await asyncio.wait_for(ready.wait(), 60)
            yield listening.getsockname()[1]
        finally:
            serving.cancel()
            await asyncio.wait({serving}, timeout=60)


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"", b"HTTP/1.1 408"),
        (b"GET / HTTP/1.1\r\nHost: a", b"HTTP/1.1 408"),
        (HEAD + b"abc", b""),
        (HEAD + b"abcdef" + b"GET / HT", b"HTTP/1.1 200"),  # the next request on the same connection
    ],
)
def test_an_unfinished_request_ends_at_its_deadline(sent: bytes, answer: bytes) -> None:
    async def attempt() -> None:
        async with served(Echo(), headers=0.2, body=0.2) as port, connection(port) as (reader, writer):
            writer.write(sent)
            try:
                said = await asyncio.wait_for(reader.read(), 30)
            except ConnectionResetError:
                said = b""
            assert said.startswith(answer)
            assert not answer or b"ok" in said or b"408" in said

    asyncio.run(attempt())


def test_a_long_stream_and_a_slow_body_outlive_the_deadline() -> None:
    async def attempt() -> None:
        app = Echo()
        async with (
            served(app, headers=0.2, body=0.2) as port,
            connection(port) as (stream, to_stream),
            connection(port) as (slow, to_slow),
        ):
            to_stream.write(GET)
            assert (await stream.readuntil(b"one")).startswith(b"HTTP/1.1 200")
            to_slow.write(b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 60000\r\n\r\n" + b"a" * 59_990)
            async with unfinished(port, 1) as (reader,):
                assert await is_closed(reader)  # the deadline has passed
            to_slow.write(b"a" * 10)
            assert b"200" in await asyncio.wait_for(slow.readline(), 30)
            app.more.set()
            await asyncio.wait_for(stream.readuntil(b"two"), 30)
            assert [len(body) for body in app.bodies] == [60_000]

    asyncio.run(attempt())


def test_the_oldest_unfinished_connection_gives_way_and_a_finished_one_does_not() -> None:
    async def attempt() -> None:
        app = Echo()
        async with served(app) as port, connection(port) as (stream, to_stream):
            to_stream.write(GET)
            await stream.readuntil(b"one")
            async with unfinished(port, serve.MOST_UNFINISHED + 50) as readers:
                for reader in readers[:50]:
                    assert await is_closed(reader)
                assert not readers[-1].at_eof()
                async with connection(port) as (reader, writer):
                    writer.write(HEAD + b"abcdef")
                    assert b"200" in await asyncio.wait_for(reader.readline(), 30)
            app.more.set()
            await asyncio.wait_for(stream.readuntil(b"two"), 30)

    asyncio.run(attempt())


def test_connections_that_arrive_at_once_give_way_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them are in one turn of the loop, in which none is closed yet."""
    most, burst = 10, 60
    monkeypatch.setattr(serve, "MOST_UNFINISHED", most)

    async def attempt() -> None:
        async with served(Echo(), headers=600.0) as port:
            opened = [socket.create_connection(("127.0.0.1", port), 30) for _ in range(burst)]  # nothing else runs
            streams = [await asyncio.open_connection(sock=one) for one in opened]
            try:
                for reader, _ in streams[: burst - most]:
                    assert await is_closed(reader)
                for reader, writer in streams[burst - most :]:  # the twin: the newest are served
                    writer.write(HEAD + b"abcdef")
                    assert b"200" in await asyncio.wait_for(reader.readline(), 30)
            finally:
                for _, writer in streams:
                    writer.close()

    asyncio.run(attempt())
