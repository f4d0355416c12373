"""The protocol over HTTP: for those who have the token, and ask for us by a name that is ours."""

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

from forge.network.served import serve_app

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Send
    from starlette.types import Scope as Request

    from forge.exports.mcp_server.offer import Offer

PATH = "/mcp"
MAX_BODY = 8 * 1024 * 1024  # bytes of a request
MOST_SESSIONS = 100  # connections of clients that shake hands
IDLE = 30 * 60.0  # seconds after which one that nobody uses is closed
EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - what a person may have chosen to listen on
MOST_DRAINED = 64 * 1024  # bytes of a body that is refused
DRAINING = 1.0  # seconds for them


def app(offer: Offer, token: str, hosts: Collection[str] = ()) -> ASGIApp:
    """The guarded application. It opens the offer, and closes it, with its lifespan."""
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
    return Guard(unguarded, token, hosts)


async def serve(offer: Offer, listening: socket, token: str, hosts: Collection[str], ready: Callable[[], None]) -> None:
    """Until this is cancelled; then everything ends within a few seconds."""
    await serve_app(app(offer, token, hosts), listening, ready, lifespan="on")


class Guard:
    """Refuses, before anything of the body is looked at, whoever is not meant to be here."""

    def __init__(self, inside: ASGIApp, token: str, hosts: Collection[str] = ()) -> None:
        self.inside = inside
        self.token = token.encode()
        self.hosts = frozenset(host.lower() for host in hosts)
        self.any_address = not self.hosts.isdisjoint(EVERYWHERE)  # no name that leads to one can be somebody else's

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
        """Whose name it asks for comes first: a page that was led here must not learn that we exist."""
        found: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            found.setdefault(name.lower(), []).append(value)
        host = found.get(b"host", [])
        asked = _host_of(host[0].decode("latin-1")) if len(host) == 1 else ""
        if not (self._is_ours(asked) or (self.any_address and _address(asked) is not None)):
            return 421, "This server does not answer to that Host."
        if any(not self._is_ours(_origin_of(one.decode("latin-1"))) for one in found.get(b"origin", [])):
            return 403, "Pages of that Origin may not use this server."
        given = found.get(b"authorization", [])
        scheme, _, token = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
        if scheme.lower() != b"bearer" or not hmac.compare_digest(token.strip(), self.token):
            return 401, "Send the header `Authorization: Bearer TOKEN` with this server's token."
        return None

    def _is_ours(self, host: str) -> bool:
        return host == "localhost" or host in self.hosts or _is_loopback(host)


async def _drain(receive: Receive) -> None:
    """A body that is not read makes the connection break, and with it the answer get lost: a short one is."""
    left = MOST_DRAINED
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DRAINING):
            while left > 0:
                message = await receive()
                left -= len(message.get("body", b"")) or 1
                if message["type"] != "http.request" or not message.get("more_body", False):
                    return


def _host_of(header: str) -> str:
    """The name or address in `name:port` or `[address]:port`."""
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
