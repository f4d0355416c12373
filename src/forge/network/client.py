"""Makes a request: judged on every hop, bounded in time and size. The HTTP client is loaded by the first one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from forge.core.errors import ErrorKind, ToolError
from forge.network.decoding import Unpacker, encodings_of
from forge.network.egress import Egress
from forge.network.headers import Headers, Pairs, checked, harmless, to_send, without_body
from forge.network.limits import Limits
from forge.network.response import Response
from forge.network.url import Url, read_redirect, read_url

if TYPE_CHECKING:  # heavy: loaded by the first request
    import httpcore2

Follow = Literal["all", "same-host", "none"]
Progress = Callable[[int, int | None], object]

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
DEFAULT = Limits()

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_SLACK = 64 * 1024  # bytes on the wire beyond the size of a body: what compression may add
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
    once: bool = False  # it has a key by which the server does it once, however often it is sent


async def fetch(
    method: str,
    url: str,
    *,
    headers: Headers = (),
    body: bytes = b"",
    egress: Egress | None = None,
    limits: Limits = DEFAULT,
    follow: Follow = "all",
    once: bool = False,
    on_progress: Progress | None = None,
) -> Response:
    """The answer, whatever its status; `ToolError` where there is none or where it may not be asked for.

    Without an `egress` the one of the running call decides. A redirect to another scheme, host or port is sent neither
    the body nor any header in which a secret could be. One that is not followed is the answer; its `location` says
    where it leads. `once`: the server does it once, however often it is sent, so a connection that broke is reason to
    try again. `on_progress` is told the bytes received so far and those declared.
    """
    if method.upper() not in METHODS:
        known = ", ".join(sorted(METHODS))
        raise ToolError(f"the method {method[:30]!r} is not known", ErrorKind.VALIDATION, f"Use one of {known}.")
    request = _Request(method.upper(), read_url(url), checked(headers), body, once)
    fetching = _Fetching(egress if egress is not None else Egress.current(), limits, follow, on_progress)
    problem: Exception
    try:
        async with asyncio.timeout(limits.total):
            return await fetching.run(request)
    except ToolError:
        raise
    except TimeoutError:
        problem = _late(fetching.asking or request, f"no complete answer within {limits.total:g} s")
    except Exception as error:
        problem = _broken(error, fetching.asking or request, limits)
    raise problem  # here, so that it drags no exception along that knows the headers


@dataclass
class _Fetching:
    """One chain of requests."""

    egress: Egress
    limits: Limits
    follow: Follow
    on_progress: Progress | None
    asking: _Request | None = None

    async def run(self, request: _Request) -> Response:
        hops: list[str] = []
        while True:
            self.asking = request
            found = await self._ask_judged(request, hops)
            if isinstance(found, Response):
                return replace(found, hops=tuple(hops)) if hops else found
            if len(hops) == self.limits.redirects:
                raise ToolError(
                    f"more than {self.limits.redirects} redirects, the last one from {request.url.origin}",
                    ErrorKind.USER,
                    "Ask for the page they should lead to, if it is known.",
                )
            hops.append(str(request.url))
            request = found

    async def _ask_judged(self, request: _Request, hops: list[str]) -> Response | _Request:
        from forge.network.pools import proxy_for

        try:
            self.egress.judge(request.url, proxied=bool(proxy_for(request.url, self.egress)))
            return await self._ask(request)
        except ToolError as error:
            if hops and error.kind is ErrorKind.SECURITY:
                error.message = f"after a redirect, {error.message}"
            raise

    async def _ask(self, request: _Request) -> Response | _Request:
        """The answer, or the next request where it is a redirect to be followed."""
        from forge.network.pools import shared_pool

        with await shared_pool(request.url, self.egress) as pool:
            answer = await pool.handle_async_request(_outgoing(request, self.limits))
            try:
                headers = _headers(answer.headers, self.limits)
                location = _location(answer.status, headers)
                target = self._target(request.url, location) if location and self.follow != "none" else None
                if target is not None:
                    await _drain(answer, headers)
                    return _redirected(request, answer.status, target)
                body, truncated = await self._body(request, answer, headers)
            finally:
                await answer.aclose()
        return Response(
            url=str(request.url),
            status=answer.status,
            reason=_reason(answer),
            headers=headers,
            body=body,
            truncated=truncated,
            location=_shown(request.url, location) if location else "",
        )

    def _target(self, url: Url, location: str) -> Url | None:
        """Where a redirect leads; None if it is not to be followed."""
        target = read_redirect(url, location)
        return None if self.follow == "same-host" and not _is_same_server(url, target) else target

    async def _body(self, request: _Request, answer: httpcore2.Response, headers: Pairs) -> tuple[bytes, bool]:
        """What the body unpacks to, and whether there was more."""
        if request.method == "HEAD" or answer.status in _EMPTY:
            return b"", False
        unpacker = Unpacker(encodings_of(_joined(headers, "content-encoding")), self.limits.size)
        declared = _declared(headers)
        received = pieces = 0
        async with aclosing(answer.aiter_stream()) as chunks:
            async for chunk in chunks:
                received += len(chunk)
                pieces += 1
                if pieces % _PIECES == 0:  # a server that sends single bytes holds up nobody else
                    await asyncio.sleep(0)
                unpacker.feed(chunk)
                if self.on_progress is not None:
                    self.on_progress(received, declared)
                if unpacker.full or received > self.limits.size + _SLACK:
                    return bytes(unpacker.body), True
        unpacker.finish()
        return bytes(unpacker.body), False


def _is_same_server(url: Url, target: Url) -> bool:
    """By host and port, which is what rules name; from http to https at their usual ports is the same one, secured."""
    if target.host != url.host:
        return False
    return target.port == url.port or ((url.scheme, url.port), (target.scheme, target.port)) == _SECURED


def _outgoing(request: _Request, limits: Limits) -> httpcore2.Request:
    import httpcore2  # heavy

    url = request.url
    return httpcore2.Request(
        request.method,
        httpcore2.URL(scheme=url.scheme, host=url.host, port=url.port, target=url.target),
        headers=to_send(url, request.headers, request.body, request.method),
        content=request.body,
        extensions={"timeout": {"connect": limits.connect, "read": limits.read, "write": limits.read, "pool": None}},
    )


def _redirected(request: _Request, status: int, target: Url) -> _Request:
    method, headers, body = request.method, request.headers, request.body
    if (status == 303 and method != "HEAD") or (status in (301, 302) and method == "POST"):
        method, headers, body = "GET", without_body(headers), b""
    is_same = target.origin == request.url.origin
    if not is_same:
        headers, body = harmless(headers), b""
    return _Request(method, target, headers, body, request.once and is_same)


def _headers(raw: list[tuple[bytes, bytes]], limits: Limits) -> Pairs:
    if len(raw) > limits.headers or sum(len(name) + len(value) for name, value in raw) > limits.header_size:
        raise ToolError(
            f"the answer has more than {limits.headers} headers, or more than {limits.header_size // 1024} KiB of them",
            ErrorKind.SYSTEM,
            "The server is at fault; look for the same content elsewhere.",
        )
    return [(name.decode("latin-1").lower(), _readable(value)) for name, value in raw]


def _readable(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _location(status: int, headers: Pairs) -> str:
    return next((value for name, value in headers if name == "location"), "") if status in _REDIRECTS else ""


def _shown(url: Url, location: str) -> str:
    try:
        return str(read_redirect(url, location))
    except ToolError:
        return location


def _joined(headers: Pairs, wanted: str) -> str:
    return ",".join(value for name, value in headers if name == wanted)


def _declared(headers: Pairs) -> int | None:
    value = _joined(headers, "content-length")
    return int(value) if value.isascii() and value.isdecimal() and len(value) < 20 else None


def _reason(answer: httpcore2.Response) -> str:
    raw: bytes = answer.extensions.get("reason_phrase", b"")
    return raw[:200].decode("latin-1")


async def _drain(answer: httpcore2.Response, headers: Pairs) -> None:
    """Reads the rest of a redirect, packed as it is, if that is little: its connection can be used again."""
    import httpcore2  # heavy

    declared = _declared(headers)
    if declared is None or declared > _DRAINED:
        return
    try:
        async with asyncio.timeout(0.1), aclosing(answer.aiter_stream()) as chunks:
            async for _ in chunks:
                pass
    except (TimeoutError, httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException):
        pass  # the connection is closed with the answer


def _late(request: _Request, what: str) -> ToolError:
    return ToolError(
        f"asking {request.url.origin}: {what}",
        ErrorKind.TIMEOUT,
        "Try again later, ask for less, or allow more time.",
    )


def _broken(error: Exception, request: _Request, limits: Limits) -> Exception:
    """The error for a connection that did not do; any other exception as it is."""
    import httpcore2  # heavy

    asked = f"asking {request.url.origin}"
    if isinstance(error, httpcore2.ReadTimeout | httpcore2.WriteTimeout):
        return _late(request, f"nothing came for {limits.read:g} s")
    if isinstance(error, httpcore2.ConnectTimeout):
        problem = _late(request, f"no connection within {limits.connect:g} s")
        problem.passing = True
        return problem
    said = str(error)[:200]
    if isinstance(error, httpcore2.ConnectError) and _is_about_tls(error):
        return ToolError(
            f"{asked}: no secure connection: {said}",
            ErrorKind.SECURITY,
            "Check the address; for a certificate of one's own, FORGE_TRUST_ENV=1 makes SSL_CERT_FILE count.",
        )
    if isinstance(error, httpcore2.ConnectError | httpcore2.ProxyError):
        what = f"no connection: {said}" if said else "no connection"
        return ToolError(
            f"{asked}: {what}", ErrorKind.SYSTEM, "Check host and port, and that the server runs.", passing=True
        )
    if isinstance(error, httpcore2.LocalProtocolError):
        return ToolError(f"{asked}: the request cannot be sent: {said}", ErrorKind.VALIDATION, "Check the headers.")
    if isinstance(error, httpcore2.RemoteProtocolError):
        may_repeat = request.once or request.method in ("GET", "HEAD")
        dropped = "without sending a response" in said and may_repeat  # a kept connection may be
        what = f"{asked}: the answer is no proper HTTP: {said.partition(': ')[0]}"  # not what the server wrote
        return ToolError(what, ErrorKind.SYSTEM, "Try again later.", passing=dropped)
    if isinstance(error, httpcore2.NetworkError):
        what = f"{asked}: the connection broke"
        return ToolError(what, ErrorKind.SYSTEM, "Try again in a moment.", passing=request.once)
    return error


def _is_about_tls(error: BaseException) -> bool:
    import ssl

    seen: Any = error
    while seen is not None:
        if isinstance(seen, ssl.SSLError | ssl.CertificateError):
            return True
        seen = seen.__cause__ or seen.__context__
    return "SSL" in str(error)
