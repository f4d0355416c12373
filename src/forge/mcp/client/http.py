"""Connects to a server by URL: every request is checked, bounded, and sent to the configured origin only."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import httpcore2
import httpx2
from mcp.client.streamable_http import streamable_http_client

from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.threads import in_thread
from forge.core.secrets.live_text import LiveText, read_text
from forge.core.untrusted import one_line
from forge.mcp.bounds import MOST_MESSAGE
from forge.mcp.client.link import OURS, Http, Wire
from forge.mcp.guarded_http import (
    BROKEN,
    CONNECT,
    SENDING,
    AnswerBody,
    WholeMessages,
    kept_headers,
    make_client,
    send_checked,
)
from forge.network.address import Url, read_url
from forge.network.egress import Egress
from forge.network.headers import check_headers

if TYPE_CHECKING:  # only if a login may be needed
    from forge.mcp.oauth.authorizer import Authorizer
    from forge.mcp.oauth.login import Login

_GOODBYE = 1.0  # seconds to tell the server that the session is over
_MOMENT = 0.05  # seconds
_MOST_ERROR = 64 * 1024  # bytes of an error's body that are read
_SESSION = "mcp-session-id"


class ExpiredSession(ToolError):
    """The session expired at the server, which did nothing: a new session can retry."""


class UnsuitableStatus(ToolError):
    """The server answered with a status, and not with a message: it may not know the request."""


@asynccontextmanager
async def over_http(server: Http, login: Login | None, wire: Wire) -> AsyncIterator[Any]:
    """Opens the streams of a session. Raises `ToolError` for an invalid URL or invalid headers."""
    url = read_url(server.url)
    written = {name: await in_thread(partial(read_text, value)) for name, value in server.headers.items()}
    headers = dict(check_headers(written))
    live = {name.lower(): value for name, value in server.headers.items() if isinstance(value, LiveText)}
    egress = server.egress if server.egress is not None else Egress.only(str(url))
    transport = _CheckedTransport(url, egress, wire, frozenset(headers), live)
    if login is not None:
        from forge.mcp.oauth.authorizer import make_authorizer  # only if a login may be needed

        transport.authorizer = make_authorizer(login)
    # the caller limits how long an answer may take, and an open stream may be silent for hours
    client = make_client(transport, headers, httpx2.Timeout(SENDING, connect=CONNECT, read=None))
    async with (
        client,
        streamable_http_client(str(url), http_client=client, max_sse_event_size=MOST_MESSAGE) as streams,
    ):
        yield streams


class _CheckedTransport(httpx2.AsyncBaseTransport):
    """The client's only transport. A failure becomes a response, since an exception would end the whole session."""

    def __init__(
        self, url: Url, egress: Egress, wire: Wire, sent: frozenset[str], live: Mapping[str, LiveText]
    ) -> None:
        self._origin = url.origin
        self._egress = egress
        self._wire = wire
        self._sent = sent  # names of the configured headers
        self._live = live  # those that hold secrets which change
        self.authorizer: Authorizer | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            async with asyncio.timeout(_GOODBYE if request.method == "DELETE" else None):
                await self._renew_headers(request)
                answer = await (self.authorizer.send(request, self._ask) if self.authorizer else self._ask(request))
                if answer.status_code == 401 and await self._renew_headers(request, rejected=True):
                    answer = await self._ask(request)
                if answer.status_code in (401, 403):
                    raise self._unauthorized_error(answer.status_code)
                return answer
        except ToolError as error:
            return self._failure_response(request, error)
        except TimeoutError:
            return self._failure_response(
                request, ToolError("it did not confirm the end of the session", ErrorKind.TIMEOUT)
            )
        except BROKEN as error:
            return self._failure_response(request, self._connection_error(error))

    async def _renew_headers(self, request: httpx2.Request, *, rejected: bool = False) -> bool:
        """Reads the secrets in headers again if their lifetime is over, or the server rejected them. Returns whether
        they changed.
        """
        changed = False
        for name, text in self._live.items():
            if rejected and [(name, request.headers.get(name))] == [*check_headers({name: text.latest()})]:
                text.expire()  # else another request had it read again
            [(_, value)] = check_headers({name: await in_thread(text.read)})
            changed |= request.headers.get(name) != value
            request.headers[name] = value
        return changed

    async def _ask(self, request: httpx2.Request) -> httpx2.Response:
        answer, body = await send_checked(request, self._egress)
        try:
            return await self._check_answer(request, answer, body)
        except BaseException:
            await body.aclose()
            raise

    async def _check_answer(
        self, request: httpx2.Request, answer: httpcore2.Response, body: AnswerBody
    ) -> httpx2.Response:
        headers = httpx2.Headers(answer.headers)
        if headers.get("content-encoding", "identity").strip().lower() not in ("identity", ""):
            raise ToolError(
                f"{self._origin} sent a compressed response although Forge asked for an uncompressed one",
                ErrorKind.SYSTEM,
                "The server must be fixed.",
            )
        if answer.status < 400:
            if session := headers.get(_SESSION):
                self._wire.attributes["mcp.session.id"] = one_line(session, 200)
            if headers.get("content-type", "").lower().startswith("text/event-stream"):
                body.most = None  # each event is bounded
            whole = WholeMessages(body)
            return httpx2.Response(answer.status, headers=headers, stream=whole, extensions=answer.extensions)
        if answer.status == 404 and _SESSION in request.headers:
            self._wire.expired = True
            self._lose("its session expired")
            raise ExpiredSession("the session with the server expired", ErrorKind.SYSTEM, "Try again.", passing=True)
        content = await body.read_start(_MOST_ERROR)
        await body.aclose()
        if answer.status in (401, 403):
            return httpx2.Response(answer.status, headers=kept_headers(answer), content=content)
        if _is_error(content):
            return httpx2.Response(answer.status, headers={"content-type": "application/json"}, content=content)
        raise self._refusal_error(answer.status, headers)

    def _refusal_error(self, status: int, headers: httpx2.Headers) -> ToolError:
        reason = httpx2.codes.get_reason_phrase(status)
        what = f"{self._origin} answered {status} {reason}".rstrip()
        if status == 429:
            wait = one_line(headers.get("retry-after", ""), 30)
            later = f"Try again in {wait} s." if wait.isdigit() else "Try again later."
            return ToolError(what, ErrorKind.RATE_LIMITED, later)
        if status in (404, 405, 406, 410):
            what = f"{what}: there is no MCP server with streamable HTTP at this address"
            return UnsuitableStatus(what, ErrorKind.CONFIG, "Check the path of its URL, often /mcp.")
        return UnsuitableStatus(what, ErrorKind.SYSTEM, "Try again later.")

    def _unauthorized_error(self, status: int) -> ToolError:
        if self.authorizer is not None:
            return self.authorizer.login.needed_error(f"{self._origin} answered {status}")
        if "authorization" in self._sent:
            what = "it rejected the configured Authorization header"
            hint = (
                "A person must check the header: the token may be wrong or expired, or `Bearer` is missing before it."
            )
        elif self._sent:
            what = f"the configured headers ({', '.join(sorted(self._sent))}) are not enough; Authorization is missing"
            hint = 'A person must set it: headers: {Authorization: "Bearer ${NAME_OF_A_VARIABLE}"}.'
        else:
            what = "the header Authorization is missing"
            hint = 'A person must set it: headers: {Authorization: "Bearer ${NAME_OF_A_VARIABLE}"}.'
        return ToolError(f"{self._origin} answered {status}: {what}", ErrorKind.CONFIG, hint)

    def _connection_error(self, error: Exception) -> ToolError:
        content = one_line(str(error), 200)
        request = f"request to {self._origin}"
        if isinstance(error, httpcore2.ConnectError) and ("SSL" in content or "certificate" in content.lower()):
            hint = "Check the address. For your own certificate authority, set SSL_CERT_FILE and FORGE_TRUST_ENV=1."
            return ToolError(f"{request}: no secure connection: {content}", ErrorKind.SECURITY, hint)
        if isinstance(error, httpcore2.ConnectError):
            self._lose(f"no connection to {self._origin}")
            hint = "Check that the server runs."
            return ToolError(f"{request}: no connection", ErrorKind.SYSTEM, hint, passing=True)
        if isinstance(error, httpcore2.ConnectTimeout):
            what = f"{request}: no connection within {CONNECT:g} s"
            return ToolError(what, ErrorKind.TIMEOUT, "Try again later.", passing=True)
        if isinstance(error, httpcore2.TimeoutException):
            return ToolError(f"{request}: it did not accept the request in time", ErrorKind.TIMEOUT, "Try again later.")
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


def _is_error(content: bytes) -> bool:
    """Returns whether the content is a JSON-RPC error, which explains more than the status."""
    try:
        message = json.loads(content)
    except (ValueError, RecursionError):
        return False
    return isinstance(message, dict) and message.get("jsonrpc") == "2.0" and isinstance(message.get("error"), dict)
