"""Posts a request and streams the events of its answer, with bounded retries."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from forge.core.errors import ErrorKind
from forge.core.provider import ProviderError
from forge.models.http.errors import LONGEST, BrokeOff, broke_off, refused, refused_inside, said_in_body, shown
from forge.models.http.sending import Sending, host_of, mask_for, written_body
from forge.models.http.sse import Event, EventReader, TooLong
from forge.models.http.waits import LONGEST_WAIT, asked_to_wait, delay_before
from forge.network.model_client import model_client

if TYPE_CHECKING:  # heavy: loaded by the first request
    import httpx2

CONNECT = 10.0  # seconds
SILENCE = 120.0  # seconds between two pieces of an answer
LONGEST_ANSWER = 256 * 1024 * 1024  # bytes

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
    sending = Sending(url, headers, written_body(body, label), timeout, silence, f"asking {label} at {host_of(url)}")
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
    return broke_off(error, f"asking {label} at {host_of(url)}", mask_for(headers))


class _Failed(Exception):
    """A try that failed before its first event, in a way that may pass. `after`: how long the server says to wait."""

    def __init__(self, error: ProviderError, after: float | None = None) -> None:
        super().__init__()
        self.error, self.after = error, after


async def _answer(sending: Sending) -> AsyncGenerator[Event, None]:
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


async def _sent(sending: Sending) -> httpx2.Response:
    """The answer, once its status is known to be good."""
    import httpx2  # heavy

    client = await model_client(secure=sending.url[:5].lower() == "https")
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
        if response.is_success:
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


async def _events(response: httpx2.Response, sending: Sending) -> AsyncGenerator[Event, None]:
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


def _refuse_error(event: Event, sending: Sending) -> None:
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


def _broken(sending: Sending, error: Exception, begun: bool) -> ProviderError | _Failed:
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
        make = BrokeOff if begun else ProviderError
        return make(
            f"{sending.asked}: nothing came for {sending.silence:g} s",
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
    if isinstance(error, httpx2.ConnectError) and "SSL" in str(error):
        return sending.error(
            f"no secure connection: {shown(str(error), sending.mask)}",
            ErrorKind.CONFIG,
            "Check the base URL (http or https?) and the certificates: FORGE_TRUST_ENV=1 makes SSL_CERT_FILE count.",
        )
    if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
        late = isinstance(error, httpx2.ConnectTimeout)
        why = f" within {CONNECT:g} s" if late else f": {shown(str(error), sending.mask)}"
        suggestion = "Check that the server runs, the base URL, and the network."
        return _Failed(sending.error(f"no connection{why}", ErrorKind.SYSTEM, suggestion, passing=True))
    if begun:
        what = f"{sending.asked}: the connection broke in the middle of the answer"
        return BrokeOff(what, ErrorKind.SYSTEM, "Try again in a moment.", passing=True)
    return _Failed(_passing(sending, "the connection broke before the answer"))


def _passing(sending: Sending, what: str) -> ProviderError:
    return sending.error(what, ErrorKind.SYSTEM, "Try again in a moment.", passing=True)


def _given_up(error: ProviderError, attempt: int, delay: float) -> ProviderError:
    if delay > LONGEST_WAIT:
        error.suggestion = (
            f"The server asks to wait {delay:.0f} s; try again then, or choose another model with --model."
        )
    if attempt > 1:
        error.message = f"{error.message} (tried {attempt} times)"
    return error
