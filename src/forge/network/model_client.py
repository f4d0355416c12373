"""Provides the HTTP client for models: one per event loop, shared by all requests and closed with the loop."""

from __future__ import annotations

from ssl import PROTOCOL_TLS_CLIENT, SSLContext
from typing import TYPE_CHECKING

from forge.network.per_loop import PerLoop
from forge.network.tls import load_tls_context, trusts_environment

if TYPE_CHECKING:  # heavy: loaded by the first request
    import httpx2

KEPT = 20  # idle connections
KEPT_FOR = 30.0  # seconds


async def _close(client: httpx2.AsyncClient) -> None:
    await client.aclose()


_clients: PerLoop[bool, httpx2.AsyncClient] = PerLoop(_close)


async def model_client(secure: bool) -> httpx2.AsyncClient:
    """Returns the running loop's client. It has no connection limit, since long answers occupy connections."""
    found = _clients.find(secure)
    if found is not None:
        return found
    import httpx2  # heavy

    context = await load_tls_context() if secure else SSLContext(PROTOCOL_TLS_CLIENT)
    if (found := _clients.find(secure)) is not None:  # made by another call while the certificates were read
        return found
    client = httpx2.AsyncClient(
        verify=context,
        trust_env=trusts_environment(),
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=KEPT, keepalive_expiry=KEPT_FOR),
        follow_redirects=False,
    )
    return await _clients.hold(secure, client)
