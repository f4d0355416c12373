"""Serves the protocol over HTTP; a request needs the token and an allowed host name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from socket import socket
from typing import TYPE_CHECKING, Any

from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette

from forge.mcp.server.handlers import make_server
from forge.network.request_guard import RequestGuard, host_of_origin
from forge.network.serve import serve_app

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from forge.mcp.server.auth_settings import ResourceAuth
    from forge.mcp.server.offer import Offer

PATH = "/mcp"
MAX_BODY = 8 * 1024 * 1024  # bytes of a request
MOST_SESSIONS = 100  # connections of clients with a handshake
IDLE = 30 * 60.0  # seconds after which an idle connection is closed


def app(offer: Offer, token: str, hosts: Collection[str] = (), auth: ResourceAuth | None = None) -> ASGIApp:
    """Returns the guarded application. Its lifespan opens and closes the offer."""
    if not token and auth is None:
        raise ValueError("an MCP server over HTTP needs a token")
    offer.serve_many()
    protocol = make_server(offer).streamable_http_app(
        streamable_http_path=PATH,
        max_request_body_size=MAX_BODY,
        session_idle_timeout=IDLE,
        max_sessions=MOST_SESSIONS,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),  # Guard does it
    )

    @asynccontextmanager
    async def lifespan(application: Starlette) -> AsyncIterator[Any]:
        async with protocol.router.lifespan_context(application) as state, offer.open():
            yield state

    unguarded = Starlette(routes=protocol.routes, lifespan=lifespan)
    if auth is None:
        return RequestGuard(unguarded, token, hosts)
    from forge.mcp.server.auth import ResourceGuard  # needed only with an issuer

    guard = ResourceGuard(auth, lambda name: offer.registry.find(name).spec, MAX_BODY)
    return RequestGuard(unguarded, token, (*hosts, host_of_origin(auth.resource)), guard)


async def serve(
    offer: Offer,
    listening: socket,
    token: str,
    hosts: Collection[str],
    ready: Callable[[], None],
    auth: ResourceAuth | None = None,
) -> None:
    """Serves until this is cancelled; then everything ends within a few seconds."""
    await serve_app(app(offer, token, hosts, auth), listening, ready, lifespan="on")
