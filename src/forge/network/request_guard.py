"""Refuses HTTP requests without the token, or with a foreign Host or Origin, before their body is read."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Collection
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from forge.network.asgi import drain_body

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Send
    from starlette.types import Scope as Request

EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - a person may choose to listen on these

Refusal = tuple[int, str, str]  # status, message, challenge


class TokenGuard(Protocol):
    """Checks the tokens of an issuer, beside the fixed token of a server."""

    def is_metadata(self, request: Request) -> bool: ...
    async def send_metadata(self, send: Send) -> None: ...
    async def authorize(self, request: Request, token: str) -> Refusal | None: ...
    async def check_body(self, request: Request, receive: Receive) -> tuple[Refusal | None, Receive]: ...


class RequestGuard:
    """Refuses unauthorised requests before their body is read. `resource` checks the tokens of an issuer."""

    def __init__(
        self, inside: ASGIApp, token: str, hosts: Collection[str] = (), resource: TokenGuard | None = None
    ) -> None:
        self.inside = inside
        self.token = token.encode()
        self.hosts = frozenset(host.lower() for host in hosts)
        self.resource = resource
        # an IP address as host is safe: DNS rebinding needs a name
        self.any_address = not self.hosts.isdisjoint(EVERYWHERE)

    async def __call__(self, scope: Request, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.inside(scope, receive, send)
        elif scope["type"] == "http":
            found: dict[bytes, list[bytes]] = {}
            for name, value in scope["headers"]:
                found.setdefault(name.lower(), []).append(value)
            refusal = self._check_host(found)
            if refusal is None and self.resource is not None and self.resource.is_metadata(scope):
                await self.resource.send_metadata(send)
                return
            refusal = refusal or await self._check_token(scope, found)
            if refusal is None and self.resource is not None:
                refusal, receive = await self.resource.check_body(scope, receive)
            if refusal is None:
                await self.inside(scope, receive, send)
            else:
                await drain_body(receive)
                await _refuse(send, *refusal)

    def _check_host(self, found: dict[bytes, list[bytes]]) -> Refusal | None:
        """Returns a refusal of a foreign host or origin. This comes first, against DNS rebinding by web pages."""
        host = found.get(b"host", [])
        host_name = _host_of(host[0].decode("latin-1")) if len(host) == 1 else ""
        if not (self._is_ours(host_name) or (self.any_address and _address(host_name) is not None)):
            return 421, "This Host header is not allowed.", ""
        if any(not self._is_ours(host_of_origin(one.decode("latin-1"))) for one in found.get(b"origin", [])):
            return 403, "This Origin is not allowed.", ""
        return None

    async def _check_token(self, scope: Request, found: dict[bytes, list[bytes]]) -> Refusal | None:
        authorization = found.get(b"authorization", [])
        scheme, _, token = authorization[0].partition(b" ") if len(authorization) == 1 else (b"", b"", b"")
        given = token.strip() if scheme.lower() == b"bearer" else b""
        if self.token and hmac.compare_digest(given, self.token):
            return None
        if self.resource is not None:
            return await self.resource.authorize(scope, given.decode("latin-1"))
        return 401, "Send the header `Authorization: Bearer TOKEN` with this server's token.", "Bearer"

    def _is_ours(self, host: str) -> bool:
        return host == "localhost" or host in self.hosts or _is_loopback(host)


def _host_of(header: str) -> str:
    """Returns the name or address in `name:port` or `[address]:port`."""
    try:
        return (urlsplit(f"//{header}").hostname or "").lower()
    except ValueError:
        return ""


def host_of_origin(header: str) -> str:
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


async def _refuse(send: Send, status: int, message: str, challenge: str) -> None:
    body = message.encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    headers += [(b"www-authenticate", challenge.encode())] if challenge else []
    await send({"type": "http.response.start", "status": status, "headers": [*headers, (b"connection", b"close")]})
    await send({"type": "http.response.body", "body": body})
