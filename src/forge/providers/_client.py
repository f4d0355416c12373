"""One HTTP client an event loop, shared by all requests and closed with the loop."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator
from functools import cache
from ssl import PROTOCOL_TLS_CLIENT, SSLContext
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # heavy: loaded by the first request
    import httpx2

_lock = threading.Lock()
_clients: dict[
    tuple[asyncio.AbstractEventLoop, bool], tuple[AsyncGenerator[httpx2.AsyncClient, None], httpx2.AsyncClient]
] = {}


async def shared_client(secure: bool) -> httpx2.AsyncClient:
    """One an event loop, since connections belong to it; closed with the loop."""
    loop = asyncio.get_running_loop()
    found = _clients.get((loop, secure))
    if found is None:
        keeper = _kept_client(loop, secure)
        found = (keeper, await anext(keeper))
        with _lock:
            for key in [key for key in _clients if key[0].is_closed()]:
                del _clients[key]
            _clients[loop, secure] = found
    return found[1]


async def _kept_client(loop: asyncio.AbstractEventLoop, secure: bool) -> AsyncGenerator[httpx2.AsyncClient, None]:
    """A generator, because a loop closes those that are left when it ends."""
    import httpx2  # heavy

    client = httpx2.AsyncClient(
        verify=_trusted() if secure else SSLContext(PROTOCOL_TLS_CLIENT),
        trust_env=_trusts_environment(),
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=30.0),
        follow_redirects=False,
    )
    try:
        yield client
    finally:
        with _lock:
            _clients.pop((loop, secure), None)
        await client.aclose()


@cache
def _trusted() -> SSLContext:
    """Reading all certificates takes a tenth of a second: once."""
    import httpx2  # heavy

    return httpx2.create_ssl_context(trust_env=_trusts_environment())


def _trusts_environment() -> bool:
    return os.environ.get("FORGE_TRUST_ENV") == "1"
