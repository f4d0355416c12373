"""Requests to a server on loopback, one after another and 200 at once."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from benchmarks.timing import Measure, per_await, side_by_side_async, wall
from forge.network.client import fetch
from forge.network.egress import Egress

if TYPE_CHECKING:
    import httpx2

CALLS = 100
MANY = 200
PAGE = b"x" * 10_000


async def measures() -> list[Measure]:
    async with serving(PAGE) as url, _client() as client:
        one = await _one_by_one(client, url)
        many = await _at_once(client, url)
    return [
        Measure("web: a request to loopback", "httpx2, shared client", *one, "µs", 1.5),
        # 70 % of the throughput is 1 / 0.7 of the time
        Measure(f"web: {MANY} requests at once", "httpx2, shared client", *many, "ms", 1 / 0.7),
    ]


async def _one_by_one(client: httpx2.AsyncClient, url: str) -> tuple[float, float]:
    bare, ours = _requests(client, url)
    assert await bare() == await ours() == PAGE

    async def measured_floor() -> float:
        return await per_await(bare, CALLS)

    async def measured() -> float:
        return await per_await(ours, CALLS)

    return await side_by_side_async(measured_floor, measured)


async def _at_once(client: httpx2.AsyncClient, url: str) -> tuple[float, float]:
    bare, ours = _requests(client, url)

    async def all_bare() -> None:
        await asyncio.gather(*(bare() for _ in range(MANY)))

    async def all_ours() -> None:
        await asyncio.gather(*(ours() for _ in range(MANY)))

    return await side_by_side_async(lambda: wall(all_bare), lambda: wall(all_ours))


def _requests(
    client: httpx2.AsyncClient, url: str
) -> tuple[Callable[[], Awaitable[bytes]], Callable[[], Awaitable[bytes]]]:
    egress = Egress(private=("127.0.0.1",))

    async def bare() -> bytes:
        return (await client.get(url)).content

    async def ours() -> bytes:
        return (await fetch("GET", url, egress=egress)).body

    return bare, ours


@asynccontextmanager
async def _client() -> AsyncIterator[httpx2.AsyncClient]:
    import httpx2

    async with httpx2.AsyncClient(trust_env=False) as client:
        yield client


@asynccontextmanager
async def serving(page: bytes, kind: bytes = b"text/plain") -> AsyncIterator[str]:
    """One page, from a process of its own: its work is not counted."""
    mine, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=_serve, args=(theirs, page, kind), daemon=True)
    server.start()
    try:
        yield f"http://127.0.0.1:{mine.recv()}/"
    finally:
        server.terminate()
        server.join()


def _serve(told: Connection, page: bytes, kind: bytes) -> None:
    asyncio.run(_answer_forever(told, page, kind))


async def _answer_forever(told: Connection, page: bytes, kind: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n" % (kind, len(page))

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(head + page)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    listening = await asyncio.start_server(connected, "127.0.0.1", 0, backlog=1_000)
    told.send(listening.sockets[0].getsockname()[1])
    await listening.serve_forever()
