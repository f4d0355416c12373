"""Connects to a server by URL: every request is checked, bounded, and sent to the configured origin only."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpcore2
import httpx2
from mcp.client.streamable_http import streamable_http_client

from forge.core.errors import ErrorKind, ToolError
from forge.network.egress import Egress
from forge.network.headers import USER_AGENT, check_headers
from forge.network.pools import Pool, find_pool, find_proxy
from forge.network.url import Url, read_url
from forge.sources.mcp.bounds import MIB, MOST_MESSAGE
from forge.sources.mcp.server_link import Wire
from forge.sources.mcp.target import Target
from forge.sources.untrusted import one_line

OURS = -32_099  # the code of a JSON-RPC error that refers to one in `Wire.failures`

_CONNECT = 10.0  # seconds to connect
_SENDING = 30.0
_GOODBYE = 1.0  # seconds to tell the server that the session is over
_MOMENT = 0.05  # seconds
_MOST_ERROR = 64 * 1024  # bytes of an error's body that are read
_SESSION = "mcp-session-id"


class ExpiredSession(ToolError):
    """The session expired at the server, which did nothing: a new session can retry."""


@asynccontextmanager
async def over_http(target: Target, wire: Wire) -> AsyncIterator[Any]:
    """Opens the streams of a session. Raises `ToolError` for an invalid URL or invalid headers."""
    url = read_url(target.url)
    headers = dict(check_headers(target.headers))
    egress = target.egress if target.egress is not None else Egress.only(str(url))
    client = httpx2.AsyncClient(
        transport=_CheckedTransport(url, egress, wire, frozenset(headers)),
        headers={"user-agent": USER_AGENT, "accept-encoding": "identity", **headers},
        # the caller limits how long an answer may take, and an open stream may be silent for hours
        timeout=httpx2.Timeout(_SENDING, connect=_CONNECT, read=None),
        trust_env=False,
        follow_redirects=False,
    )
    async with (
        client,
        streamable_http_client(str(url), http_client=client, max_sse_event_size=MOST_MESSAGE) as streams,
    ):
        yield streams


class _CheckedTransport(httpx2.AsyncBaseTransport):
    """The client's only transport. A failure becomes a response, since an exception would end the whole session."""

    def __init__(self, url: Url, egress: Egress, wire: Wire, sent: frozenset[str]) -> None:
        self._origin = url.origin
        self._egress = egress
        self._wire = wire
        self._sent = sent  # names of the configured headers

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            async with asyncio.timeout(_GOODBYE if request.method == "DELETE" else None):
                return await self._ask(request)
        except ToolError as error:
            return self._failure_response(request, error)
        except TimeoutError:
            return self._failure_response(request, ToolError("it did not say goodbye", ErrorKind.TIMEOUT))
        except (httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.ProtocolError, OSError) as error:
            return self._failure_response(request, self._connection_error(error))

    async def _ask(self, request: httpx2.Request) -> httpx2.Response:
        url = read_url(str(request.url))
        self._egress.judge(url, proxied=bool(find_proxy(url, self._egress)))
        pool = await find_pool(url, self._egress)
        connections = pool.__enter__()
        try:
            answer = await connections.handle_async_request(
                httpcore2.Request(
                    request.method,
                    httpcore2.URL(scheme=url.scheme, host=url.host, port=url.port, target=url.target),
                    headers=request.headers.raw,
                    content=request.stream,
                    extensions=request.extensions,
                )
            )
            body = _AnswerBody(answer, pool)
        except BaseException:
            pool.__exit__()
            raise
        try:
            return await self._check_answer(request, answer, body)
        except BaseException:
            await body.aclose()
            raise

    async def _check_answer(
        self, request: httpx2.Request, answer: httpcore2.Response, body: _AnswerBody
    ) -> httpx2.Response:
        headers = httpx2.Headers(answer.headers)
        if headers.get("content-encoding", "identity").strip().lower() not in ("identity", ""):
            raise ToolError(
                f"{self._origin} sends packed answers, though they were asked for as they are",
                ErrorKind.SYSTEM,
                "The server has to be repaired.",
            )
        if answer.status < 400:
            if headers.get("content-type", "").lower().startswith("text/event-stream"):
                body.most = None  # each event is bounded
            return httpx2.Response(answer.status, headers=headers, stream=body, extensions=answer.extensions)
        if answer.status == 404 and _SESSION in request.headers:
            self._wire.expired = True
            self._lose("its session expired")
            raise ExpiredSession("the session with the server expired", ErrorKind.SYSTEM, "Try again.", passing=True)
        content = await body.read_start(_MOST_ERROR)
        await body.aclose()
        if answer.status not in (401, 403) and _is_error(content):
            return httpx2.Response(answer.status, headers={"content-type": "application/json"}, content=content)
        raise self._refusal_error(answer.status, headers)

    def _refusal_error(self, status: int, headers: httpx2.Headers) -> ToolError:
        if status in (401, 403):
            return self._unauthorized_error(status)
        reason = httpx2.codes.get_reason_phrase(status)
        what = f"{self._origin} answered {status} {reason}".rstrip()
        if status == 429:
            wait = one_line(headers.get("retry-after", ""), 30)
            later = f"Try again in {wait} s." if wait.isdigit() else "Try again later."
            return ToolError(what, ErrorKind.RATE_LIMITED, later)
        if status in (404, 405, 406, 410):
            what = f"{what}: no MCP server speaks streamable HTTP at this address"
            return ToolError(what, ErrorKind.CONFIG, "Check the path of its URL, often /mcp.")
        return ToolError(what, ErrorKind.SYSTEM, "Try again later.")

    def _unauthorized_error(self, status: int) -> ToolError:
        if "authorization" in self._sent:
            what = "it does not accept the Authorization header that is configured"
            hint = "A person has to look at it: the token may be wrong or expired, or `Bearer` is missing before it."
        elif self._sent:
            what = f"the configured headers ({', '.join(sorted(self._sent))}) are not enough; Authorization is missing"
            hint = 'A person has to set it: headers: {Authorization: "Bearer ${NAME_OF_A_VARIABLE}"}.'
        else:
            what = "the header Authorization is missing"
            hint = 'A person has to set it: headers: {Authorization: "Bearer ${NAME_OF_A_VARIABLE}"}.'
        return ToolError(f"{self._origin} answered {status}: {what}", ErrorKind.CONFIG, hint)

    def _connection_error(self, error: Exception) -> ToolError:
        content = one_line(str(error), 200)
        request = f"asking {self._origin}"
        if isinstance(error, httpcore2.ConnectError) and ("SSL" in content or "certificate" in content.lower()):
            hint = "Check the address; for a certificate of one's own, FORGE_TRUST_ENV=1 makes SSL_CERT_FILE count."
            return ToolError(f"{request}: no secure connection: {content}", ErrorKind.SECURITY, hint)
        if isinstance(error, httpcore2.ConnectError):
            self._lose(f"no connection to {self._origin}")
            hint = "Check that the server runs."
            return ToolError(f"{request}: no connection", ErrorKind.SYSTEM, hint, passing=True)
        if isinstance(error, httpcore2.ConnectTimeout):
            what = f"{request}: no connection within {_CONNECT:g} s"
            return ToolError(what, ErrorKind.TIMEOUT, "Try again later.", passing=True)
        if isinstance(error, httpcore2.TimeoutException):
            return ToolError(f"{request}: it did not take the request in time", ErrorKind.TIMEOUT, "Try again later.")
        return ToolError(f"{request}: the connection broke", ErrorKind.SYSTEM, "Try again in a moment.")

    def _lose(self, reason: str) -> None:
        """Loses the session after a moment, so that the failing call reports its own reason first."""
        asyncio.get_running_loop().call_later(_MOMENT, self._wire.lose, reason)

    def _failure_response(self, request: httpx2.Request, error: ToolError) -> httpx2.Response:
        if request.method == "DELETE":
            return httpx2.Response(204, request=request)  # the server is gone: there is no session to end
        number = self._wire.store_failure(error) if request.method == "POST" else 0
        error_object = {"code": OURS, "message": error.message, "data": {"forge": number}}
        return httpx2.Response(
            599,
            headers={"content-type": "application/json"},
            content=json.dumps({"jsonrpc": "2.0", "id": None, "error": error_object}).encode(),
            request=request,
        )


class _AnswerBody(httpx2.AsyncByteStream):
    """The bounded body of an answer; it holds its pool until it is closed."""

    def __init__(self, answer: httpcore2.Response, pool: Pool) -> None:
        self._answer = answer
        self._pool: Pool | None = pool
        self.most: int | None = MOST_MESSAGE

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = pieces = 0
        try:
            async for piece in self._answer.aiter_stream():
                size += len(piece)
                pieces += 1
                if self.most is not None and size > self.most:
                    raise httpx2.StreamError(f"the answer has more than {self.most // MIB} MiB")
                if pieces % 64 == 0:  # a server that sends single bytes must not block other tasks
                    await asyncio.sleep(0)
                yield piece
        except (httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.ProtocolError):
            raise httpx2.StreamError("the connection broke in the middle of the answer") from None

    async def read_start(self, most: int) -> bytes:
        content = bytearray()
        try:
            async with asyncio.timeout(_GOODBYE):
                async for piece in self:
                    content += piece
                    if len(content) > most:
                        break
        except (httpx2.StreamError, TimeoutError):
            pass
        return bytes(content[:most])

    async def aclose(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            try:
                await self._answer.aclose()
            finally:
                pool.__exit__()


def _is_error(content: bytes) -> bool:
    """Tells if the content is a JSON-RPC error, which explains more than the status."""
    try:
        message = json.loads(content)
    except (ValueError, RecursionError):
        return False
    return isinstance(message, dict) and message.get("jsonrpc") == "2.0" and isinstance(message.get("error"), dict)
