"""Reads and drains the body of an ASGI request, and sends its answer until the client leaves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starlette.types import Receive

MOST_DRAINED = 256 * 1024  # bytes of a refused body
DRAINING = 1.0  # seconds to read a refused body


async def read_body(receive: Receive, most: int) -> bytes | None:
    """Returns the whole body; None if it has more than `most` bytes, or the client left."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += message.get("body", b"")
        if len(body) > most:
            return None
        if not message.get("more_body", False):
            return bytes(body)


async def drain_body(receive: Receive) -> None:
    """Reads a short body that is not used: with an unread body the connection breaks, and the answer is lost."""
    left = MOST_DRAINED
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DRAINING):
            while left > 0:
                message = await receive()
                left -= len(message.get("body", b"")) or 1
                if message["type"] != "http.request" or not message.get("more_body", False):
                    return


async def send_until_disconnect(receive: Receive, sending: Coroutine[Any, Any, None]) -> None:
    """Runs what sends an answer, and cancels it when the client leaves. Raises its error, if the client is still here.

    `TimeoutError` and `OSError` mean that the client does not read, or is gone.
    """
    sent, left = asyncio.ensure_future(sending), asyncio.ensure_future(_await_disconnect(receive))
    try:
        await asyncio.wait({sent, left}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (sent, left):
            task.cancel()
        await asyncio.wait({sent, left})
    error = None if sent.cancelled() else sent.exception()
    if error is not None and not isinstance(error, TimeoutError | OSError):
        raise error


async def _await_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
