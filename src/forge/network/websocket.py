"""Opens WebSocket connections: judged like every other connection, bounded in time and size."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from forge.core.errors import ErrorKind, ToolError
from forge.core.extras import check_extra
from forge.network.address import read_url
from forge.network.connections import connect, load_tls_context
from forge.network.egress import Egress
from forge.network.headers import USER_AGENT

CONNECT = 15.0  # seconds until the connection is open
SILENCE = 20.0  # seconds after which the peer is asked for a sign of life, and until it must have answered
SEND = 10.0  # seconds in which the peer must take a message
LARGEST = 1024 * 1024  # bytes of a message
MOST_WAITING = 16  # messages that are read ahead


class WebSocket:
    """An open connection: texts come by `receive`, and go by `send`. Both raise `ToolError` when it is over."""

    def __init__(self, connection: object, origin: str) -> None:
        self._connection, self._origin = connection, origin

    async def receive(self) -> str:
        from websockets.exceptions import ConnectionClosed

        try:
            message = await self._connection.recv()  # type: ignore[attr-defined]
        except ConnectionClosed as error:
            raise self._closed(error) from None
        return message if isinstance(message, str) else message.decode("utf-8", "replace")

    async def send(self, text: str) -> None:
        from websockets.exceptions import ConnectionClosed

        try:
            async with asyncio.timeout(SEND):
                await self._connection.send(text)  # type: ignore[attr-defined]
        except ConnectionClosed as error:
            raise self._closed(error) from None
        except TimeoutError:
            message = f"talking to {self._origin}: it took no message for {SEND:g} s"
            raise ToolError(message, ErrorKind.TIMEOUT, "Connect again.", passing=True) from None

    def _closed(self, error: Exception) -> ToolError:
        code = getattr(getattr(error, "rcvd", None) or getattr(error, "sent", None), "code", None)
        why = f"it closed the connection ({code})" if code else "the connection broke"
        return ToolError(f"talking to {self._origin}: {why}", ErrorKind.SYSTEM, "Connect again.", passing=True)


@asynccontextmanager
async def open_websocket(url: str, egress: Egress) -> AsyncIterator[WebSocket]:
    """Opens a connection to a `ws://` or `wss://` URL that the egress allows. Raises `ToolError`."""
    check_extra("chats", "a WebSocket connection cannot be opened")
    from websockets.asyncio.client import connect as shake_hands
    from websockets.exceptions import WebSocketException

    scheme, _, rest = url.partition("://")
    if scheme not in ("ws", "wss"):
        message = f"opening a WebSocket connection: {scheme[:20]!r} is not ws or wss"
        raise ToolError(message, ErrorKind.VALIDATION, "Give a URL that begins with wss://.")
    there = read_url(f"{'https' if scheme == 'wss' else 'http'}://{rest}")
    origin = f"{scheme}{there.origin.removeprefix('https').removeprefix('http')}"
    try:
        async with asyncio.timeout(CONNECT):
            tls = {"ssl": await load_tls_context(), "server_hostname": there.host} if scheme == "wss" else {}
            connected = await connect(there, egress)
            connection = await shake_hands(
                url,
                sock=connected,
                proxy=None,  # the socket is connected already, through the configured proxy if there is one
                compression=None,  # a small message could become a large one
                user_agent_header=USER_AGENT,
                max_size=LARGEST,
                max_queue=MOST_WAITING,
                ping_interval=SILENCE,
                ping_timeout=SILENCE,
                close_timeout=SEND,
                open_timeout=CONNECT,
                **tls,
            )
    except (OSError, WebSocketException, ValueError, EOFError) as error:  # the last is about a redirect
        what = "no connection in time" if isinstance(error, TimeoutError) else f"no connection ({type(error).__name__})"
        message = f"connecting to {origin}: {what}"  # without the URL, which holds a ticket
        raise ToolError(message, ErrorKind.SYSTEM, "Check the network, then try again.", passing=True) from None
    try:
        yield WebSocket(connection, origin)
    finally:
        await connection.close()
