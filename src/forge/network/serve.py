"""Serves an application over HTTP on an open socket, for `forge serve` and the console."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from socket import IPPROTO_TCP, TCP_NODELAY, socket
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS = 1_000
MOST_UNFINISHED = 100  # connections whose request is incomplete; the oldest is closed for a new one
HEADERS = 10.0  # seconds for the headers of a request, and for a new connection to begin one
BODY = 30.0  # seconds for the body of a request, and one more for each
BODY_RATE = 1_000  # bytes that have arrived
GRACE = 1  # seconds for open requests to end
PATIENCE = 2.5  # seconds for everything to end


async def serve_app(
    app: Any,
    listening: socket,
    ready: Callable[[], None],
    closing: Callable[[], None] = lambda: None,
    *,
    headers: float = HEADERS,
    body: float = BODY,
    **settings: Any,
) -> None:
    """Serves until cancelled; then calls `closing` and ends everything within a few seconds.

    `headers` and `body` are the seconds that a client has for the headers and for the body of a request.
    """
    config = uvicorn.Config(
        app,
        http=type("_Connection", (_Connection,), {"headers_patience": headers, "body_patience": body}),
        ws="none",
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


class _Connection(H11Protocol):
    """A connection that ends if its client does not finish a request: anyone may open one, without a token.

    An answer may take as long as it likes: event streams stay open.
    """

    headers_patience = HEADERS
    body_patience = BODY
    waits_for = ""  # the part of a request that is incomplete
    _since = 0.0
    _arrived = 0  # bytes of the current request
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch("headers")
        if len(self.connections) > MOST_CONNECTIONS:
            self._refuse(503, "There are too many connections.")
        elif len(self.connections) > MOST_UNFINISHED:
            others = [one for one in self.connections if isinstance(one, _Connection) and one is not self]
            unfinished = [one for one in others if one.waits_for]
            if len(unfinished) >= MOST_UNFINISHED:
                oldest = min(unfinished, key=lambda one: one._since)
                oldest._watch("")  # it is in the list until the next turn of the loop: not chosen again
                oldest.transport.abort()

    def data_received(self, data: bytes) -> None:
        is_first = self._arrived == 0
        self._arrived += len(data)
        super().data_received(data)
        self._update(begins=is_first)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._arrived = 0
        self._update()

    def connection_lost(self, exc: Exception | None) -> None:
        self._watch("")
        super().connection_lost(exc)

    def _update(self, *, begins: bool = False) -> None:
        waits_for = {h11.IDLE: "headers", h11.SEND_BODY: "body"}.get(self.conn.their_state, "")
        if waits_for != self.waits_for or begins:
            self._watch(waits_for)

    def _watch(self, waits_for: str) -> None:
        """Starts the clock for a part of a request; stops it if there is none."""
        self.waits_for, self._since = waits_for, self.loop.time()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if waits_for and not self.transport.is_closing():
            self._timer = self.loop.call_at(self._deadline(), self._check)

    def _deadline(self) -> float:
        if self.waits_for == "headers":
            return self._since + self.headers_patience
        return self._since + self.body_patience + self._arrived / BODY_RATE

    def _check(self) -> None:
        """Ends the connection at its deadline, unless bytes came in the meantime or we read slowly ourselves."""
        now = self.loop.time()
        if self.waits_for == "body" and (self.flow.read_paused or now < self._deadline()):
            self._timer = self.loop.call_at(max(now + 1.0, self._deadline()), self._check)
        elif self.waits_for == "headers":
            self._refuse(408, "The request was not finished in time.")
        else:
            self.transport.abort()

    def _refuse(self, status: int, words: str) -> None:
        head = f"HTTP/1.1 {status} Refused\r\nConnection: close\r\nContent-Type: text/plain\r\n"
        self.transport.write(f"{head}Content-Length: {len(words)}\r\n\r\n{words}".encode())
        self.transport.close()


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
