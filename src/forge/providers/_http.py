"""Posts a request and streams the events of its answer, with bounded retries."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from forge.core.errors import ErrorKind
from forge.core.provider import ProviderError
from forge.core.secrets import SHORTEST, Secrets
from forge.providers._client import shared_client
from forge.providers._sse import Event, EventReader, TooLong
from forge.providers._waits import LONGEST_WAIT, asked_to_wait, delay_before
from forge.providers.errors import LONGEST, Mask, refused, refused_inside, said_in_body, shown

if TYPE_CHECKING:  # heavy: loaded by the first request
    import httpx2

CONNECT = 10.0  # seconds
SILENCE = 120.0  # seconds between two pieces of an answer
LONGEST_ANSWER = 256 * 1024 * 1024  # bytes

_HARMLESS = {"accept", "anthropic-beta", "anthropic-version", "content-type", "http-referer", "user-agent", "x-title"}

__all__ = ["Event", "drain", "post_stream", "stream_error"]


async def post_stream(
    url: str,
    *,
    headers: Mapping[str, str],
    body: dict[str, Any],
    label: str,
    attempts: int = 5,
    timeout: float = 600.0,
    silence: float = SILENCE,
) -> AsyncGenerator[Event, None]:
    """The server-sent events of the answer; an answer that is plain JSON comes as one event.

    Until the first event a failure that may pass is tried again, `attempts` requests in all; after it, it is raised.
    `timeout` bounds everything, waits included; `silence` the time between two pieces. Closing the generator closes
    the connection. Raises `ProviderError`; what `headers` carry is never in its text, known harmless ones excepted.
    """
    sending = _Sending(url, headers, _written(body, label), timeout, silence, f"asking {label} at {_host(url)}")
    sending.check()
    for attempt in range(1, attempts + 1):
        try:
            async with aclosing(_answer(sending)) as events:
                async for event in events:
                    yield event
            return
        except _Failed as failed:
            delay = delay_before(attempt, failed.after)
            last = attempt == attempts or delay > LONGEST_WAIT or delay > sending.left
            error = _given_up(failed.error, attempt, delay) if last else None
        if error is not None:
            raise error
        await pause(delay)


async def pause(seconds: float) -> None:
    """Between two tries."""
    await asyncio.sleep(seconds)


async def drain(events: AsyncGenerator[Event, None], seconds: float = 0.1) -> None:
    """Reads on after the last event that matters: a connection whose answer was read to its end can be used again."""
    try:
        async with asyncio.timeout(seconds):
            async for _ in events:
                pass
    except (TimeoutError, ProviderError):
        pass


def stream_error(error: Any, *, url: str, headers: Mapping[str, str], label: str) -> ProviderError:
    """What to raise for an error object that came inside a stream."""
    return refused_inside(error, f"asking {label} at {_host(url)}: the answer broke off", _mask(headers))


class _Failed(Exception):
    """A try that failed before its first event, in a way that may pass. `after`: how long the server says to wait."""

    def __init__(self, error: ProviderError, after: float | None = None) -> None:
        super().__init__()
        self.error, self.after = error, after


@dataclass
class _Sending:
    """A request, ready to be sent as often as needed."""

    url: str
    headers: Mapping[str, str]
    content: bytes
    timeout: float
    silence: float
    asked: str  # what was tried, for errors

    def __post_init__(self) -> None:
        self.deadline = time.monotonic() + self.timeout
        self.mask = _mask(self.headers)

    @property
    def left(self) -> float:
        return max(0.0, self.deadline - time.monotonic())

    def check(self) -> None:
        """Before the HTTP library does, which would quote the value."""
        for name, value in self.headers.items():
            written = name + value
            if not written.isascii() or not written.isprintable() or value != value.strip():
                raise self.error(
                    f"the value of the header {name!a} holds characters that cannot be sent",
                    ErrorKind.CONFIG,
                    "Check the API key for stray spaces, line breaks and quotation marks.",
                )

    def error(self, what: str, kind: ErrorKind, suggestion: str, *, passing: bool = False) -> ProviderError:
        return ProviderError(f"{self.asked}: {what}", kind, suggestion, passing=passing)


async def _answer(sending: _Sending) -> AsyncGenerator[Event, None]:
    """One try. Raises `_Failed` where another may help."""
    import httpx2  # heavy

    begun = False
    problem: ProviderError | _Failed | None
    try:
        response = await _sent(sending)
        try:
            async with aclosing(_events(response, sending)) as events:
                async for event in events:
                    if not begun:
                        _refuse_error(event, sending)
                    begun = True
                    yield event
        finally:
            await response.aclose()
        problem = None if begun else _Failed(_passing(sending, "the answer was empty"))
    except (TimeoutError, httpx2.HTTPError, httpx2.InvalidURL) as error:
        problem = _broken(sending, error, begun)
    if problem is not None:  # raised here, so that it drags no exception along that knows the headers
        raise problem


async def _sent(sending: _Sending) -> httpx2.Response:
    """The answer, once its status is known to be good."""
    import httpx2  # heavy

    client = await shared_client(secure=sending.url[:5].lower() == "https")
    request = client.build_request(
        "POST",
        sending.url,
        headers={
            "accept": "text/event-stream, application/json",
            "accept-encoding": "identity",
            "user-agent": "forge-tools",
            **sending.headers,
            "content-type": "application/json",
        },
        content=sending.content,
        timeout=httpx2.Timeout(sending.silence, connect=CONNECT, pool=None),
    )
    async with asyncio.timeout(sending.left):
        response = await client.send(request, stream=True)
        if response.status_code == 200:
            return response
        raw = await _start_of(response)
    said = said_in_body(raw, response.headers.get("content-type", ""), sending.mask)
    error = refused(response.status_code, said, sending.asked)
    if error.passing and response.headers.get("x-should-retry") != "false":
        raise _Failed(error, asked_to_wait(response.headers))
    raise error


async def _start_of(response: httpx2.Response) -> bytes:
    """As much of a body as is worth showing; then the answer is closed."""
    import httpx2  # heavy

    raw = b""
    try:
        async with aclosing(response.aiter_bytes()) as chunks:
            async for chunk in chunks:
                raw += chunk
                if len(raw) >= LONGEST:
                    break
    except httpx2.HTTPError:
        pass  # what came says enough
    finally:
        await response.aclose()
    return raw[:LONGEST]


async def _events(response: httpx2.Response, sending: _Sending) -> AsyncGenerator[Event, None]:
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "text/html":
        async with asyncio.timeout(sending.left):
            said = said_in_body(await _start_of(response), kind, sending.mask)
        raise sending.error(
            f"a web page came instead of an answer: {said.text}",
            ErrorKind.CONFIG,
            "Check the base URL; for most servers it ends in /v1.",
        )
    reader = _Whole() if kind == "application/json" else EventReader()
    received = 0
    try:
        async with aclosing(response.aiter_bytes()) as chunks:
            while True:
                async with asyncio.timeout(sending.left):  # never around a yield: it would cancel whoever reads us
                    chunk = await anext(chunks, None)
                if chunk is None:
                    break
                received += len(chunk)
                if received > LONGEST_ANSWER:
                    raise TooLong
                for event in reader.feed(chunk):
                    yield event
        for event in reader.finish():
            yield event
    except TooLong:
        raise sending.error(
            "the answer is longer than can be kept",
            ErrorKind.SYSTEM,
            "Choose another model or server: this one sends far more than an answer.",
        ) from None


class _Whole:
    """Keeps an answer that is one JSON text, as one event."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, chunk: bytes) -> list[Event]:
        self._parts.append(chunk)
        return []

    def finish(self) -> list[Event]:
        text = b"".join(self._parts).decode(errors="replace")
        return [Event("message", text)] if text.strip() else []


def _refuse_error(event: Event, sending: _Sending) -> None:
    """An error in place of the first event is as good as a status."""
    if event.name != "error" and '"error"' not in event.data:
        return
    try:
        found = json.loads(event.data)
    except (ValueError, RecursionError):
        found = event.data
    inner = found.get("error") if isinstance(found, dict) else None
    if not inner and event.name != "error":
        return
    error = refused_inside(inner or found, sending.asked, sending.mask)
    raise _Failed(error) if error.passing else error


def _broken(sending: _Sending, error: Exception, begun: bool) -> ProviderError | _Failed:
    """The error for a connection that did not do; `_Failed` where another try may help."""
    import httpx2  # heavy

    if isinstance(error, TimeoutError):
        return sending.error(
            f"no complete answer within {sending.timeout:g} s",
            ErrorKind.TIMEOUT,
            "Try again, ask for less at once, or allow more time with the option `timeout`.",
            passing=True,
        )
    if isinstance(error, httpx2.ReadTimeout):
        return sending.error(
            f"nothing came for {sending.silence:g} s",
            ErrorKind.TIMEOUT,
            "Try again, or choose another model with --model.",
            passing=True,
        )
    if isinstance(error, httpx2.InvalidURL | httpx2.UnsupportedProtocol | httpx2.LocalProtocolError):
        return sending.error(
            "the request cannot be sent there",
            ErrorKind.CONFIG,
            "Check the base URL: http:// or https://, a host, and a path such as /v1.",
        )
    if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
        late = isinstance(error, httpx2.ConnectTimeout)
        why = f" within {CONNECT:g} s" if late else f": {shown(str(error), sending.mask)}"
        suggestion = "Check that the server runs, the base URL, and the network."
        return _Failed(sending.error(f"no connection{why}", ErrorKind.SYSTEM, suggestion, passing=True))
    if begun:
        return _passing(sending, "the connection broke in the middle of the answer")
    return _Failed(_passing(sending, "the connection broke before the answer"))


def _passing(sending: _Sending, what: str) -> ProviderError:
    return sending.error(what, ErrorKind.SYSTEM, "Try again in a moment.", passing=True)


def _given_up(error: ProviderError, attempt: int, delay: float) -> ProviderError:
    if delay > LONGEST_WAIT:
        error.suggestion = (
            f"The server asks to wait {delay:.0f} s; try again then, or choose another model with --model."
        )
    if attempt > 1:
        error.message = f"{error.message} (tried {attempt} times)"
    return error


def _written(body: dict[str, Any], label: str) -> bytes:
    try:
        return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode(errors="replace")
    except (TypeError, ValueError, RecursionError) as error:
        raise ProviderError(
            f"asking {label}: the request cannot be written as JSON: {shown(str(error), str)}",
            ErrorKind.VALIDATION,
            "Use only texts, finite numbers, lists and objects in the options.",
        ) from None


def _host(url: str) -> str:
    """What of a URL may be shown: the rest may hold a key."""
    try:
        parts = urlsplit(url)
        return f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname or "an unknown host"
    except ValueError:
        return "an unknown host"


def _mask(headers: Mapping[str, str]) -> Mask:
    """Hides whatever these headers carry, except in those known to be harmless."""
    secrets = Secrets()
    for name, value in headers.items():
        if name.lower() not in _HARMLESS:
            secrets.add(*(part for part in (value, value.rpartition(" ")[2]) if len(part) >= SHORTEST))
    return secrets.mask_all
