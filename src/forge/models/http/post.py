"""Posts a request and streams the events of its answer, with bounded retries."""

from __future__ import annotations

import asyncio
import json
import math
import random
import re
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from email.utils import parsedate_to_datetime
from functools import lru_cache
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from forge.core.errors import ErrorKind, ToolError
from forge.core.events import Retrying
from forge.core.provider import ProviderError
from forge.models.http.events import AWS_EVENTS, AwsEventReader, EventReader, EventTooLong, SentEvent
from forge.models.http.outgoing import (
    LONGEST_READ,
    BrokeOff,
    OutgoingRequest,
    Sign,
    broke_off_error,
    clean_message,
    encode_body,
    error_in_stream,
    host_of,
    mask_for,
    read_error_body,
    refuse_in_tests,
    status_error,
)
from forge.network.address import read_url
from forge.network.body import Unpacker, read_encodings
from forge.network.egress import Egress
from forge.network.headers import build_headers

if TYPE_CHECKING:
    import httpcore2


CONNECT = 10.0  # seconds
SILENCE = 120.0  # seconds between two pieces of an answer
LONGEST_ANSWER = 256 * 1024 * 1024  # bytes

__all__ = ["SentEvent", "drain", "post_stream", "stream_error"]


async def post_stream(
    url: str,
    *,
    headers: Mapping[str, str],
    body: dict[str, Any],
    label: str,
    attempts: int = 5,
    timeout: float = 600.0,
    silence: float = SILENCE,
    sign: Sign | None = None,
) -> AsyncGenerator[SentEvent | Retrying, None]:
    """Yields the answer's server-sent events; an answer in plain JSON is one event.

    Before the first event a passing failure is retried, with `attempts` requests in all; later failures are raised.
    Each retry is announced by a `Retrying`, before its wait. The provider yields it as it is.
    `timeout` bounds everything, waits included; `silence` the time between two pieces. Closing the generator closes
    the connection. Raises `ProviderError`; its text never holds the values of `headers`, known harmless ones excepted.
    """
    action = f"asking {label} at {host_of(url)}"
    refuse_in_tests(action)
    sending = OutgoingRequest(url, headers, encode_body(body, label), timeout, silence, action, sign)
    sending.check()
    for attempt in range(1, attempts + 1):
        try:
            async with aclosing(_try_once(sending)) as events:
                async for event in events:
                    yield event
            return
        except _AttemptFailed as failed:
            delay = delay_before(attempt, failed.after)
            last = attempt == attempts or delay > LONGEST_WAIT or delay > sending.left
            error = failed.error
        if last:
            raise _give_up_error(error, attempt, delay)
        yield Retrying(error.message, attempt, round(delay, 3), error.status)
        await pause(delay)


async def pause(seconds: float) -> None:
    """Waits between two tries."""
    await asyncio.sleep(seconds)


async def drain(events: AsyncGenerator[Any, None], seconds: float = 0.1) -> None:
    """Reads to the end after the last relevant event, so that the connection can be used again."""
    try:
        async with asyncio.timeout(seconds):
            async for _ in events:
                pass
    except (TimeoutError, ProviderError):
        pass


def stream_error(error: Any, *, url: str, headers: Mapping[str, str], label: str) -> ProviderError:
    """Returns the error to raise for an error object inside a stream."""
    return broke_off_error(error, f"asking {label} at {host_of(url)}", mask_for(headers))


class _AttemptFailed(Exception):
    """A try failed before its first event and may succeed later. `after`: the wait that the server requests."""

    def __init__(self, error: ProviderError, after: float | None = None) -> None:
        super().__init__()
        self.error, self.after = error, after


async def _try_once(sending: OutgoingRequest) -> AsyncGenerator[SentEvent, None]:
    """Makes one try. Raises `_AttemptFailed` if another may help."""
    import httpcore2  # heavy

    begun = False
    problem: ProviderError | _AttemptFailed | None
    try:
        response, headers = await _send(sending)
        try:
            reader = await _choose_reader(response, headers, sending)
            received = 0
            with StreamDeadline(sending.left) as deadline:
                async with aclosing(response.aiter_stream()) as chunks:
                    while True:
                        deadline.begin()
                        try:
                            chunk = await anext(chunks, None)
                        except asyncio.CancelledError as error:
                            raise deadline.explain(error) from None
                        deadline.end()
                        received += len(chunk) if chunk is not None else 0
                        for event in _read_events(reader, chunk, received, sending):
                            if not begun:
                                _refuse_error(event, sending)
                            begun = True
                            yield event
                        if chunk is None:
                            break
        finally:
            await response.aclose()
        problem = None if begun else _AttemptFailed(_passing_error(sending, "the response was empty"))
    except (
        TimeoutError,
        httpcore2.TimeoutException,
        httpcore2.NetworkError,
        httpcore2.ProtocolError,
        httpcore2.ProxyError,
    ) as error:
        problem = _connection_error(sending, error, begun)
    if problem is not None:  # raised here, so that its context holds no exception that knows the headers
        raise problem


@lru_cache(maxsize=64)
def _own_egress(url: str) -> Egress:
    """Returns an egress for the server that a person configured, private or not."""
    return Egress.only(url)


async def _send(sending: OutgoingRequest) -> tuple[httpcore2.Response, dict[str, str]]:
    """Sends the request; returns the response after its status is known to be good, and its headers."""
    from forge.network.connections import send  # heavy

    given = {name.lower(): value for name, value in (await sending.authorise()).items()}
    asked = {
        "accept": "text/event-stream, application/json",
        "accept-encoding": "identity",
        **given,
        "content-type": "application/json",
    }
    async with asyncio.timeout(sending.left):
        try:
            url = read_url(sending.url)
            response = await send(
                "POST",
                url,
                _own_egress(sending.url),
                headers=build_headers(url, [*asked.items()], sending.content, "POST"),
                content=sending.content,
                timeout={"connect": CONNECT, "read": sending.silence, "write": sending.silence},
                most=None,  # long answers occupy connections
            )
        except ToolError as error:
            raise _refusal_error(sending, error) from None
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
        if 200 <= response.status < 300:
            return response, headers
        raw = await _read_start(response, headers)
    said = read_error_body(raw, headers.get("content-type", ""), sending.mask)
    problem = status_error(response.status, said, sending.action)
    if problem.passing and headers.get("x-should-retry") != "false":
        raise _AttemptFailed(problem, read_retry_after(headers) or read_retry_delay(raw))
    raise problem


async def _read_start(response: httpcore2.Response, headers: Mapping[str, str]) -> bytes:
    """Reads the part of a body that is worth showing, and closes the response."""
    import httpcore2  # heavy

    unpacker: Unpacker | None = None
    try:
        unpacker = Unpacker(read_encodings(headers.get("content-encoding", "")), LONGEST_READ)
        async with aclosing(response.aiter_stream()) as chunks:
            async for chunk in chunks:
                unpacker.feed(chunk)
                if unpacker.full:
                    break
    except (ToolError, httpcore2.TimeoutException, httpcore2.NetworkError, httpcore2.ProtocolError):
        pass  # the part received is enough
    finally:
        await response.aclose()
    return bytes(unpacker.body) if unpacker is not None else b""


async def _choose_reader(
    response: httpcore2.Response, headers: Mapping[str, str], sending: OutgoingRequest
) -> StreamReader:
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "text/html":
        async with asyncio.timeout(sending.left):
            said = read_error_body(await _read_start(response, headers), kind, sending.mask)
        raise sending.error(
            f"the server sent a web page instead of a response: {said.text}",
            ErrorKind.CONFIG,
            "Check the base URL; for most servers it ends in /v1.",
        )
    reader = _READERS.get(kind, EventReader)()
    if "content-encoding" not in headers:
        return reader
    try:
        return _UnpackingReader(reader, headers["content-encoding"])
    except ToolError as error:
        raise sending.error(error.message, ErrorKind.SYSTEM, error.suggestion) from None


def _read_events(reader: StreamReader, chunk: bytes | None, received: int, sending: OutgoingRequest) -> list[SentEvent]:
    """Returns the events that are complete with this chunk; None is the end."""
    try:
        if received > LONGEST_ANSWER:
            raise EventTooLong
        return reader.finish() if chunk is None else reader.feed(chunk)
    except EventTooLong:
        raise sending.error(
            "the response is too long to store",
            ErrorKind.SYSTEM,
            "Choose another model or server: this one sends far too much data.",
        ) from None
    except ToolError as error:
        raise sending.error(error.message, ErrorKind.SYSTEM, error.suggestion) from None


class StreamReader(Protocol):
    """Turns the bytes of an answer into events."""

    def feed(self, chunk: bytes) -> list[SentEvent]: ...

    def finish(self) -> list[SentEvent]: ...


class _JsonReader:
    """Collects an answer that is one JSON text, as one event."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, chunk: bytes) -> list[SentEvent]:
        self._parts.append(chunk)
        return []

    def finish(self) -> list[SentEvent]:
        text = b"".join(self._parts).decode(errors="replace")
        return [SentEvent("message", text)] if text.strip() else []


class _UnpackingReader:
    """Unpacks an answer that is compressed although Forge asked for a plain one."""

    def __init__(self, reader: StreamReader, encodings: str) -> None:
        self._reader = reader
        self._unpacker = Unpacker(read_encodings(encodings), LONGEST_ANSWER)

    def feed(self, chunk: bytes) -> list[SentEvent]:
        self._unpacker.feed(chunk)
        if self._unpacker.full:
            raise EventTooLong
        plain = bytes(self._unpacker.body)
        self._unpacker.body.clear()
        return self._reader.feed(plain)

    def finish(self) -> list[SentEvent]:
        self._unpacker.finish()
        return self._reader.finish()


_READERS: dict[str, Callable[[], StreamReader]] = {"application/json": _JsonReader, AWS_EVENTS: AwsEventReader}


def _refuse_error(event: SentEvent, sending: OutgoingRequest) -> None:
    """Raises for an error object as the first event, as for an error status."""
    if event.name != "error" and '"error"' not in event.data:
        return
    try:
        found = json.loads(event.data)
    except (ValueError, RecursionError):
        found = event.data
    inner = found.get("error") if isinstance(found, dict) else None
    if not inner and event.name != "error":
        return
    error = error_in_stream(inner or found, sending.action, sending.mask)
    raise _AttemptFailed(error) if error.passing else error


def _connection_error(sending: OutgoingRequest, error: Exception, begun: bool) -> ProviderError | _AttemptFailed:
    """Returns the error for a failed connection, or `_AttemptFailed` if another try may help."""
    import httpcore2  # heavy

    if isinstance(error, TimeoutError):
        return sending.error(
            f"no complete response within {sending.timeout:g} s",
            ErrorKind.TIMEOUT,
            "Try again, send a smaller request, or allow more time with the option `timeout`.",
            passing=True,
        )
    if isinstance(error, httpcore2.ReadTimeout):
        make = BrokeOff if begun else ProviderError
        return make(
            f"{sending.action}: no data for {sending.silence:g} s",
            ErrorKind.TIMEOUT,
            "Try again, or choose another model with --model.",
            passing=True,
        )
    if isinstance(error, httpcore2.LocalProtocolError):
        return sending.error(
            "the request cannot be sent there",
            ErrorKind.CONFIG,
            "Check the base URL: http:// or https://, a host, and a path such as /v1.",
        )
    if isinstance(error, httpcore2.ConnectError) and "SSL" in str(error):
        return sending.error(
            f"no secure connection: {clean_message(str(error), sending.mask)}",
            ErrorKind.CONFIG,
            "Check the base URL (http or https?) and the certificates: with FORGE_TRUST_ENV=1, Forge uses"
            " SSL_CERT_FILE.",
        )
    if isinstance(error, httpcore2.ConnectError | httpcore2.ConnectTimeout | httpcore2.ProxyError):
        late = isinstance(error, httpcore2.ConnectTimeout)
        why = f" within {CONNECT:g} s" if late else f": {clean_message(str(error), sending.mask)}"
        suggestion = "Check that the server is running, the base URL, and the network."
        return _AttemptFailed(sending.error(f"no connection{why}", ErrorKind.SYSTEM, suggestion, passing=True))
    if begun:
        what = f"{sending.action}: the connection broke in the middle of the response"
        return BrokeOff(what, ErrorKind.SYSTEM, "Try again in a moment.", passing=True)
    return _AttemptFailed(_passing_error(sending, "the connection broke before the response"))


def _refusal_error(sending: OutgoingRequest, error: ToolError) -> ProviderError | _AttemptFailed:
    """Returns the error for a request that was not sent: its URL is none, leads nowhere, or is not allowed."""
    if error.kind in (ErrorKind.SYSTEM, ErrorKind.NOT_FOUND):
        suggestion = "Check that the server is running, the base URL, and the network."
        problem = sending.error(f"no connection: {error.message}", ErrorKind.SYSTEM, suggestion, passing=True)
        return _AttemptFailed(problem)
    return sending.error(
        f"the request cannot be sent there: {clean_message(error.message, sending.mask)}",
        ErrorKind.CONFIG,
        "Check the base URL: http:// or https://, a host, and a path such as /v1.",
    )


def _passing_error(sending: OutgoingRequest, what: str) -> ProviderError:
    return sending.error(what, ErrorKind.SYSTEM, "Try again in a moment.", passing=True)


def _give_up_error(error: ProviderError, attempt: int, delay: float) -> ProviderError:
    if delay > LONGEST_WAIT:
        error.suggestion = (
            f"The server asks to wait {delay:.0f} s; try again then, or choose another model with --model."
        )
    if attempt > 1:
        error.message = f"{error.message} (tried {attempt} times)"
    return error


# --- Computes the backoff before another try: the server's request, or a growing pause.


LONGEST_WAIT = 60.0  # seconds a server may ask us to wait before another try
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 8.0  # seconds between tries when it does not say


def delay_before(attempt: int, requested: float | None) -> float:
    """Returns the seconds to wait after so many tries, with jitter, so that clients do not return together."""
    if requested is None:
        return float(min(FIRST_PAUSE * 2 ** (attempt - 1), LONGEST_PAUSE)) * random.uniform(0.5, 1.0)  # noqa: S311
    if requested > LONGEST_WAIT:
        return requested
    return min(requested * random.uniform(1.0, 1.1), LONGEST_WAIT)  # noqa: S311


def read_retry_after(headers: Mapping[str, str]) -> float | None:
    """Reads the wait in seconds from milliseconds, seconds or a date; None if the header is absent or invalid."""
    written = headers.get("retry-after", "")
    milliseconds = _number(headers.get("retry-after-ms", ""))
    seconds = _number(written) if milliseconds is None else milliseconds / 1000
    if seconds is None:
        seconds = _seconds_until(written)
    return seconds if seconds is not None and seconds > 0 else None


def read_retry_delay(body: bytes) -> float | None:
    """Reads the wait in seconds from an error's body, where Google's servers write it: `"retryDelay": "34s"`."""
    found = re.search(rb'"retryDelay"\s*:\s*"(\d{1,6}(?:\.\d{1,9})?)s"', body)
    seconds = float(found[1]) if found else 0.0
    return seconds if seconds > 0 else None


def _number(written: str) -> float | None:
    try:
        number = float(written)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _seconds_until(written: str) -> float | None:
    try:
        return parsedate_to_datetime(written).timestamp() - time.time()
    except (ValueError, TypeError, OverflowError, OSError):
        return None


# --- Ends the reading of a stream at its deadline, with one timer for the whole stream.


class StreamDeadline:
    """Cancels the wait for the next piece when time is up.

    `asyncio.timeout` cannot be held over a `yield`, and one for every piece costs as much as reading it. Use: `begin()`
    right before the wait, `end()` right after it. The wait then raises `TimeoutError`, as `check` does.
    """

    def __init__(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.Task[object] | None = None
        self._is_over = False
        self._timer = self._loop.call_later(seconds, self._end_time)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()

    def begin(self) -> None:
        if self._is_over:
            raise TimeoutError
        self._waiting = asyncio.current_task()

    def end(self) -> None:
        self._waiting = None

    def explain(self, error: asyncio.CancelledError) -> BaseException:
        """Returns the error to raise for a cancelled wait: a `TimeoutError` if this deadline cancelled it."""
        task, self._waiting = self._waiting, None
        if self._is_over and task is not None and task.uncancel() == 0:
            return TimeoutError()
        return error

    def _end_time(self) -> None:
        self._is_over = True
        if self._waiting is not None:
            self._waiting.cancel()
