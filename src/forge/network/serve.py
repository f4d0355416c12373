"""Serves an application over HTTP on an open socket, for `forge serve` and the console."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from socket import IPPROTO_TCP, TCP_NODELAY, socket
from typing import Any

import uvicorn

MOST_CONNECTIONS = 1_000
GRACE = 1  # seconds for open requests to end
PATIENCE = 2.5  # seconds for everything to end


async def serve_app(
    app: Any,
    listening: socket,
    ready: Callable[[], None],
    closing: Callable[[], None] = lambda: None,
    **settings: Any,
) -> None:
    """Serves until cancelled; then calls `closing` and ends everything within a few seconds."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=GRACE,
        **settings,
    )
    server = _Server(config)
    server.ready = ready
    # inherited by every connection: asyncio sets it only for sockets that were made with a protocol number
    listening.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
    serving = asyncio.create_task(server.serve([listening]))
    try:
        await asyncio.shield(serving)
    finally:
        closing()
        server.should_exit = True
        await asyncio.wait({serving}, timeout=PATIENCE)
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving


class _Server(uvicorn.Server):
    """A server that leaves signals to its caller."""

    ready: Callable[[], None] = staticmethod(lambda: None)

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def startup(self, sockets: list[socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self.ready()
