"""Serves the protocol over HTTP; a request needs the token and an allowed host name."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from socket import socket
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from mcp.server.transport_security import TransportSecuritySettings

from forge.network.serve import serve_app

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Send
    from starlette.types import Scope as Request

    from forge.exports.mcp_server.offer import Offer

PATH = "/mcp"
MAX_BODY = 8 * 1024 * 1024  # bytes of a request
MOST_SESSIONS = 100  # connections of clients with a handshake
IDLE = 30 * 60.0  # seconds after which an idle connection is closed
EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - a person may choose to listen on these
MOST_DRAINED = 64 * 1024  # bytes of a refused body
DRAINING = 1.0  # seconds to read a refused body


def app(offer: Offer, token: str, hosts: Collection[str] = ()) -> ASGIApp:
    """Returns the guarded application. Its lifespan opens and closes the offer."""
    if not token:
        raise ValueError("an MCP server over HTTP needs a token")
    offer.serve_many()
    unguarded = offer.server().streamable_http_app(
        streamable_http_path=PATH,
        max_request_body_size=MAX_BODY,
        session_idle_timeout=IDLE,
        max_sessions=MOST_SESSIONS,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),  # Guard does it
    )
    inner = unguarded.router.lifespan_context

    @asynccontextmanager
    async def lifespan(application: Any) -> AsyncIterator[Any]:
        async with inner(application) as state, offer.open():
            yield state

    unguarded.router.lifespan_context = lifespan
    return RequestGuard(unguarded, token, hosts)


async def serve(offer: Offer, listening: socket, token: str, hosts: Collection[str], ready: Callable[[], None]) -> None:
    """Serves until this is cancelled; then everything ends within a few seconds."""
    await serve_app(app(offer, token, hosts), listening, ready, lifespan="on")


class RequestGuard:
    """Refuses unauthorised requests before their body is read."""

    def __init__(self, inside: ASGIApp, token: str, hosts: Collection[str] = ()) -> None:
        self.inside = inside
        self.token = token.encode()
        self.hosts = frozenset(host.lower() for host in hosts)
        # an IP address as host is safe: DNS rebinding needs a name
        self.any_address = not self.hosts.isdisjoint(EVERYWHERE)

    async def __call__(self, scope: Request, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.inside(scope, receive, send)
        elif scope["type"] == "http":
            refusal = self._refusal(scope)
            if refusal is None:
                await self.inside(scope, receive, send)
            else:
                await _drain(receive)
                await _refuse(send, *refusal)

    def _refusal(self, scope: Request) -> tuple[int, str] | None:
        """Returns the status and text of a refusal. The host is checked first, against DNS rebinding by web pages."""
        found: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            found.setdefault(name.lower(), []).append(value)
        host = found.get(b"host", [])
        host_name = _host_of(host[0].decode("latin-1")) if len(host) == 1 else ""
        if not (self._is_ours(host_name) or (self.any_address and _address(host_name) is not None)):
            return 421, "This server does not answer to that Host."
        if any(not self._is_ours(_origin_of(one.decode("latin-1"))) for one in found.get(b"origin", [])):
            return 403, "Pages of that Origin may not use this server."
        authorization = found.get(b"authorization", [])
        scheme, _, token = authorization[0].partition(b" ") if len(authorization) == 1 else (b"", b"", b"")
        if scheme.lower() != b"bearer" or not hmac.compare_digest(token.strip(), self.token):
            return 401, "Send the header `Authorization: Bearer TOKEN` with this server's token."
        return None

    def _is_ours(self, host: str) -> bool:
        return host == "localhost" or host in self.hosts or _is_loopback(host)


async def _drain(receive: Receive) -> None:
    """Reads a short body: with an unread body the connection breaks and the answer is lost."""
    left = MOST_DRAINED
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DRAINING):
            while left > 0:
                message = await receive()
                left -= len(message.get("body", b"")) or 1
                if message["type"] != "http.request" or not message.get("more_body", False):
                    return


def _host_of(header: str) -> str:
    """Returns the name or address in `name:port` or `[address]:port`."""
    try:
        return (urlsplit(f"//{header}").hostname or "").lower()
    except ValueError:
        return ""


def _origin_of(header: str) -> str:
    try:
        parts = urlsplit(header)
        return (parts.hostname or "").lower() if parts.scheme in ("http", "https") else ""
    except ValueError:
        return ""


def _is_loopback(host: str) -> bool:
    address = _address(host)
    return address is not None and address.is_loopback


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


async def _refuse(send: Send, status: int, words: str) -> None:
    body = words.encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    headers += [(b"www-authenticate", b"Bearer")] if status == 401 else []
    await send({"type": "http.response.start", "status": status, "headers": [*headers, (b"connection", b"close")]})
    await send({"type": "http.response.body", "body": body})
