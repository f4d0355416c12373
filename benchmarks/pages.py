"""Reading a page of 1 MB from loopback against converting it alone, and a request of the tool against a bare one."""

from __future__ import annotations

import asyncio
import multiprocessing
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.timing import Measure, per_await, side_by_side_async, wall
from forge.core.context import Scope
from forge.core.executor import ToolExecutor
from forge.core.messages import ToolCall
from forge.core.registry import ToolRegistry
from forge.network.egress import Egress
from forge.pipeline.authorize import GuardEgress
from forge.tools.http_request import HttpRequest
from forge.tools.web_fetch import WebFetch

CALLS = 50
HERE = Egress(private=("127.0.0.1",))
SECTION = (
    "<section class='part'><h2 id='s{n}'>Part {n}</h2><p>Some <b>bold</b> words with a <a href='/wiki/{n}' "
    "title='more'>link</a> and <em>more</em> of them, as pages have, and a <code>name</code> or two.</p>"
    "<ul><li>one</li><li>two, <a href='https://example.com/{n}'>elsewhere</a></li></ul>"
    "<table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>{n}</td></tr></table></section>\n"
)
PAGE = (
    "<!doctype html><html><head><title>Parts</title><script>let x = 1;</script></head><body><!-- begin -->"
    + "".join(SECTION.format(n=n) for n in range(2_600))
    + "</body></html>"
)


async def measures() -> list[Measure]:
    assert 950_000 < len(PAGE) < 1_100_000
    return [
        Measure("pages: web_fetch of 1 MB", "the converter alone", *await _fetching(), "ms", 1.3),
        Measure("pages: http_request to loopback", "httpx2, shared client", *await _asking(), "µs", 1.5),
    ]


async def _fetching() -> tuple[float, float]:
    """On the clock: the tool reads the page in another process."""
    import html_to_markdown

    async with _serving(PAGE.encode(), "text/html; charset=utf-8") as url:
        tool = WebFetch(cache_seconds=0, requests_per_minute=0)
        with tempfile.TemporaryDirectory() as folder:
            call = _caller(ToolExecutor(ToolRegistry([tool]), [GuardEgress(HERE)]), folder)

            async def alone() -> None:
                assert html_to_markdown.convert(PAGE).content

            async def fetched() -> None:
                await call("web_fetch", url=url)

            return await side_by_side_async(lambda: wall(alone), lambda: wall(fetched))


async def _asking() -> tuple[float, float]:
    import httpx2

    async with _serving(b"x" * 10_000, "text/plain") as url, httpx2.AsyncClient(trust_env=False) as client:
        call = _caller(ToolExecutor(ToolRegistry([HttpRequest()]), [GuardEgress(HERE)]), ".")

        async def bare() -> float:
            async def ask() -> None:
                assert (await client.get(url)).text

            return await per_await(ask, CALLS)

        async def ours() -> float:
            async def ask() -> None:
                await call("http_request", method="GET", url=url)

            return await per_await(ask, CALLS)

        return await side_by_side_async(bare, ours)


def _caller(executor: ToolExecutor, folder: str) -> Callable[..., Awaitable[None]]:
    scope = Scope(workspace=Path(folder))

    async def call(name: str, **arguments: Any) -> None:
        result = await executor.execute(ToolCall(name, arguments), scope)
        assert result.success, result.for_llm[:300]

    return call


@asynccontextmanager
async def _serving(body: bytes, kind: str) -> AsyncIterator[str]:
    """In a process of its own: its work is not counted."""
    mine, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=_serve, args=(theirs, body, kind), daemon=True)
    server.start()
    try:
        yield f"http://127.0.0.1:{mine.recv()}/"
    finally:
        server.terminate()
        server.join()


def _serve(told: Connection, body: bytes, kind: str) -> None:
    asyncio.run(_answer_forever(told, body, kind))


async def _answer_forever(told: Connection, body: bytes, kind: str) -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(head + body)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    listening = await asyncio.start_server(connected, "127.0.0.1", 0)
    told.send(listening.sockets[0].getsockname()[1])
    await listening.serve_forever()
