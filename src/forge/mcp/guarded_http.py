"""Sends requests that an egress allows: checked, and with bounded answers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

import httpcore2
import httpx2

from forge.core.errors import ErrorKind, ToolError
from forge.core.untrusted import has_too_many_values
from forge.mcp.bounds import MIB, MOST_MESSAGE, MOST_VALUES
from forge.network.address import read_url
from forge.network.connections import send
from forge.network.egress import Egress
from forge.network.headers import USER_AGENT

CONNECT = 10.0  # seconds to connect
SENDING = 30.0
BROKEN = (httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.ProtocolError, OSError)
_MOST_DOCUMENT = MIB  # bytes of an answer of an authorization server
_SHORTLY = 1.0  # seconds to read the beginning of an answer
_EVENT_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")


def make_client(
    transport: httpx2.AsyncBaseTransport, headers: dict[str, str], timeout: httpx2.Timeout
) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        transport=transport,
        headers={"user-agent": USER_AGENT, "accept-encoding": "identity", **headers},
        timeout=timeout,
        trust_env=False,
        follow_redirects=False,
    )


async def send_checked(request: httpx2.Request, egress: Egress) -> tuple[httpcore2.Response, AnswerBody]:
    """Sends a request that the egress allows. Raises `ToolError`, or an error of httpcore2."""
    answer = await send(
        request.method,
        read_url(str(request.url)),
        egress,
        headers=request.headers.raw,
        content=request.stream if isinstance(request.stream, httpx2.AsyncByteStream) else request.content,
        timeout=request.extensions.get("timeout", {}),
    )
    return answer, AnswerBody(answer)


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Sends requests to authorization servers: guarded, and with small answers."""

    def __init__(self, egress: Egress, reading: float = SENDING) -> None:
        self._egress = egress
        self._reading = reading

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            async with asyncio.timeout(SENDING):
                answer, body = await send_checked(request, self._egress)
                content = await body.read_start(_MOST_DOCUMENT, self._reading)
                await body.aclose()
        except (TimeoutError, *BROKEN):
            origin = read_url(str(request.url)).origin
            what = f"asking {origin} for a login: it did not answer"
            raise ToolError(what, ErrorKind.SYSTEM, "Try again later.", passing=True) from None
        return httpx2.Response(answer.status, headers=kept_headers(answer), content=content)


class AnswerBody(httpx2.AsyncByteStream):
    """The bounded body of an answer."""

    def __init__(self, answer: httpcore2.Response) -> None:
        self._answer = answer
        self.most: int | None = MOST_MESSAGE

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = pieces = 0
        try:
            async for piece in self._answer.aiter_stream():
                size += len(piece)
                pieces += 1
                if self.most is not None and size > self.most:
                    raise httpx2.StreamError(f"the response has more than {self.most // MIB} MiB")
                if pieces % 64 == 0:  # a server that sends single bytes must not block other tasks
                    await asyncio.sleep(0)
                yield piece
        except (httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.ProtocolError):
            raise httpx2.StreamError("the connection broke in the middle of the response") from None

    async def iter_messages(self) -> AsyncIterator[bytes]:
        """Yields the body as whole messages: the body, or its events. Raises for one with too many values."""
        held = bytearray()
        async for piece in self:
            looked = max(0, len(held) - 3)
            held += piece
            if self.most is not None:
                continue
            *_, end = (0, *(found.end() for found in _EVENT_END.finditer(held, looked)))
            if end or len(held) > MOST_MESSAGE:  # the SDK refuses an event of that size
                yield _check_values(bytes(held[: end or len(held)]))
                del held[: end or len(held)]
        if held:
            yield _check_values(bytes(held))

    async def read_start(self, most: int, seconds: float = _SHORTLY) -> bytes:
        content = bytearray()
        try:
            async with asyncio.timeout(seconds):
                async for piece in self:
                    content += piece
                    if len(content) > most:
                        break
        except (httpx2.StreamError, TimeoutError):
            pass
        return bytes(content[:most])

    async def aclose(self) -> None:
        await self._answer.aclose()


def _check_values(messages: bytes) -> bytes:
    if not has_too_many_values(messages, MOST_VALUES):
        return messages
    if any(has_too_many_values(one, MOST_VALUES) for one in _EVENT_END.split(messages)):
        raise httpx2.StreamError(f"the response has more than {MOST_VALUES:,} values")
    return messages


class WholeMessages(httpx2.AsyncByteStream):
    """The body of an answer for the SDK, which gets each message whole and checked."""

    def __init__(self, body: AnswerBody) -> None:
        self._body = body

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._body.iter_messages()

    async def aclose(self) -> None:
        await self._body.aclose()


def kept_headers(answer: httpcore2.Response) -> httpx2.Headers:
    """Returns the headers without those of the body's form on the wire: the body was read."""
    headers = httpx2.Headers(answer.headers)
    for name in ("content-length", "transfer-encoding", "content-encoding"):
        headers.pop(name, None)
    return headers
