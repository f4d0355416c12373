"""Makes requests: judged again at every redirect, bounded in time and size. The first request loads the HTTP client."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from forge.core.errors import ErrorKind, ToolError
from forge.network.address import Url, read_redirect, read_url
from forge.network.body import Response, Unpacker, read_encodings
from forge.network.egress import Egress
from forge.network.headers import (
    Headers,
    Pairs,
    RequestLimits,
    build_headers,
    check_headers,
    drop_body_headers,
    keep_harmless,
)

if TYPE_CHECKING:  # heavy: loaded by the first request
    import httpcore2

Follow = Literal["all", "same-host", "none"]
Progress = Callable[[int, int | None], object]
Send = Callable[..., Awaitable["httpcore2.Response"]]  # as `forge.network.connections.send`

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
DEFAULT = RequestLimits()

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_SLACK = 64 * 1024  # bytes on the wire beyond the size of a body: compression may add some
_DRAINED = 16 * 1024  # bytes of a redirect's body that are read for the sake of the connection
_PIECES = 64
_SECURED = (("http", 80), ("https", 443))
_EMPTY = frozenset({204, 304})


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    url: Url
    headers: Pairs
    body: bytes
    idempotent: bool = False  # it carries a key, so the server acts once however often it arrives


async def fetch(
    method: str,
    url: str,
    *,
    headers: Headers = (),
    body: bytes = b"",
    egress: Egress | None = None,
    limits: RequestLimits = DEFAULT,
    follow: Follow = "all",
    idempotent: bool = False,
    on_progress: Progress | None = None,
    send: Send | None = None,
) -> Response:
    """Returns the answer, whatever its status. Raises `ToolError` without one, or if the request is not allowed.

    Without an `egress` the egress of the running call decides. A redirect to another scheme, host or port gets neither
    the body nor any header that could hold a secret. A redirect that is not followed is the answer; `location` is its
    target. `idempotent`: the server acts once however often the request arrives, so a broken connection is retried.
    `on_progress` receives the bytes received so far and the bytes declared. `send` answers the request, and every
    redirect that is followed, in place of the network: an app in this process does.
    """
    if method.upper() not in METHODS:
        known = ", ".join(sorted(METHODS))
        raise ToolError(f"unknown method {method[:30]!r}", ErrorKind.VALIDATION, f"Use one of {known}.")
    request = _Request(method.upper(), read_url(url), check_headers(headers), body, idempotent)
    fetching = _FetchChain(egress if egress is not None else Egress.current(), limits, follow, on_progress, send)
    problem: Exception
    try:
        async with asyncio.timeout(limits.total):
            return await fetching.run(request)
    except ToolError:
        raise
    except TimeoutError:
        problem = _timeout_error(fetching.current or request, f"no complete response within {limits.total:g} s")
    except Exception as error:
        problem = _connection_error(error, fetching.current or request, limits)
    raise problem  # raised here, so that its context holds no exception that knows the headers


@dataclass
class _FetchChain:
    """Follows one chain of requests and redirects."""

    egress: Egress
    limits: RequestLimits
    follow: Follow
    on_progress: Progress | None
    send: Send | None = None
    current: _Request | None = None

    async def run(self, request: _Request) -> Response:
        hops: list[str] = []
        while True:
            self.current = request
            found = await self._send(request, hops)
            if isinstance(found, Response):
                return replace(found, hops=tuple(hops)) if hops else found
            if len(hops) == self.limits.redirects:
                raise ToolError(
                    f"more than {self.limits.redirects} redirects, the last one from {request.url.origin}",
                    ErrorKind.USER,
                    "Request the final URL directly, if you know it.",
                )
            hops.append(str(request.url))
            request = found

    async def _send(self, request: _Request, hops: list[str]) -> Response | _Request:
        """Returns the answer, or the next request if the answer is a redirect to follow."""
        from forge.network.connections import send

        try:
            answer = await (self.send or send)(
                request.method,
                request.url,
                self.egress,
                headers=build_headers(request.url, request.headers, request.body, request.method),
                content=request.body,
                timeout={"connect": self.limits.connect, "read": self.limits.read, "write": self.limits.read},
            )
        except ToolError as error:
            if hops and error.kind is ErrorKind.SECURITY:
                error.message = f"after a redirect, {error.message}"
            raise
        try:
            headers = _read_headers(answer.headers, self.limits)
            location = _find_location(answer.status, headers)
            target = self._redirect_target(request.url, location) if location and self.follow != "none" else None
            if target is not None:
                await _drain(answer, headers)
                return _build_redirect(request, answer.status, target)
            body, truncated = await self._read_body(request, answer, headers)
        finally:
            await answer.aclose()
        return Response(
            url=str(request.url),
            status=answer.status,
            reason=_read_reason(answer),
            headers=headers,
            body=body,
            truncated=truncated,
            location=_render_location(request.url, location) if location else "",
        )

    def _redirect_target(self, url: Url, location: str) -> Url | None:
        """Returns the target of a redirect, or None if it is not to be followed."""
        target = read_redirect(url, location)
        return None if self.follow == "same-host" and not _is_same_server(url, target) else target

    async def _read_body(self, request: _Request, answer: httpcore2.Response, headers: Pairs) -> tuple[bytes, bool]:
        """Returns the unpacked body, and True if there was more than the limit."""
        if request.method == "HEAD" or answer.status in _EMPTY:
            return b"", False
        unpacker = Unpacker(read_encodings(_join_header(headers, "content-encoding")), self.limits.size)
        declared = _declared_size(headers)
        received = pieces = 0
        async with aclosing(answer.aiter_stream()) as chunks:
            async for chunk in chunks:
                received += len(chunk)
                pieces += 1
                if pieces % _PIECES == 0:  # a server that sends single bytes does not block other tasks
                    await asyncio.sleep(0)
                unpacker.feed(chunk)
                if self.on_progress is not None:
                    self.on_progress(received, declared)
                if unpacker.full or received > self.limits.size + _SLACK:
                    return bytes(unpacker.body), True
        unpacker.finish()
        return bytes(unpacker.body), False


def _is_same_server(url: Url, target: Url) -> bool:
    """Compares host and port, as rules do; http and https on their usual ports are the same server."""
    if target.host != url.host:
        return False
    return target.port == url.port or ((url.scheme, url.port), (target.scheme, target.port)) == _SECURED


def _build_redirect(request: _Request, status: int, target: Url) -> _Request:
    method, headers, body = request.method, request.headers, request.body
    if (status == 303 and method != "HEAD") or (status in (301, 302) and method == "POST"):
        method, headers, body = "GET", drop_body_headers(headers), b""
    is_same = target.origin == request.url.origin
    if not is_same:
        headers, body = keep_harmless(headers), b""
    return _Request(method, target, headers, body, request.idempotent and is_same)


def _read_headers(raw: list[tuple[bytes, bytes]], limits: RequestLimits) -> Pairs:
    if len(raw) > limits.headers or sum(len(name) + len(value) for name, value in raw) > limits.header_size:
        raise ToolError(
            f"the response has more than {limits.headers} headers, or over {limits.header_size // 1024} KiB of them",
            ErrorKind.SYSTEM,
            "The server is at fault; look for the same content elsewhere.",
        )
    return [(name.decode("latin-1").lower(), _decode_value(value)) for name, value in raw]


def _decode_value(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _find_location(status: int, headers: Pairs) -> str:
    return next((value for name, value in headers if name == "location"), "") if status in _REDIRECTS else ""


def _render_location(url: Url, location: str) -> str:
    try:
        return str(read_redirect(url, location))
    except ToolError:
        return location


def _join_header(headers: Pairs, wanted: str) -> str:
    return ",".join(value for name, value in headers if name == wanted)


def _declared_size(headers: Pairs) -> int | None:
    value = _join_header(headers, "content-length")
    return int(value) if value.isascii() and value.isdecimal() and len(value) < 20 else None


def _read_reason(answer: httpcore2.Response) -> str:
    raw: bytes = answer.extensions.get("reason_phrase", b"")
    return raw[:200].decode("latin-1")


async def _drain(answer: httpcore2.Response, headers: Pairs) -> None:
    """Reads the short rest of a redirect's body, still packed, so that its connection can be used again."""
    import httpcore2  # heavy

    declared = _declared_size(headers)
    if declared is None or declared > _DRAINED:
        return
    try:
        async with asyncio.timeout(0.1), aclosing(answer.aiter_stream()) as chunks:
            async for _ in chunks:
                pass
    except (TimeoutError, httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException):
        pass  # the connection is closed with the answer


def _timeout_error(request: _Request, what: str) -> ToolError:
    return ToolError(
        f"requesting {request.url.origin}: {what}",
        ErrorKind.TIMEOUT,
        "Try again later, request less, or allow more time.",
    )


def _connection_error(error: Exception, request: _Request, limits: RequestLimits) -> Exception:
    """Returns the error for a failed connection, or any other exception unchanged."""
    import httpcore2  # heavy

    action = f"requesting {request.url.origin}"
    if isinstance(error, httpcore2.ReadTimeout | httpcore2.WriteTimeout):
        return _timeout_error(request, f"no data for {limits.read:g} s")
    if isinstance(error, httpcore2.ConnectTimeout):
        problem = _timeout_error(request, f"no connection within {limits.connect:g} s")
        problem.passing = True
        return problem
    said = str(error)[:200]
    if isinstance(error, httpcore2.ConnectError) and _is_about_tls(error):
        return ToolError(
            f"{action}: no secure connection: {said}",
            ErrorKind.SECURITY,
            "Check the address. To trust your own certificates, set SSL_CERT_FILE and FORGE_TRUST_ENV=1.",
        )
    if isinstance(error, httpcore2.ConnectError | httpcore2.ProxyError):
        what = f"no connection: {said}" if said else "no connection"
        return ToolError(
            f"{action}: {what}",
            ErrorKind.SYSTEM,
            "Check the host, the port, and that the server is running.",
            passing=True,
        )
    if isinstance(error, httpcore2.LocalProtocolError):
        return ToolError(f"{action}: the request cannot be sent: {said}", ErrorKind.VALIDATION, "Check the headers.")
    if isinstance(error, httpcore2.RemoteProtocolError):
        may_repeat = request.idempotent or request.method in ("GET", "HEAD")
        dropped = "without sending a response" in said and may_repeat  # an idle connection may be
        what = f"{action}: the response is not valid HTTP: {said.partition(': ')[0]}"  # without the server's own text
        return ToolError(what, ErrorKind.SYSTEM, "Try again later.", passing=dropped)
    if isinstance(error, httpcore2.NetworkError):
        what = f"{action}: the connection broke"
        return ToolError(what, ErrorKind.SYSTEM, "Try again in a moment.", passing=request.idempotent)
    return error


def _is_about_tls(error: BaseException) -> bool:

    seen: Any = error
    while seen is not None:
        if isinstance(seen, ssl.SSLError | ssl.CertificateError):
            return True
        seen = seen.__cause__ or seen.__context__
    return "SSL" in str(error)
